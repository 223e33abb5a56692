"""The card of any model: signal, stages, task. It says what a file cannot: what goes in, what runs on, what comes out.

The tables are those of the manifest (`edge_runtime.manifest.stages`), with what the file can tell left out; short forms
are in `edge_export.package.card.short_forms`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edge_export.data.readers import Origin
from edge_export.package.card.old_form import refuse
from edge_export.package.card.short_forms import as_written, expand
from edge_runtime import manifest, schema
from edge_runtime.app.config import parse_as, read_text
from edge_runtime.base.system.iso8601 import parse_date
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import AnyOutput, GateSpec, InputContract
from edge_runtime.manifest.frames import Frame
from edge_runtime.manifest.frontends import FRONTENDS
from edge_runtime.manifest.stages import When

Order = Literal["auto", "samples-first", "channels-first"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardChannel:
    """One channel, in the unit in which the sensor delivers it.

    Attributes:
        name: as in recordings and messages.
        unit: as in UCUM or SenML.
        low: least value that occurs, for golden steps without a recording.
        high: largest one.
        resample: as `edge_runtime.manifest.Channel.resample`; this and the rest are for channels of several messages.
        max_age_s: as `edge_runtime.manifest.Channel.max_age_s`.
        missing: as `edge_runtime.manifest.Channel.missing`.
        mask_of: as `edge_runtime.manifest.Channel.mask_of`.
    """

    name: str
    unit: str
    low: float | None = None
    high: float | None = None
    resample: Literal["", "linear", "mean", "previous"] = ""
    max_age_s: float = 0.0
    missing: Literal["refuse", "last"] = "refuse"
    mask_of: str = ""

    def __post_init__(self) -> None:
        if self.low is not None and self.high is not None and not self.low < self.high:
            raise ValueError(f"channel {self.name!r}: low must be below high")
        self.contract()

    def contract(self) -> manifest.Channel:
        """Return the bundle's channel."""
        return manifest.Channel(
            name=self.name, unit=self.unit, resample=self.resample, max_age_s=self.max_age_s,
            missing=self.missing, mask_of=self.mask_of,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSignal:
    """Signal that the sensor delivers.

    Attributes:
        rate_hz: samples a second; of pictures, pictures a second times pixels.
        channels: in the order in which the first stage takes them.
        frame: where it delivers pictures.
        resample: as `InputContract.resample`.
        snap: as `InputContract.snap`.
        max_gap_s: as `InputContract.max_gap_s`.
    """

    rate_hz: float
    channels: tuple[CardChannel, ...]
    frame: Frame | None = None
    resample: Literal["linear", "mean", "previous"] = "linear"
    snap: float = 0.25
    max_gap_s: float = 0.0

    def __post_init__(self) -> None:
        names = [channel.name for channel in self.channels]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two channels are called {repeated[0]!r}")
        pixels = 1 if self.frame is None else self.frame.pixels
        self.contract(pixels, pixels, 0)

    def contract(self, window: int, hop: int, context: int) -> InputContract:
        """Return the bundle's input contract, for windows of these samples."""
        return InputContract(
            channels=tuple(one.contract() for one in self.channels),
            rate_hz=self.rate_hz, window=window, hop=hop, context=context,
            resample=self.resample, snap=self.snap, max_gap_s=self.max_gap_s, frame=self.frame,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPort:
    """An input of a model: rows of a track, or with `value` a constant. See `edge_runtime.manifest.stages.Port`.

    Attributes:
        name: tensor of the file; may be left out of the only one that is fed with rows.
        value: the constant.
        rows: left out where the file has a size for it.
        hop: rows from one call to the next; left out, `rows`.
        layout: order of the file's axes; ``auto`` where only one fits.
        batch: which axis is the batch, the first (0) or none (-1); left out, a trial of the file tells.
        within: as in the manifest.
    """

    name: str = ""
    of: str = ""
    batch: Literal[0, -1] | None = None
    value: float | tuple[float, ...] | None = None
    rows: int = 0
    hop: int = 0
    lead: int = 0
    layout: Order = "auto"
    offset: float | tuple[float, ...] = 0.0
    scale: float | tuple[float, ...] = 1.0
    within: bool = False

    def __post_init__(self) -> None:
        if self.value is not None and not self.name:
            raise ValueError("an input with a value needs its name")
        if self.scale == 0 or (isinstance(self.scale, tuple) and 0 in self.scale):
            raise ValueError("scale 0 would make all values the same")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardState:
    """An input that is an output of the step before. See `edge_runtime.manifest.stages.State`.

    Attributes:
        input: tensor that takes it.
        output: tensor that gives it; left out where only one fits.
        shape: of one key, without the batch; left out where the file says it.
        batch: which axis of the tensor is the batch, -1 for none; left out: the only open one, else the first.
        initial: before the first step.
    """

    input: str
    output: str = ""
    shape: tuple[int, ...] = ()
    batch: int | None = None
    initial: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOutput:
    """An output of a model that makes a track. See `edge_runtime.manifest.stages.Output`.

    Attributes:
        name: tensor of the file; may be left out of the only one that is no state.
        rows: that one call gives.
        layout: order of the axes, where it gives several rows; ``auto`` is ``samples-first``.
    """

    name: str = ""
    track: str = ""
    rows: int = 1
    layout: Order = "auto"
    trim: tuple[int, int] = (0, 0)
    offset: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CardModel:
    """A model file as a stage.

    Attributes:
        name: of the stage and its track.
        file: beside the card; may be given to the command instead.
        inside: what a layer that remembers (LSTM, SVDF in TensorFlow Lite) does before each step. ``cleared``: it
            begins from nothing, for a file that takes its whole sequence at once. ``kept``: it runs on.
        warmup_steps: as in the manifest.
        when: as in the manifest.
    """

    name: str = "model"
    file: str = ""
    inputs: tuple[CardPort, ...] = (CardPort(),)
    states: tuple[CardState, ...] = ()
    outputs: tuple[CardOutput, ...] = ()
    inside: Literal["", "cleared", "kept"] = ""
    warmup_steps: int = 0
    when: When | None = None


if TYPE_CHECKING:
    from edge_runtime.manifest.frontends import FrontendSpec
    from edge_runtime.manifest.stages import Activation, Combine, Difference, Smooth

    CardStage = CardModel | Smooth | Activation | Difference | Combine | FrontendSpec
else:
    _STAGES = "edge_runtime.manifest.stages"
    CardStage = schema.OneOf(
        "type", "model",
        model=f"{__name__}:CardModel", smooth=f"{_STAGES}:Smooth", activation=f"{_STAGES}:Activation",
        difference=f"{_STAGES}:Difference", combine=f"{_STAGES}:Combine", **FRONTENDS,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSmooth:
    """Short form of a `Smooth` stage before the answer."""

    steps: int
    hop: int = 1
    how: Literal["mean", "median", "max"] = "mean"

    def __post_init__(self) -> None:
        if self.steps < 2 or not 1 <= self.hop <= self.steps:
            raise ValueError("smooth: steps must be 2 or more, and hop 1 to steps")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardTask:
    """Meaning of the answer.

    Attributes:
        output: the bundle's output contract; ``type`` of the card is its ``kind``, ``classification`` probabilities.
        given: its fields that the card writes; the others are filled in from the tracks, where these say them.
        of: tracks that make the answer; left out, the last stage's.
        values: of a classification. ``probabilities``; ``probability``: one number, which speaks for the second of two
            labels; ``logits`` and ``logit``: the same before the softmax and the sigmoid.
        temperature: logits are divided by it.
        smooth: mean, median or maximum of the last steps.
        reconstructs: input of the model that its answer imitates; the score is how far it is off.
        error: of that, as `edge_runtime.manifest.stages.Difference.how`.
    """

    output: AnyOutput
    given: tuple[str, ...] = ()
    of: tuple[str, ...] = ()
    values: Literal["", "probabilities", "logits", "probability", "logit"] = ""
    temperature: float = 1.0
    smooth: CardSmooth | None = None
    reconstructs: str = ""
    error: Literal["mse", "mae", "max"] = "mse"

    def __post_init__(self) -> None:
        if self.temperature != 1 and self.values not in ("logits", "logit"):
            raise ValueError("temperature is for logits; probabilities come out as they are")


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The whole file.

    Attributes:
        window: samples of a step; left out, what the first stage takes.
        hop: samples from one step to the next.
        context: samples of a hard case; left out, a window.
        tolerance: largest difference from the golden answers; left out, by precision and size of the answers.
        events: rules that the bundle carries.
    """

    name: str
    version: int = 1
    description: str = ""
    created: str = ""
    expires: str = ""
    origin: Origin
    signal: CardSignal
    window: int = 0
    hop: int = 0
    context: int = 0
    stages: tuple[CardStage, ...] = (CardModel(),)
    task: CardTask
    gate: GateSpec = field(default_factory=GateSpec)
    events: tuple[EventRule, ...] = ()
    tolerance: float | None = None

    def __post_init__(self) -> None:
        for day in filter(None, (self.created, self.expires)):
            parse_date(day)
        if not self.models:
            raise ValueError("stages hold no model; add a stage without a type")
        names = [stage.name for stage in self.stages]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two stages are called {repeated[0]!r}; give one of them another name")
        if self.signal.frame is not None and (self.window or self.hop):
            raise ValueError("window and hop of a picture are its pixels; leave them out")

    @property
    def models(self) -> tuple[CardModel, ...]:
        """Stages that are model files."""
        return tuple(stage for stage in self.stages if isinstance(stage, CardModel))


def load_card(path: Path) -> Card:
    """Read and check a card.

    Raises:
        OldCardError: it has the form that is no longer read, and with it the card to write.
        ConfigError: one line with file, line and what to do.
    """

    def expanded(data: dict[str, Any]) -> dict[str, Any]:
        refuse(data, path)
        return expand(data, path.parent)

    return parse_as(Card, read_text(path), path, whole="card", expand=expanded, wrote=as_written)
