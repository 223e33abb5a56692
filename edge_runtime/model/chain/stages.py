"""Stages that compute: a model in its engine, a front end, and the small ones between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from edge_runtime.errors import EngineError
from edge_runtime.manifest.frontends import FrontendSpec
from edge_runtime.manifest.stages import Activation, Combine, Constant, Difference, ModelStage, Output, Port, Smooth
from edge_runtime.manifest.stages import State as ModelState
from edge_runtime.model.engines.base import Array, Engine
from edge_runtime.model.engines.base import TensorSpec as EngineTensor
from edge_runtime.signal.frontends import Frontend, StateSpec
from edge_runtime.signal.frontends.build import build

Gives = tuple[int, tuple[int, ...]]


class Computed(Protocol):
    """A stage, ready to compute. Its rows do not depend on which keys are in the batch."""

    states: tuple[StateSpec, ...]

    @property
    def gives(self) -> Mapping[str, Gives]:
        """By track: rows of one call, and the shape of a row."""
        ...

    def compute(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """Make the rows of some calls.

        Args:
            cuts: an array for each input (batch, calls, rows, *row), oldest first.
            states: (batch, *shape) each; not written to.

        Returns:
            For each track (batch, calls * rows, *row), and the new states.
        """
        ...


class FrontendStage:
    """A front end as a stage. One that takes several tracks has their rows side by side.

    Args:
        spec: the manifest's front end.
        cuts: rows of one call and shape of a row, for each track that it takes.

    Raises:
        ManifestError: its settings do not fit them.
    """

    def __init__(self, spec: FrontendSpec, cuts: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        self._frontend: Frontend = build(spec, *((rows, *row) for rows, row in cuts))
        self.states = self._frontend.states
        self.gives: dict[str, Gives] = {spec.name: (self._frontend.rows, self._frontend.shape)}

    def compute(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """See `Computed`."""
        joined = cuts[0]
        if len(cuts) > 1:
            joined = np.concatenate([cut.reshape(*cut.shape[:3], -1) for cut in cuts], axis=3)
        rows, new = self._frontend(joined, states)
        return [rows], new


class SmoothStage:
    """See `edge_runtime.manifest.stages.Smooth`."""

    states: tuple[StateSpec, ...] = ()

    def __init__(self, spec: Smooth, row: tuple[int, ...]) -> None:
        reduce: Mapping[str, Callable[..., Any]] = {"mean": np.mean, "median": np.median, "max": np.max}
        self._reduce = reduce[spec.how]
        self.gives: dict[str, Gives] = {spec.name: (1, row)}

    def compute(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """See `Computed`."""
        return [np.asarray(self._reduce(cuts[0], axis=2), np.float32)], states


class ActivationStage:
    """See `edge_runtime.manifest.stages.Activation`.

    Raises:
        EngineError: a pair is asked for, and the row holds other than one number.
    """

    states: tuple[StateSpec, ...] = ()

    def __init__(self, spec: Activation, row: tuple[int, ...]) -> None:
        self._spec = spec
        if spec.pair and int(np.prod(row, dtype=int)) != 1:
            raise EngineError(f"stage {spec.name!r} makes a pair of one number, and its track has rows of shape {row}")
        self.gives: dict[str, Gives] = {spec.name: (1, (2,) if spec.pair else row)}

    def compute(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """See `Computed`."""
        x = cuts[0][:, :, 0].astype(np.float32)
        if self._spec.temperature != 1:
            x = x / np.float32(self._spec.temperature)
        if self._spec.how == "softmax":
            x = np.exp(x - x.max(axis=-1, keepdims=True))
            x = x / x.sum(axis=-1, keepdims=True)
        elif self._spec.how == "sigmoid":
            x = np.float32(0.5) * (np.float32(1) + np.tanh(np.float32(0.5) * x))  # no overflow on either side
        if self._spec.pair:
            x = x.reshape(*x.shape[:2], 1)
            x = np.concatenate((1 - x, x), axis=2)
        return [np.asarray(x, np.float32)], states


class DifferenceStage:
    """See `edge_runtime.manifest.stages.Difference`."""

    states: tuple[StateSpec, ...] = ()

    def __init__(self, spec: Difference) -> None:
        self._how = spec.how
        self.gives: dict[str, Gives] = {spec.name: (1, (1,))}

    def compute(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """See `Computed`."""
        one, other = (cut.reshape(*cut.shape[:2], -1).astype(np.float64) for cut in cuts)
        away = np.abs(one - other)
        if self._how == "mse":
            found = (away * away).mean(axis=2)
        else:
            found = away.mean(axis=2) if self._how == "mae" else away.max(axis=2)
        return [found.astype(np.float32)[:, :, None]], states


class CombineStage:
    """See `edge_runtime.manifest.stages.Combine`."""

    states: tuple[StateSpec, ...] = ()

    def __init__(self, spec: Combine, rows: Sequence[tuple[int, tuple[int, ...]]]) -> None:
        if len(set(rows)) > 1:
            raise EngineError(f"stage {spec.name!r} combines tracks of different shapes: {', '.join(map(str, rows))}")
        self._how = spec.how
        weights = np.array(spec.weights or [1.0] * len(rows))
        self._weights = (weights / weights.sum()).astype(np.float32)
        self.gives: dict[str, Gives] = {spec.name: rows[0]}

    def compute(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """See `Computed`."""
        if self._how == "max":
            made: Array = np.maximum.reduce(list(cuts))
        else:
            if self._how == "vote":
                cuts = [_largest(cut) for cut in cuts]
            made = sum(weight * cut for weight, cut in zip(self._weights, cuts, strict=True))
        return [made.reshape(len(made), -1, *made.shape[3:])], states


def _largest(rows: Array) -> Array:
    """Return 1 where a row has its largest number (the first of equal ones), 0 elsewhere."""
    first = np.zeros_like(rows)
    np.put_along_axis(first, rows.argmax(axis=-1, keepdims=True), 1, axis=-1)
    return first


class _Fed:
    """An input of a model, as the engine takes it."""

    def __init__(self, port: Port, rows: int, row: tuple[int, ...], tensor: EngineTensor) -> None:
        self.name = tensor.name
        self.natural = (rows, *row)
        """Shape of one call's rows."""
        width = int(np.prod(row, dtype=int))
        natural = (rows, width) if port.layout == "NWC" else (width, rows)
        stated = port.shape or (natural if len(tensor.shape) == 3 else tuple(tensor.shape[1:]))
        self._shape = tuple(stated)
        if int(np.prod(self._shape, dtype=int)) != rows * width:
            raise EngineError(
                f"input {port.name!r} is fed with {rows} rows of {width} numbers, which do not make the shape "
                f"{self._shape}; correct rows, or the shape, of the port"
            )
        self._turn = port.layout == "NCW"
        self._offset, self._scale = (np.asarray(value, np.float32) for value in (port.offset, port.scale))
        self._plain = not np.any(self._offset) and bool(np.all(self._scale == 1))
        self._dtype = tensor.dtype

    def arrange(self, cut: Array) -> Array:
        """(n, rows, *row) as the tensor (n, *shape)."""
        x = cut.reshape(*cut.shape[:2], -1)
        if not self._plain:
            x = (x - self._offset) * self._scale
        if self._turn:
            x = x.transpose(0, 2, 1)
        if self._dtype.kind in "iu":
            limits = np.iinfo(self._dtype)
            x = np.clip(np.rint(x), limits.min, limits.max)
        return np.ascontiguousarray(x.reshape(len(x), *self._shape), dtype=self._dtype)


