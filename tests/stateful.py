"""A tiny model with a state, its forward pass in numpy as the oracle, and a bundle of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from edge_export.package.pack import VariantSource, pack
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.manifest import Channel, InputContract, OutputContract
from edge_runtime.manifest.stages import ModelStage, Output, Port, State

Floats = npt.NDArray[np.float32]

CHANNELS = 2
LABELS = ("low", "high", "other")
KEEP = 0.75
"""Share of the state that a step keeps."""
WEIGHTS = np.array([[0.5, -1.0, 0.25], [1.5, 0.75, -0.5]], "f4")

STAGE = ModelStage(
    inputs=(Port(name="x", rows=6, hop=4),),
    states=(State(input="h", output="h_next", shape=(CHANNELS,)),),
    outputs=(Output(name="y"),),
)
"""Takes six samples every four; a window of four brings it one call a step, and none in the first."""


def leaky(batch: int | str = "n", rows: int = 6, weights: Floats = WEIGHTS) -> bytes:
    """ONNX file: ``h_next = KEEP * h + mean(x)``, ``y = softmax(h_next @ weights)``, of `rows` samples a step."""
    channels, labels = weights.shape
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("Mul", ["h", "keep"], ["kept"]),
        helper.make_node("Add", ["kept", "mean"], ["h_next"]),
        helper.make_node("MatMul", ["h_next", "weights"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["y"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "leaky",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, rows, channels]),
            helper.make_tensor_value_info("h", TensorProto.FLOAT, [batch, channels]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, labels]),
            helper.make_tensor_value_info("h_next", TensorProto.FLOAT, [batch, channels]),
        ],
        [
            numpy_helper.from_array(np.float32(KEEP), "keep"),
            numpy_helper.from_array(weights, "weights"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="tests")
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def expected(samples: Floats) -> Floats:
    """Answers of a stream of (n, CHANNELS) samples that begins with a reset: one for each call of the model."""
    state = np.zeros(CHANNELS, "f4")
    answers = []
    for at in range(0, len(samples) - 5, 4):
        state = np.float32(KEEP) * state + samples[at : at + 6].mean(axis=0)
        logits = state @ WEIGHTS
        p = np.exp(logits - logits.max())
        answers.append(p / p.sum())
    return np.array(answers, "f4").reshape(-1, len(LABELS))


def stream(steps: int, seed: int = 0) -> Floats:
    """(4 * steps, CHANNELS) samples."""
    return np.random.default_rng(seed).standard_normal((4 * steps, CHANNELS)).astype("f4")


def stateful_bundle(path: Path, *, rate_hz: float = 50.0, stages: Sequence[Any] = (STAGE,), **more: Any) -> Path:
    """Write a bundle of `leaky`, whose windows are four samples."""
    pack(
        path,
        name="leaky",
        version=1,
        input=InputContract(
            channels=tuple(Channel(name=f"c{i}", unit="1") for i in range(CHANNELS)), rate_hz=rate_hz, window=4, hop=4
        ),
        output=OutputContract(labels=LABELS),
        variants=[
            VariantSource(name="onnx-fp32", model=leaky(), format="onnx", precision="fp32", layout="NWC"),
        ],
        golden_inputs=stream(5).reshape(5, 4, CHANNELS).transpose(0, 2, 1),
        stages=stages,
        **more,
    )
    return path
