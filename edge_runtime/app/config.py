"""The application's one TOML file, as frozen dataclasses.

Each room declares its settings in its own `config`; this module only composes them and finds the line of a mistake.
Nothing is read from the environment. Secrets are named by the file that holds them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from edge_runtime import schema
from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.base.system import toml
from edge_runtime.cloud.config import CloudConfig, EscalationConfig
from edge_runtime.errors import ConfigError
from edge_runtime.event_rule import EventRule
from edge_runtime.io.sinks.build import SinkConfig
from edge_runtime.io.sources.build import SourceConfig
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.signal.drift.config import DriftConfig
from edge_runtime.signal.intake.config import IntakeConfig
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.store.durable.config import OutboxConfig, ReadingLogConfig

T = TypeVar("T")

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.config import BrokerConfig
    from edge_runtime.operate.governor.config import GovernorConfig
    from edge_runtime.operate.observe.config import ObserveConfig
    from edge_runtime.operate.observe.home_assistant.config import HomeAssistantConfig
    from edge_runtime.operate.update.config import UpdateConfig
    from edge_runtime.store.cases.config import CasesConfig
else:  # an application pays only for the modules it uses
    CasesConfig = schema.Deferred("edge_runtime.store.cases.config:CasesConfig")
    GovernorConfig = schema.Deferred("edge_runtime.operate.governor.config:GovernorConfig")
    BrokerConfig = schema.Deferred("edge_runtime.io.mqtt.config:BrokerConfig")
    HomeAssistantConfig = schema.Deferred("edge_runtime.operate.observe.home_assistant.config:HomeAssistantConfig")
    ObserveConfig = schema.Deferred("edge_runtime.operate.observe.config:ObserveConfig")
    UpdateConfig = schema.Deferred("edge_runtime.operate.update.config:UpdateConfig")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    """The whole file."""

    name: str = ""
    """Tells several applications on one host apart: part of the default client ids. Empty: made of this file's path, so
    that a broker's session is found again after a restart. Set it where the file may move."""
    workers: int = 1
    """Processes with a model each, which share the keys (docs/workers.md); used by ``edge-runtime run``."""
    machine: str = ""
    """Which of several machines with this file this one is, as ``2/3``: only its part of the keys is answered here."""
    model: ModelConfig
    source: tuple[SourceConfig, ...] = ()
    """At least one, unless a program passes `edge_runtime.App` sources of its own; the same holds for sinks."""
    sink: tuple[SinkConfig, ...] = ()
    broker: dict[str, BrokerConfig] = field(default_factory=dict)
    window: WindowConfig = field(default_factory=WindowConfig)
    intake: IntakeConfig = field(default_factory=IntakeConfig)
    drift: DriftConfig = field(default_factory=DriftConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    events: tuple[EventRule, ...] | None = None
    """Rules by which answers become events. None: those of the bundle; any here, or ``events = []``, take
    their place."""
    cloud: CloudConfig | None = None
    escalation: EscalationConfig | None = None
    """None takes its defaults, where there is a cloud."""
    outbox: OutboxConfig | None = None
    governor: GovernorConfig | None = None
    """None does the same at every temperature."""
    update: UpdateConfig | None = None
    """None: the bundle is what the configuration names, and stays so."""
    cases: CasesConfig | None = None
    """None keeps no windows for people to look at."""
    observe: ObserveConfig | None = None
    """None: the Unix socket beside the files of state is all that there is to look in by."""
    home_assistant: HomeAssistantConfig | None = None
    """None: Home Assistant is shown nothing."""
    durability: Literal["window", "reading"] = "window"
    """Most that a crash may cost: the unfinished window of each key, or nothing (docs/decisions/0011-durability.md)."""
    reading_log: ReadingLogConfig | None = None
    """Where begun windows are saved at an orderly stop (None: see `saved_windows`), and where readings are written down
    before they are acknowledged, with ``durability = "reading"``."""
    drain_timeout_s: float = 10.0
    """Longest time for stopping: answers under way are handed over, hard cases committed."""

    silence_s: float = 30.0
    """Longest time without a reading of a source; after it a warning is logged. 0: none ever is."""

    def __post_init__(self) -> None:
        if not 1 <= self.workers <= 256:
            raise ValueError(f"workers must be 1 to 256, got {self.workers}")
        if self.silence_s < 0:
            raise ValueError("silence_s must not be negative")
        if self.cloud is not None and self.outbox is None:
            raise ValueError("[cloud] needs an [outbox] with a path, where hard cases wait until they are answered")
        if self.update is not None:
            self._check_update(self.update)
        if self.durability == "reading":
            if self.reading_log is None:
                raise ValueError("durability = 'reading' needs a [reading_log] with a path: where to write them down")
            if not any(part.type == "mqtt" for part in self.source):
                raise ValueError("durability = 'reading' needs an mqtt source: no other one can be acknowledged")
        if self.drain_timeout_s < 0:
            raise ValueError("drain_timeout_s must not be negative")
        self._check_brokers()

    def _check_update(self, update: UpdateConfig) -> None:
        if not self.model.trusted_keys:
            raise ValueError(
                "[update] needs trusted_keys under [model]: a new bundle runs only if a trusted key signed it"
            )
        if update.prove == "better" and (self.cases is None or self.cases.keep == "nothing"):
            raise ValueError(
                '[update] prove = "better" needs a table [cases] with a path: people label windows there, '
                "with edge-runtime review or on the page"
            )
        if update.broker and update.broker not in self.broker:
            raise ValueError(f"update.broker '{update.broker}' has no [broker.{update.broker}]")

    def _check_brokers(self) -> None:
        for kind, parts in (("source", self.source), ("sink", self.sink)):
            for i, part in enumerate(parts):
                broker = getattr(part, "broker", None)
                if broker is not None and broker not in self.broker:
                    known = ", ".join(sorted(self.broker)) or "none"
                    raise ValueError(f"{kind}[{i}].broker '{broker}' has no [broker.{broker}]; known: {known}")
        if self.home_assistant is not None:
            self._check_home_assistant(self.home_assistant)
        if any(part.type == "mqtt" and part.channels for part in self.source):
            from edge_runtime.io.sources.channel_topics import check_sources  # noqa: PLC0415 - MQTT, only where it is used

            check_sources([(part.broker, part.patterns) for part in self.source if part.type == "mqtt"])
        self._check_sinks()

    def _check_sinks(self) -> None:
        """Ask the module of each sink that has one broker whether it can use it."""
        choice: Any = SinkConfig
        for i, part in enumerate(self.sink):
            broker = getattr(part, "broker", None)
            if broker is not None and (check := getattr(choice.module(part.type), "check_broker", None)):
                users = [
                    getattr(one, "broker", "") for one in (*self.source, *self.sink, self.update, self.home_assistant)
                ]
                try:
                    check(part, self.broker[broker], users)
                except ValueError as error:
                    raise ValueError(f"sink[{i}]: {error}") from None

    def _check_home_assistant(self, config: HomeAssistantConfig) -> None:
        if config.broker not in self.broker:
            raise ValueError(f"home_assistant.broker '{config.broker}' has no [broker.{config.broker}]")
        if "install" in config.commands and (self.update is None or self.update.start != "asked"):
            raise ValueError(
                "home_assistant.commands: install needs [update] with start = 'asked'; otherwise a verified bundle "
                "starts as soon as it is there"
            )

    def require_ends(self, sources: Sequence[object] = (), sinks: Sequence[object] = ()) -> None:
        """Refuse an application without a source or without a sink.

        Args:
            sources: objects that a program passes besides those that are configured.
            sinks: the same.

        Raises:
            ConfigError: there is none at all; says where they go.
        """
        for kind, configured, passed in (("source", self.source, sources), ("sink", self.sink, sinks)):
            if not configured and not passed:
                raise ConfigError(
                    f"at least one [[{kind}]] is needed in the configuration; "
                    f"a Python program may pass objects instead: App(config, {kind}s=[...])"
                )

    @property
    def saved_windows(self) -> Path | None:
        """File for windows begun at an orderly stop: ``outbox.windows.db`` beside ``outbox.db``, or the reading log's.

        None where the configuration names neither, or where `begins_again`.
        """
        if self.reading_log is not None:
            return None if self.begins_again else self.reading_log.path
        if self.outbox is None or self.begins_again:
            return None
        return self.outbox.path.with_name(f"{self.outbox.path.stem}.windows{self.outbox.path.suffix}")

    @property
    def begins_again(self) -> bool:
        """A source is a recording: it begins again at each start, and so do its windows and what is learnt of keys."""
        return any(part.type == "recording" for part in self.source)

    @property
    def counters_file(self) -> Path | None:
        """File of the lifetime counters: ``outbox.counters`` beside ``outbox.db``, else beside the reading log.

        Further files of the application lie beside it, under the same name.
        """
        named = self.outbox or self.reading_log
        return None if named is None else named.path.with_name(f"{named.path.stem}.counters")

    @property
    def state_file(self) -> Path | None:
        """File of what is learnt on the device, and of the epochs of keys: ``outbox.state.db`` beside the counters."""
        return None if self.counters_file is None else self.counters_file.with_suffix(".state.db")

    @property
    def socket_file(self) -> Path | None:
        """Unix socket for ``edge-runtime watch`` and ``status``: ``outbox.sock`` beside the counters, unless named."""
        if self.observe is not None and self.observe.socket is not None:
            return self.observe.socket
        return None if self.counters_file is None else self.counters_file.with_suffix(".sock")


def load_config(path: str | os.PathLike[str]) -> AppConfig:
    """Read and check a configuration file. Relative paths in it are taken from the file's own folder.

    Raises:
        ConfigError: one line with file, line and what to do.
    """
    return parse(read_text(Path(path)), Path(path))


def parse(text: str, path: Path) -> AppConfig:
    """Parse a text that was read already, as `load_config`; `path` names it in errors and anchors relative paths."""
    config = parse_as(AppConfig, text, path, base=path.parent)
    return config if config.name else dataclasses.replace(config, name=_name_of(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    source: tuple[SourceConfig, ...] = ()
    events: tuple[EventRule, ...] = ()


def load_sources(path: Path) -> tuple[SourceConfig, ...]:
    """Read the ``[[source]]`` tables of a configuration file, whatever else it holds or lacks.

    Raises:
        ConfigError: one line with file, line and what to do.
    """
    return _load_part(path, "source").source


def load_events(path: Path) -> tuple[EventRule, ...]:
    """Read the ``[[events]]`` tables of a file, whatever else it holds or lacks.

    Raises:
        ConfigError: one line with file, line and what to do.
    """
    return _load_part(path, "events").events


def _load_part(path: Path, name: str) -> _Parts:
    text = read_text(path)
    try:
        found = {key: value for key, value in toml.loads(text).items() if key == name}
        return schema.load(_Parts, found, base=path.parent)
    except toml.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    except schema.SchemaError as error:
        raise ConfigError(f"{path}:{line_of(text, error.where)}: {error.dotted()}: {error}") from error


def _name_of(path: Path) -> str:
    """Derive a name for the application in this file; copies of the file elsewhere have other ones."""
    return f"{path.stem}-{hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]}"


def read_text(path: Path) -> str:
    """Read the text of a file that a person wrote.

    Raises:
        ConfigError: it cannot be read, or is not UTF-8.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(toml.MOST_CHARS + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}") from error


def parse_as(
    cls: type[T],
    text: str,
    path: Path,
    *,
    base: Path | None = None,
    whole: str = "",
    expand: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    wrote: Callable[[schema.PathOfKeys], schema.PathOfKeys] | None = None,
) -> T:
    """Parse a TOML text as a dataclass, whichever it is.

    Args:
        cls: the dataclass.
        text: the file's text.
        path: names it in errors.
        base: anchors relative paths; None leaves them.
        whole: what an error is about that concerns no single key; empty names no line for it.
        expand: writes short forms out, before anything is checked; may raise `schema.SchemaError`.
        wrote: place in the text of what `expand` moved, for errors.

    Raises:
        ConfigError: one line with file, line and what to do.
    """
    try:
        data = toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    try:
        return schema.load(cls, data if expand is None else expand(data), base=base)
    except schema.SchemaError as error:
        if wrote is not None:
            error = schema.SchemaError(str(error), wrote(error.where))
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
