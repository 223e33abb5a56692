"""`manifest.json`: what a bundle says of itself, as types.

The manifest is read before anything else in a bundle, and it is the only description of the model that the device
trusts; nothing is inferred from a model file. Unknown keys are an error: a device that does not understand a promise
must not pretend to keep it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from edge_runtime import schema
from edge_runtime.errors import ManifestError
from edge_runtime.event_rule import EventRule, check_rules
from edge_runtime.manifest.drift import Repair, SensorReference, check_sensors
from edge_runtime.manifest.frames import LARGEST_RATE_HZ, Frame, check_frame
from edge_runtime.manifest.gate import GateSpec
from edge_runtime.manifest.outputs import AnyOutput, MultiLabelOutput, OutputContract, Quantity
from edge_runtime.manifest.stages import (
    MOST_NUMBERS,
    MOST_ROWS,
    Constant,
    ModelStage,
    Output,
    Port,
    Stage,
    StageFile,
    State,
    check_stages,
)  # fmt: skip
from edge_runtime.manifest.surround import Surround

__all__ = [
    "AnyOutput", "Channel", "File", "GateSpec", "InputContract", "Manifest", "ModelStage", "MultiLabelOutput",
    "OutputContract", "Reference", "SensorReference", "Stage", "StageFile", "Surround", "Variant", "dump",
    "needed_schema", "parse",
]  # fmt: skip

SCHEMA_VERSIONS = (1, 2)
"""Those that are read here. The second adds how a channel is joined, references, sensors, events, stages, and answers
other than one label of several; a bundle without them is written in the first, which every release reads."""

REFERENCE_LEVELS = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)
"""Shares of the training data that lie at or below `Reference.quantiles`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One column of the sensor's values. All but name and unit are for channels that come in messages of their own."""

    name: str
    unit: str
    """As in UCUM or SenML, for example ``m/s2``, ``rad/s``, ``g``, ``1`` for none."""
    resample: Literal["", "linear", "mean", "previous"] = ""
    """Rule for the value of grid points between this channel's samples; empty means `InputContract.resample`."""
    max_age_s: float = 0.0
    """A value older than this is missing, seconds; 0 means `InputContract.max_gap`."""
    missing: Literal["refuse", "last"] = "refuse"
    """Where the value is missing: no window, or the last value once more."""
    mask_of: str = ""
    """Name of the channel whose presence this one tells the model: 1 where it has a value, 0 where it is missing. No
    sensor sends it."""

    def __post_init__(self) -> None:
        if not (self.max_age_s >= 0 and math.isfinite(self.max_age_s)):
            raise ValueError(f"channel {self.name!r}: max_age_s must be 0 or more seconds")
        if self.mask_of and (self.resample or self.max_age_s or self.missing != "refuse"):
            raise ValueError(
                f"channel {self.name!r} is a mask; write resample, max_age_s and missing at {self.mask_of!r} instead"
            )

    @property
    def joined(self) -> bool:
        """True where the channel says more than the first schema has room for."""
        return bool(self.resample or self.max_age_s or self.mask_of) or self.missing != "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class InputContract:
    """Contract of a window: the same rules cut windows in training (see `edge_runtime.signal.windowing.window`)."""

    channels: tuple[Channel, ...]
    rate_hz: float
    window: int
    """Samples in a window."""
    hop: int
    """Samples from one window's start to the next one's."""
    context: int = 0
    """Samples, ending with the window, that a hard case carries to the cloud; 0 means the window alone."""
    resample: Literal["linear", "mean", "previous"] = "linear"
    """Rule for the value of grid points between samples."""
    snap: float = 0.25
    """A sample this close to a grid point, as a share of the sample period, is taken as it is."""
    max_gap_s: float = 0.0
    """A longer silence ends the segment: no window spans it. 0 means five sample periods."""
    fill: Literal["", "first"] = ""
    """How a server fills the missing beginning of a window. ``first``: it repeats the first sample at the front, as the
    model's training did. Empty: it takes whole windows only."""
    frame: Frame | None = None
    """Of a model that takes pictures: each window is one."""

    def __post_init__(self) -> None:
        if not self.channels:
            raise ValueError("needs at least one channel")
        if self.frame is not None and self.frame.pixels > MOST_ROWS:
            raise ValueError(
                f"a picture of {self.frame.height} x {self.frame.width} has {self.frame.pixels:,} pixels, and a window "
                f"holds {MOST_ROWS:,}; take a smaller one, if the model's sizes are open"
            )
        if not 1 <= self.window <= MOST_ROWS or not 1 <= self.hop <= self.window:
            raise ValueError("window must be 1 to 1,000,000 samples and hop 1 to window")
        if len(self.channels) * self.history > MOST_NUMBERS:
            raise ValueError(
                f"{len(self.channels)} channels of {self.history:,} samples are more than {MOST_NUMBERS:,} numbers; "
                "take a shorter window or context"
            )
        if not 1e-6 <= self.rate_hz <= (1e6 if self.frame is None else LARGEST_RATE_HZ):
            raise ValueError("rate_hz must be 1e-6 to 1e6; of pixels, to 1e9")
        if self.context and self.context < self.window:
            raise ValueError("context must be 0 or at least the window")
        if not 0.001 <= self.snap < 0.5:
            # Stamps in epoch seconds are exact to 0.2 us only, so exact equality cannot be asked for.
            raise ValueError("snap must be at least 0.001 and below 0.5")
        if self.max_gap_s and self.max_gap_s < 2 / self.rate_hz:
            raise ValueError("max_gap_s must be 0 or at least two sample periods")
        _check_masks(self.channels)
        if self.frame is not None:
            check_frame(self.frame, self, sum(not channel.joined for channel in self.channels))

    @property
    def history(self) -> int:
        """Samples of a hard case: the window and the context before it."""
        return max(self.context, self.window)

    @property
    def case_bytes(self) -> int:
        """Bytes of a hard case: float32 for each channel and sample of its history."""
        return 4 * len(self.channels) * self.history

    @property
    def max_gap(self) -> float:
        """`max_gap_s` with its default applied, seconds."""
        return self.max_gap_s or 5 / self.rate_hz


