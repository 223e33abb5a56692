"""Convert a graph, run it on both engines, and compare: singly, and in batches where the file says that it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import onnx
import onnxruntime
from ai_edge_litert.interpreter import Interpreter
from edge_export.graph.tflite.convert import convert
from onnx import TensorProto, helper, numpy_helper

from tests.edge_export.graphs import GraphBuilder, windows

Array = np.ndarray
Inputs = Mapping[str, Array]


class Net(GraphBuilder):
    """A graph with any operator set, inputs and outputs; nodes with several outputs too."""

    def __init__(self, *shape: int, seed: int = 0, opset: int = 20, batch: int | str = "batch") -> None:
        super().__init__(0, seed=seed)
        self.shape = [batch, *shape]
        self.opset = opset
        self.others: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[int | str], kind: int = TensorProto.FLOAT) -> str:
        self.others.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def nodes_of(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        names = [f"t{len(self.nodes)}_{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(operator, inputs, names, name=f"{operator}_{len(self.nodes)}", **attributes))
        return names

    def number(self, value: float) -> str:
        return self.constant(np.float32(value))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def weights_of(self, *shape: int) -> Array:
        return self.random.standard_normal(shape).astype(np.float32)

    def quantized(self, source: str, low: float, high: float) -> str:
        """QuantizeLinear and DequantizeLinear with the int8 step that spans a range."""
        low, high = min(low, 0.0), max(high, 0.0)
        scale = np.float32((high - low) / 255)
        zero = np.int8(np.clip(np.rint(-128 - low / scale), -128, 127))
        step = self.constant(scale), self.constant(zero)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", source, *step), *step)

    def parameter(self, array: Array, axis: int | None = None) -> str:
        """A constant stored as int8 with zero point 0, behind a DequantizeLinear."""
        peak = np.abs(array).max() if axis is None else np.abs(array).max(
            axis=tuple(i for i in range(array.ndim) if i != axis)
        )  # fmt: skip
        scale = np.asarray(np.maximum(peak, 1e-6) / 127, np.float32)
        along = [1] * array.ndim
        if axis is not None:
            along[axis] = -1
        stored = np.clip(np.rint(array / scale.reshape(along if axis is not None else [])), -127, 127).astype(np.int8)
        zero = np.zeros(scale.shape, np.int8)
        names = [self.constant(each) for each in (stored, scale, zero)]
        return self.node("DequantizeLinear", *names, **({} if axis is None else {"axis": axis}))

    def finish(self, *results: str, strict: bool = True) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info("window", TensorProto.FLOAT, self.shape), *self.others],
            [
                helper.make_empty_tensor_value_info(result)
                if strict
                else helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
                for result in results
            ],
            self.constants,
        )
        imports = [helper.make_opsetid("", self.opset)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10)
        if not strict:
            return model
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        onnx.checker.check_model(model, full_check=True)
        return model


def on_onnx(model: onnx.ModelProto, inputs: Inputs, *, optimize: bool = False) -> list[Array]:
    """Answers of onnxruntime; without optimisation it computes Q/DQ pairs in floats, the exact reference."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(inputs)))


def on_tflite(model: bytes, inputs: Inputs, batch: int = 1) -> list[Array]:
    """Answers of LiteRT, by the names in the file's signature; integers as they are."""
    interpreter = Interpreter(model_content=model, num_threads=1)
    details = {detail["name"]: detail for detail in interpreter.get_input_details()}
    assert set(details) == set(inputs)
    if batch != 1:
        for name, array in inputs.items():
            interpreter.resize_tensor_input(details[name]["index"], array.shape, strict=True)
    interpreter.allocate_tensors()
    for name, array in inputs.items():
        interpreter.set_tensor(details[name]["index"], array)
    interpreter.invoke()
    return [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]


def is_open(model: bytes) -> bool:
    """Whether the file says that its batch may be changed."""
    details = Interpreter(model_content=model).get_input_details()
    return all(-1 in detail["shape_signature"] for detail in details)


def operators(model: bytes) -> list[str]:
    """Names of a file's operators, in order."""
    interpreter = Interpreter(model_content=model)
    return [detail["op_name"] for detail in interpreter._get_ops_details() if detail["op_name"] != "DELEGATE"]


def random_inputs(model: onnx.ModelProto, batch: int, seed: int = 1, spread: float = 1.0) -> dict[str, Array]:
    """A signal for every input, `batch` windows of it."""
    made = {}
    for place, info in enumerate(model.graph.input):
        sizes = [dim.dim_value or batch for dim in info.type.tensor_type.shape.dim]
        kind = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
        if kind == np.float32:
            made[info.name] = windows(sizes[0], *sizes[1:], seed=seed + place) * np.float32(spread)
        else:
            made[info.name] = np.random.default_rng(seed + place).integers(0, 3, sizes).astype(kind)
    return made


def same(
    model: onnx.ModelProto,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-5,
    seed: int = 1,
    spread: float = 1.0,
    open_batch: bool = True,
) -> bytes:
    """Convert and compare in floats; the tolerance is relative to the largest answer."""
    written = convert(model)
    assert is_open(written) == open_batch
    for batch in (1, 3) if open_batch else (1,):
        inputs = random_inputs(model, batch, seed, spread)
        expected, answered = on_onnx(model, inputs), on_tflite(written, inputs, batch)
        assert len(expected) == len(answered)
        for reference, answer in zip(expected, answered, strict=True):
            assert reference.shape == answer.shape
            assert reference.dtype == answer.dtype
            assert np.isfinite(reference.astype(float)).all(), "the test's own graph overflows"
            scale = float(np.abs(reference).max(initial=0)) if reference.dtype.kind == "f" else 0.0
            np.testing.assert_allclose(answer, reference, rtol=0, atol=atol + rtol * scale)
    return written


def last_steps(model: onnx.ModelProto) -> list[float]:
    """Scale of the DequantizeLinear behind each output."""
    numbers = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    producers = {name: node for node in model.graph.node for name in node.output}
    return [float(numbers[producers[info.name].input[1]]) for info in model.graph.output]


def steps_apart(
    model: onnx.ModelProto, inputs: Inputs | None = None, *, io: Literal["float32", "int8"] = "float32"
) -> Array:
    """Differences between the exact answers of an int8 graph and LiteRT's, in steps of its last quantisation."""
    inputs = random_inputs(model, 1) if inputs is None else inputs
    written = convert(model, io=io)
    apart = [
        np.abs(answer - reference).ravel() / step
        for answer, reference, step in zip(
            on_tflite(written, inputs), on_onnx(model, inputs), last_steps(model), strict=True
        )
    ]
    return np.concatenate(apart)
