"""`manifest.json`: what a bundle says of itself, as types.

The manifest is read before anything else in a bundle, and it is the only description of the model that the device
trusts; nothing is inferred from a model file. Unknown keys are an error: a device that does not understand a promise
must not pretend to keep it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from edge_runtime import schema
from edge_runtime.errors import ManifestError

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """One column of the sensor's values."""

    name: str
    unit: str
    """As in UCUM or SenML, for example ``m/s2``, ``rad/s``, ``g``, ``1`` for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputContract:
    """Contract of a window: the same rules cut windows in training (see `edge_runtime.windowing.window`)."""

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

    def __post_init__(self) -> None:
        if not self.channels:
            raise ValueError("needs at least one channel")
        if not 1 <= self.window <= 1_000_000 or not 1 <= self.hop <= self.window:
            raise ValueError("window must be 1 to 1,000,000 samples and hop 1 to window")
        if not 1e-6 <= self.rate_hz <= 1e6:
            raise ValueError("rate_hz must be 1e-6 to 1e6")
        if self.context and self.context < self.window:
            raise ValueError("context must be 0 or at least the window")
        if not 0.001 <= self.snap < 0.5:
            # Stamps in epoch seconds are exact to 0.2 us only, so exact equality cannot be asked for.
            raise ValueError("snap must be at least 0.001 and below 0.5")
        if self.max_gap_s and self.max_gap_s < 2 / self.rate_hz:
            raise ValueError("max_gap_s must be 0 or at least two sample periods")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputContract:
    """Meaning of the model's output."""

    labels: tuple[str, ...]
    kind: Literal["probabilities"] = "probabilities"
    """Softmax and temperature are part of the graph: the output sums to one."""

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) != len(self.labels):
            raise ValueError("needs two or more labels, all different")


@dataclass(frozen=True, slots=True, kw_only=True)
class GateSpec:
    """Rule for hard windows: a score below the threshold, which was set at export for a stated promise."""

    score: Literal["confidence", "margin", "entropy"] = "confidence"
    """Highest probability; its lead over the second; or one minus the entropy over its maximum. All in 0..1."""
    threshold: float = 0.0
    """Hard below it. 0 trusts every answer, anything above 1 none."""
    expected: dict[str, float] = field(default_factory=dict)
    """Figures measured at export on groups not trained on, for example ``forwarded``, ``local_error``."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.threshold):
            raise ValueError("threshold must be finite")


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
    """Input axes: batch, channels, samples, or batch, samples, channels."""
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
    (`edge_export.selection.remote`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """Any other file of the bundle: golden vectors, model card."""

    file: str
    size: int
    sha256: str


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
    output: OutputContract
    gate: GateSpec = GateSpec()
    variants: tuple[Variant, ...]
    golden_inputs: str
    """.npy file of the bundle: float32 (n, channels, samples)."""
    files: tuple[File, ...]
    """Every file besides the manifest, the signature and the variants."""
    provenance: dict[str, Any] = field(default_factory=dict)
    """Recipe, data and teacher digests, versions, licences: for people and audits; the runtime reads none of it."""

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ValueError(
                f"schema_version {self.schema_version} is not known here (this version reads {SCHEMA_VERSION}); "
                "update edge-runtime or export the bundle again",
            )
        if not self.variants:
            raise ValueError("needs at least one variant")
        names = [variant.name for variant in self.variants]
        if len(set(names)) != len(names):
            raise ValueError("variant names must differ")

    @property
    def model(self) -> str:
        """Name and version as predictions carry them."""
        return f"{self.name}/{self.version}"


def parse(data: bytes) -> Manifest:
    """Read ``manifest.json``.

    Raises:
        ManifestError: not JSON, or not a manifest this version understands; names the place.
    """
    try:
        return schema.load(Manifest, orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise ManifestError(f"manifest.json is not JSON: {error}") from error
    except schema.SchemaError as error:
        raise ManifestError(f"manifest.json: {error.dotted() or 'top level'}: {error}") from error


def dump(manifest: Manifest) -> bytes:
    """Encode the manifest as canonical JSON: fields in their order, keys of tables sorted; same manifest, same bytes.

    ``measured`` and ``fill`` are left out where they are empty: earlier versions do not know them, and would refuse the
    bundle.
    """
    plain = orjson.loads(orjson.dumps(manifest, option=orjson.OPT_SORT_KEYS))
    if not plain["input"]["fill"]:
        del plain["input"]["fill"]
    for variant in plain["variants"]:
        if not variant["measured"]:
            del variant["measured"]
    return orjson.dumps(plain, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
