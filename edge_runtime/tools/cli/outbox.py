"""``edge-runtime outbox``: look into the outbox, decide about dead letters; beside a running application or alone."""

from __future__ import annotations

import argparse
import base64
import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import orjson

from edge_runtime.base.system.iso8601 import in_words
from edge_runtime.errors import ConfigError, StoreError, StoreInUse
from edge_runtime.tools.cli.arguments import existing_file, output_file, seconds

if TYPE_CHECKING:
    from edge_runtime.store.durable.outbox import OutboxConfig
    from edge_runtime.store.durable.outbox.control import Action
    from edge_runtime.store.durable.outbox.read_only_copy import Entry, Snapshot

_SQLITE = b"SQLite format 3\0"


def add(commands: Any) -> None:
    """Declare the command and its own subcommands."""
    parser = commands.add_parser(
        "outbox",
        help="look into the outbox; retry, drop or export dead letters",
        description=(
            "Look into the outbox of an application, and decide about dead letters: hard cases that the cloud refused "
            "for good, kept for a person to look at. Works while the application runs (reading takes a copy, changing "
            "asks the application) and when it does not. Exit code 1 when an id is not there."
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime outbox list app.toml\n"
            "  edge-runtime outbox show app.toml watch-3@17000\n"
            "  edge-runtime outbox retry app.toml --all --reason rejected\n"
            "  edge-runtime outbox drop app.toml watch-3@17000\n"
            "  edge-runtime outbox export app.toml --queued --out cases.jsonl"
        ),
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, help_text in (
        ("list", "counters, and dead letters one a line"),
        ("show", "everything about one case"),
        ("retry", "queue dead letters again, with no failed attempts"),
        ("drop", "drop dead letters for good; counted as discarded"),
        ("export", "dead letters with their tensors as JSON lines"),
    ):
        action = actions.add_parser(
            name,
            help=help_text,
            description=f"{help_text[0].upper()}{help_text[1:]}.",
            epilog=f"example: edge-runtime outbox {name} app.toml{_EXAMPLE[name]}",
        )
        action.add_argument(
            "where", type=existing_file, metavar="APP.toml", help="the application's configuration, or its outbox.db"
        )
        if name == "show":
            action.add_argument("ids", nargs=1, metavar="ID", help="id of a case")
        if name in ("retry", "drop"):
            action.add_argument("ids", nargs="*", metavar="ID", help="ids of dead letters")
            action.add_argument("--all", action="store_true", help="all dead letters instead")
            action.add_argument(
                "--timeout", type=seconds, default=10.0, metavar="SECONDS",
                help="how long a running application may take to do it (10)",
            )  # fmt: skip
        if name != "show":
            action.add_argument("--reason", default="", metavar="WORD", help="only those that are dead for this reason")
        if name in ("list", "export"):
            action.add_argument("--queued", action="store_true", help="also cases that still wait for the cloud")
        if name == "export":
            action.add_argument(
                "--out", type=output_file, metavar="FILE", help="write there instead of to the standard output"
            )
        else:
            action.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.set_defaults(run=run)


_EXAMPLE = {"list": "", "show": " watch-3@17000", "retry": " --all", "drop": " watch-3@17000", "export": ""}


def run(options: argparse.Namespace) -> int:
    """Run the action."""
    config = _config(options.where)
    if options.action == "list":
        return _list(config, options)
    if options.action == "show":
        return _show(config, options)
    if options.action == "export":
        return _export(config, options)
    return _change(config, options)


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


def _entries(snapshot: Snapshot, options: argparse.Namespace) -> Iterator[Entry]:
    for entry in snapshot.all() if getattr(options, "queued", False) else snapshot.dead():
        if not options.reason or entry.reason == options.reason:
            yield entry


def _list(config: OutboxConfig, options: argparse.Namespace) -> int:
    from edge_runtime.store.durable.counters import read_totals  # noqa: PLC0415
    from edge_runtime.store.durable.outbox.read_only_copy import Snapshot  # noqa: PLC0415

    totals = read_totals(config.path.with_name(f"{config.path.stem}.counters"))
    with Snapshot(config) as snapshot:
        ledger = snapshot.ledger
        counts: dict[str, Any] = {
            "accepted": ledger.accepted,
            "delivered": ledger.delivered,
            "queued": ledger.queued,
            "dead": ledger.dead,
            "dropped": ledger.dropped(),
            "repeated": ledger.repeated,
            "unpublished": ledger.unpublished,
        }
        found = [_line(entry) for entry in _entries(snapshot, options)]
        if options.json:
            report = {"outbox": str(config.path), "counts": counts, "cases": found, "damaged": snapshot.damaged}
            report["lifetime"] = None if totals is None else totals.plain()
            print(orjson.dumps(report).decode())
            return 0
        dropped = ", ".join(f"{reason} {number}" for reason, number in counts["dropped"].items() if number) or "none"
        print(
            f"{config.path}: accepted {ledger.accepted} = delivered {ledger.delivered} + queued {ledger.queued} "
            f"+ dead {ledger.dead} + dropped {sum(ledger.dropped().values())} ({dropped})"
        )
        print(f"  offered again after a restart: {ledger.repeated}; final messages to publish: {ledger.unpublished}")
        if totals is not None:
            refused = ", ".join(f"{reason} {n}" for reason, n in sorted(totals.dropped.items()) if n) or "nothing"
            print(f"  the application, {totals.starts} starts since {in_words(totals.since)}: dropped {refused}")
        for one in found:
            when = in_words(one["dead_since"] or one["created"])
            why = f"{one['reason'] or '-':<10} tried {one['attempts']}  {one['detail']}"
            print(f"  {one['id']:<24} {one['state']:<8} {when}  {one['bytes']:>8} B  {why}")
        if snapshot.damaged:
            print(f"  {snapshot.damaged} more fail their checksum; the application drops and counts them")
    return 0


def _show(config: OutboxConfig, options: argparse.Namespace) -> int:
    from edge_runtime.store.durable.outbox.read_only_copy import Snapshot  # noqa: PLC0415

    (case_id,) = options.ids
    with Snapshot(config) as snapshot:
        entry = snapshot.find(case_id)
    if entry is None:
        raise StoreError(f"no case {case_id!r} in {config.path}; see: edge-runtime outbox list --queued")
    found = _line(entry) | {"meta": _meta(entry.case.meta), "tensor": _tensor(entry.case.body)}
    if options.json:
        print(orjson.dumps(found).decode())
        return 0
    found["created"] = in_words(found["created"])
    if found["dead_since"] is not None:
        found["dead_since"] = in_words(found["dead_since"])
    for name, value in found.items():
        if isinstance(value, dict):
            value = ", ".join(f"{key} {item}" for key, item in value.items())  # noqa: PLW2901 - as it is printed
        if value not in (None, ""):
            print(f"{name:<10} {value}")
    return 0


def _export(config: OutboxConfig, options: argparse.Namespace) -> int:
    from edge_runtime.store.durable.outbox.read_only_copy import Snapshot  # noqa: PLC0415

    with Snapshot(config) as snapshot, contextlib.ExitStack() as stack:
        out: TextIO = sys.stdout
        if options.out is not None:
            try:
                # A person's readings: for this user alone, as the outbox itself is.
                descriptor = os.open(options.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ConfigError(f"{options.out}: cannot be written: {error.strerror}") from error
            out = stack.enter_context(open(descriptor, "w", encoding="utf-8"))  # noqa: PTH123 - a descriptor
        number = 0
        for entry in _entries(snapshot, options):
            number += 1
            body = base64.b64encode(entry.case.body).decode()
            document = _line(entry) | {"meta": _meta(entry.case.meta), "dtype": "<f4", "body": body}
            out.write(orjson.dumps(document).decode() + "\n")
        if options.out is not None:
            print(f"{options.out}: {number} cases")
        if snapshot.damaged:
            print(f"{snapshot.damaged} cases fail their checksum and were left out", file=sys.stderr)
    return 0


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


def _change(config: OutboxConfig, options: argparse.Namespace) -> int:
    from edge_runtime.store.durable.outbox.read_only_copy import Snapshot  # noqa: PLC0415

    if bool(options.ids) == options.all:
        raise ConfigError(f"name the dead letters, or all of them: edge-runtime outbox {options.action} APP.toml --all")
    if not config.path.is_file():
        raise StoreError(f"there is no outbox {config.path}; it is made when the application first runs")
    owner = config.path.stat().st_uid
    if owner != os.geteuid():
        # As root it would work once, and leave files behind that the application cannot open any more.
        raise StoreError(f"the outbox {config.path} belongs to user {owner}; run this command as that user")
    with Snapshot(config) as snapshot:
        dead = [entry.case.id for entry in _entries(snapshot, options)]
    ids = dead if options.all else list(dict.fromkeys(options.ids))
    if options.ids and options.reason:
        ids = [one for one in ids if one in set(dead)]
    done = _apply(config, options.action, ids, options.timeout)
    if options.json:
        print(orjson.dumps({"action": options.action, "asked": len(ids), "done": done}).decode())
    else:
        what = {"retry": "queued again", "drop": "dropped"}[options.action]
        print(f"{config.path}: {done} of {len(ids)} dead letters {what}")
    return 0 if options.all or done == len(options.ids) else 1


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
