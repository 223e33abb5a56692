"""A card held against its files: the stages of the manifest, with what the files tell filled in.

Shapes in files may be wrong, so nothing is taken from them that a real step does not confirm: each stage is run on
zeros and on noise, twice, with its own states put back in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np

from edge_export.package.card.axes import arrange, written
from edge_export.package.card.model_file import ModelFile
from edge_export.package.card.spec import Card, CardModel, CardOutput, CardPort, CardState
from edge_export.package.card.step import StepSamples, before, choose, fed, rows_in
from edge_runtime.errors import ConfigError, EngineError, InputError
from edge_runtime.manifest.frames import Frame
from edge_runtime.manifest.stages import Constant, ModelStage, Output, Port, Stage, State
from edge_runtime.model.chain import STREAM, WINDOW
from edge_runtime.model.chain.engine import Followed, LoadedStage, follow
from edge_runtime.model.engines.base import Array, TensorSpec

_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A card that fits its files.

    Attributes:
        stages: of the manifest, without those that the task adds.
        step: samples of a step.
        followed: rows and shapes of all tracks.
        notes: what was chosen and not written in the card, a line each.
        unused: outputs that nothing takes, by stage.
    """

    stages: tuple[Stage, ...]
    step: StepSamples
    followed: Followed
    notes: tuple[str, ...]
    unused: Mapping[str, tuple[str, ...]]


def fit(card: Card, files: Mapping[str, ModelFile]) -> Fitted:
    """Fill in what the files tell, and run each stage.

    Args:
        card: the card.
        files: the model files by the name of their stage.

    Raises:
        ConfigError: card and file do not fit; says what to change.
    """
    step = choose(card, files)
    window = (step.window, len(card.signal.channels), step.hop)
    stages: list[Stage] = []
    notes = [f"{file.path.name}: {note}" for file in files.values() for note in file.notes]
    unused: dict[str, tuple[str, ...]] = {}
    row = (window[1],)
    followed = Followed([], [], {WINDOW: row, STREAM: row}, {WINDOW: window[0], STREAM: window[2]})
    for position, stage in enumerate(card.stages):
        if isinstance(stage, CardModel):
            file = files[stage.name]
            fitting = _Fitting(stage, file, followed, before(card.stages, position), step, card.signal.frame)
            made: Stage = fitting.stage()
            unused[stage.name] = tuple(fitting.outputs)
            notes += fitting.notes
            blame = str(file.path)
        else:
            made, blame = cast("Stage", stage), f"stage {stage.name!r}"
        stages.append(made)
        try:
            followed = follow(stages, window, {name: LoadedStage(file.engine, {}, 1) for name, file in files.items()})
            _exercise(made, followed)
        except (EngineError, InputError) as error:
            raise ConfigError(f"{blame}: {error}") from error
    kept = any(computed.states for computed in followed.computed)
    if kept and step.hop < step.window and not any(STREAM in stage.takes for stage in stages):
        raise ConfigError('a model with states takes each sample once; leave hop out, or let it take of = "stream"')
    return Fitted(stages=tuple(stages), step=step, followed=followed, notes=tuple(notes), unused=unused)


def _exercise(stage: Stage, followed: Followed) -> None:
    """Run the last stage on noise, twice, with its own states; refuse what is not finite."""
    node, computed = followed.nodes[-1], followed.computed[-1]
    random = np.random.default_rng(0)
    states = [np.full((1, *spec.shape), spec.initial, spec.dtype) for spec in computed.states]
    for _ in range(_STEPS):
        cuts = [
            random.uniform(-1, 1, (1, 1, cut.rows, *followed.shapes[cut.of])).astype(np.float32) for cut in node.cuts
        ]
        made, new = computed.compute(cuts, states)
        for before_, after in zip(states, new, strict=True):
            if before_.shape != after.shape or before_.dtype != after.dtype:
                raise EngineError(f"stage {stage.name!r}: a state changes its shape from step to step")
        if isinstance(stage, ModelStage) and not all(np.isfinite(rows).all() for rows in made):
            raise EngineError(f"stage {stage.name!r} answers noise with NaN or infinity; the file is damaged")
        states = [np.array(one) for one in new]


