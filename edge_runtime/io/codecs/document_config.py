"""Configurations that codecs share: of named channels, of fields, and of documents (JSON, MessagePack and CBOR)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from edge_runtime import units
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.cells import BlockConfig
from edge_runtime.io.codecs.numbers import MAX_BYTES, MAX_SAMPLES, StampUnit

DEFAULT_TIME = "t"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedConfig:
    """Settings of codecs whose messages name channels."""

    channels: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to its name in the message; channels left out are called as in the model."""
    partial: bool = False
    """A sample may lack channels; other messages or sources bring them."""
    time_step_s: float = 0.0
    """Step in which stamps count where that is coarser than samples come: 1 for whole seconds. Samples with the same
    stamp are then spread by their rate, in the order of arrival (`edge_runtime.io.codecs.coarse_stamps`). 0: stamps are
    exact."""
    max_bytes: int = MAX_BYTES
    max_samples: int = MAX_SAMPLES
    """Most samples in a message."""

    def __post_init__(self) -> None:
        if not 0 <= self.time_step_s <= 3600:
            raise ValueError("time_step_s must be 0 (stamps are exact) to 3600")
        if self.max_bytes < 1 or self.max_samples < 1:
            raise ValueError("max_bytes and max_samples must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldConfig(NamedConfig):
    """Settings of codecs whose numbers may be texts: documents and CSV. Of CSV, a field is a column."""

    time: str = DEFAULT_TIME
    """Field of the time stamp; empty: messages carry none, and their last sample counts as taken on arrival. The same
    holds, with a warning, where messages lack the default field."""
    time_unit: StampUnit = "s"
    """Unit of numeric stamps since 1970, or ``iso8601`` for texts (UTC unless they say otherwise). ``auto``: texts are
    ISO 8601 unless they are numbers; numbers are in the unit in which they are a date from 1973 to 5138."""
    key: str = "key"
    """Field of the key; read only where the topic gives none, since a broker vouches for topics, not for payloads."""
    select: dict[str, str] = field(default_factory=dict)
    """Field to value, as ``{name = "accelerometer"}``: of `samples`, or else of the messages, only those count in which
    all fields have these values."""
    units: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to the unit in which its numbers come, as ``{ax = "m/s2"}``; they are converted to the
    model's. A field's name may state it as well: ``ax (m/s2)``."""
    decimal: Literal[".", ","] = "."
    """Mark before the fraction of a number in a text, as ``"21,5"``."""
    words: dict[str, float] = field(default_factory=dict)
    """Number of a word, as ``{ON = 1, OFF = 0}``; ``true`` and ``false`` stand for JSON's own."""
    missing: tuple[str, ...] = ()
    """Further texts or numbers that stand for no value, as ``["-127"]``; ``unknown``, ``nan`` and their like do anyway
    (`edge_runtime.io.codecs.cells.MISSING`)."""
    rate_hz: float = 0.0
    """Samples per second within a message that has one stamp, or none; 0: the model's own rate."""

    def __post_init__(self) -> None:
        NamedConfig.__post_init__(self)
        if not 0 <= self.rate_hz <= 1e6:
            raise ValueError("rate_hz must be 0 (the model's rate) to 1e6")


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentConfig(FieldConfig):
    """Layout of a document. Paths are dotted (``payload.imu.ax``), as `edge_runtime.io.codecs.paths` says."""

    channels: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to field; all channels, unless the codec is `partial`."""
    partial: bool = False
    """A message may bring some of the channels; others come in other messages of the same key. Without `channels` and
    `order`, each channel is a field of its own name."""
    values: str = "values"
    """Field of the samples, unless `channels` maps them; ``.`` where the message itself is them."""
    samples: str = ""
    """With `channels`: field of a list of objects, one per sample; ``.`` where the message is that list. ``*`` where
    the message is an object whose fields are keys, each with a sample or a list of them; also ``devices.*``."""
    order: tuple[str, ...] = ()
    """Channels of `values` in the order in which they stand there, where it is not the model's; ``-`` skips one."""
    block: BlockConfig | None = None
    """Layout of packed numbers: base64 in texts, and bytes, in `values` or in the channels' fields. None: no text is
    such a block, and bytes are little-endian float32."""

    def __post_init__(self) -> None:
        FieldConfig.__post_init__(self)
        if self.samples and not self.channels and not self.partial:
            raise ValueError("samples needs channels: which field of each object is which channel")
        if not self.values or "." in (self.time, self.key):
            raise ValueError("values must name a field; '.' is for values and samples alone")
        if self.order and (self.channels or self.samples):
            raise ValueError("order says how values are ordered, channels names a field for each: use one of them")

    @property
    def single_values(self) -> bool:
        """Return whether values have to be read one by one, since a setting asks for more than plain numbers."""
        return bool(
            self.partial
            or self.select
            or self.order
            or self.words
            or self.missing
            or self.block
            or self.values == "."
            or self.samples.endswith("*")
        )

    def fields(self, names: Sequence[str]) -> dict[str, str]:
        """Return the field of each channel that has one; empty where samples stand in `values`.

        Raises:
            ConfigError: `channels` or `order` name what the model has not, or lack what it has.
        """
        mapped = self.channels or ({name: name for name in names} if self.partial and not self.order else {})
        named = [name for name in (*mapped, *self.order) if name != "-"]
        wrong = set(named) - set(names) if self.partial else set(named) ^ set(names) if named else set()
        if wrong or len(set(named)) < len(named):
            raise ConfigError(
                f"codec channels maps {', '.join(sorted(named))}; the model's channels are {', '.join(names)}: "
                + ("name each once" if self.partial else "map each of them, or set partial = true"),
            )
        return {name: mapped[name] for name in names if name in mapped}

    def brings(self, names: Sequence[str]) -> list[str]:
        """Return the channels of the model that messages may bring, in the model's order."""
        fields = self.fields(names)
        return [name for name in names if name in (fields or self.order or names)]

    def stated_units(self, names: Sequence[str]) -> dict[str, str]:
        """Return the unit of each channel that `units` or the name of its field states."""
        in_names = {name: units.in_name(path) for name, path in self.fields(names).items()}
        return {name: unit for name, unit in in_names.items() if unit} | self.units
