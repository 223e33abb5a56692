"""The application's one TOML file, as frozen dataclasses.

Each part's settings are declared in the module that uses them; this one only composes them and finds the line of a
mistake. Nothing is read from the environment. Secrets are named by the file that holds them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from edge_runtime import schema
from edge_runtime.errors import ConfigError
from edge_runtime.gate.gate import GateConfig
from edge_runtime.sinks.build import SinkConfig
from edge_runtime.sources.build import SourceConfig
from edge_runtime.system import toml
from edge_runtime.windowing.window import WindowConfig

T = TypeVar("T")

if TYPE_CHECKING:
    from edge_runtime.cloud.client import CloudConfig
    from edge_runtime.cloud.escalator import EscalationConfig
    from edge_runtime.durable.outbox import OutboxConfig
    from edge_runtime.durable.reading_log import JournalConfig
    from edge_runtime.governor.governor import GovernorConfig
    from edge_runtime.mqtt.config import BrokerConfig
    from edge_runtime.update.config import UpdateConfig
else:  # an application without a cloud does not pay for SQLite and HTTP
    CloudConfig = schema.Deferred("edge_runtime.cloud.client:CloudConfig")
    EscalationConfig = schema.Deferred("edge_runtime.cloud.escalator:EscalationConfig")
    JournalConfig = schema.Deferred("edge_runtime.durable.reading_log:JournalConfig")
    GovernorConfig = schema.Deferred("edge_runtime.governor.governor:GovernorConfig")
    BrokerConfig = schema.Deferred("edge_runtime.mqtt.config:BrokerConfig")
    OutboxConfig = schema.Deferred("edge_runtime.durable.outbox:OutboxConfig")
    UpdateConfig = schema.Deferred("edge_runtime.update.config:UpdateConfig")


Isolate = Literal["accelerators", "all", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Which model runs, and how."""

    bundle: Path
    trusted_keys: tuple[Path, ...] = ()
    """Public keys (PEM), one of which must have signed the bundle (docs/signing.md)."""
    unsigned: Literal["refuse", "allow"] = "refuse"
    """``allow`` runs whatever the file holds, and looks at no signature."""
    variant: str = "auto"
    """Name of one of the bundle's variants; ``auto`` takes the fastest that was measured on this machine, or the first
    that it can run."""
    tuned: Path | None = None
    """File that remembers what was measured; None: ``watch.edge.tuned.json`` beside ``watch.edge``."""
    tune_at_start_s: float = 0.0
    """How long the first start may take to measure, where nothing is remembered; 0 leaves it to `edge-runtime tune`."""
    threads: int = 1
    """At most. More than one rarely helps a small model, and costs (docs/decisions/0004-engine-options.md)."""
    max_batch: int = 32
    latency_budget_ms: float = 0.0
    """How long an arrival may wait for others to be handled with it. 0 answers at once; 5 costs a third of the CPU
    at 10,000 messages a second."""
    load_timeout_s: float = 60.0
    """How long the model may take to load in the child process that tries it first."""
    failover: Literal["on", "off"] = "on"
    """Whether something else answers when the engine fails (docs/decisions/0010-failover.md)."""
    fallbacks: tuple[str, ...] = ()
    """Variants that may stand in for the first, in this order; empty takes all that run here, by cost."""
    accelerators: dict[str, dict[str, str]] | None = None
    """ONNX Runtime execution providers or TFLite delegates by name, with their options, tried before the CPU. None
    takes what `edge-runtime tune` found to be worth it on this machine; an empty table is the CPU alone."""
    compiled: Path | None = None
    """Folder for what accelerators compile; None: ``watch.edge.compiled`` beside ``watch.edge``."""
    isolate: Isolate = "accelerators"
    """What runs in a process of its own, so that it may hang or die; that costs a round trip for each call."""
    deadline_ms: float = 5000.0
    """How long a call into an engine may take before it counts as hung."""
    check_interval_s: float = 60.0
    """How often golden vectors are replayed on the engine that answers; 0 is never."""

    def __post_init__(self) -> None:
        if not 0 <= self.tune_at_start_s <= 3600:
            raise ValueError("tune_at_start_s must be 0 to 3,600")
        if self.trusted_keys and self.unsigned == "allow":
            raise ValueError(
                "trusted_keys and unsigned = 'allow' contradict each other, since a signature can be taken off; "
                "leave one of them out"
            )
        if self.threads < 1 or self.max_batch < 1:
            raise ValueError("threads and max_batch must be at least 1")
        if not 0 <= self.latency_budget_ms <= 10_000:
            raise ValueError("latency_budget_ms must be 0 to 10,000")
        if not 10 <= self.deadline_ms <= 600_000:
            raise ValueError("deadline_ms must be 10 to 600,000")
        if self.check_interval_s < 0:
            raise ValueError("check_interval_s must not be negative")
        if self.accelerators and self.failover == "off":
            raise ValueError(
                "accelerators need failover = 'on', since the CPU stands in when they fail; leave one of them out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    """The whole file."""

    name: str = ""
    """Tells several applications on one host apart: part of the default client ids. Empty: made of this file's path, so
    that a broker's session is found again after a restart. Set it where the file may move."""
    model: ModelConfig
    source: tuple[SourceConfig, ...]
    sink: tuple[SinkConfig, ...]
    broker: dict[str, BrokerConfig] = field(default_factory=dict)
    window: WindowConfig = field(default_factory=WindowConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    cloud: CloudConfig | None = None
    escalation: EscalationConfig | None = None
    """None takes its defaults, where there is a cloud."""
    outbox: OutboxConfig | None = None
    governor: GovernorConfig | None = None
    """None does the same at every temperature."""
    update: UpdateConfig | None = None
    """None: the bundle is what the configuration names, and stays so."""
    durability: Literal["window", "reading"] = "window"
    """What a crash may cost: the unfinished window of each key, or nothing (docs/decisions/0011-durability.md)."""
    journal: JournalConfig | None = None
    """Where begun windows are saved at an orderly stop (None: see `saved_windows`), and where readings are written down
    before they are acknowledged, with ``durability = "reading"``."""
    drain_timeout_s: float = 10.0
    """How long stopping may take: answers under way are handed over, hard cases committed."""

    silence_s: float = 30.0
    """How long a source may deliver no reading before the log says so; 0 is for ever."""

    def __post_init__(self) -> None:
        if self.silence_s < 0:
            raise ValueError("silence_s must not be negative")
        if not self.source:
            raise ValueError("at least one [[source]] is needed")
        if not self.sink:
            raise ValueError("at least one [[sink]] is needed")
        if self.cloud is not None and self.outbox is None:
            raise ValueError("[cloud] needs an [outbox] with a path, where hard cases wait until they are answered")
        if self.update is not None and not self.model.trusted_keys:
            raise ValueError("[update] needs trusted_keys under [model]: a new bundle runs only if somebody signed it")
        if self.update is not None and self.update.broker and self.update.broker not in self.broker:
            raise ValueError(f"update.broker '{self.update.broker}' has no [broker.{self.update.broker}]")
        if self.durability == "reading":
            if self.journal is None:
                raise ValueError("durability = 'reading' needs a [journal] with a path: where to write them down")
            if not any(part.type == "mqtt" for part in self.source):
                raise ValueError("durability = 'reading' needs an mqtt source: no other one can be acknowledged")
        if self.drain_timeout_s < 0:
            raise ValueError("drain_timeout_s must not be negative")
        for kind, parts in (("source", self.source), ("sink", self.sink)):
            for i, part in enumerate(parts):
                if part.type == "mqtt" and part.broker not in self.broker:
                    known = ", ".join(sorted(self.broker)) or "none"
                    raise ValueError(
                        f"{kind}[{i}].broker '{part.broker}' has no [broker.{part.broker}]; known: {known}"
                    )

    @property
    def state_file(self) -> Path | None:
        """What was named for state: the journal, else the outbox. Further files of the application lie beside it."""
        if self.journal is not None:
            return self.journal.path
        return None if self.outbox is None else self.outbox.path

    @property
    def saved_windows(self) -> Path | None:
        """File for windows begun at an orderly stop: ``outbox.windows.db`` beside ``outbox.db``, or the journal's.

        None where the configuration names neither, or where a source is a recording: it begins again at each start,
        and so do its windows.
        """
        path = self.state_file
        if path is None or any(part.type == "recording" for part in self.source):
            return None
        return path if self.journal is not None else path.with_name(f"{path.stem}.windows{path.suffix}")

    @property
    def counters_file(self) -> Path | None:
        """File of the lifetime counters: ``outbox.counters`` beside ``outbox.db``, else beside the journal."""
        path = self.state_file if self.outbox is None else self.outbox.path
        return None if path is None else path.with_name(f"{path.stem}.counters")


def load(path: Path) -> AppConfig:
    """Read and check a configuration file. Relative paths in it are taken from the file's own folder.

    Raises:
        ConfigError: one line with file, line and what to do.
    """
    return parse(read_text(path), path)


def parse(text: str, path: Path) -> AppConfig:
    """As `load`, for a text that was read already; `path` names it in errors and anchors relative paths."""
    config = parse_as(AppConfig, text, path, base=path.parent)
    return config if config.name else dataclasses.replace(config, name=_name_of(path))


def _name_of(path: Path) -> str:
    """A name for the application in this file; copies of the file elsewhere have other ones."""
    return f"{path.stem}-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"


def read_text(path: Path) -> str:
    """The text of a file that a person wrote.

    Raises:
        ConfigError: it cannot be read, or is not UTF-8.
    """
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error


def parse_as(cls: type[T], text: str, path: Path, *, base: Path | None = None, whole: str = "") -> T:
    """A TOML text as a dataclass, whichever it is.

    Args:
        cls: the dataclass.
        text: of the file.
        path: names it in errors.
        base: anchors relative paths; None leaves them.
        whole: what an error is about that concerns no single key; empty names no line for it.

    Raises:
        ConfigError: one line with file, line and what to do.
    """
    try:
        data = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    try:
        return schema.load(cls, data, base=base)
    except schema.SchemaError as error:
        place = error.dotted() or whole
        where = f"{path}:{line_of(text, error.where)}: {place}" if place else f"{path}"
        raise ConfigError(f"{where}: {error}") from error


_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""^\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def line_of(text: str, where: schema.PathOfKeys) -> int:
    """Line of the key that `where` leads to, or of the innermost table around it that the text spells out.

    The TOML reader keeps no positions, so headers and keys are scanned once more; only a table or key that begins a
    line is seen, and a value inside an inline table is reported at the line of that table.
    """
    best, depth = 1, 0
    table: schema.PathOfKeys = ()
    entries: dict[schema.PathOfKeys, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _indexed(_parts(header[2]), entries)
            if header[1] == "[[":
                entries[table] = entries.get(table, -1) + 1
                table = (*table, entries[table])
            place = table
        elif key := _KEY.match(line):
            place = (*table, *_parts(key[1]))
        else:
            continue
        shared = min(len(place), len(where))  # a place within the one wanted, or around it
        if shared > depth and where[:shared] == place[:shared]:
            best, depth = number, shared
    return best


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _indexed(names: tuple[str, ...], entries: dict[schema.PathOfKeys, int]) -> schema.PathOfKeys:
    """Names of a header with the position in every array of tables on the way to the last one."""
    place: schema.PathOfKeys = ()
    for name in names[:-1]:
        place = (*place, name)
        if place in entries:
            place = (*place, entries[place])
    return (*place, names[-1])