class _Fitting:
    """One model stage of a card, held against its file."""

    def __init__(
        self, card: CardModel, file: ModelFile, followed: Followed, default: str, step: StepSamples, frame: Frame | None
    ) -> None:
        self._card = card
        self._file = file
        self._followed = followed
        self._default = default
        self._step = step
        self._frame = frame
        self.inputs = dict(file.inputs)
        """Those that nothing feeds yet."""
        self.outputs = dict(file.outputs)
        """Those that nothing takes yet."""
        self.notes: list[str] = []

    def stage(self) -> ModelStage:
        """Return the stage as the manifest has it."""
        self._check_inside()
        constants = [self._constant(port) for port in self._card.inputs if port.value is not None]
        for output in self._card.outputs:
            if output.name:
                self._take(self.outputs, output.name, "output")
        states = [self._state(state) for state in self._card.states]
        ports = [self._port(port, [*states, *self._file.taken]) for port in fed(self._card)]
        if self.inputs:
            raise ConfigError(
                f"{self._file.path}: nothing feeds {', '.join(self.inputs)}; name each under inputs (rows of the "
                "signal, or a value) or under states"
            )
        try:
            return ModelStage(
                name=self._card.name,
                inputs=tuple(ports),
                constants=tuple(constants),
                states=(*states, *self._file.taken),
                outputs=tuple(self._outputs()),
                warmup_steps=self._card.warmup_steps,
                when=self._card.when,
            )
        except ValueError as error:
            raise ConfigError(f"{self._file.path}: {error}") from error

    def _take(self, left: dict[str, TensorSpec], name: str, kind: str) -> TensorSpec:
        if name not in left:
            there = ", ".join(left) or "none that is free"
            raise ConfigError(f"{self._file.path}: has no {kind} {name!r}; it has {there}")
        return left.pop(name)

    def _check_inside(self) -> None:
        if self._file.inside and not self._card.inside:
            raise ConfigError(
                f"{self._file.path}: keeps something from call to call ({self._file.inside}), and the file cannot say "
                'whether it should; write inside = "cleared" at the stage if one call takes a whole sequence, '
                '"kept" if it runs on from step to step'
            )
        kept = self._card.inside == "kept" and self._file.taken
        if self._card.inside and not self._file.inside and not kept:
            self.notes.append(
                f'{self._file.path.name} keeps nothing inside; inside = "{self._card.inside}" does nothing'
            )

    def _constant(self, port: CardPort) -> Constant:
        spec = self._take(self.inputs, port.name, "input")
        value = np.asarray(port.value)
        if spec.dtype.kind in "iu" and not np.array_equal(value, np.rint(value)):
            raise ConfigError(f"{self._file.path}: input {port.name} takes {spec.dtype}; write a whole number as value")
        shape = tuple(max(1, size) for size in spec.shape)
        if value.ndim and math.prod(shape) == value.size and shape != value.shape:
            raise ConfigError(f"{self._file.path}: input {port.name} has the shape {shape}; write one number as value")
        return Constant(name=port.name, value=cast("Any", port.value))

    def _state(self, state: CardState) -> State:
        spec = self._take(self.inputs, state.input, "input")
        batch = self._batch_axis(state, spec)
        shape = state.shape or tuple(size for axis, size in enumerate(spec.shape) if axis != batch)
        if any(size < 1 for size in shape):
            raise ConfigError(
                f"{self._file.path}: state {state.input} has open sizes {written(spec.shape)}; write its shape, "
                "without the batch"
            )
        output = state.output or self._partner(state, spec)
        self._take(self.outputs, output, "output")
        if not state.output:
            self.notes.append(f"state {state.input} goes on as {output}")
        return State(input=state.input, output=output, shape=shape, batch=batch, initial=state.initial)

    def _batch_axis(self, state: CardState, spec: TensorSpec) -> int:
        if state.batch is not None:
            if not -1 <= state.batch < len(spec.shape):
                raise ConfigError(
                    f"{self._file.path}: state {state.input} has {len(spec.shape)} axes; write batch = 0 to "
                    f"{len(spec.shape) - 1}, or -1 where none is the batch"
                )
            if state.batch >= 0 and spec.shape[state.batch] > 1:
                raise ConfigError(
                    f"{self._file.path}: axis {state.batch} of state {state.input} {written(spec.shape)} is no batch; "
                    "correct batch, or write -1 where there is none"
                )
            return state.batch
        if state.shape and len(state.shape) == len(spec.shape):
            return -1
        open_axes = [axis for axis, size in enumerate(spec.shape) if size < 0]
        if len(open_axes) == 1:
            return open_axes[0]
        return 0 if spec.shape and spec.shape[0] in (-1, 1) else -1

    def _partner(self, state: CardState, spec: TensorSpec) -> str:
        """Return the only output that may be a state's next value."""
        taken = {other.output for other in self._card.states if other.output}
        fitting = [
            name for name, other in self.outputs.items()
            if name not in taken and other.dtype == spec.dtype and len(other.shape) == len(spec.shape)
            and all(a == b or -1 in (a, b) for a, b in zip(other.shape, spec.shape, strict=True))
        ]  # fmt: skip
        exact = [name for name in fitting if self.outputs[name].shape == spec.shape]
        named = [name for name in fitting if alike(name, state.input)]
        for chosen in (fitting, exact, named):
            if len(chosen) == 1:
                return chosen[0]
        if not fitting:
            raise ConfigError(
                f"{self._file.path}: no output has the shape of state {state.input} {written(spec.shape)}; it has "
                f"{', '.join(f'{name} {written(each.shape)}' for name, each in self.outputs.items())}"
            )
        raise ConfigError(
            f"{self._file.path}: state {state.input} may go on as {' or '.join(fitting)}; write its output under states"
        )

    def _trial(self, name: str, states: Sequence[State], array: Array) -> Sequence[Array]:
        """Run the file on a tensor; constants as the card has them, states at their start, zeros elsewhere."""
        constants = {port.name: port.value for port in self._card.inputs if port.value is not None}
        feed = {
            spec.name: np.full([max(1, size) for size in spec.shape], constants.get(spec.name, 0), spec.dtype)
            for spec in self._file.engine.inputs
        }
        for state in states:
            at, each = state.batch, list(state.shape)
            sizes = [*each[:at], len(array), *each[at:]] if at >= 0 else each
            feed[state.input] = np.full(sizes, state.initial, feed[state.input].dtype)
        whole = feed[name].dtype.kind in "iu"
        feed[name] = np.rint(array + 1).astype(feed[name].dtype) if whole else array
        return self._file.engine.run(*feed.values())

    def _only_input(self) -> str:
        if len(self.inputs) != 1:
            raise ConfigError(
                f"{self._file.path}: which input takes the rows? it has {', '.join(self.inputs)}; write its name under "
                "inputs, and name the others under states or with a value"
                if self.inputs else f"{self._file.path}: no input is left for the rows; correct inputs and states"
            )  # fmt: skip
        return next(iter(self.inputs))  # may be empty, too

    def _port(self, port: CardPort, states: Sequence[State]) -> Port:
        name = port.name or self._only_input()
        self._take(self.inputs, name, "input")
        track = port.of or self._default
        if track not in self._followed.shapes:
            raise ConfigError(
                f"stage {self._card.name!r}: takes the track {track!r}, which no stage before it makes; known here: "
                f"{', '.join(self._followed.shapes)}"
            )
        width = math.prod(self._followed.shapes[track])
        where = f"{self._file.path}: input {name}"
        sizes = self._file.shape(name)
        frame = self._frame if track == WINDOW else None
        if frame is not None:
            sizes = _of_picture(port, frame, width, sizes, where)
        rows = rows_in(port, width, sizes, where)
        found = arrange(port, rows, width, sizes, where, partial(self._trial, name, states) if frame is None else None)
        if not found.batch:
            self._file.give_batch(name, found.shape)
            self.notes.append(f"input {name} has no batch: it takes a window as {written(found.shape)}, alone")
        shape = found.shape[1:] if found.batch else found.shape
        natural = (rows, width) if found.layout == "NWC" else (width, rows)
        whole = self._followed.rows[track] == rows and self._step.clips
        try:
            return Port(
                name=name, of=port.of, rows=0 if whole else rows, hop=0 if whole else port.hop,
                lead=port.lead, layout=found.layout,
                shape=() if found.batch and len(sizes) == 3 and shape == natural else shape,
                offset=port.offset, scale=port.scale,
                within=(port.within or self._step.clips) and not whole,
            )  # fmt: skip
        except ValueError as error:
            raise ConfigError(f"{self._file.path}: {error}") from error

    def _outputs(self) -> list[Output]:
        declared = list(self._card.outputs) or [CardOutput()]
        return [self._output(output) for output in declared]

    def _output(self, output: CardOutput) -> Output:
        name = output.name
        if not name:
            if len(self.outputs) != 1:
                raise ConfigError(
                    f"{self._file.path}: which output is the answer? it has {', '.join(self.outputs)}; write outputs = "
                    f'[{{ name = "{next(iter(self.outputs))}" }}] at the stage'
                    if self.outputs else f"{self._file.path}: all its outputs are states; correct states"
                )  # fmt: skip
            (name,) = self.outputs
            del self.outputs[name]
        try:
            return Output(
                name=name, track=output.track, rows=output.rows,
                layout="NCW" if output.layout == "channels-first" else "NWC",
                trim=output.trim, offset=output.offset, scale=output.scale,
            )  # fmt: skip
        except ValueError as error:
            raise ConfigError(f"{self._file.path}: {error}") from error


