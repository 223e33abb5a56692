"""The card: one TOML file that says what a model eats and what comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from edge_export.data.readers import Origin
from edge_runtime import manifest
from edge_runtime.app.config import parse_as, read_text
from edge_runtime.base.system.iso8601 import parse_date
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import GateSpec, InputContract, OutputContract

Layout = Literal["NCW", "NWC"]

NO_CLASSES = (
    "an embedding, a reconstruction or a measured value has no classes, and a bundle cannot hold such a model yet"
)
"""Said where a model may be no classifier: labels that are made up for it would be believed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardChannel:
    """One channel, in the unit in which the sensor delivers it.

    Attributes:
        name: as in recordings and messages.
        unit: as in UCUM or SenML.
        offset: taken from the physical value before the model sees it.
        scale: factor after that: the model sees (value - offset) * scale.
        low: least physical value that occurs, for golden vectors without a recording.
        high: largest one.
        resample: as `edge_runtime.manifest.Channel.resample`; this and the rest are for channels of several messages.
        max_age_s: as `edge_runtime.manifest.Channel.max_age_s`.
        missing: as `edge_runtime.manifest.Channel.missing`.
        mask_of: as `edge_runtime.manifest.Channel.mask_of`.
    """

    name: str
    unit: str
    offset: float = 0.0
    scale: float = 1.0
    low: float | None = None
    high: float | None = None
    resample: Literal["", "linear", "mean", "previous"] = ""
    max_age_s: float = 0.0
    missing: Literal["refuse", "last"] = "refuse"
    mask_of: str = ""

    def __post_init__(self) -> None:
        if not self.scale:
            raise ValueError(f"channel {self.name!r}: scale 0 would make all its values the same")
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
class CardInput:
    """The model's input.

    Attributes:
        channels: in the order of the model's axis.
        rate_hz: samples per second.
        window: samples that the model sees at once.
        hop: samples from one window's start to the next one's; 0: a window's length.
        context: as `InputContract.context`.
        resample: as `InputContract.resample`.
        snap: as `InputContract.snap`.
        max_gap_s: as `InputContract.max_gap_s`.
        layout: order of the file's axes behind the batch, axes of size 1 left out: ``channels-first`` or
            ``samples-first``. ``auto`` asks the file's shape, where only one of the two fits.
    """

    channels: tuple[CardChannel, ...]
    rate_hz: float
    window: int
    hop: int = 0
    context: int = 0
    resample: Literal["linear", "mean", "previous"] = "linear"
    snap: float = 0.25
    max_gap_s: float = 0.0
    layout: Literal["auto", "channels-first", "samples-first"] = "auto"

    def __post_init__(self) -> None:
        names = [channel.name for channel in self.channels]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two channels are called {repeated[0]!r}")
        self.contract()

    def contract(self) -> InputContract:
        """Return the bundle's input contract."""
        return InputContract(
            channels=tuple(each.contract() for each in self.channels),
            rate_hz=self.rate_hz,
            window=self.window,
            hop=self.hop or self.window,
            context=self.context,
            resample=self.resample,
            snap=self.snap,
            max_gap_s=self.max_gap_s,
        )

    @property
    def scaled(self) -> bool:
        """Say whether the model takes other numbers than the physical ones."""
        return any(channel.offset or channel.scale != 1 for channel in self.channels)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardOutput:
    """The model's output.

    Attributes:
        labels: in the order of the model's outputs.
        values: ``probabilities`` or ``logits``, one per label; or ``probability`` or ``logit``, one number that speaks
            for the second of two labels.
        temperature: logits are divided by it.
    """

    labels: tuple[str, ...]
    values: Literal["probabilities", "logits", "probability", "logit"] = "probabilities"
    temperature: float = 1.0

    def __post_init__(self) -> None:
        if len(self.labels) < 2:
            raise ValueError(
                f"name the model's classes as labels, in the order of its answer, two at least; {NO_CLASSES}"
            )
        self.contract()
        if self.values in ("probability", "logit") and len(self.labels) != 2:
            raise ValueError(f"values = {self.values!r} speaks for the second of two labels, not of {len(self.labels)}")
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError("temperature must be above 0")
        if self.temperature != 1 and self.values in ("probabilities", "probability"):
            raise ValueError("temperature is for logits; probabilities come out as they are")

    def contract(self) -> OutputContract:
        """Return the bundle's output contract."""
        return OutputContract(labels=self.labels)

    @property
    def numbers(self) -> int:
        """Count the numbers that the file answers with."""
        return 1 if self.values in ("probability", "logit") else len(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """The whole file."""

    name: str
    version: int = 1
    description: str = ""
    created: str = ""
    """ISO 8601 date that the bundle carries; written here, so that the same card gives the same bytes."""
    expires: str = ""
    origin: Origin
    """Where the model comes from, and under which licence."""
    input: CardInput
    output: CardOutput
    gate: GateSpec = field(default_factory=GateSpec)

    def __post_init__(self) -> None:
        for day in filter(None, (self.created, self.expires)):
            parse_date(day)


def load(path: Path) -> Card:
    """Read and check a card with ``[input]`` and ``[output]``.

    Raises:
        ConfigError: one line with file, line and what to do.
    """
    return parse_as(Card, read_text(path), path, whole="card")


def check_numbers(given: int, card: Card, file: str, output: str) -> None:
    """Refuse an answer that has another number of values than the card's labels, or those of a window.

    Args:
        given: numbers that the file answers with for one window.
        card: says how many there must be.
        file: named in errors.
        output: name of the answer, for errors.

    Raises:
        ConfigError: the counts differ, or the model gives a window back.
    """
    asked, count = card.output, len(card.output.labels)
    if given != asked.numbers:
        wanted = f"{count} labels as {asked.values} call for {asked.numbers}"
        raise ConfigError(
            f"{file}: output {output} has {given} numbers for a window; the card's {wanted}. If each number is the "
            f"score of a class, name all {given} as labels, in that order; {NO_CLASSES}"
        )
    if card.input.window > 1 and given == card.input.window * len(card.input.channels):
        raise ConfigError(
            f"{file}: output {output} has as many numbers as a window, {given}, as an autoencoder has, and the card "
            f"calls them {asked.values} of classes; {NO_CLASSES}"
        )


def layout_of(shape: Sequence[int], card: CardInput, file: str) -> Layout:
    """In which order a file wants channels and samples.

    Args:
        shape: of its input without the batch axis; -1 for a size that the file leaves open.
        card: says how many there are of each, and may say the order.
        file: named in errors.

    Raises:
        ConfigError: the sizes do not fit, or both orders would and the card does not say which.
    """
    channels, samples = len(card.channels), card.window
    orders: dict[Layout, tuple[int, int]] = {"NCW": (channels, samples), "NWC": (samples, channels)}
    sizes = [size for size in shape if size != 1]
    fitting = [order for order, wanted in orders.items() if _fits(sizes, [size for size in wanted if size != 1])]
    flat = sizes in ([-1], [channels * samples])
    if flat and not fitting:
        fitting = list(orders)
    if card.layout != "auto":
        stated: Layout = "NCW" if card.layout == "channels-first" else "NWC"
        fitting = [order for order in fitting if order == stated]
    if not fitting:
        more = "; a picture is no window of samples" if len(sizes) > 2 else ""
        said = "" if card.layout == "auto" else f", {card.layout}"
        raise ConfigError(
            f"{file}: its input has the shape {_written(shape)} behind the batch; the card says {channels} channels "
            f"and a window of {samples} samples{said}{more}"
        )
    if len(fitting) > 1 and 1 not in (channels, samples):
        raise ConfigError(
            f"{file}: an input of shape {_written(shape)} may have its channels or its samples first; say "
            'layout = "channels-first" or "samples-first" under [input]'
        )
    return fitting[0]


def _fits(sizes: Sequence[int], wanted: Sequence[int]) -> bool:
    return len(sizes) == len(wanted) and all(a in (-1, b) for a, b in zip(sizes, wanted, strict=True))


def _written(shape: Sequence[int]) -> str:
    return f"({', '.join('any' if size < 0 else str(size) for size in shape)})"
