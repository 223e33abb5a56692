"""The student as a stateful graph: made, held against the windowed one along real recordings, and timed beside it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx

from edge_export.data.dataset import Dataset, Float32
from edge_export.data.labels import cut, stamps
from edge_export.graph.onnx_graph.passes.conv2d import as_conv2d
from edge_export.graph.streaming import StreamingModel, StreamingRunner, parity, to_streaming
from edge_export.graph.streaming.runner import session
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import InputContract

ROUNDS = 60
CALLS = 10
RANDOM_WINDOWS = 20
"""Length of the random stream, in windows."""
LONGEST = 200_000
"""Samples of real recordings that the two are compared along."""


def stream_student(
    windowed: onnx.ModelProto, hop: int, contract: InputContract, recordings: Dataset, *, seed: int
) -> dict[str, Any] | None:
    """Convert a student and measure what that is worth.

    Args:
        windowed: the float student.
        hop: samples that an update brings; 0 converts nothing.
        contract: what its window is.
        recordings: recordings of groups not trained on; their longest unbroken stretches are played.
        seed: the random stream's seed.

    Returns:
        The figures; times are the least CPU time of a call on one thread in onnxruntime, both taking turns. None
        without a hop.

    Raises:
        ConfigError: the network cannot be converted, or no recording is long enough.
    """
    if not hop:
        return None
    # Both in the form in which float ONNX files ship.
    streaming = to_streaming(windowed, hop=hop)
    streaming, windowed = replace(streaming, model=as_conv2d(streaming.model)), as_conv2d(windowed)
    real = unbroken(recordings, contract)
    if real.shape[1] < contract.window + hop:
        raise ConfigError(f"stream_hop: no recording has {contract.window + hop} samples in a row to compare along")
    scale = real.std(axis=1, keepdims=True)
    noise = np.random.default_rng(seed).standard_normal((len(real), RANDOM_WINDOWS * contract.window))
    shapes = {"real": real, "random": (noise * scale + real.mean(axis=1, keepdims=True)).astype(np.float32)}
    differences = {name: parity(windowed, streaming, stream) for name, stream in shapes.items()}
    update_us, window_us = _times(windowed, streaming, real)
    return {
        "hop": hop,
        "overlap": 1 - hop / contract.window,
        "update_us": update_us,
        "window_us": window_us,
        "times_less": window_us / update_us,
        "work": streaming.work,
        "state_bytes": sum(state.initial.nbytes for state in streaming.states),
        "max_abs_diff": max(difference.max_abs_diff for difference in differences.values()),
        "windows_compared": {name: difference.windows for name, difference in differences.items()},
        "agreement": min(difference.agreement for difference in differences.values()),
    }


def unbroken(recordings: Dataset, contract: InputContract) -> Float32:
    """Stretches of a data set at the model's rate, one behind the other, each longer than a window.

    Returns:
        (n_channels, samples), at most `LONGEST` samples.
    """
    side_by_side = replace(contract, hop=contract.window, context=0)
    parts: list[Float32] = []
    for recording in recordings.recordings:
        windows = cut(side_by_side, recording, stamps(recording, recordings.rate_hz))
        if len(windows) > 1:
            parts += [window.samples for window in windows]
        if sum(map(len, parts)) >= LONGEST:
            break
    if not parts:
        return np.empty((len(contract.channels), 0), np.float32)
    return np.ascontiguousarray(np.concatenate(parts)[:LONGEST].T)


def _times(windowed: onnx.ModelProto, streaming: StreamingModel, stream: Float32) -> tuple[float, float]:
    runner = StreamingRunner(streaming)
    hop = np.ascontiguousarray(stream[None, :, : streaming.hop])
    network = session(windowed)
    source = network.get_inputs()[0].name
    window = np.ascontiguousarray(stream[None, :, : streaming.window])
    calls: Sequence[Callable[[], object]] = (lambda: runner.update(hop), lambda: network.run(None, {source: window}))
    least = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for place, call in enumerate(calls):
            began = time.thread_time_ns()
            for _ in range(CALLS):
                call()
            least[place] = min(least[place], (time.thread_time_ns() - began) / CALLS / 1e3)
    return least[0], least[1]
