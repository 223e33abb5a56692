"""Choice of a step: how many samples of the signal a bundle takes at a time.

1. A picture is one step.
2. The card says `window`, and `hop` where steps overlap.
3. A front end that needs a whole clip (frames centred, levels by the clip's maximum, or no ``stream = true``) before a
   model: as many samples as make the rows that it takes; the model's hop becomes that of the windows.
4. One model without memory that takes the signal as it is: its rows and its hop. Windows overlap, and each hard case
   carries the whole of what the model saw.
5. Else the chain is a stream: a step is the least common multiple of what the stages' calls take, and rows that a call
   needs beyond it are kept as a state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from edge_export.package.card.axes import written
from edge_export.package.card.model_file import ModelFile
from edge_export.package.card.spec import Card, CardModel, CardOutput, CardPort, CardStage
from edge_runtime.errors import ConfigError
from edge_runtime.manifest.frontends import Bands, Magnitude, OverlapAdd, Spectrum, Statistic
from edge_runtime.manifest.mel import Mel
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.manifest.stages import Activation, Combine, Difference, Smooth
from edge_runtime.model.chain import STREAM, WINDOW

_LONGEST = 1_000_000


class StepSamples(NamedTuple):
    """Samples of a step."""

    window: int
    hop: int
    clips: bool
    """Steps are clips of their own: rows of one never meet those of another."""


def choose(card: Card, files: Mapping[str, ModelFile]) -> StepSamples:
    """Choose a card's step.

    Args:
        card: the card.
        files: the model files by the name of their stage.

    Raises:
        ConfigError: it cannot be told; says what to write.
    """
    if card.signal.frame is not None:  # rule 1
        pixels = card.signal.frame.pixels
        return StepSamples(pixels, pixels, clips=True)
    whole = _whole(card.stages)
    if card.window:  # rule 2
        return StepSamples(
            card.window, card.hop or card.window, clips=whole is not None or _alone(card, files) is not None
        )
    if card.hop:
        raise ConfigError("the card says hop and not window; write both, samples of the signal")
    if whole is not None:
        return _clip(card, whole, files)  # rule 3
    if (port := _alone(card, files)) is not None:  # rule 4
        rows = _rows(card.models[0], port, files, len(card.signal.channels))
        return StepSamples(rows, port.hop or rows, clips=True)
    return _stream(card, files)  # rule 5


def before(stages: Sequence[CardStage], position: int) -> str:
    """Return the track that a stage takes where it names none."""
    if position == 0:
        return WINDOW
    stage = stages[position - 1]
    if isinstance(stage, CardModel):
        return stage.outputs[0].track or stage.name if stage.outputs else stage.name
    return stage.name


def fed(model: CardModel) -> tuple[CardPort, ...]:
    """Return the inputs of a model that take rows."""
    return tuple(port for port in model.inputs if port.value is None)


def width_of(stage: CardStage, width: int | None) -> int | None:
    """Return the numbers of a row of a front end, from that of the rows that it takes; None: its model says it."""
    if isinstance(stage, Mel):
        return stage.coefficients or stage.bands
    if isinstance(stage, MicroFrontend):
        return stage.bands
    if isinstance(stage, Spectrum):
        return (stage.fft or stage.frame) // 2 + 1
    if isinstance(stage, Statistic | Bands):
        each = len(stage.what) if isinstance(stage, Statistic) else len(stage.edges_hz) - 1
        return None if width is None else width * each
    return width if isinstance(stage, Smooth | Activation | Magnitude) else None


def rows_in(port: CardPort, width: int | None, shape: Sequence[int], where: str) -> int:
    """Return the rows that an input takes, from the card or from the file's sizes.

    Args:
        port: the card's input.
        width: numbers of a row.
        shape: sizes of the file's tensor, with the batch; -1 for open sizes.
        where: the file and its input, for errors.

    Raises:
        ConfigError: neither says it.
    """
    if port.rows:
        return port.rows
    sizes = [int(size) for size in (shape if port.batch == -1 else shape[1:])]
    if not sizes or min(sizes) < 0 or not width:
        raise ConfigError(f"{where}: its sizes are open {written(shape)}; write rows, how many of them a call takes")
    numbers = math.prod(sizes)
    if numbers % width:
        raise ConfigError(
            f"{where}: takes {numbers} numbers {written(shape)}, and a row has {width}; correct channels or front end"
        )
    return numbers // width


def _whole(stages: Sequence[CardStage]) -> CardStage | None:
    """Return the front end that takes a step as a whole, if there is one."""
    for position, stage in enumerate(stages):
        if isinstance(stage, Mel | Spectrum | Statistic | Bands) and stage.spans[0][0] == 0:
            return stage if (stage.of or before(stages, position)) == WINDOW else None
    return None


def _alone(card: Card, files: Mapping[str, ModelFile]) -> CardPort | None:
    """Return the one input of a card's one model, where nothing remembers and it takes the signal as it is."""
    first = card.stages[0]
    if len(card.models) != 1 or not isinstance(first, CardModel) or first.states or files[first.name].taken:
        return None
    ports = fed(first)
    if len(ports) != 1 or ports[0].of not in ("", WINDOW) or ports[0].lead:
        return None
    remembering = any(isinstance(stage, Smooth) for stage in card.stages) or card.task.smooth is not None
    return None if remembering and not card.window else ports[0]


