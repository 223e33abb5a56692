"""Plan: the configuration of one worker, made from the application's; what several processes cannot share is refused.

==================== ============================================================================================
of the application   of worker 3
==================== ============================================================================================
``outbox.db``        ``worker-3/outbox.db``, and so all files of state, which are named after it
``answers.jsonl``    ``answers.worker-3.jsonl``
a broker's client    the same id, and ``-worker-3`` behind it; no status topic, which is the parent's
limits of a day      an equal part of ``max_bytes`` of the outbox, and of the gate's calls and bytes
==================== ============================================================================================

Names do not depend on the number of workers: worker 3 of 4 finds the files of worker 3 of 3. Those of a worker that is
not there any more are adopted by another one (`edge_runtime.store.durable.outbox.adopting`).
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edge_runtime.app.config import AppConfig
from edge_runtime.app.workers.share import Share, parse_machine
from edge_runtime.errors import ConfigError
from edge_runtime.store.durable.config import OutboxConfig

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.config import BrokerConfig
    from edge_runtime.operate.observe.config import ObserveConfig

_LEAST_OUTBOX_BYTES: Final = 256 * 1024

_ONE_CONNECTION: Final = (
    "has one connection, which workers cannot share: leave workers out, or publish its readings to a broker, from "
    "which workers take them"
)
_SHARED_BY_BROKER: Final = (
    "the broker would hand each message to one of them, whatever its key; take it out, since keys are shared already"
)
_ONE_PROCESS: Final[dict[str, str]] = {
    "update": "several workers would each install the bundle: leave [update] out, replace the bundle and restart",
    "cases": "each worker would keep a file of its own: leave [cases] out, or workers",
    "home_assistant": "it shows one process: leave [home_assistant] out, or workers",
}


@dataclass(frozen=True, slots=True)
class Part:
    """Part of one process in an application."""

    share: Share
    adopts: tuple[Path, ...] = ()
    """Outboxes of workers that are not there any more."""


def machine_of(config: AppConfig) -> tuple[int, int]:
    """Return which of how many machines this is.

    Raises:
        ConfigError: `AppConfig.machine` is not like ``2/3``.
    """
    try:
        return parse_machine(config.machine)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def check(config: AppConfig) -> None:
    """Refuse what several workers or machines cannot share.

    Raises:
        ConfigError: says what, and what to do instead.
    """
    machine, machines = machine_of(config)
    workers = config.workers
    if workers == machines == 1:
        return
    several = f"workers = {workers}" if workers > 1 else f"machine = '{machine}/{machines}'"
    for where, why in _refusals(config, several_workers=workers > 1):
        raise ConfigError(f"{several}: {where}: {why}")


def _refusals(config: AppConfig, *, several_workers: bool) -> Iterator[tuple[str, str]]:
    """Yield each part that cannot be shared, and what to do instead."""
    for i, source in enumerate(config.source):
        if source.type != "mqtt":
            yield f"source[{i}] of type {source.type}", _ONE_CONNECTION
        elif source.share or any(topic.startswith("$share/") for topic in source.patterns):
            yield f"source[{i}].share", _SHARED_BY_BROKER
    if not several_workers:
        return
    for i, sink in enumerate(config.sink):
        if sink.type == "stdout":
            yield f"sink[{i}] of type stdout", "lines of several processes would mix: use jsonl or mqtt"
        elif alone := getattr(sink, "ALONE", ""):
            yield f"sink[{i}] of type {sink.type}", alone
    for name, why in _ONE_PROCESS.items():
        if getattr(config, name) is not None:
            yield f"[{name}]", why
    yield from _too_small(config)
    if config.observe is not None and config.observe.stats_s:
        yield "observe.stats_s", "leave it out; /metrics has the sums of all workers"


def _too_small(config: AppConfig) -> Iterator[tuple[str, str]]:
    for name in ("max_calls_per_day", "max_bytes_per_day"):
        if 0 < getattr(config.gate, name) < config.workers:
            yield f"gate.{name}", "each worker gets an equal part of it, which must be 1 at least: raise it"


def alone(config: AppConfig) -> Part:
    """Return the part of the one process of this machine.

    Raises:
        ConfigError: `AppConfig.machine` is not like ``2/3``.
    """
    machine, machines = machine_of(config)
    return Part(Share(1, 1, machine, machines), adopted(config.outbox, 0, 0))


def part_of_worker(config: AppConfig, worker: int) -> Part:
    """Return the part of a worker, counted from 1."""
    return Part(Share(worker, config.workers, *machine_of(config)), adopted(config.outbox, worker, config.workers))


def own_path(path: Path, worker: int) -> Path:
    """Return the file of a worker in place of the application's; worker 0 is the one process without workers."""
    return path.parent / f"worker-{worker}" / path.name if worker else path


