"""Stages of a chain: what is computed of a window, one after another, and which rows each takes.

A *track* is a sequence of rows. ``window`` is one, and so is what a stage gives: a fixed number of rows a step. Where
windows overlap, ``stream`` is the window without what the steps before brought. A stage takes cuts of a track, `rows`
rows every `hop` rows; where a step brings fewer, rows of earlier steps are kept as a state. `edge_runtime.model.chain`
computes it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from edge_runtime import schema
from edge_runtime.manifest.frontends import FRONTENDS, FrontendSpec
from edge_runtime.manifest.row_stage import RowStage, Span

Layout = Literal["NWC", "NCW"]

MOST_NUMBERS: Final = 2**24
"""Of a window with its context, of an answer, of a key's states together, of any tensor that is only declared: 64 MB as
floats. No file has to hold them, so a manifest of a kilobyte may ask for any memory."""

MOST_ROWS: Final = 1_000_000
"""Samples of a window, and rows of a cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """An input of a model that is fed with rows of a track."""

    name: str
    """Tensor of the file."""
    of: str = ""
    """Name of the track; empty takes that of the stage before, or the window."""
    rows: int = 0
    """Rows of one call; 0 takes all that a step brings."""
    hop: int = 0
    """Rows from one call's first row to the next one's; 0 means `rows`."""
    lead: int = 0
    """Rows of zeros before the first row after a reset."""
    layout: Layout = "NWC"
    """Order of the file's axes: batch, rows, columns; or batch, columns, rows."""
    shape: tuple[int, ...] = ()
    """Of the tensor without its batch axis, the rows in `layout` being put into it; empty: as `layout` has them."""
    offset: float | tuple[float, ...] = 0.0
    """Taken from the values; one number, or one a column."""
    scale: float | tuple[float, ...] = 1.0
    """Factor after that."""
    within: bool = False
    """Rows that a step leaves over are dropped: each step is a clip of its own, from which the model takes cuts."""

    def __post_init__(self) -> None:
        if self.within and self.lead:
            raise ValueError(f"input {self.name!r}: lead is for streams; leave it out, or write within = false")
        if self.rows < 0 or self.hop < 0 or self.lead < 0:
            raise ValueError(f"input {self.name!r}: rows, hop and lead must be 0 or more")
        if self.hop > self.rows or (self.rows and self.lead >= self.rows):
            raise ValueError(f"input {self.name!r}: hop must be at most rows, and lead less than rows")


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """An input of a model that is always the same, for example a sampling rate."""

    name: str
    value: float | tuple[float, ...]
    shape: tuple[int, ...] = ()
    """Of the tensor, where it is not that of `value`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """An input and an output of a model: what goes out of one step goes into the next one."""

    input: str
    output: str
    shape: tuple[int, ...]
    """Of one key, without the batch axis."""
    batch: int = 0
    """Which axis of the tensor is the batch; -1: it has none, so the model is run for one key at a time."""
    initial: float = 0.0

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.shape) or not math.isfinite(self.initial):
            raise ValueError(f"state {self.input!r}: sizes must be 1 or more, and initial finite")
        if not -1 <= self.batch <= len(self.shape):
            raise ValueError(f"state {self.input!r}: batch must be an axis of the tensor, or -1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """An output of a model that makes a track. Outputs that are not listed are not fetched."""

    name: str
    """Tensor of the file."""
    track: str = ""
    """Name of its track; empty: that of the stage."""
    rows: int = 1
    """Rows that one call gives."""
    layout: Layout = "NWC"
    trim: tuple[int, int] = (0, 0)
    """Rows left out at the front and at the end of each call's."""
    offset: float = 0.0
    scale: float = 1.0
    """The track holds (value - offset) * scale."""

    def __post_init__(self) -> None:
        if self.rows < 1 or min(self.trim) < 0 or sum(self.trim) >= self.rows:
            raise ValueError(f"output {self.name!r}: rows must be 1 or more, and trim must leave some")


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Condition under which a model is run for a key: a cheap model before a heavy one."""

    track: str
    """Track that decides; a key's model runs if any of its rows of this step does."""
    column: int = -1
    """Number of the row that is looked at; -1 looks at the largest."""
    above: float | None = None
    below: float | None = None
    """One of the two: the number is above, or below."""
    otherwise: str = ""
    """Track whose rows stand in where the model rests; empty takes `rest`."""
    rest: tuple[float, ...] = (0.0,)
    """Row that stands in: one number for all columns, or one each."""

    def __post_init__(self) -> None:
        if (self.above is None) == (self.below is None):
            raise ValueError("when needs one of above and below")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStage:
    """A model file in an engine."""

    type: Literal["model"] = "model"
    name: str = "model"
    inputs: tuple[Port, ...]
    constants: tuple[Constant, ...] = ()
    states: tuple[State, ...] = ()
    outputs: tuple[Output, ...]
    warmup_steps: int = 0
    """Calls after a reset whose rows are not used: a state has to settle first."""
    when: When | None = None
    """None: it runs in every step. A model that rests forgets its states."""

    def __post_init__(self) -> None:
        if self.when is not None and (len(self.outputs) != 1 or self.warmup_steps):
            raise ValueError(f"stage {self.name!r}: a stage with `when` has one output, and no warmup_steps")
        if self.warmup_steps < 0:
            raise ValueError(f"stage {self.name!r}: warmup_steps must be 0 or more")
        if not self.inputs or not self.outputs:
            raise ValueError(f"stage {self.name!r} needs an input that is fed by rows, and an output")
        names = [port.name for port in self.inputs] + [one.name for one in self.constants]
        names += [state.input for state in self.states]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"stage {self.name!r}: input {repeated[0]!r} is fed twice")

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the tracks that it takes; empty is that of the stage before."""
        of = [port.of for port in self.inputs]
        return tuple(of if self.when is None else (*of, self.when.track, self.when.otherwise))

    @property
    def tracks(self) -> tuple[str, ...]:
        """Names of the tracks that it makes."""
        return tuple(output.track or self.name for output in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Smooth(RowStage):
    """The mean, median or maximum of a track's newest rows."""

    type: Literal["smooth"] = "smooth"
    name: str = "smooth"
    rows: int
    hop: int = 1
    """Rows from one mean to the next one: as many as a step brings for one mean a step."""
    how: Literal["mean", "median", "max"] = "mean"

    def __post_init__(self) -> None:
        if self.rows < 2 or not 1 <= self.hop <= self.rows:
            raise ValueError(f"stage {self.name!r}: rows must be 2 or more, and hop 1 to rows")

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return ((self.rows, self.hop, 0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation(RowStage):
    """Probabilities of a model's scores, where its file ends before them."""

    type: Literal["activation"] = "activation"
    name: str = "probabilities"
    how: Literal["softmax", "sigmoid", "none"]
    temperature: float = 1.0
    """Scores are divided by it first."""
    pair: bool = False
    """Make two numbers of one, 1 - p and p: the model answers with the probability of the second of two labels."""

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(f"stage {self.name!r}: temperature must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(RowStage):
    """One number a cut: how far a track lies from what a model saw, for example an autoencoder's answer from its input.

    Both tracks have the same numbers a step.
    """

    type: Literal["difference"] = "difference"
    name: str = "difference"
    to: str
    """Track that `of` is held against."""
    rows: int = 0
    """Rows of `to` that one row of `of` stands for; 0: all of a step."""
    hop: int = 0
    how: Literal["mse", "mae", "max"] = "mse"

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the tracks that it takes; empty is that of the stage before."""
        return (self.of, self.to)

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return (0, 0, 0), (self.rows, self.hop, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combine:
    """One track of several alike: an ensemble of models."""

    type: Literal["combine"] = "combine"
    name: str = "combine"
    tracks_in: tuple[str, ...]
    """Two or more tracks with rows of one shape."""
    how: Literal["mean", "max", "vote"] = "mean"
    """``vote``: share of the tracks whose largest number stands in a column."""
    weights: tuple[float, ...] = ()
    """Of the mean, one for each track; empty: all alike."""

    def __post_init__(self) -> None:
        if len(self.tracks_in) < 2:
            raise ValueError(f"stage {self.name!r} combines two tracks or more")
        if self.weights and (self.how != "mean" or len(self.weights) != len(self.tracks_in) or sum(self.weights) <= 0):
            raise ValueError(f"stage {self.name!r}: weights are for the mean, one for each track, with a sum above 0")

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the tracks that it takes."""
        return self.tracks_in

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return tuple((0, 0, 0) for _ in self.tracks_in)

    @property
    def tracks(self) -> tuple[str, ...]:
        """Names of the tracks that it makes."""
        return (self.name,)


if TYPE_CHECKING:
    Stage = ModelStage | Smooth | Activation | Difference | Combine | FrontendSpec
else:
    Stage = schema.OneOf(
        model=f"{__name__}:ModelStage",
        smooth=f"{__name__}:Smooth",
        activation=f"{__name__}:Activation",
        difference=f"{__name__}:Difference",
        combine=f"{__name__}:Combine",
        **FRONTENDS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFile:
    """File of a model stage, in a variant of a bundle whose chain has several."""

    stage: str
    file: str
    format: Literal["onnx", "tflite"]
    size: int
    sha256: str
    tensors: dict[str, str]
    """Names in this file, by the names that the stage uses; those that are the same are left out. Empty: a state that
    this file does not have."""
    batch: int = 0
    """Keys in one call: 1 where rows of one call touch each other, 0 for any number."""


def check_stages(stages: tuple[Stage, ...], answer: tuple[str, ...], *, rate_hz: float, window: int, hop: int) -> None:
    """Check that every track that is taken was made before, and that no name is used twice.

    Raises:
        ValueError: says which.
    """
    made = ["window", "stream"]
    for stage in stages:
        if unknown := [track for track in stage.takes if track and track not in made]:
            raise ValueError(
                f"stage {stage.name!r} takes the track {unknown[0]!r}, which no stage before it makes; known here: "
                f"{', '.join(made)}"
            )
        made += stage.tracks
    if repeated := sorted({name for name in made if made.count(name) > 1}):
        raise ValueError(f"two stages make the track {repeated[0]!r}; give one of them another name")
    if unknown := [track for track in answer if track not in made]:
        raise ValueError(f"answer names the track {unknown[0]!r}, which no stage makes; known: {', '.join(made)}")
    if stages and not any(isinstance(stage, ModelStage) for stage in stages):
        raise ValueError("stages hold no model; add a stage of type 'model'")
    _check_sizes(stages)
    _check_row_stages(stages, rate_hz=rate_hz, window=window, hop=hop)


def state_numbers(stages: Sequence[Stage]) -> int:
    """Count the numbers of a key's states that model files are said to have."""
    models = [stage for stage in stages if isinstance(stage, ModelStage)]
    return sum(math.prod(state.shape) for stage in models for state in stage.states)


def _check_sizes(stages: Sequence[Stage]) -> None:
    """Check what is only declared, before anything is allocated for it.

    1. States of a key: at most `MOST_NUMBERS` together.
    2. Constants and inputs: at most `MOST_NUMBERS` each.
    3. Rows of a cut, an output, a step: at most `MOST_ROWS`.
    """
    if (numbers := state_numbers(stages)) > MOST_NUMBERS:  # rule 1
        raise ValueError(f"its states have {numbers:,} numbers a key; at most {MOST_NUMBERS:,} are allowed")
    for stage in stages:
        if isinstance(stage, ModelStage):
            _check_shapes(stage)
        if (most := max(_rows_of(stage), default=0)) > MOST_ROWS:  # rule 3
            raise ValueError(f"stage {stage.name!r}: {most:,} rows; at most {MOST_ROWS:,} are allowed")


def _rows_of(stage: Stage) -> list[int]:
    if not isinstance(stage, ModelStage):
        return [size for span in stage.spans for size in span]
    taken = [size for port in stage.inputs for size in (port.rows, port.lead)]
    return taken + [size for output in stage.outputs for size in (output.rows, *output.trim)]


def _check_shapes(stage: ModelStage) -> None:  # rule 2
    shapes = [(one.name, one.shape) for one in stage.constants] + [(one.name, one.shape) for one in stage.inputs]
    for name, shape in shapes:
        if math.prod(shape) > MOST_NUMBERS:
            raise ValueError(f"input {name!r}: its shape has more than {MOST_NUMBERS:,} numbers")


def _check_row_stages(stages: tuple[Stage, ...], *, rate_hz: float, window: int, hop: int) -> None:
    """Check that front ends are for this input: its rate, and windows that do not overlap where rows go on."""
    before = "window"
    for stage in stages:
        if isinstance(stage, RowStage):
            if stage.goes_on and hop != window:
                raise ValueError(
                    f"stage {stage.name!r} goes on from window to window, and these overlap: write hop = window "
                    f"({window}), or let it take whole windows (stream = false, rows = 0) if it can"
                )
            if (stage.of or before) == "window" and stage.made_for_hz not in (0, rate_hz):
                raise ValueError(
                    f"stage {stage.name!r} is for {stage.made_for_hz:g} samples a second, the input has {rate_hz:g}; "
                    "write the rate that the model was trained at into both"
                )
        before = stage.tracks[0]