class EngineStage:
    """A model in its engine.

    Args:
        spec: the manifest's stage.
        engine: the loaded file.
        tensors: names in the file, by the names that `spec` uses, where they differ.
        together: keys in one call; 0 for any number.
        cuts: rows of one call and shape of a row, for each input of `spec`.

    Raises:
        EngineError: the file does not have what the stage names.
    """

    def __init__(
        self,
        spec: ModelStage,
        engine: Engine,
        tensors: Mapping[str, str],
        together: int,
        cuts: Sequence[tuple[int, tuple[int, ...]]],
    ) -> None:
        self._spec = spec
        self._engine = engine
        self._in = {tensor.name: tensor for tensor in engine.inputs}
        self._out = {tensor.name: position for position, tensor in enumerate(engine.outputs)}
        self._names = tensors
        self._fed = [
            _Fed(port, rows, row, self._input(port.name)) for port, (rows, row) in zip(spec.inputs, cuts, strict=True)
        ]
        self._constants = {self._input(one.name).name: _constant(one, self._input(one.name)) for one in spec.constants}
        self._held = [state for state in spec.states if tensors.get(state.input) != ""]
        self._state_in = [self._input(state.input) for state in self._held]
        self._state_out = [self._output(state.output) for state in self._held]
        self._rows_out = [self._output(output.name) for output in spec.outputs]
        fed = {one.name for one in self._fed} | {tensor.name for tensor in self._state_in} | self._constants.keys()
        if missing := [name for name in self._in if name not in fed]:
            raise EngineError(f"nothing feeds the input {missing[0]!r} of stage {spec.name!r}; name it in the manifest")
        self._together = 1 if any(state.batch < 0 for state in self._held) else together
        self.states = tuple(
            StateSpec(state.input, tensor.dtype, state.shape, state.initial)
            for state, tensor in zip(self._held, self._state_in, strict=True)
        )
        self.gives: dict[str, Gives] = self._tracks()

    def compute(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """See `Computed`."""
        batch, calls = cuts[0].shape[:2]
        if not self.states:
            made, _ = self._run([cut.reshape(batch * calls, *cut.shape[2:]) for cut in cuts], ())
            return [rows.reshape(batch, -1, *rows.shape[2:]) for rows in made], ()
        if calls == 1:
            return self._run([cut[:, 0] for cut in cuts], states)
        return self._in_turn(cuts, states)

    def _in_turn(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """Run the calls of a step one after another; copies, since an engine may write its next answer there."""
        steps: list[list[Array]] = []
        for call in range(cuts[0].shape[1]):
            made, after = self._run([cut[:, call] for cut in cuts], states)
            steps.append([rows.copy() for rows in made])
            states = [state.copy() for state in after]
        return [np.concatenate(rows, axis=1) for rows in zip(*steps, strict=True)], states

    def _run(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        """One call for each key of a batch: (n, rows, *row) in, (n, rows, *row) out; valid until the next call."""
        n = len(cuts[0])
        if not self._together or n <= self._together:
            return self._call(cuts, states)
        parts = [slice(at, at + self._together) for at in range(0, n, self._together)]
        called = (self._call([cut[part] for cut in cuts], [state[part] for state in states]) for part in parts)
        joined = _joined([*rows, *after] for rows, after in called)
        return joined[: len(self._rows_out)], joined[len(self._rows_out) :]

    def _call(self, cuts: Sequence[Array], states: Sequence[Array]) -> tuple[list[Array], Sequence[Array]]:
        feed: dict[str, Array] = dict(self._constants)
        for fed, cut in zip(self._fed, cuts, strict=True):
            feed[fed.name] = fed.arrange(cut)
        for state, tensor, value in zip(self._held, self._state_in, states, strict=True):
            feed[tensor.name] = _placed(value, state, tensor)
        answers = self._engine.run(*[feed[name] for name in self._in])
        n = len(cuts[0])
        made = [
            _rows(np.asarray(answers[position], np.float32), n, output)
            for position, output in zip(self._rows_out, self._spec.outputs, strict=True)
        ]
        new = [_taken(answers[position], n, state) for position, state in zip(self._state_out, self._held, strict=True)]
        return made, new

    def _tracks(self) -> dict[str, Gives]:
        """Run once on zeros: what a file says of its shapes may be wrong."""
        zeros = [np.zeros((1, *fed.natural), np.float32) for fed in self._fed]
        states = [np.full((1, *spec.shape), spec.initial, spec.dtype) for spec in self.states]
        made, new = self._call(zeros, states)
        for spec, before, after in zip(self.states, states, new, strict=True):
            if before.shape != after.shape or before.dtype != after.dtype:
                raise EngineError(
                    f"state {spec.name!r} of stage {self._spec.name!r} goes in as {before.dtype} {before.shape[1:]} "
                    f"and comes out as {after.dtype} {after.shape[1:]}; name its own output, and its shape"
                )
        return {track: (rows.shape[1], rows.shape[2:]) for track, rows in zip(self._spec.tracks, made, strict=True)}

    def _input(self, name: str) -> EngineTensor:
        found = self._in.get(self._names.get(name, name))
        if found is None:
            raise EngineError(
                f"stage {self._spec.name!r}: the file has no input {name!r}; it has {', '.join(self._in)}"
            )
        return found

    def _output(self, name: str) -> int:
        found = self._out.get(self._names.get(name, name))
        if found is None:
            raise EngineError(
                f"stage {self._spec.name!r}: the file has no output {name!r}; it has {', '.join(self._out)}"
            )
        return found


def _joined(parts: Iterable[Sequence[Array]]) -> list[Array]:
    """Join the arrays of several calls; copied one by one, since an engine may write its next answer into the same."""
    kept = [[array.copy() for array in part] for part in parts]
    return [np.concatenate(arrays) for arrays in zip(*kept, strict=True)]


def _constant(spec: Constant, tensor: EngineTensor) -> Array:
    shape = spec.shape or np.shape(spec.value) or tuple(max(1, size) for size in tensor.shape)
    return np.broadcast_to(np.asarray(spec.value, tensor.dtype), shape).copy()


def _placed(value: Array, state: ModelState, tensor: EngineTensor) -> Array:
    """(n, *shape) with the batch where the tensor has it; files of one bundle may have other axes of length 1."""
    if state.batch < 0:
        alone: Array = value[0]
        return alone
    if state.batch == 0:
        return value if value.ndim == len(tensor.shape) else value.reshape(len(value), *tensor.shape[1:])
    if len(value) == 1:
        return value.reshape(*value.shape[1 : state.batch + 1], 1, *value.shape[state.batch + 1 :])
    return np.ascontiguousarray(np.moveaxis(value, 0, state.batch))


def _taken(value: Array, n: int, state: ModelState) -> Array:
    """Reverse `_placed`."""
    if state.batch < 0:
        return value.reshape(1, *state.shape)
    if n == 1 and value.size == math.prod(state.shape):
        return value.reshape(1, *state.shape)
    moved: Array = np.moveaxis(value, state.batch, 0) if state.batch else value
    return moved.reshape(n, *state.shape) if moved.size == n * math.prod(state.shape) else moved


def _rows(value: Array, n: int, output: Output) -> Array:
    """Return a model's output as (n, rows, numbers of a row)."""
    if value.size % (n * output.rows):
        raise EngineError(
            f"output {output.name!r} has the shape {value.shape} for a batch of {n}, which does not make "
            f"{output.rows} rows for each; correct rows of the output"
        )
    if output.layout == "NWC":
        x = value.reshape(n, output.rows, -1)
    else:
        x = value.reshape(n, -1, output.rows).transpose(0, 2, 1)
    front, end = output.trim
    x = x[:, front : output.rows - end]
    if output.offset or output.scale != 1:
        x = (x - np.float32(output.offset)) * np.float32(output.scale)
    return x
