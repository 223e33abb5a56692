"""``edge-runtime outbox``: look into the outbox, decide about dead letters; beside a running application or alone."""

from __future__ import annotations

import base64
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from edge_runtime.base.system.iso8601 import in_words
from edge_runtime.errors import ConfigError, StoreError, StoreInUse
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import AppFile, OutputFile, Seconds
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command, family

if TYPE_CHECKING:
    from edge_runtime.store.durable.outbox import OutboxConfig
    from edge_runtime.store.durable.outbox.control import Action
    from edge_runtime.store.durable.outbox.read_only_copy import Entry, Snapshot

_SQLITE = b"SQLite format 3\0"


family(
    __name__,
    "outbox",
    "look into the outbox; retry, drop or export dead letters",
    "Look into the outbox of an application, and decide about dead letters: hard cases that the cloud "
    "refused for good, kept for a person to look at. Works while the application runs (reading takes a copy, "
    "changing asks the application) and when it does not. Exit code 1 when an id is not there.",
    "outbox list app.toml",
    "outbox show app.toml watch-3@17000",
    "outbox retry app.toml --all --reason rejected",
    "outbox drop app.toml watch-3@17000",
    "outbox export app.toml --queued --out cases.jsonl",
)


@dataclass(frozen=True, kw_only=True)
class OutboxOptions(CommandOptions):
    app: AppFile = operand("the application: its app.toml, the folder that holds it, or its outbox.db", "APP")


@dataclass(frozen=True, kw_only=True)
class OutboxShowOptions(OutboxOptions):
    id: str = operand("id of a case", "ID")


@dataclass(frozen=True, kw_only=True)
class OutboxListOptions(OutboxOptions):
    reason: str = option("only those that are dead for this reason", "", "WORD")
    queued: bool = option("also cases that still wait for the cloud", default=False)


@dataclass(frozen=True, kw_only=True)
class OutboxExportOptions(OutboxListOptions):
    out: OutputFile | None = option("write there instead of to the standard output", None, "FILE")


@dataclass(frozen=True, kw_only=True)
class OutboxChangeOptions(OutboxOptions):
    ids: tuple[str, ...] = operand("ids of dead letters", "ID", ())
    reason: str = option("only those that are dead for this reason", "", "WORD")
    all: bool = option("all dead letters instead", default=False)
    wait: Seconds = arguments.wait()


def _config(where: Path) -> OutboxConfig:
    from edge_runtime.store.durable.outbox import OutboxConfig  # noqa: PLC0415 - SQLite, only when needed

    with contextlib.suppress(OSError), where.open("rb") as file:
        if file.read(len(_SQLITE)) == _SQLITE:
            return OutboxConfig(path=where)
    from edge_runtime.app import config  # noqa: PLC0415 - numpy and the rest
    from edge_runtime.app.workers.plan import outboxes  # noqa: PLC0415 - as above

    loaded = config.load_config(where)
    outbox = loaded.outbox
    if outbox is None:
        raise ConfigError(f"{where}: there is no [outbox], so nothing waits anywhere")
    found = outboxes(outbox)
    if loaded.workers > 1 or (found and 0 not in found):
        names = " ".join(map(str, found.values())) or "none is there yet"
        raise ConfigError(f"{where}: each worker has an outbox of its own; name one in place of {where}: {names}")
    return outbox


# -- looking -----------------------------------------------------------------------------------------------------------


def _entries(snapshot: Snapshot, reason: str, *, queued: bool = False) -> Iterator[Entry]:
    for entry in snapshot.all() if queued else snapshot.dead():
        if not reason or entry.reason == reason:
            yield entry


