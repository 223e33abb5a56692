"""TensorFlow Lite files read as ONNX: the same answers, whatever our own writer can write and real files hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from ai_edge_litert.interpreter import Interpreter
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.tflite.convert import convert
from edge_export.graph.tflite.read.file import read_tflite

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import GraphBuilder, device_net, windows


def answers(data: bytes) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What LiteRT answers to random inputs, and what onnxruntime does of the graph that was read."""
    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    random, feed = np.random.default_rng(0), {}
    for detail in interpreter.get_input_details():
        feed[detail["name"]] = random.standard_normal(detail["shape"]).astype(detail["dtype"])
        interpreter.set_tensor(detail["index"], feed[detail["name"]])
    interpreter.invoke()
    expected = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    model = read_tflite(data, "model.tflite")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return expected, session.run(None, feed)


def check(data: bytes) -> None:
    expected, given = answers(data)
    for a, b in zip(expected, given, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5 * max(1.0, float(np.abs(a).max())))


def picture(build: Callable[[GraphBuilder], str]) -> bytes:
    b = GraphBuilder(4, 8, 6)
    return convert(b.model(build(b)))


NETWORKS: dict[str, Callable[[GraphBuilder], str]] = {
    "add and a constant by channel": lambda b: b.node(
        "Add", b.node("Relu", b.conv("window", 4, 4, 3, 3, pads=[1, 1, 1, 1])), b.weights(1, 4, 1, 1)
    ),
    "average pool": lambda b: b.node("AveragePool", b.conv("window", 4, 4, 1, 1), kernel_shape=[2, 2], strides=[2, 2]),
    "clip": lambda b: b.node(
        "Clip", b.conv("window", 4, 4, 1, 1), b.constant(np.float32(0)), b.constant(np.float32(6))
    ),
    "concat of channels": lambda b: b.node(
        "Concat", b.conv("window", 4, 2, 1, 1), b.conv("window", 4, 3, 1, 1), axis=1
    ),
    "depthwise, strides, dilation": lambda b: b.conv(
        b.conv("window", 4, 4, 3, 3, group=4, strides=[2, 2], pads=[0, 0, 1, 1]), 4, 8, 2, 2, dilations=[2, 2]
    ),
    "dense behind a flatten": lambda b: b.dense(b.node("Flatten", b.conv("window", 4, 4, 1, 1)), 192, 5),
    "global pool, softmax": lambda b: b.node(
        "Softmax", b.node("Flatten", b.node("GlobalAveragePool", b.conv("window", 4, 6, 3, 3))), axis=1
    ),
    "leaky": lambda b: b.node("LeakyRelu", b.conv("window", 4, 4, 1, 1), alpha=0.2),
    "max pool": lambda b: b.node("MaxPool", b.conv("window", 4, 4, 1, 1), kernel_shape=[2, 2], strides=[1, 2]),
    "mean over a row": lambda b: b.node(
        "ReduceMean", b.conv("window", 4, 4, 1, 1), b.constant(np.array([3])), keepdims=0
    ),
    "pad": lambda b: b.node("Pad", b.conv("window", 4, 4, 1, 1), b.constant(np.array([0, 0, 1, 2, 0, 0, 3, 0]))),
    "slope by channel": lambda b: b.node("PRelu", b.conv("window", 4, 4, 1, 1), b.weights(4, 1, 1)),
    "sum, root, tanh": lambda b: b.node(
        "Tanh", b.node("Sqrt", b.node("ReduceSum", b.node("Mul", "window", "window"), b.constant(np.array([1]))))
    ),
    "transposed and sliced": lambda b: b.node(
        "Slice",
        b.node("Transpose", b.conv("window", 4, 4, 1, 1), perm=[0, 2, 1, 3]),
        *(b.constant(np.array([value])) for value in (1, 7, 1, 2)),
    ),
}


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_graph_answers_as_the_file_that_was_written_of_another_one(name: str) -> None:
    check(picture(NETWORKS[name]))


def test_weights_in_half_precision_are_read() -> None:
    b = GraphBuilder(4, 8, 6)
    halves = b.random.standard_normal((16, 4, 3, 3)).astype(np.float16).astype(np.float32)
    result = b.node("Conv", "window", b.constant(halves))
    check(convert(b.model(result), compact=True))


def test_a_quantised_file_and_a_damaged_one_are_refused() -> None:
    model = quantize(device_net(), windows(8, 3, 40), Scheme(activations="int8", weight_bits=8))
    with pytest.raises(ConfigError, match=r"quantised already|operator QUANTIZE cannot be read"):
        read_tflite(convert(model), "int8.tflite")
    with pytest.raises(ConfigError, match="not a TensorFlow Lite file"):
        read_tflite(b"nothing", "x.tflite")


REAL = (
    "basic-pitch/nmp.tflite", "dtln/model_1.tflite", "mediapipe-face/face_detection_front.tflite",
    "mediapipe-face/face_landmark.tflite", "mlperf-tiny/ad01_fp32.tflite", "mlperf-tiny/pretrainedResnet.tflite",
    "mlperf-tiny/vww_96_float.tflite", "openwakeword-frontend/embedding_model.tflite",
    "ultra-light-face/version-slim-320_without_postprocessing.tflite",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_float_files_answer_the_same(shared: Path, name: str) -> None:
    check((shared / "models" / name).read_bytes())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "tflm-examples/trained_lstm.tflite",
            "operator UNIDIRECTIONAL_SEQUENCE_LSTM cannot be read; give the model as",
        ),
        ("mlperf-tiny/vww_96_int8.tflite", "quantised already"),
        ("micro-wake-word/alexa.tflite", "holds 2 graphs"),
    ],
)
def test_real_files_that_cannot_be_read_say_why(shared: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_tflite((shared / "models" / name).read_bytes(), name)


def test_the_batch_stays_open_where_rows_are_answered_as_they_are_alone() -> None:
    b = GraphBuilder(4, 8, 6)
    alone = read_tflite(convert(b.model(b.dense(b.node("Flatten", b.conv("window", 4, 2, 3, 3)), 48, 5))), "a.tflite")
    assert alone.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    b = GraphBuilder(4, 8, 6)
    mixed = b.node("Reshape", "window", b.constant(np.array([4, -1])))
    together = read_tflite(convert(b.model(b.node("Softmax", mixed, axis=0))), "b.tflite")
    assert together.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1
