"""Small ONNX graphs with random weights, and the two engines that answer them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from ai_edge_litert.interpreter import Interpreter
from edge_export.graph.onnx_graph.model import transform
from edge_export.graph.onnx_graph.passes.minimise import Minimise
from edge_export.graph.onnx_graph.passes.shield import ShieldFloatLayers
from onnx import TensorProto, helper, numpy_helper


class GraphBuilder:
    """Appends nodes to a chain; each returns the name of its result."""

    def __init__(self, channels: int, *sizes: int, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.shape: list[str | int] = ["batch", channels, *sizes]

    def constant(self, array: np.ndarray | np.generic) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, *shape: int) -> str:
        fan = max(1, int(np.prod(shape[1:])))
        return self.constant((self.random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32))

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [name], name=f"{operator}_{len(self.nodes)}", **attributes)
        )
        return name

    def conv(self, source: str, before: int, after: int, *kernel: int, group: int = 1, **attributes: Any) -> str:
        weights = self.weights(after, before // group, *kernel)
        return self.node("Conv", source, weights, self.weights(after), group=group, **attributes)

    def dense(self, source: str, before: int, after: int) -> str:
        return self.node("Gemm", source, self.weights(after, before), self.weights(after), transB=1)

    def model(self, result: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "model",
            [helper.make_tensor_value_info("window", TensorProto.FLOAT, self.shape)],
            [helper.make_empty_tensor_value_info(result)],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        model = onnx.shape_inference.infer_shapes(model, strict_mode=True)
        onnx.checker.check_model(model, full_check=True)
        return model


def device_net(channels: int = 3, samples: int = 40, classes: int = 4, seed: int = 0) -> onnx.ModelProto:
    """Like the demo's device model: scaling, separable convolutions, mean, dense layer, temperature, softmax."""
    b = GraphBuilder(channels, samples, seed=seed)
    t = b.node("Mul", "window", b.constant(np.linspace(0.5, 2, channels, dtype=np.float32).reshape(1, channels, 1)))
    t = b.node("Relu", b.conv(t, channels, 8, 8, strides=[2], pads=[3, 3]))
    t = b.node("Relu", b.conv(t, 8, 8, 5, group=8, pads=[2, 2]))
    t = b.node("Relu", b.conv(t, 8, 12, 1))
    t = b.node("ReduceMean", t, b.constant(np.array([2])), keepdims=0)
    t = b.node("Mul", b.dense(t, 12, classes), b.constant(np.float32(1.7)))
    return b.model(b.node("Softmax", t, axis=1))


def windows(count: int, *shape: int, seed: int = 1) -> np.ndarray:
    """Random inputs, smooth enough to look like a signal."""
    x = np.random.default_rng(seed).standard_normal((count, *shape)).astype(np.float32)
    return np.cumsum(x, axis=-1).astype(np.float32) * np.float32(0.3)


def onnx_answers(model: onnx.ModelProto, x: np.ndarray, *, optimize: bool = True) -> np.ndarray:
    """What onnxruntime answers. Without optimisation it computes Q/DQ pairs in floats: the exact reference."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    level = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimize else level.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    answers: np.ndarray = session.run(None, {model.graph.input[0].name: x})[0]
    return answers


def onnx_operators(model: onnx.ModelProto, folder: Path) -> Counter[str]:
    """Operators that onnxruntime runs in the end."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimised.onnx")
    options.log_severity_level = 3  # it warns that such a file is for this machine only
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)


def tflite_answers(model: bytes, x: np.ndarray, *, batch: int = 1) -> np.ndarray:
    """What LiteRT answers, window by window or in batches of a resized file; integers as they are."""
    interpreter = Interpreter(model_content=model, num_threads=1)
    (source,) = interpreter.get_input_details()
    (result,) = interpreter.get_output_details()
    if batch != 1:
        interpreter.resize_tensor_input(source["index"], [batch, *source["shape"][1:]])
    interpreter.allocate_tensors()
    answers = []
    for begin in range(0, len(x), batch):
        interpreter.set_tensor(source["index"], x[begin : begin + batch])
        interpreter.invoke()
        answers.append(interpreter.get_tensor(result["index"]))
    return np.concatenate(answers)


def operators(model: bytes) -> Sequence[str]:
    """Names of a TensorFlow Lite file's operators, in order."""
    interpreter = Interpreter(model_content=model)
    return [detail["op_name"] for detail in interpreter._get_ops_details() if detail["op_name"] != "DELEGATE"]


def minimise(model: onnx.ModelProto) -> onnx.ModelProto:
    return transform(model, Minimise())


def shield(model: onnx.ModelProto) -> onnx.ModelProto:
    return transform(model, ShieldFloatLayers())
