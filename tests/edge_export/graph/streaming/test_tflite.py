"""Stateful graphs as TensorFlow Lite files."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from edge_export.graph.streaming import Mode, StreamingRunner, to_streaming
from edge_export.graph.tflite.convert import convert

from tests.edge_export.graph.streaming import architectures as nets
from tests.edge_export.graph.streaming.signals import noise


@pytest.mark.parametrize(
    ("model", "hop", "mode"),
    [
        (nets.valid_student(), 12, "window"),
        (nets.tcn(aggregation="ReduceMean"), 12, "window"),
        (nets.gru_net(), 12, "stream"),
        (nets.spectrogram_net(), 400, "window"),
    ],
    ids=["student", "tcn and mean", "gru", "spectrogram"],
)
def test_litert_answers_what_onnxruntime_does(model: onnx.ModelProto, hop: int, mode: Mode) -> None:
    streaming = to_streaming(model, hop=hop, mode=mode)
    interpreter = Interpreter(model_content=convert(streaming.model), num_threads=1)
    interpreter.allocate_tensors()
    inputs = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    outputs = {detail["name"]: detail["index"] for detail in interpreter.get_output_details()}
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    stream = noise(1, channels, streaming.window + 20 * hop)
    held = {state.name: state.initial[None] for state in streaming.states}
    for update, expected in enumerate(StreamingRunner(streaming).run(stream)):
        interpreter.set_tensor(inputs["hop"], stream[:, :, update * hop : (update + 1) * hop])
        for name, array in held.items():
            interpreter.set_tensor(inputs[name], array)
        interpreter.invoke()
        held = {state.name: interpreter.get_tensor(outputs[state.output]) for state in streaming.states}
        answer = interpreter.get_tensor(outputs[streaming.model.graph.output[0].name])
        np.testing.assert_allclose(answer, expected, atol=1e-5)
