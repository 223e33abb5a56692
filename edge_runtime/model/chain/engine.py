"""A chain as one engine: a window and the states of its keys in, an answer and the new states out.

It is an `edge_runtime.model.engines.base.Engine` that keeps nothing between calls, so child processes, golden vectors
and failover treat it as any other. Its inputs are the window (batch, samples, channels), ``step`` (batch,), and the
states; its outputs are the answer, ``answered`` (batch,), the next ``step``, and the new states. A key begins, or
is reset, with step 0, whatever its other states hold. A chain without states has the window and the answer alone.

Where windows overlap and no stage reads the track ``window``, the number of samples is open: keys that all go on may be
given the newest hop alone, which saves moving what is not read.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edge_runtime.errors import EngineError, InputError, ManifestError
from edge_runtime.manifest.stages import MOST_NUMBERS, Activation, Combine, Difference, ModelStage, Smooth, Stage, When
from edge_runtime.model.chain import STEP, STREAM, WINDOW, schedule
from edge_runtime.model.chain.schedule import Cut, Node, Schedule, StageTurn
from edge_runtime.model.chain.stages import (
    ActivationStage,
    CombineStage,
    Computed,
    DifferenceStage,
    EngineStage,
    FrontendStage,
    SmoothStage,
)
from edge_runtime.model.engines.base import Array, Engine, TensorSpec
from edge_runtime.model.engines.tensors import Inputs, batch_of
from edge_runtime.signal.frontends import StateSpec

ANSWERED = "answered"


class LoadedStage(NamedTuple):
    """A model file in its engine, for a model stage."""

    engine: Engine
    tensors: Mapping[str, str]
    """Names in the file, by the names that the stage uses, where they differ."""
    together: int
    """Keys in one call; 0 for any number."""


class _Stage(NamedTuple):
    cuts: tuple[Cut, ...]
    rings: tuple[int, ...]
    """Longest that each cut's kept rows are."""
    first: int
    """Position of its first state: kept rows, then its own."""
    made: Computed
    when: When | None = None


