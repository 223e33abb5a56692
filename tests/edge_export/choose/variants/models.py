"""Small float models with recordings, made here."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from edge_export.choose.variants.source import FloatModel, open_source
from onnx import TensorProto, helper, numpy_helper

from tests.edge_export.graphs import device_net, windows

CLASSES = 4


def saved(model: onnx.ModelProto, folder: Path, name: str = "model") -> FloatModel:
    """The model as a foreign file."""
    path = folder / f"{name}.onnx"
    onnx.save(model, str(path))
    return open_source(path)


def classifier(folder: Path) -> FloatModel:
    """Three convolutions, four classes."""
    return saved(device_net(classes=CLASSES), folder)


def recordings(folder: Path, files: int = 6, calls: int = 12) -> Path:
    """Windows of the classifier, a file for each recording."""
    folder.mkdir()
    for i in range(files):
        np.savez(folder / f"day{i}.npz", window=windows(calls, 3, 40, seed=i))
    return folder


def counter(folder: Path) -> FloatModel:
    """A model with a state and a number that stays: answer = state' = .5 state + gain * sum(W x)."""
    random = np.random.default_rng(3)
    weights = random.standard_normal((8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["product"]),
        helper.make_node("Mul", ["product", "gain"], ["louder"]),
        helper.make_node("Mul", ["state", "half"], ["faded"]),
        helper.make_node("Add", ["faded", "louder"], ["next"]),
        helper.make_node("Tanh", ["next"], ["new_state"]),
        helper.make_node("Identity", ["new_state"], ["answer"]),
    ]
    graph = helper.make_graph(
        nodes,
        "counter",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8]),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, 8]),
            helper.make_tensor_value_info("gain", TensorProto.FLOAT, []),
        ],
        [
            helper.make_tensor_value_info("answer", TensorProto.FLOAT, [1, 8]),
            helper.make_tensor_value_info("new_state", TensorProto.FLOAT, [1, 8]),
        ],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.float32(0.5), "half")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return saved(model, folder, "counter")
