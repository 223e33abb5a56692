"""``edge-runtime update``: what updates are doing, and what an operator wants of them."""

from __future__ import annotations

import argparse
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson

from edge_runtime._version import __version__
from edge_runtime.base.system.iso8601 import in_words
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.tools.cli.arguments import existing_file

if TYPE_CHECKING:
    from edge_runtime.app.config import AppConfig
    from edge_runtime.manifest import Manifest
    from edge_runtime.operate.update.config import UpdateConfig
    from edge_runtime.operate.update.state import State
    from edge_runtime.operate.update.update_store import UpdateStore

_ACTIONS = {
    "status": "which bundle runs, which one is tried, what is held back",
    "apply": "lift a hold, and try again what was held back or refused; with BUNDLE, install that file",
    "hold": "take no updates until apply",
    "rollback": "go back to what ran before, and hold back what runs now",
}


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "update",
        help="updates over the air: status, apply, hold, rollback",
        description=(
            "Look at and steer the updates of an application. It need not run: what is asked for is left in its update "
            "folder, and done within poll_s (5 s unless the file says otherwise), or at its next start. Exit code of "
            "status: 3 where the last update was refused or rolled back."
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime update status app.toml\n"
            "  edge-runtime update apply app.toml watch-4.edge\n"
            "  edge-runtime update rollback app.toml"
        ),
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for name, what in _ACTIONS.items():
        action = actions.add_parser(name, help=what, description=f"{what[0].upper()}{what[1:]}.")
        action.add_argument("config", type=existing_file, metavar="APP.toml", help="the application's configuration")
        if name == "apply":
            action.add_argument("bundle", type=existing_file, nargs="?", metavar="BUNDLE", help="a signed .edge file")
        action.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show, or leave a request."""
    from edge_runtime.app import config as configuration  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.operate.update.state import BY_OPERATOR  # noqa: PLC0415
    from edge_runtime.operate.update.update_store import UpdateStore  # noqa: PLC0415

    config = configuration.load_config(options.config)
    if config.update is None:
        raise ConfigError(f"{options.config} has no table [update]; see docs/updates.md")
    store = UpdateStore(config.update.folder, read_only=True)
    if options.action == "status":
        _show(store, config, as_json=options.json)
        if config.update.prove == "better" and not options.json:
            _show_proof(store.state, config, config.update)
        latest = store.state.history[-1:]
        return 3 if any(one.result != "accepted" and one.reason != BY_OPERATOR for one in latest) else 0
    _post(store, config, config.update, options)
    return 0


def _post(store: UpdateStore, config: AppConfig, update: UpdateConfig, options: argparse.Namespace) -> None:
    from edge_runtime.clock import SystemClock  # noqa: PLC0415
    from edge_runtime.operate.update import check, inbox  # noqa: PLC0415
    from edge_runtime.operate.update.keys import KeyChain  # noqa: PLC0415

    bundle = getattr(options, "bundle", None)
    if not store.requests.is_dir():
        raise ConfigError(f"update.folder {update.folder}: no application has used it yet; start one first")
    if bundle is not None:  # so that the error of a wrong file is shown here, and not in a log
        keys = KeyChain(config.model.trusted_keys, update.key_threshold, update.folder, read_only=True)
        running = _running(store, config)
        with check.open_candidate(bundle, update, keys.current.keys, SystemClock()) as candidate:
            found = running and check.examine(
                candidate, None, store.state, running, update,
                has_cloud=config.cloud is not None, events=config.events or (), by_operator=True,
            )  # fmt: skip
            if running and found is None:
                print(f"{candidate.manifest.model} runs, or is being tried, already")
                return
    try:
        inbox.post(store, inbox.Request(action=options.action), bundle)
    except OSError as error:
        raise EdgeError(f"update.folder {update.folder}: cannot be written: {error.strerror}") from error
    if options.json:
        print(orjson.dumps({"asked": options.action, "within_s": update.poll_s}).decode())
    else:
        print(f"asked for: {options.action}. A running application does it within {update.poll_s:g} s.")


def _show_proof(state: State, config: AppConfig, update: UpdateConfig) -> None:
    """Say how the proof of a candidate, or of what runs, stands by the labels of the cases."""
    from edge_runtime.operate.update.proof import standing_of  # noqa: PLC0415
    from edge_runtime.store.cases.store import CaseStore  # noqa: PLC0415 - SQLite, when needed

    cases, tried = config.cases, state.candidate or state.running
    if cases is None or tried is None or not cases.path.exists():
        return
    store = CaseStore(cases.path, cases.max_bytes, cases.max_days)
    try:
        found = standing_of(store, tried.sha256)
    finally:
        store.close()
    if found.said or found.waiting:
        print(f"proof      {tried.model}: {found.line(update.prove_labels)} (edge-runtime review label)")


def _running(store: UpdateStore, config: AppConfig) -> Manifest | None:
    """Return the manifest of what has proved itself; None where its file cannot be read."""
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415

    installed = store.state.running
    path = config.model.bundle if installed is None else store.path(installed.sha256)
    with suppress(EdgeError), open_bundle(path) as bundle:
        return bundle.manifest
    return None


def _show(store: UpdateStore, config: AppConfig, *, as_json: bool) -> None:
    state, found = store.state, _running(store, config) or store.state.running
    running = found.model if found is not None else "the configured bundle, which cannot be read"
    if as_json:
        document = {"answering": running, "runtime": __version__, **asdict(state)}
        print(orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS).decode())
        return
    where = f", sha256 {state.running.sha256[:12]}" if state.running is not None else ", as configured"
    print(f"running    {running}{where}; runtime {__version__}")
    if state.candidate is not None:
        print(f"candidate  {state.candidate.model}, {state.phase}, start {state.starts}")
    for held in state.held:
        print(f"held back  {held.name}/{held.version}: {held.reason}")
    if state.on_hold:
        print("on hold    an operator wants no updates; edge-runtime update apply ends that")
    for name, version in sorted(state.highest.items()):
        print(f"highest    {name}/{version}")
    if state.last:
        print(f"last       {state.last}")
    for one in reversed(state.history):
        when = in_words(one.at_s) if one.at_s else "without a date"
        print(f"ended      {when}  {one.bundle}  {one.result}{one.reason and f': {one.reason}'}")
