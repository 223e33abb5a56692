"""Four bits: the same numbers in fewer bytes, and no claim that the whole file does not keep."""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx
import pytest
from edge_export.onnx_graph.graph import answers
from edge_export.onnx_graph.passes.canonicalise import clean
from edge_export.quantize import Scheme
from edge_export.quantize.adaround import Rounded, Rounding, adaround
from edge_export.quantize.mixed import sqnr_db
from edge_export.quantize.ranges import calibrate
from edge_export.quantize.weights4 import in_blocks, size_of, store, store_integers
from edge_export.quantize.write import prepare, write
from onnx import TensorProto, numpy_helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import GraphBuilder, onnx_answers, windows

U8 = Scheme(activations="uint8", weight_bits=8)


@pytest.fixture(scope="module")
def net() -> onnx.ModelProto:
    b = GraphBuilder(3, 16)
    t = b.node("Relu", b.conv("window", 3, 32, 5, pads=[2, 2]))
    t = b.node("Relu", b.conv(t, 32, 32, 5, pads=[2, 2]))
    t = b.node("Relu", b.dense(b.node("Flatten", t), 512, 30))
    t = b.node("MatMul", t, b.weights(30, 21))
    return prepare(clean(b.model(b.node("Softmax", t, axis=1))))


@pytest.fixture(scope="module")
def rounded(net: onnx.ModelProto) -> Rounded:
    return adaround(net, U8, windows(48, 3, 16), Rounding(bits=4, descents=0))


def int4_bytes(model: onnx.ModelProto) -> int:
    return sum(len(t.raw_data) for t in model.graph.initializer if t.data_type == TensorProto.INT4)


def test_rounded_weights_are_stored_in_four_bits_and_compute_the_same(net: onnx.ModelProto, rounded: Rounded) -> None:
    x = windows(48, 3, 16)
    stored = store(rounded.model, rounded.steps)
    onnx.checker.check_model(stored, full_check=True)
    expected = answers(rounded.model, x)
    np.testing.assert_allclose(answers(stored, x), expected, atol=1e-5)
    # The engine's own fusion rounds activations in front of a MatMul.
    np.testing.assert_allclose(onnx_answers(stored, x), expected, atol=0.01)
    weights = sum(int(np.prod(t.dims)) for t in net.graph.initializer if len(t.dims) > 1)
    assert int4_bytes(stored) == -(-weights // 2)
    before, after = size_of(net), size_of(stored)
    assert after.file < 0.16 * before.file
    assert after.compressed < 0.2 * before.compressed


@pytest.mark.parametrize("per_channel", [True, False])
def test_integer_models_get_smaller_and_stay_bit_identical(net: onnx.ModelProto, per_channel: bool) -> None:
    x = windows(48, 3, 16)
    scheme = Scheme(activations="uint8", weight_bits=8, per_channel=per_channel)
    rounded = adaround(net, scheme, x, Rounding(bits=4, descents=0))
    written = write(rounded.model, calibrate(net, x), scheme, steps=rounded.steps)
    stored = store_integers(written)
    onnx.checker.check_model(stored, full_check=True)
    np.testing.assert_array_equal(answers(stored, x), answers(written, x))
    assert size_of(stored).file < 0.65 * size_of(written).file
    with pytest.raises(ConfigError, match="round them to 4 bits first"):
        store_integers(write(net, calibrate(net, x), scheme))


def test_weights_off_the_grid_are_refused_by_layer(net: onnx.ModelProto, rounded: Rounded) -> None:
    with pytest.raises(ConfigError, match="weights of 'Conv_0' do not lie on a 4-bit grid"):
        store(net, rounded.steps)


@pytest.mark.parametrize("form", ["dequantize", "matmulnbits"])
@pytest.mark.parametrize("block", [16, 32, 128])
def test_blocks_hold_every_dense_layer(
    net: onnx.ModelProto, form: Literal["dequantize", "matmulnbits"], block: int
) -> None:
    x = windows(48, 3, 16)
    stored = in_blocks(net, block=block, form=form)
    kinds = [node.op_type for node in stored.graph.node]
    assert kinds.count("DequantizeLinear" if form == "dequantize" else "MatMulNBits") == 2
    assert sqnr_db(answers(net, x), onnx_answers(stored, x)) > 15
    # Both forms hold the same numbers.
    np.testing.assert_allclose(answers(stored, x), answers(in_blocks(net, block=block), x), atol=1e-5)
    assert size_of(stored).file < 0.5 * size_of(net).file


def test_smaller_blocks_are_nearer(net: onnx.ModelProto) -> None:
    x = windows(48, 3, 16)
    expected = answers(net, x)
    near, far = (sqnr_db(expected, answers(in_blocks(net, block=block), x)) for block in (16, 256))
    assert near > far + 0.4


def test_kept_layers_stay_float_and_bad_requests_are_refused(net: onnx.ModelProto) -> None:
    names = [node.name for node in net.graph.node if node.op_type in {"Gemm", "MatMul"}]
    stored = in_blocks(net, keep=(names[0],))
    floats = [numpy_helper.to_array(t) for t in stored.graph.initializer if t.data_type == TensorProto.FLOAT]
    assert any(array.size == 512 * 30 for array in floats)
    with pytest.raises(ConfigError, match="power of two from 16, not 24"):
        in_blocks(net, block=24)
    with pytest.raises(ConfigError, match="no dense layer"):
        in_blocks(net, keep=tuple(names))
