"""Weights that a narrower type holds exactly are stored in it, and every engine gives the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter, OpResolverType
from edge_export.graph.onnx_graph.exact_downcast import exact_downcast
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.tflite.convert import convert
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import numpy_helper

from tests.edge_export.graphs import (
    GraphBuilder,
    minimise,
    onnx_answers,
    onnx_operators,
    operators,
    tflite_answers,
    windows,
)


@given(arrays.arrays(np.float32, st.integers(1, 300), elements=st.floats(width=32, allow_nan=False)))
def test_nothing_is_stored_that_is_not_the_same_number(array: np.ndarray) -> None:
    stored = exact_downcast(array)
    if stored is not None:
        np.testing.assert_array_equal(stored.astype(np.float32), array)


def test_the_narrowest_type_is_taken() -> None:
    whole = np.resize(np.arange(-127, 128), (16, 32)).astype(np.float32)
    for array, kind in ((whole, np.int8), (whole / 2, np.float16), (whole * 256, np.float16)):
        stored = exact_downcast(array)
        assert stored is not None
        assert stored.dtype == kind


@pytest.mark.parametrize(
    "array",
    [
        np.full(500, 1 / 3, np.float32),
        np.full(500, 1e6, np.float32),
        np.full(500, np.nan, np.float32),
        np.full(500, np.inf, np.float32),
        np.arange(500),
        np.arange(500, dtype=np.float64),
        np.ones(80, np.float32),
        np.ones(0, np.float32),
    ],
    ids=["third", "million", "nan", "infinite", "integers", "double", "few", "none"],
)
def test_all_else_stays(array: np.ndarray) -> None:
    assert exact_downcast(array) is None


def spectrum(factor: float, *, channels: int = 2) -> onnx.ModelProto:
    """Tables as a front end has them, in front of trained weights; each kind of layer has one."""
    rng = np.random.default_rng(3)

    def table(*shape: int) -> str:
        return b.constant((rng.integers(-127, 128, shape) * factor).astype(np.float32))

    b = GraphBuilder(channels, 200)
    t = b.node("Conv", "window", table(24, channels, 16), strides=[8])
    t = b.node("Mul", t, t)
    t = b.node("Conv", t, table(24, 1, 9), group=24)
    t = b.node("Relu", b.conv(b.node("Tanh", b.node("Mul", t, b.constant(np.float32(1e-7)))), 24, 8, 3))
    t = b.node("Flatten", b.node("GlobalAveragePool", t))
    t = b.node("Gemm", t, table(12, 8), b.weights(12), transB=1)
    t = b.node("MatMul", t, table(12, 9))
    return b.model(b.node("Softmax", b.node("Mul", t, b.constant(np.float32(1e-4))), axis=-1))


@pytest.mark.parametrize(("factor", "kind"), [(1.0, np.int8), (0.5, np.float16)])
def test_an_onnx_file_holds_them_so_and_runs_the_same_operators(
    factor: float, kind: type[np.generic], tmp_path: Path
) -> None:
    model, x = canonicalise(spectrum(factor)), windows(8, 2, 200)
    smaller = minimise(model)
    stored = [numpy_helper.to_array(tensor) for tensor in smaller.graph.initializer]
    assert sum(array.dtype == kind for array in stored) == (4 if kind == np.int8 else 2)
    assert len(smaller.SerializeToString()) < 0.85 * len(model.SerializeToString())
    for optimize in (True, False):
        given, wanted = (onnx_answers(each, x, optimize=optimize) for each in (smaller, model))
        np.testing.assert_array_equal(given, wanted)
    assert onnx_operators(smaller, tmp_path) == onnx_operators(model, tmp_path)


@pytest.mark.parametrize("factor", [1.0, 0.5])
@pytest.mark.parametrize(
    "resolver", [OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES, OpResolverType.BUILTIN_REF]
)
def test_a_tensorflow_lite_file_holds_them_so(factor: float, resolver: OpResolverType) -> None:
    model, x = canonicalise(spectrum(factor)), windows(8, 2, 200)
    wide, narrow = convert(model), convert(model, compact=True)
    assert len(narrow) < 0.85 * len(wide)
    assert operators(wide).count("DEQUANTIZE") == 0
    assert operators(narrow).count("DEQUANTIZE") >= 2
    answers = []
    for each in (wide, narrow):
        interpreter = Interpreter(model_content=each, num_threads=1, experimental_op_resolver_type=resolver)
        interpreter.allocate_tensors()
        for window in x:
            interpreter.set_tensor(interpreter.get_input_details()[0]["index"], window[None])
            interpreter.invoke()
            answers.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    np.testing.assert_array_equal(answers[:8], answers[8:])
    np.testing.assert_array_equal(tflite_answers(narrow, x, batch=4), tflite_answers(wide, x, batch=4))


def test_a_table_read_twice_is_widened_once() -> None:
    b = GraphBuilder(1, 100)
    table = b.constant(np.resize(np.arange(100, dtype=np.float32), (8, 1, 16)))
    t = b.node("Add", b.node("Conv", "window", table), b.node("Conv", b.node("Relu", "window"), table))
    model, x = canonicalise(b.model(t)), windows(2, 1, 100)
    assert operators(convert(model, compact=True)).count("DEQUANTIZE") == 1
    smaller = minimise(model)
    assert [node.op_type for node in smaller.graph.node].count("Cast") == 1
    np.testing.assert_array_equal(onnx_answers(smaller, x), onnx_answers(model, x))


def test_a_graph_of_integers_behind_a_table_is_the_same_from_either_file() -> None:
    x = windows(32, 2, 200)
    plain = canonicalise(spectrum(1.0))
    front = tuple(node.name for node in plain.graph.node[:3])
    model = canonicalise(quantize(plain, x, Scheme(activations="int8", exclude=front)))
    np.testing.assert_array_equal(onnx_answers(minimise(model), x), onnx_answers(model, x))
    assert convert(minimise(model), compact=True) == convert(model, compact=True)
    np.testing.assert_array_equal(tflite_answers(convert(model, compact=True), x), tflite_answers(convert(model), x))
