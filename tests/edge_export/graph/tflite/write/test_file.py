"""A TensorFlow Lite file holds what was declared, and what is equal only once."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.tflite.convert import convert
from edge_export.graph.tflite.write.file import Quantization, TfliteFile

from tests.edge_export.graphs import device_net, tflite_answers, windows


def chain(length: int, *, names: bool = True) -> bytes:
    """A row of negations."""
    file = TfliteFile()
    tensors = [file.tensor(f"t{i}", (1, 7), np.float32) for i in range(length + 1)]
    for before, after in itertools.pairwise(tensors):
        file.operator("NEG", [before], [after], options="NegOptions")
    return file.pack({"x": tensors[0]}, {"y": tensors[-1]}, names=names)


def read(model: bytes) -> schema.ModelT:
    return schema.ModelT.InitFromPackedBuf(model, 0)


def test_all_that_was_declared_is_in_the_file() -> None:
    file = TfliteFile()
    step = Quantization.of(0.5, -3)
    window = file.tensor("window", (1, 1, 6, 2), np.int8, step)
    file.open_axis(window, 0)
    scale = np.array([0.25, 0.125, 0.0625], np.float32)
    halves = scale / np.float32(2)
    one = np.array([0.5], np.float32)
    weights = file.constant(
        "weights", np.arange(6, dtype=np.int8).reshape(3, 1, 1, 2), Quantization(scale=scale, zero_point=0)
    )
    bias = file.constant("bias", np.arange(3, dtype=np.int32), Quantization(scale=halves, zero_point=0))
    answer = file.tensor("answer", (1, 1, 6, 3), np.int8, step)
    settings = {"padding": 1, "strideH": 1, "strideW": 2, "fusedActivationFunction": 1}
    file.operator("CONV_2D", [window, weights, bias], [answer], options="Conv2DOptions", **settings)
    model = read(file.pack({"window": window}, {"answer": answer}))
    (graph,) = model.subgraphs
    tensors = graph.tensors
    assert [tensor.name for tensor in tensors] == [b"window", b"weights", b"bias", b"answer"]
    assert [list(tensor.shape) for tensor in tensors] == [[1, 1, 6, 2], [3, 1, 1, 2], [3], [1, 1, 6, 3]]
    assert list(tensors[0].shapeSignature) == [-1, 1, 6, 2]
    assert tensors[3].shapeSignature is None
    assert [tensor.type for tensor in tensors] == [9, 9, 2, 9]
    for tensor, expected, zero in zip(tensors, (one, scale, halves, one), (-3, 0, 0, -3), strict=True):
        np.testing.assert_array_equal(tensor.quantization.scale, expected)
        np.testing.assert_array_equal(tensor.quantization.zeroPoint, [zero] * expected.size)
    assert model.buffers[tensors[1].buffer].data.tobytes() == bytes(range(6))
    assert model.buffers[tensors[2].buffer].data.tobytes() == np.arange(3, dtype=np.int32).tobytes()
    assert model.buffers[0].data is None
    (operator,) = graph.operators
    assert [list(operator.inputs), list(operator.outputs)] == [[0, 1, 2], [3]]
    assert {name: getattr(operator.builtinOptions, name) for name in settings} == settings
    (code,) = model.operatorCodes
    assert (code.builtinCode, code.deprecatedBuiltinCode, code.version) == (schema.BuiltinOperator.CONV_2D, 3, 3)
    (signature,) = model.signatureDefs
    assert [(entry.name, entry.tensorIndex) for entry in signature.inputs] == [(b"window", 0)]
    assert [(entry.name, entry.tensorIndex) for entry in signature.outputs] == [(b"answer", 3)]


def test_a_field_that_the_options_do_not_have_is_refused() -> None:
    file = TfliteFile()
    index = file.tensor("x", (1, 2), np.float32)
    file.operator("NEG", [index], [index], options="NegOptions", strides=1)
    with pytest.raises(AttributeError, match="NegOptions has no field 'strides'"):
        file.pack({"x": index}, {})


def test_one_more_layer_of_the_same_kind_costs_few_bytes() -> None:
    short, long = chain(10, names=False), chain(110, names=False)
    # An operator's table and its list of inputs, and two references; sizes, options and the tensor are there already.
    assert (len(long) - len(short)) / 100 <= 40
    x = windows(1, 7)
    np.testing.assert_array_equal(tflite_answers(long, x), x)
    np.testing.assert_array_equal(tflite_answers(chain(111, names=False), x), -x)


def test_names_within_can_be_left_out_and_those_at_the_ends_stay() -> None:
    named, bare = read(chain(3)), read(chain(3, names=False))
    assert [tensor.name for tensor in named.subgraphs[0].tensors] == [b"x", b"t1", b"t2", b"y"]
    assert [tensor.name for tensor in bare.subgraphs[0].tensors] == [b"x", None, None, b"y"]
    interpreter = Interpreter(model_content=chain(3, names=False))
    assert interpreter.get_signature_list() == {"serving_default": {"inputs": ["x"], "outputs": ["y"]}}


def test_tensors_of_one_name_are_told_apart() -> None:
    file = TfliteFile()
    tensors = [file.tensor(name, (1,), np.float32) for name in ("x", "x", "y", "y")]
    for before, after in itertools.pairwise(tensors):
        file.operator("NEG", [before], [after], options="NegOptions")
    names = [tensor.name for tensor in read(file.pack({"x": 0}, {"y": 3})).subgraphs[0].tensors]
    assert names == [b"x", b"x.1", b"y.1", b"y"]


@pytest.mark.parametrize(("kind", "size"), [(np.int64, 8), (np.float32, 4), (np.int32, 4)])
def test_numbers_lie_where_a_reader_may_take_them_in_place(kind: type[np.generic], size: int) -> None:
    file = TfliteFile()
    x = file.tensor("x", (1, 3), kind)
    for count in range(1, 6):
        file.constant(f"c{count}", np.full(count, count, kind))
    packed = file.pack({"x": x}, {})
    model = schema.Model.GetRootAs(packed, 0)
    for place in range(1, model.BuffersLength()):
        table = model.Buffers(place)._tab
        assert table.Vector(table.Offset(4)) % size == 0


@pytest.mark.parametrize("quantised", [False, True])
def test_answers_do_not_depend_on_names(quantised: bool) -> None:
    x = windows(64, 3, 40)
    model = canonicalise(device_net())
    if quantised:
        model = canonicalise(quantize(model, x, Scheme(activations="int8")))
    named, bare = convert(model), convert(model, compact=True)
    assert len(bare) < 0.97 * len(named)
    np.testing.assert_array_equal(tflite_answers(bare, x), tflite_answers(named, x))
    np.testing.assert_array_equal(tflite_answers(bare, x, batch=16), tflite_answers(named, x, batch=16))