def outboxes(outbox: OutboxConfig) -> dict[int, Path]:
    """Find the outboxes of an application that are there, by the number of their worker; 0 without workers."""
    path = outbox.path
    found = {0: path} if path.exists() else {}
    for folder in path.parent.glob("worker-*"):
        if (match := re.fullmatch(r"worker-([1-9]\d{0,3})", folder.name)) and (folder / path.name).exists():
            found[int(match[1])] = folder / path.name
    return dict(sorted(found.items()))


def adopted(outbox: OutboxConfig | None, worker: int, workers: int) -> tuple[Path, ...]:
    """Find the outboxes that a worker adopts: those of numbers beyond `workers`, shared out in turns.

    Args:
        outbox: the application's outbox.
        worker: number from 1; 0 for the one process without workers, which adopts those of all workers.
        workers: number of them; 0 with `worker` 0.
    """
    if outbox is None:
        return ()
    found = outboxes(outbox)
    gone = [number for number in found if number > workers or (workers and not number)]
    if not workers:
        return tuple(found[number] for number in gone)
    return tuple(found[number] for at, number in enumerate(gone) if at % workers == worker - 1)


def for_machine(config: AppConfig) -> AppConfig:
    """Return the configuration of this machine: client ids and status topics that are not those of the others."""
    machine, machines = machine_of(config)
    if machines == 1:
        return config
    name = f"machine-{machine}"

    def own(broker: BrokerConfig, key: str) -> BrokerConfig:
        topic = f"{broker.status_topic}/{name}" if broker.status_topic else ""
        return replace(broker, client_id=f"{broker.session_name(key, config.name)}-{name}", status_topic=topic)

    return replace(config, broker={key: own(broker, key) for key, broker in config.broker.items()})


def for_worker(config: AppConfig, worker: int, socket_path: Path) -> AppConfig:
    """Return the configuration of a worker; its folder of state is made.

    Args:
        config: this machine's configuration (`for_machine`).
        worker: its number, from 1.
        socket_path: socket on which the parent asks it.

    Raises:
        ConfigError: its folder cannot be made.
    """
    name, workers = f"worker-{worker}", config.workers
    gate, outbox = config.gate, config.outbox
    changed: dict[str, Any] = {
        "gate": replace(
            gate,
            max_calls_per_day=_portion(gate.max_calls_per_day, workers),
            max_bytes_per_day=_portion(gate.max_bytes_per_day, workers),
        ),
        "broker": {
            key: replace(broker, client_id=f"{broker.session_name(key, config.name)}-{name}", status_topic="")
            for key, broker in config.broker.items()
        },
        "sink": tuple(
            replace(sink, path=sink.path.with_name(f"{sink.path.stem}.{name}{sink.path.suffix}"))
            if sink.type == "jsonl"
            else sink
            for sink in config.sink
        ),
        "observe": _observed(config, name, socket_path),
    }
    if outbox is not None:
        size = max(_LEAST_OUTBOX_BYTES, outbox.max_bytes // workers)
        changed["outbox"] = replace(outbox, path=_made(own_path(outbox.path, worker)), max_bytes=size)
    if (reading_log := config.reading_log) is not None:
        changed["reading_log"] = replace(reading_log, path=_made(own_path(reading_log.path, worker)))
    return replace(config, **changed)


def _portion(limit: int, workers: int) -> int:
    """Return an equal part of a limit, of which 0 is none."""
    return max(1, limit // workers) if limit else 0


def _observed(config: AppConfig, name: str, socket_path: Path) -> ObserveConfig:
    from edge_runtime.operate.observe.config import ObserveConfig  # noqa: PLC0415 - only what the application names

    observe = config.observe or ObserveConfig()
    otlp = observe.otlp
    if otlp is not None:
        otlp = otlp.named(config.name, socket.gethostname(), name)
    return replace(observe, socket=socket_path, listen="", token_file=None, textfile=None, otlp=otlp)


def _made(path: Path) -> Path:
    """Make the folder of a file, below one that is there."""
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"the folder of a worker cannot be made: {path.parent}: {error.strerror}") from None
    return path
