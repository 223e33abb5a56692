"""Equalisation: the same function, better channels, and a badly scaled depthwise net that int8 can hold again."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.run import answers
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.equalize import equalize
from edge_export.graph.quantize.mixed import sqnr_db
from edge_export.graph.quantize.ranges import calibrate
from edge_export.graph.quantize.write import prepare, write
from onnx import numpy_helper

from tests.edge_export.graphs import GraphBuilder, device_net, windows

PER_LAYER = Scheme(activations="uint8", weight_bits=8, per_channel=False)


def badly_scaled(seed: int = 0) -> onnx.ModelProto:
    """A separable net whose channels were scaled by up to 300 and back: the same function, hard to round."""
    random = np.random.default_rng(seed)
    model = prepare(canonicalise(device_net(seed=seed)))
    arrays = {tensor.name: numpy_helper.to_array(tensor).copy() for tensor in model.graph.initializer}
    convs = [node for node in model.graph.node if node.op_type == "Conv"]
    for one, other in itertools.pairwise(convs):
        factors = np.exp(random.uniform(-1, 1, len(arrays[one.input[1]])) * np.log(17)).astype(np.float32)
        arrays[one.input[1]] *= factors.reshape(-1, 1, 1)
        arrays[one.input[2]] *= factors
        depthwise = any(a.name == "group" and a.i > 1 for a in other.attribute)
        arrays[other.input[1]] /= factors.reshape((-1, 1, 1) if depthwise else (1, -1, 1))
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(arrays[tensor.name], tensor.name))
    return model


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("with_windows", [True, False])
def test_a_badly_scaled_depthwise_net_is_rescued(seed: int, with_windows: bool) -> None:
    model, x = badly_scaled(seed), windows(128, 3, 40)
    equalized = equalize(model, x if with_windows else None)
    np.testing.assert_allclose(answers(equalized.model, x), answers(model, x), atol=1e-5)
    assert equalized.pairs == (("Conv_1", "Conv_3"), ("Conv_3", "Conv_5"), ("Conv_5", "Gemm_9"))
    assert equalized.precision_after > 1.5 * equalized.precision_before
    unseen = windows(128, 3, 40, seed=7)
    before, after = (
        sqnr_db(answers(model, unseen), answers(write(m, calibrate(m, x), PER_LAYER), unseen))
        for m in (model, equalized.model)
    )
    assert after > before + 6
    assert after > 28


@pytest.mark.parametrize("seed", range(3))
def test_a_well_scaled_net_loses_nothing_that_matters(seed: int) -> None:
    model, x = prepare(canonicalise(device_net(seed=seed))), windows(128, 3, 40)
    equalized = equalize(model, x).model
    before, after = (
        sqnr_db(answers(model, x), answers(write(m, calibrate(m, x), PER_LAYER), x)) for m in (model, equalized)
    )
    assert after > before - 3


def test_ranges_meet_in_the_middle() -> None:
    """Afterwards both sides use the same range in every channel (their eq. 12)."""
    model = badly_scaled()
    arrays = {t.name: numpy_helper.to_array(t) for t in equalize(model).model.graph.initializer}
    one, other = [node for node in model.graph.node if node.op_type == "Conv"][:2]
    np.testing.assert_allclose(
        np.abs(arrays[one.input[1]]).max(axis=(1, 2)), np.abs(arrays[other.input[1]]).max(axis=(1, 2)), rtol=0.02
    )


def test_activations_grow_no_further_than_they_were() -> None:
    model, x = badly_scaled(), windows(128, 3, 40)
    before, after = calibrate(model, x), calibrate(equalize(model, x).model, x)
    behind = [name for node in model.graph.node if node.op_type == "Relu" for name in node.output]
    assert all(after[name][1] <= before[name][1] * 1.001 for name in behind)


def test_channels_pass_pools_and_a_flatten_with_many_columns_each() -> None:
    b = GraphBuilder(3, 16)
    t = b.node("LeakyRelu", b.conv("window", 3, 6, 3, pads=[1, 1]), alpha=0.2)
    t = b.node("MaxPool", t, kernel_shape=[4], strides=[4])
    model = prepare(b.model(b.dense(b.node("Flatten", t), 24, 5)))
    x = windows(32, 3, 16)
    equalized = equalize(model, x)
    assert len(equalized.pairs) == 1
    np.testing.assert_allclose(answers(equalized.model, x), answers(model, x), atol=1e-5)
    assert any(
        (numpy_helper.to_array(a) != numpy_helper.to_array(c)).any()
        for a, c in zip(
            sorted(model.graph.initializer, key=lambda t: t.name),
            sorted(equalized.model.graph.initializer, key=lambda t: t.name),
            strict=True,
        )
    )


@pytest.mark.parametrize("between", ["Sigmoid", "Clip", "branch", "Transpose"])
def test_what_does_not_commute_ends_a_pair(between: str) -> None:
    b = GraphBuilder(3, 3)
    t = b.conv("window", 3, 3, 1)
    if between == "branch":
        t = b.node("Add", t, b.conv(t, 3, 3, 1))
    elif between == "Clip":
        t = b.node("Clip", t, b.constant(np.float32(0)), b.constant(np.float32(6)))
    else:
        t = b.node(between, t, **({"perm": [0, 2, 1]} if between == "Transpose" else {}))
    model = prepare(b.model(b.conv(t, 3, 3, 1)))
    equalized = equalize(model)
    assert equalized.pairs == ()
    assert equalized.model.SerializeToString() == model.SerializeToString()


def test_dead_channels_stay_dead() -> None:
    model = prepare(canonicalise(device_net()))
    conv = next(node for node in model.graph.node if node.op_type == "Conv")
    for tensor in model.graph.initializer:
        if tensor.name in conv.input[1:3]:
            array = numpy_helper.to_array(tensor).copy()
            array[2] = 0
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    x = windows(16, 3, 40)
    equalized = equalize(model, x)
    np.testing.assert_allclose(answers(equalized.model, x), answers(model, x), atol=1e-5)
