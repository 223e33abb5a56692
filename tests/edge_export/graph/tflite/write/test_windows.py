"""Convolutions and pools of any geometry: the same numbers as onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_export.graph.tflite.convert import convert
from edge_export.graph.tflite.errors import UnsupportedNodeError
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.edge_export.graph.tflite.compare import Net, operators, same


def geometry(pick: Any, *, pad: int = 3) -> tuple[int, dict[str, list[int]]]:
    """Number of axes, and kernel, strides, dilations and pads along them."""
    axes = pick(st.integers(1, 2), label="axes")

    def each(low: int, high: int, count: int, label: str) -> list[int]:
        return list(pick(st.lists(st.integers(low, high), min_size=count, max_size=count), label=label))

    return axes, {
        "kernel_shape": each(1, 5, axes, "kernel"),
        "strides": each(1, 3, axes, "strides"),
        "dilations": each(1, 3, axes, "dilations"),
        "pads": each(0, pad, 2 * axes, "pads"),
    }


@pytest.mark.slow
@given(st.data())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_any_convolution(data: st.DataObject) -> None:
    pick = data.draw
    axes, place = geometry(pick)
    groups = pick(st.sampled_from([1, 2, 3, 6]), label="groups")
    before = 6
    after = groups * pick(st.integers(1, 3), label="outputs per group")
    sizes = (24,) if axes == 1 else (13, 17)
    b = Net(before, *sizes, seed=pick(st.integers(0, 99)))
    kernel = place.pop("kernel_shape")
    t = b.conv("window", before, after, *kernel, group=groups, **place)
    if pick(st.booleans(), label="activation"):
        t = b.node("Relu", t)
    same(b.finish(t))


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_automatic_padding(mode: str, stride: int) -> None:
    b = Net(3, 11)
    t = b.conv("window", 3, 4, 4, strides=[stride], auto_pad=mode)
    pooled = b.node("MaxPool", t, kernel_shape=[2], strides=[stride], auto_pad=mode)
    written = same(b.finish(t, pooled))
    padded = {"PAD", "PADV2"} & set(operators(written))
    assert bool(padded) == (mode == "SAME_LOWER")


def test_a_causal_convolution_is_one_pad_and_one_convolution() -> None:
    b = Net(3, 20)
    t = b.node("Pad", b.conv("window", 3, 4, 1), b.ints(0, 0, 8, 0, 0, 0))
    written = same(b.finish(b.node("Relu", b.conv(t, 4, 4, 3, dilations=[4]))))
    assert operators(written) == ["TRANSPOSE", "RESHAPE", "CONV_2D", "PAD", "CONV_2D", "RESHAPE", "TRANSPOSE"]


@given(st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_transposed_convolution(data: st.DataObject) -> None:
    pick = data.draw
    axes, place = geometry(pick, pad=1)
    kernel = place.pop("kernel_shape")
    extra = [pick(st.integers(0, stride - 1), label="output padding") for stride in place["strides"]]
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, place["dilations"], strict=True)]
    assume(all(r > 2 for r in reach))
    groups = pick(st.sampled_from([1, 2]), label="groups")
    sizes = (9,) if axes == 1 else (5, 7)
    b = Net(4, *sizes, seed=pick(st.integers(0, 99)))
    weights = b.weights(4, 3, *kernel)
    t = b.node("ConvTranspose", "window", weights, b.weights(3 * groups), group=groups, output_padding=extra, **place)
    same(b.finish(t), open_batch=False)


@pytest.mark.slow
@given(st.data())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_any_pool(data: st.DataObject) -> None:
    pick = data.draw
    axes, place = geometry(pick, pad=2)
    place.pop("dilations")
    kernel = place["kernel_shape"]
    assume(all(p < k for p, k in zip(place["pads"], kernel * 2, strict=True)))
    sizes = (11,) if axes == 1 else (7, 10)
    ceil = pick(st.integers(0, 1), label="ceil")
    assume(not ceil or not last_window_is_padding(sizes, place))
    average = pick(st.booleans(), label="average")
    b = Net(3, *sizes)
    extra = {"count_include_pad": pick(st.integers(0, 1), label="count")} if average else {}
    name = "AveragePool" if average else "MaxPool"
    same(b.finish(b.node(name, "window", ceil_mode=ceil, **place, **extra)))


def last_window_is_padding(sizes: tuple[int, ...], place: dict[str, list[int]]) -> bool:
    for axis, size in enumerate(sizes):
        kernel, stride, before = place["kernel_shape"][axis], place["strides"][axis], place["pads"][axis]
        total = size + before + place["pads"][len(sizes) + axis]
        if -(-(total - kernel) // stride) * stride >= size + before:
            return True
    return False


def test_a_window_on_padding_alone_is_refused() -> None:
    """onnx counts it in the sizes, onnxruntime leaves it out."""
    b = Net(3, 10)
    model = b.finish(b.node("MaxPool", "window", kernel_shape=[3], strides=[2], pads=[0, 2], ceil_mode=1))
    with pytest.raises(UnsupportedNodeError, match="last window lies on padding alone"):
        convert(model)


def test_global_pools() -> None:
    for sizes in ((9,), (5, 6)):
        b = Net(3, *sizes)
        t = b.conv("window", 3, 3, *[1] * len(sizes))
        results = [b.node(name, x) for name in ("GlobalAveragePool", "GlobalMaxPool") for x in ("window", t)]
        same(b.finish(*results, b.node("Flatten", results[1])))


def test_weights_are_stored_once() -> None:
    """Siamese branches, and every step of a recurrent layer, share their weights."""
    b = Net(4, 10)
    weights, bias = b.weights(64, 4, 5), b.weights(64)
    parts = b.nodes_of("Split", "window", outputs=2, axis=2, num_outputs=2)
    results = [b.node("Conv", part, weights, bias) for part in parts]
    assert len(same(b.finish(b.node("Add", *results)))) < 2 * 64 * 4 * 5 * np.float32().itemsize