def _check_masks(channels: Sequence[Channel]) -> None:
    by_name = {channel.name: channel for channel in channels}
    masked: set[str] = set()
    for mask in channels:
        if not mask.mask_of:
            continue
        of = by_name.get(mask.mask_of)
        if of is None:
            raise ValueError(
                f"channel {mask.name!r}: mask_of names no channel ({mask.mask_of!r}); known: {', '.join(by_name)}"
            )
        if of.mask_of:
            raise ValueError(f"channel {mask.name!r}: {of.name!r} is a mask itself; name a channel that a sensor sends")
        if of.missing != "last":
            raise ValueError(
                f"channel {of.name!r} has a mask ({mask.name!r}) that would never be 0; set its missing = 'last'"
            )
        if of.name in masked:
            raise ValueError(f"channel {of.name!r} has two masks; leave {mask.name!r} out")
        masked.add(of.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One model file of a bundle."""

    name: str
    """For example ``onnx-int8-u8s8``."""
    file: str
    format: Literal["onnx", "tflite"]
    precision: Literal["fp32", "fp16", "int8", "mixed"]
    scheme: str = ""
    """For example ``u8s8`` or ``s8s8``; empty for floats."""
    layout: Literal["NCW", "NWC"] = "NCW"
    """Input axes: batch, channels, samples, or batch, samples, channels. A chain takes the second."""
    tensors: dict[str, str] = field(default_factory=dict)
    """In a chain: names in this file, by the names that its stage uses; those that are the same are left out. Empty: a
    state that this file does not have."""
    batch: int = 0
    """In a chain: keys in one call; 1 where rows of one call touch each other, 0 for any number."""
    others: tuple[StageFile, ...] = ()
    """In a chain of several models: the files of the others; `file` is that of the last one."""
    size: int
    sha256: str
    targets: tuple[str, ...] = ()
    """Machine architectures this variant is meant for, as `platform.machine()` names them; empty means any."""
    golden: str
    """Expected outputs of this variant for the bundle's golden inputs, an .npy file of the bundle."""
    tolerance: float = 1e-4
    """Largest absolute difference from `golden` that still counts as the same answer."""
    cost: dict[str, float] = field(default_factory=dict)
    """Measured at export: ``accuracy``, ``latency_us``, ..., with the machine named in `Manifest.provenance`."""
    measured: dict[str, dict[str, float]] = field(default_factory=dict)
    """Measured on further machines, by their name: ``p50_us``, ``p95_us``, ``ratio``, ...
    (`edge_export.choose.selection.remote`)."""

    @property
    def models(self) -> tuple[Variant | StageFile, ...]:
        """Its model files, in the order of the stages."""
        return (*self.others, self)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """Any other file of the bundle: golden vectors, model card."""

    file: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Range of a channel, or of the norm of several, over the training data: what a sensor of this kind delivers."""

    channels: tuple[str, ...]
    """One channel, or those of a triad in one unit, whose norm is meant."""
    quantiles: tuple[float, ...]
    """In the channels' unit, at `REFERENCE_LEVELS`."""
    span_s: float
    """Seconds of a live stream that a comparison with the quantiles needs."""
    still_s: float | None = None
    """Longest time for which one of the channels kept a value; None where that may be any time."""
    rates_hz: tuple[float, float] | None = None
    """Samples a second of the recordings, the slowest and the fastest, before they were resampled; None: unknown."""
    top_hz: float | None = None
    """Of sound: frequency that nearly all of it reaches; half the rate where nothing cuts it off; None: unknown."""
    rail_share: float | None = None
    """Largest share of a window's samples at the highest or lowest value of one of the channels; None: unknown."""

    def __post_init__(self) -> None:
        if not self.channels or len(set(self.channels)) != len(self.channels):
            raise ValueError("a reference needs channels, all different")
        if len(self.quantiles) != len(REFERENCE_LEVELS) or list(self.quantiles) != sorted(self.quantiles):
            raise ValueError(f"quantiles must be {len(REFERENCE_LEVELS)} rising numbers, at {REFERENCE_LEVELS}")
        if not all(map(math.isfinite, self.quantiles)):
            raise ValueError("quantiles must be finite")
        if not 0 < self.span_s < math.inf:
            raise ValueError("span_s must be above 0 seconds")
        if self.still_s is not None and not 0 <= self.still_s < math.inf:
            raise ValueError("still_s must be 0 or more seconds, or be left out")
        if self.rates_hz is not None and not 0 < self.rates_hz[0] <= self.rates_hz[1] < math.inf:
            raise ValueError("rates_hz must be the slowest and the fastest rate, above 0")
        if self.top_hz is not None and not (0 < self.top_hz < math.inf and len(self.channels) == 1):
            raise ValueError("top_hz must be above 0 Hz, and of one channel")
        if self.rail_share is not None and not 0 <= self.rail_share <= 1:
            raise ValueError("rail_share must be between 0 and 1, or be left out")


def _check_reference(reference: Reference, channels: Iterable[Channel]) -> None:
    known = {channel.name: channel for channel in channels if not channel.mask_of}
    for name in reference.channels:
        if name not in known:
            raise ValueError(f"a reference names no channel of a sensor ({name!r}); known: {', '.join(known)}")
    if len(units := {known[name].unit for name in reference.channels}) > 1:
        raise ValueError(
            f"a reference takes the norm of {', '.join(reference.channels)}, which have different units "
            f"({', '.join(sorted(units))}); make one of each unit"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The whole of ``manifest.json``."""

    schema_version: int
    name: str
    version: int
    """Only rises; a device refuses a lower one as an update."""
    description: str = ""
    created: str = ""
    """ISO 8601 date, from the recipe, so that the same recipe gives the same bytes."""
    expires: str = ""
    """ISO 8601 date after which a device must not start the bundle; empty means never."""
    input: InputContract
    output: AnyOutput
    gate: GateSpec = field(default_factory=GateSpec)
    stages: tuple[Stage, ...] = ()
    """What is computed of a window, in order; empty: the variant's file takes the window and gives the answer."""
    answer: tuple[str, ...] = ()
    """Tracks that make the answer; empty takes the last stage's."""
    references: tuple[Reference, ...] = ()
    """What the sensors delivered in training; empty in bundles that do not say."""
    sensors: SensorReference | None = None
    """What windows of training looked like, and the faults that are told by it; None in bundles that do not say."""
    events: tuple[EventRule, ...] = ()
    """Rules tuned with the model; an application's own take their place."""
    surround: Surround | None = None
    """Of a classifier: what its answers become; None: each is what the network says of one window."""
    variants: tuple[Variant, ...]
    golden_inputs: str
    """.npy file of the bundle: float32 (n, channels, samples)."""
    files: tuple[File, ...]
    """Every file besides the manifest, the signature and the variants."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Recipe, data and teacher digests, versions, licences: for people and audits; the runtime reads none of it."""

    def __post_init__(self) -> None:
        if self.schema_version not in SCHEMA_VERSIONS:
            raise ValueError(_unknown_schema(self.schema_version))
        needed = needed_schema(
            self.input,
            self.references,
            self.events,
            output=self.output,
            stages=self.stages,
            sensors=self.sensors,
            surround=self.surround,
        )
        if self.schema_version < needed:
            raise ValueError(
                f"schema_version {self.schema_version} has no room for what this manifest says; write {needed}"
            )
        if not self.variants:
            raise ValueError("needs at least one variant")
        if math.prod(self.output.shape) > MOST_NUMBERS:
            raise ValueError(f"an answer has {math.prod(self.output.shape):,} numbers; at most {MOST_NUMBERS:,}")
        names = [variant.name for variant in self.variants]
        if len(set(names)) != len(names):
            raise ValueError("variant names must differ")
        check_stages(self.stages, self.answer, rate_hz=self.input.rate_hz, window=self.input.window, hop=self.input.hop)
        self._check_files()
        for reference in self.references:
            _check_reference(reference, self.input.channels)
        if self.sensors is not None:
            check_sensors(self.sensors, (channel.name for channel in self.input.channels if not channel.mask_of))
        check_rules(self.events, self.output.labels)
        if self.surround is not None:
            if not isinstance(self.output, OutputContract):
                raise ValueError("surround is for answers that are probabilities of labels")
            self.surround.check(self.output.labels)

    def _check_files(self) -> None:
        models = [stage.name for stage in self.stages if isinstance(stage, ModelStage)]
        for variant in self.variants:
            if [other.stage for other in variant.others] != models[:-1]:
                raise ValueError(
                    f"variant {variant.name!r} must have a file for each model of the chain: others for "
                    f"{', '.join(models[:-1]) or 'none'}, file for {models[-1] if models else 'the model'}"
                )
            if models and variant.layout != "NWC":
                raise ValueError(f"variant {variant.name!r}: a chain takes samples before channels; write layout NWC")

    @property
    def model(self) -> str:
        """Name and version as predictions carry them."""
        return f"{self.name}/{self.version}"


def needed_schema(
    input: InputContract,  # noqa: A002 - the manifest's own word
    references: Sequence[Reference] = (),
    events: Sequence[EventRule] = (),
    *,
    output: AnyOutput,
    stages: Sequence[Stage] = (),
    sensors: SensorReference | None = None,
    surround: Surround | None = None,
) -> int:
    """Return the lowest schema version that has room for these parts of a manifest."""
    parts = references or events or stages or input.frame is not None or not isinstance(output, OutputContract)
    parts = parts or sensors is not None or surround is not None
    return 2 if parts or any(channel.joined for channel in input.channels) else 1


def _unknown_schema(version: Any) -> str:
    return (
        f"schema_version {version} is not known here (this version reads "
        f"{' and '.join(map(str, SCHEMA_VERSIONS))}); update edge-runtime or export the bundle again"
    )


def parse(data: bytes) -> Manifest:
    """Read ``manifest.json``.

    Raises:
        ManifestError: not JSON, or not a manifest this version understands; names the place.
    """
    try:
        plain = orjson.loads(data)
        version = plain.get("schema_version") if isinstance(plain, dict) else None
        if type(version) is int and version not in SCHEMA_VERSIONS:  # first: a later one has keys that are unknown here
            raise ManifestError(f"manifest.json: top level: {_unknown_schema(version)}")
        return schema.load(Manifest, plain)
    except orjson.JSONDecodeError as error:
        raise ManifestError(f"manifest.json is not JSON: {error}") from error
    except schema.SchemaError as error:
        raise ManifestError(f"manifest.json: {error.dotted() or 'top level'}: {error}") from error


def dump(manifest: Manifest) -> bytes:
    """Encode the manifest as canonical JSON: fields in their order, keys of tables sorted; same manifest, same bytes.

    Fields that came after the first release are left out where they have their default: earlier versions do not know
    them, and would refuse the bundle.
    """
    plain = orjson.loads(orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS))
    _sparse([plain], Manifest, "references", "sensors", "events", "stages", "answer", "surround")
    _sparse([plain["input"]], InputContract, "fill", "frame")
    _sparse(list(filter(None, [plain["input"].get("frame")])), Frame, "at", "crop_share", "antialias")
    _sparse(plain["input"]["channels"], Channel, "resample", "max_age_s", "missing", "mask_of")
    _sparse(plain["variants"], Variant, "measured", "tensors", "batch", "others")
    if not isinstance(manifest.output, OutputContract):
        _sparse([plain["output"]], type(manifest.output), *_named(manifest.output, "kind"))
        _sparse(plain["output"].get("quantities", ()), Quantity, *_named(Quantity, "name"))
    for table, stage in zip(plain.get("stages", ()), manifest.stages, strict=True):
        _sparse([table], type(stage), *_named(stage, "type"))
        if isinstance(stage, ModelStage):
            for name, cls in (("inputs", Port), ("constants", Constant), ("states", State), ("outputs", Output)):
                _sparse(table.get(name, ()), cls, *(field.name for field in dataclasses.fields(cls)))
    _sparse(plain.get("references", ()), Reference, "still_s", "rates_hz", "top_hz", "rail_share")
    if manifest.sensors is not None:
        _sparse([plain["sensors"]], SensorReference, "repairs", "own")
        _sparse(plain["sensors"].get("repairs", ()), Repair, *_named(Repair, "fault"))
    _sparse(plain.get("events", ()), EventRule, *(field.name for field in dataclasses.fields(EventRule)))
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _named(table: Any, tag: str) -> list[str]:
    """Fields of a dataclass but the one that tells which it is."""
    return [field.name for field in dataclasses.fields(table) if field.name != tag]


def _sparse(tables: Iterable[dict[str, Any]], cls: type[Any], *names: str) -> None:
    """Take these fields out of tables that hold their default."""
    defaults = {
        field.name: field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
        for field in dataclasses.fields(cls)
        if field.name in names
    }
    for table in tables:
        for name, default in defaults.items():
            if table[name] == (list(default) if isinstance(default, tuple) else default):
                del table[name]
