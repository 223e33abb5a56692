"""Run a stateful graph along a stream, and compare it with the windowed network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime

from edge_export.data.dataset import Float32
from edge_export.graph.streaming.emit import HOP
from edge_export.graph.streaming.model import StreamingModel
from edge_runtime.errors import ConfigError

Array = npt.NDArray[Any]


class StreamingRunner:
    """Carries the states of a stateful graph from update to update, for one stream or several side by side.

    Two sets of state buffers take turns as input and output, bound once; an update copies the hop in and nothing else.

    Args:
        streaming: what to run.
        batch: streams side by side.
        threads: number of onnxruntime's threads.
    """

    def __init__(self, streaming: StreamingModel, *, batch: int = 1, threads: int = 1) -> None:
        self.streaming = streaming
        self._session = session(streaming.model, threads=threads)
        channels = int(self._session.get_inputs()[0].shape[1])
        self.hop: Float32 = np.zeros((batch, channels, streaming.hop), np.float32)
        self._sides = tuple(
            [np.empty((batch, *state.shape), np.dtype(state.dtype)) for state in streaming.states] for _ in range(2)
        )
        self._turn = 0
        self.reset()
        feed = {HOP: self.hop, **self.states}
        names = [output.name for output in self._session.get_outputs()]
        states = {state.output for state in streaming.states}
        # One call finds the shapes of the answers and fails here if anything fails.
        self._answers = {
            name: np.empty_like(array)
            for name, array in zip(names, self._session.run(names, feed), strict=True)
            if name not in states
        }
        self._bindings = [self._binding(side) for side in range(2)]

    @property
    def states(self) -> Mapping[str, Array]:
        """The states as they are, by name; writing into them changes the stream's past."""
        return {state.name: array for state, array in zip(self.streaming.states, self._sides[self._turn], strict=True)}

    def reset(self) -> None:
        """Forget the stream."""
        for state, array in zip(self.streaming.states, self._sides[self._turn], strict=True):
            array[...] = state.initial

    def update(self, hop: Float32) -> Float32:
        """Answer with the samples of one hop.

        Args:
            hop: (batch, channels, hop).

        Returns:
            The first output, owned by the caller until the next update.
        """
        if hop.shape != self.hop.shape:
            raise ConfigError(f"an update takes samples of shape {self.hop.shape}, not {hop.shape}")
        np.copyto(self.hop, hop)
        self._session.run_with_iobinding(self._bindings[self._turn])
        self._turn = 1 - self._turn
        return next(iter(self._answers.values()))

    def run(self, stream: Float32) -> Float32:
        """Answers along a stream, warm-up included.

        Args:
            stream: (batch, channels, samples); samples that fill no hop are left.

        Returns:
            (updates, batch, classes).
        """
        size = self.streaming.hop
        answers = [
            self.update(stream[:, :, start : start + size]).copy()
            for start in range(0, stream.shape[2] - size + 1, size)
        ]
        return np.stack(answers) if answers else np.empty((0, len(stream), 0), np.float32)

    def _binding(self, side: int) -> Any:
        binding = self._session.io_binding()
        inputs = {HOP: self.hop}
        outputs = dict(self._answers)
        for state, now, then in zip(self.streaming.states, self._sides[side], self._sides[1 - side], strict=True):
            inputs[state.name], outputs[state.output] = now, then
        for name, array in inputs.items():
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        for name, array in outputs.items():
            binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        return binding


def session(model: onnx.ModelProto, *, threads: int = 1) -> Any:
    """Open an onnxruntime session on the CPU, without spinning threads."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Parity:
    """Differences between two networks along a stream.

    Attributes:
        max_abs_diff: largest difference of an output.
        agreement: share of windows with the same label.
        windows: how many were compared.
    """

    max_abs_diff: float
    agreement: float
    windows: int


def parity(windowed: onnx.ModelProto, streaming: StreamingModel, stream: Float32) -> Parity:
    """Compare a stateful graph with the windowed network on every window of a stream.

    Args:
        windowed: what the stateful graph was made of, or another network with the same input and output.
        streaming: the stateful graph.
        stream: (channels, samples) or (batch, channels, samples), longer than a window.

    Raises:
        ConfigError: the stream is too short.
    """
    streams = stream[None] if stream.ndim == 2 else stream
    first = streaming.warm_up - 1
    answers = StreamingRunner(streaming, batch=len(streams)).run(streams)[first:]
    if not len(answers):
        raise ConfigError(f"a stream of {streams.shape[2]} samples ends before the first answer counts; give more")
    network = session(windowed)
    (source,) = network.get_inputs()
    worst, same = 0.0, 0
    for number, answer in enumerate(answers):
        end = (number + streaming.warm_up) * streaming.hop - streaming.delay
        window = np.ascontiguousarray(streams[:, :, end - streaming.window : end])
        expected = network.run(None, {source.name: window})[0]
        worst = max(worst, float(np.abs(expected - answer).max()))
        same += int((expected.argmax(axis=-1) == answer.argmax(axis=-1)).sum())
    count = len(answers) * len(streams)
    return Parity(max_abs_diff=worst, agreement=same / count, windows=count)