def _rows(model: CardModel, port: CardPort, files: Mapping[str, ModelFile], width: int | None) -> int:
    file = files[model.name]
    inputs = file.inputs
    known = {state.input for state in model.states} | {one.name for one in model.inputs if one.value is not None}
    left = [spec for name, spec in inputs.items() if name not in known]
    spec = inputs.get(port.name) if port.name else (left[0] if len(left) == 1 else None)
    if spec is None:
        there = ", ".join(inputs)
        raise ConfigError(
            f"{file.path}: has no input {port.name!r}; it has {there}" if port.name else
            f"{file.path}: which input takes the rows? it has {there}; name it under inputs"
        )  # fmt: skip
    if width is None and not port.rows:
        return 1  # of a row whose size only a run tells: `fitting` looks again
    return rows_in(port, width, file.shape(spec.name), f"{file.path}: input {spec.name}")


def _clip(card: Card, front: CardStage, files: Mapping[str, ModelFile]) -> StepSamples:
    for position, stage in enumerate(card.stages):
        if not isinstance(stage, CardModel):
            continue
        port = fed(stage)[0]
        if (port.of or before(card.stages, position)) != front.name or not isinstance(front, Mel | Spectrum):
            break
        rows = _rows(stage, port, files, width_of(front, len(card.signal.channels)))
        if isinstance(front, Mel) and front.centred:
            window = (rows - 1) * front.hop
        else:
            window = (rows - 1) * front.hop + (front.span if isinstance(front, Mel) else front.frame)
        return StepSamples(max(1, window), min(window, (port.hop or rows) * front.hop), clips=True)
    raise ConfigError(
        f"stage {front.name!r} takes a whole step; write window (samples of the signal that a step takes) on the card, "
        + ("or rows at the stage" if isinstance(front, Statistic | Bands) else "or stream = true at the stage")
    )


class _Rates:
    """Samples of the signal per row of each track, while the stages are followed."""

    def __init__(self, channels: int) -> None:
        self.per_row: dict[str, Fraction] = {WINDOW: Fraction(1), STREAM: Fraction(1)}
        self.widths: dict[str, int | None] = dict.fromkeys(self.per_row, channels)
        self.steps: list[Fraction] = []
        """Samples from one call to the next, of each stage that waits for rows."""

    def model(self, stage: CardModel, default: str, files: Mapping[str, ModelFile]) -> None:
        """Follow a model."""
        port = fed(stage)[0]
        of = _known(port.of or default, self.per_row, stage.name)
        rows = port.hop or _rows(stage, port, files, self.widths[of])
        self.steps.append(rows * self.per_row[of])
        for output in stage.outputs or (CardOutput(),):
            track = output.track or stage.name
            self.per_row[track] = self.steps[-1] / (output.rows - sum(output.trim))
            self.widths[track] = None

    def row_stage(self, stage: CardStage, default: str) -> None:
        """Follow a stage without a file."""
        assert not isinstance(stage, CardModel)
        of = _known(stage.tracks_in[0] if isinstance(stage, Combine) else stage.of or default, self.per_row, stage.name)
        each = self.per_row[of]
        if isinstance(stage, OverlapAdd):
            each = each / stage.hop
        elif not isinstance(stage, Difference | Combine | Activation):
            rows, hop, _ = stage.spans[0]
            each = each * (hop or rows or 1)
            self.steps.append(each)
        self.per_row[stage.name], self.widths[stage.name] = each, width_of(stage, self.widths[of])


def _stream(card: Card, files: Mapping[str, ModelFile]) -> StepSamples:
    rates = _Rates(len(card.signal.channels))
    for position, stage in enumerate(card.stages):
        default = before(card.stages, position)
        if isinstance(stage, CardModel):
            rates.model(stage, default, files)
        else:
            rates.row_stage(stage, default)
    whole = [int(step) for step in rates.steps if step.denominator == 1]
    longest = math.ceil(max(rates.steps))
    samples = math.lcm(*whole) if whole else longest
    samples = samples if samples <= _LONGEST else longest
    return StepSamples(samples, samples, clips=False)


def _known(track: str, per_row: Mapping[str, Fraction], stage: str) -> str:
    if track not in per_row:
        raise ConfigError(f"stage {stage!r} takes the track {track!r}, which no stage before it makes; known here: "
                          f"{', '.join(per_row)}")  # fmt: skip
    return track