@command("outbox list", "counters, and dead letters one a line")
def _list(options: OutboxListOptions) -> CommandAnswer:
    from edge_runtime.store.durable.counters import read_totals  # noqa: PLC0415
    from edge_runtime.store.durable.outbox.read_only_copy import Snapshot  # noqa: PLC0415

    config = _config(options.app)
    totals = read_totals(config.path.with_name(f"{config.path.stem}.counters"))
    with Snapshot(config) as snapshot:
        ledger = snapshot.ledger
        found = [_line(entry) for entry in _entries(snapshot, options.reason, queued=options.queued)]
        damaged = snapshot.damaged
    counts: dict[str, Any] = {
        "accepted": ledger.accepted,
        "delivered": ledger.delivered,
        "queued": ledger.queued,
        "dead": ledger.dead,
        "dropped": ledger.dropped(),
        "repeated": ledger.repeated,
        "unpublished": ledger.unpublished,
    }
    dropped = f"{sum(counts['dropped'].values())} ({_counted(counts['dropped'], 'none')})"
    sums = f"delivered {ledger.delivered} + queued {ledger.queued} + dead {ledger.dead} + dropped {dropped}"
    lines = [
        f"{config.path}: accepted {ledger.accepted} = {sums}",
        f"  offered again after a restart: {ledger.repeated}; final messages to publish: {ledger.unpublished}",
    ]
    if totals is not None:
        refused = _counted(dict(sorted(totals.dropped.items())), "nothing")
        lines.append(f"  the application, {totals.starts} starts since {in_words(totals.since)}: dropped {refused}")
    for one in found:
        when = in_words(one["dead_since"] or one["created"])
        why = f"{one['reason'] or '-':<10} tried {one['attempts']}  {one['detail']}"
        lines.append(f"  {one['id']:<24} {one['state']:<8} {when}  {one['bytes']:>8} B  {why}")
    if damaged:
        lines.append(f"  {damaged} more fail their checksum; the application drops and counts them")
    report = {"outbox": config.path, "counts": counts, "cases": found, "damaged": damaged}
    return CommandAnswer(report | {"lifetime": None if totals is None else totals.plain()}, lines)


def _counted(numbers: Mapping[str, int], none: str) -> str:
    return ", ".join(f"{name} {number}" for name, number in numbers.items() if number) or none


@command("outbox show", "everything about one case")
def _show(options: OutboxShowOptions) -> CommandAnswer:
    from edge_runtime.store.durable.outbox.read_only_copy import Snapshot  # noqa: PLC0415

    config = _config(options.app)
    with Snapshot(config) as snapshot:
        entry = snapshot.find(options.id)
    if entry is None:
        raise StoreError(f"no case {options.id!r} in {config.path}; see: edge-runtime outbox list --queued")
    found = _line(entry) | {"meta": _meta(entry.case.meta), "tensor": _tensor(entry.case.body)}
    return CommandAnswer(found, _shown(found))


def _shown(found: Mapping[str, Any]) -> Iterator[str]:
    for name, value in found.items():
        if value in (None, ""):
            continue
        if name in ("created", "dead_since"):
            text = in_words(value)
        elif isinstance(value, dict):
            text = ", ".join(f"{key} {item}" for key, item in value.items())
        else:
            text = str(value)
        yield f"{name:<10} {text}"


