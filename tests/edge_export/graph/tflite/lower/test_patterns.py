"""Formulas of several nodes that are written in another way than they stand in the graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from edge_export.graph.tflite.convert import convert

from tests.edge_export.graph.tflite.compare import Net, on_onnx, on_tflite, operators
from tests.edge_export.graph.tflite.nets import in_two_passes

Array = np.ndarray
_EPSILON = 1e-5


def _drifted(batch: int = 1) -> Array:
    """Windows of four channels with a spread of a thousandth of their size and less."""
    noise = np.random.default_rng(0).standard_normal((batch, 4, 16))
    return (np.array([[2], [-10], [100], [0]]) + np.array([[0.003], [0.01], [0.1], [1]]) * noise).astype(np.float32)


def _standardised(x: Array, groups: int, epsilon: float = _EPSILON) -> Array:
    """In float64, from differences to the mean."""
    rows = x.astype(np.float64).reshape(len(x), groups, -1)
    centred = rows - rows.mean(2, keepdims=True)
    standardised: Array = centred / np.sqrt((centred**2).mean(2, keepdims=True) + epsilon)
    return standardised.reshape(x.shape)


def _group_norm(groups: int, opset: int) -> onnx.ModelProto:
    b = Net(4, 16, opset=opset)
    scales = groups if opset < 21 else 4
    ones, zeros = b.constant(np.ones(scales, np.float32)), b.constant(np.zeros(scales, np.float32))
    return b.finish(b.node("GroupNormalization", "window", ones, zeros, num_groups=groups), strict=False)


@pytest.mark.parametrize("opset", [18, 21])
def test_a_norm_of_groups_keeps_a_spread_far_smaller_than_the_numbers(opset: int) -> None:
    x = _drifted(2)
    answer = on_tflite(convert(_group_norm(4, opset)), {"window": x}, 2)[0]
    np.testing.assert_allclose(answer, _standardised(x, 4), atol=1e-3)


def test_a_norm_by_mean_and_variance_keeps_a_spread_far_smaller_than_the_numbers() -> None:
    b, x = Net(4, 16, opset=21, batch=1), _drifted()
    model = b.finish(b.node("MeanVarianceNormalization", "window", axes=[0, 2]))
    answer = on_tflite(convert(model), {"window": x})[0]
    np.testing.assert_allclose(answer, on_onnx(model, {"window": x})[0], atol=1e-3)
    np.testing.assert_allclose(answer, _standardised(x, 4, 0), atol=1e-3)


def _square(b: Net, t: str, form: str) -> str:
    return b.node("Mul", t, t) if form == "Mul" else b.node("Pow", t, b.number(2))


@pytest.mark.parametrize("form", ["Mul", "Pow"])
@pytest.mark.parametrize("opset", [17, 20])
def test_a_variance_from_means_of_squares_is_written_from_differences(form: str, opset: int) -> None:
    b, x = Net(4, 16, opset=opset), _drifted(2)
    mean, power = (_mean(b, t, 2) for t in ("window", _square(b, "window", form)))
    written = convert(b.finish(b.node("Sub", power, _square(b, mean, form))))
    expected = x.astype(np.float64).var(2, keepdims=True)
    np.testing.assert_allclose(on_tflite(written, {"window": x}, 2)[0], expected, rtol=1e-3)
    assert operators(written) == ["MEAN", "SUB", "MUL", "MEAN"]


def _mean(b: Net, t: str, axis: int, **settings: int) -> str:
    if b.opset < 18:
        return b.node("ReduceMean", t, axes=[axis], **settings)
    return b.node("ReduceMean", t, b.ints(axis), **settings)


def _other_axis(b: Net) -> str:
    return b.node("Sub", _mean(b, _square(b, "window", "Mul"), 1), _square(b, _mean(b, "window", 2), "Mul"))


def _without_the_axis(b: Net) -> str:
    mean, power = (_mean(b, t, 2, keepdims=0) for t in ("window", _square(b, "window", "Mul")))
    return b.node("Sub", power, _square(b, mean, "Mul"))


def _other_tensor(b: Net) -> str:
    mean = _mean(b, b.node("Relu", "window"), 2)
    return b.node("Sub", _mean(b, _square(b, "window", "Mul"), 2), _square(b, mean, "Mul"))


def _cubes(b: Net) -> str:
    power = _mean(b, b.node("Pow", "window", b.number(3)), 2)
    return b.node("Sub", power, _square(b, _mean(b, "window", 2), "Mul"))


@pytest.mark.parametrize("build", [_other_axis, _without_the_axis, _other_tensor, _cubes])
@pytest.mark.parametrize("opset", [17, 20])
def test_what_only_looks_like_a_variance_is_left(build: Callable[[Net], str], opset: int) -> None:
    b = Net(4, 4, opset=opset)
    model = b.finish(build(b))
    x = np.random.default_rng(1).standard_normal((2, 4, 4)).astype(np.float32)
    written = convert(model)
    np.testing.assert_allclose(on_tflite(written, {"window": x}, 2)[0], on_onnx(model, {"window": x})[0], atol=1e-5)
    assert operators(written)[-1] == "SUB"


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_the_reference_for_norms_of_groups_is_close_to_float64(groups: int) -> None:
    """The check itself: random networks are compared with this form, since onnxruntime's own drowns in rounding."""
    x, model = _drifted(2), _group_norm(groups, 21)
    exact = _standardised(x, groups)
    body, reference = (np.abs(on_onnx(m, {"window": x})[0] - exact).max() for m in (model, in_two_passes(model)))
    assert reference < 1e-3
    if groups == 4:
        assert body > 0.1, "onnxruntime computes the norm well now: compare with it as it is"
