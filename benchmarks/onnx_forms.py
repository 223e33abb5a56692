"""Forms of one network in onnxruntime, in turns: Conv1d, Conv2d of 1 x k, integers of ours and of its own quantiser.

Times are the least CPU time of all rounds, one thread; each round runs every form.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.passes.conv2d import as_conv2d
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.quantize.write import prepare
from onnxruntime import quantization

from benchmarks import stateful_models
from benchmarks.report import Report

NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "separable, 16-32-32-48, 6 x 128": stateful_models.separable,
    "convolutions 32-64-64, 6 x 128": lambda: stateful_models.student(128, (32, 64, 64)),
    "convolutions 64-128-128, 6 x 256": lambda: stateful_models.student(256, (64, 128, 128)),
    "TCN, 5 x 64 channels, 6 x 256": stateful_models.tcn,
    "swish 32-64-64, 6 x 128": stateful_models.swish,
    "hard-swish, squeeze-and-excite, 6 x 256": stateful_models.squeeze_excite,
}
BATCHES = (1, 32)
SLICE_S = 0.01

Array = npt.NDArray[Any]


def onnx_forms(quick: bool) -> Iterator[Report]:
    """One table: every network, with one window and with 32 in a call."""
    report = Report(
        "onnxruntime: CPU us a window, and share of the Conv2d form's time",
        (
            "network",
            "batch",
            "Conv1d",
            "Conv2d",
            "difference",
            "int8 ours",
            "its own u8s8",
            "ours / Conv2d",
            "own / Conv2d",
        ),
    )
    for name, make in NETWORKS.items():
        model = make()
        shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim][1:]
        windows = np.random.default_rng(1).standard_normal((64, *shape)).astype(np.float32)
        before = canonicalise(model)
        sessions = {
            "Conv1d": _session(before),
            "Conv2d": _session(canonicalise(as_conv2d(before))),
            "ours": _session(quantize(before, windows, Scheme(activations="uint8"))),
            "own": _session(_its_own(before, windows)),
        }
        for batch in BATCHES:
            x = np.ascontiguousarray(windows[:batch])
            us = _least_us(sessions, x, rounds=3 if quick else 25)
            plain, four = (sessions[form].run(None, {"window": x})[0] for form in ("Conv1d", "Conv2d"))
            worst = float(np.abs(plain - four).max())
            shares = us["ours"] / us["Conv2d"], us["own"] / us["Conv2d"]
            report.rows.append(
                (name, batch, us["Conv1d"], us["Conv2d"], f"{worst:.1e}", us["ours"], us["own"], *shares)
            )
    yield report


def _session(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _least_us(sessions: Mapping[str, Any], x: Array, rounds: int) -> dict[str, float]:
    calls = {}
    for form, session in sessions.items():
        session.run(None, {"window": x})
        began = time.process_time()
        session.run(None, {"window": x})
        calls[form] = max(1, int(SLICE_S / max(time.process_time() - began, 1e-6)))
    least = dict.fromkeys(sessions, float("inf"))
    for _ in range(rounds):
        for form, session in sessions.items():
            began = time.process_time()
            for _ in range(calls[form]):
                session.run(None, {"window": x})
            least[form] = min(least[form], (time.process_time() - began) / calls[form] / len(x) * 1e6)
    return least


class _Windows(quantization.CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
    def __init__(self, windows: Array) -> None:
        self._windows = iter(windows)

    def get_next(self) -> dict[str, Array] | None:
        window = next(self._windows, None)
        return None if window is None else {"window": window[None]}


def _its_own(model: onnx.ModelProto, windows: Array) -> onnx.ModelProto:
    """onnxruntime's static quantiser with its own list of operators: u8s8, per channel, reduced range."""
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        given, written = (str(Path(folder) / name) for name in ("given.onnx", "written.onnx"))
        onnx.save(prepare(model), given)
        quantization.quantize_static(
            given,
            written,
            _Windows(windows),
            per_channel=True,
            reduce_range=True,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
        )
        return onnx.load(written)