@command("outbox export", "dead letters with their tensors as JSON lines")
def _export(options: OutboxExportOptions) -> CommandAnswer | int:
    """Write the cases, a line of JSON each, with and without ``--json``."""
    from edge_runtime.store.durable.outbox.read_only_copy import Snapshot  # noqa: PLC0415

    with Snapshot(_config(options.app)) as snapshot, contextlib.ExitStack() as stack:
        out: TextIO = sys.stdout
        if options.out is not None:
            try:
                # A person's readings: for this user alone, as the outbox itself is.
                descriptor = os.open(options.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ConfigError(f"{options.out}: cannot be written: {error.strerror}") from error
            out = stack.enter_context(open(descriptor, "w", encoding="utf-8"))  # noqa: PTH123 - a descriptor
        number = 0
        for entry in _entries(snapshot, options.reason, queued=options.queued):
            number += 1
            body = base64.b64encode(entry.case.body).decode()
            document = _line(entry) | {"meta": _meta(entry.case.meta), "dtype": "<f4", "body": body}
            out.write(orjson.dumps(document).decode() + "\n")
        damaged = snapshot.damaged
    if damaged:
        print(f"{damaged} cases fail their checksum and were left out", file=sys.stderr)
    if options.out is None:
        return 0
    return CommandAnswer({"file": options.out, "cases": number, "damaged": damaged}, f"{options.out}: {number} cases")


def _line(entry: Entry) -> dict[str, Any]:
    case = entry.case
    return {
        "id": case.id,
        "key": case.key,
        "state": entry.state,
        "reason": entry.reason,
        "detail": entry.detail,
        "attempts": case.attempts,
        "created": case.created,
        "dead_since": entry.buried,
        "deadline_s": case.deadline_s,
        "priority": case.priority,
        "value": case.value,
        "bytes": len(case.body) + len(case.meta),
    }


def _meta(meta: bytes) -> Any:
    try:
        return orjson.loads(meta)
    except orjson.JSONDecodeError:
        return meta.decode("utf-8", "replace")


def _tensor(body: bytes) -> dict[str, float]:
    """Describe a window's values as far as that goes without the bundle that knows their shape."""
    import numpy as np  # noqa: PLC0415

    values = np.frombuffer(body[: len(body) // 4 * 4], "<f4")
    if not len(values):
        return {"values": 0}
    return {
        "values": len(values),
        "min": round(float(values.min()), 6),
        "mean": round(float(values.mean()), 6),
        "max": round(float(values.max()), 6),
    }


# -- changing ----------------------------------------------------------------------------------------------------------


def _change(action: Action, options: OutboxChangeOptions) -> CommandAnswer:
    from edge_runtime.store.durable.outbox.read_only_copy import Snapshot  # noqa: PLC0415

    config = _config(options.app)
    if bool(options.ids) == options.all:
        raise ConfigError(f"name the dead letters, or all of them: edge-runtime outbox {action} APP.toml --all")
    if not config.path.is_file():
        raise StoreError(f"there is no outbox {config.path}; it is made when the application first runs")
    owner = config.path.stat().st_uid
    if owner != os.geteuid():
        # As root it would work once, and leave files behind that the application cannot open any more.
        raise StoreError(f"the outbox {config.path} belongs to user {owner}; run this command as that user")
    with Snapshot(config) as snapshot:
        dead = [entry.case.id for entry in _entries(snapshot, options.reason)]
    ids = dead if options.all else list(dict.fromkeys(options.ids))
    if options.ids and options.reason:
        ids = [one for one in ids if one in set(dead)]
    done = _apply(config, action, ids, options.wait)
    what = {"retry": "queued again", "drop": "dropped"}[action]
    return CommandAnswer(
        {"action": action, "asked": len(ids), "done": done},
        f"{config.path}: {done} of {len(ids)} dead letters {what}",
        0 if options.all or done == len(options.ids) else 1,
    )


def _apply(config: OutboxConfig, action: Action, ids: list[str], timeout_s: float) -> int:
    """Change the outbox, or ask the application that has it open to do so."""
    from edge_runtime.clock import SystemClock  # noqa: PLC0415
    from edge_runtime.store.durable.outbox import Outbox  # noqa: PLC0415
    from edge_runtime.store.durable.outbox.control import MAX_IDS, ask  # noqa: PLC0415

    clock = SystemClock()
    try:
        with Outbox(config, clock) as outbox:
            return outbox.requeue(ids) if action == "retry" else outbox.discard(ids)
    except StoreInUse:
        return sum(ask(config.path, action, part, clock, timeout_s) for part in _parts(ids, MAX_IDS))


def _parts(ids: list[str], size: int) -> Iterable[list[str]]:
    return (ids[at : at + size] for at in range(0, len(ids), size))


@command(
    "outbox retry",
    "queue dead letters again, with no failed attempts",
    renamed={"--timeout": "--wait"},
)
def retry(options: OutboxChangeOptions) -> CommandAnswer:
    return _change("retry", options)


@command(
    "outbox drop",
    "drop dead letters for good; counted as discarded",
    renamed={"--timeout": "--wait"},
)
def drop(options: OutboxChangeOptions) -> CommandAnswer:
    return _change("drop", options)