def alike(output: str, input_: str) -> bool:
    """Return whether two names are those of one state: state and stateN, h and hn, input_state and output_state."""
    a, b = output.lower(), input_.lower()
    swapped = [b.replace("input", "output"), b.replace("in", "out"), b.replace("prev", "next"), f"{b}n", f"{b}_n"]
    return a.startswith(b) or a in (*swapped, f"{b}_out", f"{b}_next", f"new_{b}", f"next_{b}")


def _of_picture(port: CardPort, frame: Frame, colours: int, shape: Sequence[int], where: str) -> tuple[int, ...]:
    """Return a tensor's sizes with the picture's height and width where they are open.

    Raises:
        ConfigError: the file takes pictures of another size.
    """
    if len(shape) != 4 or port.rows:
        return tuple(shape)
    first = shape[1] == colours if port.layout == "auto" else port.layout == "channels-first"
    at = (2, 3) if first else (1, 2)
    sizes = list(shape)
    for axis, size in zip(at, (frame.height, frame.width), strict=True):
        if sizes[axis] not in (-1, size):
            raise ConfigError(
                f"{where}: takes {written(shape)}, and the signal is {frame.height} x {frame.width} (height x width) "
                f"of {colours} colours; correct signal"
            )
        sizes[axis] = size
    return tuple(sizes)
