"""Small bundles of every task but classification: a linear model of the window's means, and its answers in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
from edge_export.package.pack import VariantSource, pack
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.manifest import AnyOutput, Channel, GateSpec, InputContract, MultiLabelOutput
from edge_runtime.manifest.outputs import (
    AnomalyOutput,
    DetectionOutput,
    EmbeddingOutput,
    Quantity,
    RegressionOutput,
    TextOutput,
    VectorOutput,
)
from edge_runtime.model.bundle import npy

Floats = npt.NDArray[np.float32]

CHANNELS, WINDOW, RATE_HZ = 3, 8, 50.0

OUTPUTS: dict[str, AnyOutput] = {
    "anomaly": AnomalyOutput(normal="normal.npy", false_alarm_rate=0.1),
    "detection": DetectionOutput(labels=("cat", "dog"), height=9, width=9, candidates=3, values="logit"),
    "embedding": EmbeddingOutput(size=2, labels=("up", "down"), examples="examples.npy", distance="l2", k=1),
    "multi-label": MultiLabelOutput(labels=("dog", "rain"), values="logit", thresholds=(0.4, 0.6)),
    "regression": RegressionOutput(quantities=(Quantity(name="t", unit="Cel", half_width=0.5, widest=2.0),)),
    "text": TextOutput(characters=("a", "b"), rows=4, values="logits"),
    "vector": VectorOutput(shape=(2, 3), names=("x", "y", "z"), publish="rows"),
}
FILES: dict[str, dict[str, Floats]] = {
    "anomaly": {"normal.npy": np.linspace(-1, 1, 99, dtype=np.float32)},
    "embedding": {"examples.npy": np.array([[0, 1, 1], [1, -1, -1]], np.float32)},
}


def weights(numbers: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(numbers)
    w, b = rng.standard_normal((CHANNELS, numbers)), rng.standard_normal(numbers) / 4
    return w.astype("f4"), b.astype("f4")


def linear(shape: tuple[int, ...]) -> bytes:
    """ONNX file: windows (n, CHANNELS, WINDOW) to ``mean @ w + b``, reshaped to (n, *shape)."""
    w, b = weights(int(np.prod(shape)))
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2], keepdims=0),
        helper.make_node("Gemm", ["mean", "w", "b"], ["flat"]),
        helper.make_node("Reshape", ["flat", "shape"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", CHANNELS, WINDOW])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", *shape])],
        [
            numpy_helper.from_array(w, "w"),
            numpy_helper.from_array(b, "b"),
            numpy_helper.from_array(np.array([-1, *shape], np.int64), "shape"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="tests")
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


def expected(windows: Floats, shape: tuple[int, ...]) -> Floats:
    """Answers of `linear` to (n, CHANNELS, WINDOW)."""
    w, b = weights(int(np.prod(shape)))
    return np.asarray(windows.mean(axis=2) @ w + b, np.float32).reshape(-1, *shape)


def samples(windows: int, seed: int = 1) -> Floats:
    """Return windows as (windows, CHANNELS, WINDOW), each about a level of its own."""
    rng = np.random.default_rng(seed)
    level = 2 * rng.standard_normal((windows, CHANNELS, 1))
    return (level + 0.1 * rng.standard_normal((windows, CHANNELS, WINDOW))).astype("f4")


def task_bundle(
    path: Path,
    output: AnyOutput,
    *,
    files: Mapping[str, Floats] | None = None,
    gate: GateSpec | None = None,
    name: str = "linear",
    version: int = 1,
) -> Path:
    """Write a bundle whose model gives the numbers of `output`."""
    pack(
        path,
        name=name,
        version=version,
        input=InputContract(
            channels=tuple(Channel(name=f"c{i}", unit="1") for i in range(CHANNELS)),
            rate_hz=RATE_HZ,
            window=WINDOW,
            hop=WINDOW,
        ),
        output=output,
        gate=gate,
        variants=[VariantSource(name="onnx-fp32", model=linear(output.shape), format="onnx", precision="fp32")],
        golden_inputs=samples(4),
        files={name: npy.dump(array) for name, array in (files or {}).items()},
    )
    return path