class ChainEngine:
    """See the module.

    Args:
        stages: the manifest's stages, one at least.
        answer: tracks that make the answer; empty takes the last stage's.
        window: samples and channels of a window.
        models: the loaded files, by the name of their stage.
        hop: samples from one window to the next; 0: those of a window.

    Raises:
        EngineError: a file does not have what its stage names, or the stages do not fit each other.
    """

    def __init__(
        self,
        stages: Sequence[Stage],
        answer: Sequence[str],
        window: tuple[int, int],
        models: Mapping[str, LoadedStage],
        hop: int = 0,
    ) -> None:
        self._models = models
        self._rows, self._hop = window[0], hop or window[0]
        names = sorted({model.engine.name for model in models.values()})
        self.name = ", ".join(names)
        nodes, computed, shapes, _ = follow(stages, (*window, self._hop), models)
        try:
            self._schedule: Schedule = schedule.make(nodes, window[0], hop)
        except ValueError as error:
            raise EngineError(str(error)) from error
        before = next(iter(computed[-1].gives))
        self._tracks = tuple(answer) or (before,)
        self._full = {track: max(level[track] for level in self._schedule.rows) for track in self._tracks}
        if empty := [track for track, most in self._full.items() if not most]:
            raise EngineError(f"the track {empty[0]!r} never has a row; its stage takes more rows than ever come")
        self._whole = np.array([all(level[t] == n for t, n in self._full.items()) for level in self._schedule.rows])
        self._next = np.array([*range(2, len(self._whole) + 1), self._schedule.again + 1], np.int32)
        shape = self._answer_shape(shapes)
        self._stages, specs = self._place(stages, nodes, computed, shapes)
        self.states = tuple(specs)
        """What a step leaves for the next one, `STEP` left out."""
        self._stateful = bool(specs) or not self._whole.all()
        taken = self._open_length(nodes), window[1]
        self.inputs, self.outputs = _tensors(taken, shape, specs if self._stateful else None)
        self._shape = shape
        self._check = Inputs(self.inputs).check
        self._check_window = Inputs(self.inputs[:1]).check
        self._like = [(spec.dtype, spec.shape[1:]) for spec in self.inputs[1:]]
        self._initial = [np.broadcast_to(np.asarray(spec.initial, spec.dtype), spec.shape) for spec in specs]

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """See `edge_runtime.model.engines.base.Engine.run`."""
        if not self._stateful:
            answer, _ = self._compute(0, self._check(arrays)[0], ())
            return (answer,)
        window, step, *states = self._checked(arrays)
        n = len(window)
        steps = step.tolist()
        found = set(steps)
        if min(found) < 0 or max(found) > len(self._next):
            raise EngineError("a state is of another chain; reset the key")
        if len(found) > 1:
            return self._by_level(window, step, states)
        if not steps[0]:
            states = [np.broadcast_to(initial, (n, *initial.shape)) for initial in self._initial]
        level = max(0, steps[0] - 1)
        self._check_length(window.shape[1], level)
        answer, new = self._compute(level, window, states)
        answered, after = np.empty(n, np.bool_), np.empty(n, np.int32)
        answered.fill(self._whole[level])
        after.fill(self._next[level])
        return (answer, answered, after, *new)

    def _open_length(self, nodes: Sequence[Node]) -> int:
        """Return samples of a window, -1 where keys that go on may be given less."""
        read = {cut.of for node in nodes for cut in node.cuts}
        return -1 if self._stateful and self._hop < self._rows and WINDOW not in read else self._rows

    def _check_length(self, samples: int, level: int) -> None:
        if samples != self._rows and (not level or samples != self._hop):
            raise InputError(
                "shape", f"the window has {samples} samples, not {self._rows}, or of {self._hop} for a key that goes on"
            )

    def _checked(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Check what is not checked elsewhere: states are this engine's own, and models look at what they are given."""
        if len(arrays) == len(self.inputs) and all(
            type(array) is np.ndarray
            and array.dtype is dtype
            and array.shape[1:] == rest
            and len(array) == len(arrays[0])
            for array, (dtype, rest) in zip(arrays[1:], self._like, strict=True)
        ):
            return (*self._check_window(arrays[:1]), *arrays[1:])
        checked = self._check(arrays)
        batch_of(checked)
        return checked

    def close(self) -> None:
        """See `edge_runtime.model.engines.base.Engine.close`."""
        for model in self._models.values():
            model.engine.close()

    def _by_level(self, window: Array, step: Array, states: Sequence[Array]) -> tuple[Array, ...]:
        """Compute keys that are at different steps: those of a step together."""
        made: list[Array] = []
        for one in np.unique(step):
            of = np.flatnonzero(step == one)
            parts = self.run(window[of], step[of], *(array[of] for array in states))
            made = made or [np.empty((len(step), *part.shape[1:]), part.dtype) for part in parts]
            for whole, part in zip(made, parts, strict=True):
                whole[of] = part
        return tuple(made)

    def _compute(self, level: int, window: Array, states: Sequence[Array]) -> tuple[Array, list[Array]]:
        """One step of keys of one level."""
        tracks = {WINDOW: window, STREAM: window[:, -self._hop :] if level else window}
        new = list(states)
        for stage, turn in zip(self._stages, self._schedule.levels[level], strict=True):
            tracks.update(zip(stage.made.gives, _step(stage, turn, tracks, states, new), strict=True))
        if not self._whole[level]:
            return np.zeros((len(window), *self._shape), np.float32), new
        parts = [tracks[track].reshape(len(window), -1) for track in self._tracks]
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        return flat.reshape(len(window), *self._shape), new

    def _answer_shape(self, shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
        """One track keeps its shape, a single row without the axis of rows; several are put behind each other."""
        if len(self._tracks) > 1:
            return (sum(self._full[track] * int(np.prod(shapes[track], dtype=int)) for track in self._tracks),)
        rows, row = self._full[self._tracks[0]], shapes[self._tracks[0]]
        return row if rows == 1 else (rows, *row)

    def _place(
        self,
        stages: Sequence[Stage],
        nodes: Sequence[Node],
        computed: Sequence[Computed],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> tuple[list[_Stage], list[StateSpec]]:
        """Give every kept row and every state of a stage its place among the chain's states."""
        specs: list[StateSpec] = []
        placed = []
        for position, (stage, node, made) in enumerate(zip(stages, nodes, computed, strict=True)):
            rings = tuple(self._schedule.most_kept(position, k) for k in range(len(node.cuts)))
            when = stage.when if isinstance(stage, ModelStage) else None
            placed.append(_Stage(node.cuts, rings, len(specs), made, when))
            for cut, ring in zip(node.cuts, rings, strict=True):
                if ring:
                    specs.append(StateSpec(f"{position}.rows.{cut.of}", np.dtype(np.float32), (ring, *shapes[cut.of])))
            specs += [spec._replace(name=f"{position}.{spec.name}") for spec in made.states]
        if (numbers := sum(math.prod(spec.shape) for spec in specs)) > MOST_NUMBERS:
            raise EngineError(f"the states of a key have {numbers:,} numbers; at most {MOST_NUMBERS:,} are allowed")
        return placed, specs


def _tensors(
    window: tuple[int, ...], answer: tuple[int, ...], states: Sequence[StateSpec] | None
) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Describe inputs and outputs; without states (None) they are the window and the answer."""
    floats = np.dtype(np.float32)
    first, last = TensorSpec(WINDOW, floats, (-1, *window)), TensorSpec("answer", floats, (-1, *answer))
    if states is None:
        return (first,), (last,)
    kept = [TensorSpec(spec.name, spec.dtype, (-1, *spec.shape)) for spec in states]
    step, answered = TensorSpec(STEP, np.dtype(np.int32), (-1,)), TensorSpec(ANSWERED, np.dtype(np.bool_), (-1,))
    return (first, step, *kept), (last, answered, step, *kept)


class Followed(NamedTuple):
    """Stages that were built one after another."""

    nodes: list[Node]
    """Stages as the schedule sees them."""
    computed: list[Computed]
    shapes: dict[str, tuple[int, ...]]
    """Shape of a row, by track."""
    rows: dict[str, int]
    """Rows that a step brings once the chain is full, by track."""


def follow(stages: Sequence[Stage], window: tuple[int, int, int], models: Mapping[str, LoadedStage]) -> Followed:
    """Build the stages one after another, since each has to know what rows the ones before it make.

    Args:
        stages: the manifest's stages.
        window: samples and channels of a window, and samples from one window to the next.
        models: loaded files, by stage.

    Raises:
        EngineError: a file does not have what its stage names, or a stage does not fit the rows that it is given.
    """
    samples, channels, hop = window
    rows = {WINDOW: samples, STREAM: hop}  # of a step, once the chain is full
    shapes: dict[str, tuple[int, ...]] = {WINDOW: (channels,), STREAM: (channels,)}
    nodes: list[Node] = []
    computed: list[Computed] = []
    before = WINDOW
    for stage in stages:
        cuts = [cut._replace(rows=cut.rows or rows[cut.of]) for cut in _cuts(stage, before)]
        cuts = [cut._replace(hop=cut.hop or cut.rows) for cut in cuts]
        made = _compute(stage, [(cut.rows, shapes[cut.of]) for cut in cuts], models)
        warm = stage.warmup_steps if isinstance(stage, ModelStage) else 0
        nodes.append(Node(tuple(cuts), {track: each for track, (each, _) in made.gives.items()}, warm))
        computed.append(made)
        before = next(iter(made.gives))
        for track, (each, row) in made.gives.items():
            rows[track] = each * max(1, rows[cuts[0].of] // cuts[0].hop)
            shapes[track] = row
    return Followed(nodes, computed, shapes, rows)


def _step(
    stage: _Stage, turn: StageTurn, tracks: Mapping[str, Array], states: Sequence[Array], new: list[Array]
) -> Sequence[Array]:
    """Run one stage for keys of one level; puts its new states into `new`, and returns the rows of its tracks."""
    cuts = []
    at = stage.first
    for k, (cut, ring) in enumerate(zip(stage.cuts, stage.rings, strict=True)):
        kept, skipped, left = turn.kept[k], turn.skipped[k], turn.left[k]
        rows = tracks[cut.of]
        if kept:
            rows = _behind(states[at] if ring else None, kept, rows)
        if ring:
            new[at] = _ring(rows, left, ring)
            at += 1
        cuts.append(_cut(rows[:, skipped:] if skipped else rows, cut, turn.calls))
    own = slice(at, at + len(stage.made.states))
    if not turn.calls:
        return [np.zeros((len(rows), 0, *row), np.float32) for _, row in stage.made.gives.values()]
    if stage.when is not None:
        made, changed = _run_some(stage, stage.when, tracks, cuts, states[own])
    else:
        made, changed = stage.made.compute(cuts, states[own])
    new[own] = changed
    return _used(made, turn.unused, stage.made)


def _used(made: Sequence[Array], unused: int, of: Computed) -> Sequence[Array]:
    """Leave out the rows of the first calls."""
    if not unused:
        return made
    return [rows[:, unused * each :] for rows, (each, _) in zip(made, of.gives.values(), strict=True)]


def _behind(ring: Array | None, kept: int, rows: Array) -> Array:
    """Put kept rows in front; more than ever stay are those before the first step, which are zeros."""
    if ring is None or kept > ring.shape[1]:
        before: Array = np.zeros((len(rows), kept, *rows.shape[2:]), rows.dtype)
    else:
        before = ring[:, :kept]
    return np.concatenate((before, rows), axis=1)


def _run_some(
    stage: _Stage, when: When, tracks: Mapping[str, Array], cuts: Sequence[Array], states: Sequence[Array]
) -> tuple[list[Array], Sequence[Array]]:
    """Run a model for the keys whose condition holds; the others rest, and forget its states."""
    ((_, (each, row)),) = stage.made.gives.items()
    rows = tracks[when.track].reshape(len(cuts[0]), -1, tracks[when.track].shape[-1])
    looked = rows.max(axis=2) if when.column < 0 else rows[:, :, when.column]
    holds = (looked > when.above) if when.above is not None else (looked < when.below)
    runs = np.flatnonzero(holds.any(axis=1))
    shape = (len(rows), cuts[0].shape[1] * each, *row)
    if when.otherwise:
        made = tracks[when.otherwise].reshape(shape).copy()
    else:
        made = np.broadcast_to(np.asarray(when.rest, np.float32), shape).copy()
    new = [
        np.broadcast_to(np.asarray(spec.initial, spec.dtype), state.shape).copy()
        for spec, state in zip(stage.made.states, states, strict=True)
    ]
    if len(runs):
        some, changed = stage.made.compute([cut[runs] for cut in cuts], [state[runs] for state in states])
        made[runs] = some[0]
        for whole, part in zip(new, changed, strict=True):
            whole[runs] = part
    return [made], new


def _cuts(stage: Stage, before: str) -> list[Cut]:
    """Return what a stage takes of which tracks; 0 where a whole step's rows are meant."""
    if isinstance(stage, ModelStage):
        return [Cut(port.of or before, port.rows, port.hop, port.lead, port.within) for port in stage.inputs]
    return [Cut(of or before, *span) for of, span in zip(stage.takes, stage.spans, strict=True)]


def _compute(stage: Stage, cuts: Sequence[tuple[int, tuple[int, ...]]], models: Mapping[str, LoadedStage]) -> Computed:
    """Build what computes a stage.

    Args:
        stage: a stage of the manifest.
        cuts: rows of one call and shape of a row, for each input.
        models: loaded files, by stage.
    """
    if isinstance(stage, ModelStage):
        engine, tensors, together = models[stage.name]
        return EngineStage(stage, engine, tensors, together, cuts)
    if isinstance(stage, Difference):
        return DifferenceStage(stage)
    if isinstance(stage, Combine):
        return CombineStage(stage, cuts)
    if isinstance(stage, Smooth):
        return SmoothStage(stage, cuts[0][1])
    if isinstance(stage, Activation):
        return ActivationStage(stage, cuts[0][1])
    try:
        return FrontendStage(stage, cuts)
    except ManifestError as error:
        raise EngineError(f"stage {stage.name!r}: {error}") from error


def _ring(rows: Array, left: int, ring: int) -> Array:
    """Return the newest rows, at the front of an array of the ring's length."""
    if left == ring:
        return rows[:, rows.shape[1] - left :]
    kept = np.zeros((len(rows), ring, *rows.shape[2:]), rows.dtype)
    kept[:, :left] = rows[:, rows.shape[1] - left :]
    return kept


def _cut(rows: Array, cut: Cut, calls: int) -> Array:
    """(batch, n, *row) as (batch, calls, cut.rows, *row); a view."""
    if calls == 1:
        return rows[:, None, : cut.rows]
    if cut.rows == cut.hop:
        used = rows[:, : calls * cut.hop]
        return used.reshape(len(rows), calls, cut.hop, *rows.shape[2:])
    shape = (len(rows), calls, cut.rows, *rows.shape[2:])
    strides = (rows.strides[0], rows.strides[1] * cut.hop, *rows.strides[1:])
    return np.lib.stride_tricks.as_strided(rows, shape, strides, writeable=False)
