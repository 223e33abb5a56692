"""``edge-runtime update``: what updates are doing, and what an operator wants of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edge_runtime._version import __version__
from edge_runtime.base.system.iso8601 import in_words
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import AppFile, ExistingFile
from edge_runtime.tools.cli.options import operand
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command, family

if TYPE_CHECKING:
    from edge_runtime.app.config import AppConfig
    from edge_runtime.manifest import Manifest
    from edge_runtime.operate.update.config import UpdateConfig
    from edge_runtime.operate.update.state import UpdateState
    from edge_runtime.operate.update.update_store import UpdateStore


_Action = Literal["apply", "hold", "rollback"]

family(
    __name__,
    "update",
    "updates over the air: status, apply, hold, rollback",
    "Look at and steer the updates of an application. It need not run: what is asked for is left in "
    "its update folder, and done within poll_s (5 s unless the file says otherwise), or at its next start. Exit "
    "code of status: 3 where the last update was refused or rolled back.",
    "update status app.toml",
    "update apply app.toml watch-4.edge",
    "update rollback app.toml",
)


@dataclass(frozen=True, kw_only=True)
class UpdateOptions(CommandOptions):
    app: AppFile = arguments.app()

    def open(self) -> tuple[AppConfig, UpdateConfig, UpdateStore]:
        """Read the configuration, and open its store of updates to read.

        Raises:
            ConfigError: there is none.
        """
        from edge_runtime.app.config import load_config  # noqa: PLC0415 - numpy and the rest, only when needed
        from edge_runtime.operate.update.update_store import UpdateStore  # noqa: PLC0415

        config = load_config(self.app)
        if config.update is None:
            raise ConfigError(f"{self.app} has no table [update]; see docs/updates.md")
        return config, config.update, UpdateStore(config.update.folder, read_only=True)


@dataclass(frozen=True, kw_only=True)
class UpdateApplyOptions(UpdateOptions):
    bundle: ExistingFile | None = operand("a signed .edge file", "BUNDLE", None)


@command("update status", "which bundle runs, which one is tried, what is held back")
def _status(options: UpdateOptions) -> CommandAnswer:
    from edge_runtime.operate.update.state import BY_OPERATOR  # noqa: PLC0415 - as above

    config, update, store = options.open()
    state, found = store.state, _running(store, config) or store.state.running
    running = found.model if found is not None else "the configured bundle, which cannot be read"
    lines = [*_shown(state, running)]
    if update.prove == "better" and not options.json:
        lines += _proof(state, config, update)
    refused = any(one.result != "accepted" and one.reason != BY_OPERATOR for one in state.history[-1:])
    return CommandAnswer({"answering": running, "runtime": __version__, **asdict(state)}, lines, 3 if refused else 0)


def _post(action: _Action, options: UpdateOptions, bundle: Path | None = None) -> CommandAnswer:
    """Leave a request in the update folder."""
    from edge_runtime.clock import SystemClock  # noqa: PLC0415
    from edge_runtime.operate.update import check, inbox  # noqa: PLC0415
    from edge_runtime.operate.update.keys import KeyChain  # noqa: PLC0415

    config, update, store = options.open()
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
                model = candidate.manifest.model
                return CommandAnswer({"asked": None, "runs": model}, f"{model} runs, or is being tried, already")
    try:
        inbox.post(store, inbox.Request(action=action), bundle)
    except OSError as error:
        raise EdgeError(f"update.folder {update.folder}: cannot be written: {error.strerror}") from error
    line = f"asked for: {action}. A running application does it within {update.poll_s:g} s."
    return CommandAnswer({"asked": action, "within_s": update.poll_s}, line)


def _proof(state: UpdateState, config: AppConfig, update: UpdateConfig) -> list[str]:
    """Tell how the proof of a candidate, or of what runs, stands by the labels of the cases."""
    from edge_runtime.operate.update.proof import standing_of  # noqa: PLC0415
    from edge_runtime.store.cases.store import CaseStore  # noqa: PLC0415 - SQLite, when needed

    cases, tried = config.cases, state.candidate or state.running
    if cases is None or tried is None or not cases.path.exists():
        return []
    store = CaseStore(cases.path, cases.max_bytes, cases.max_days)
    try:
        found = standing_of(store, tried.sha256)
    finally:
        store.close()
    if not (found.said or found.waiting):
        return []
    return [f"proof      {tried.model}: {found.line(update.prove_labels)} (edge-runtime review label)"]


def _running(store: UpdateStore, config: AppConfig) -> Manifest | None:
    """Return the manifest of what has proved itself; None where its file cannot be read."""
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415

    installed = store.state.running
    path = config.model.bundle if installed is None else store.path(installed.sha256)
    with suppress(EdgeError), open_bundle(path) as bundle:
        return bundle.manifest
    return None


def _shown(state: UpdateState, running: str) -> Iterator[str]:
    where = f", sha256 {state.running.sha256[:12]}" if state.running is not None else ", as configured"
    yield f"running    {running}{where}; runtime {__version__}"
    if state.candidate is not None:
        yield f"candidate  {state.candidate.model}, {state.phase}, start {state.starts}"
    for held in state.held:
        yield f"held back  {held.name}/{held.version}: {held.reason}"
    if state.on_hold:
        yield "on hold    an operator wants no updates; edge-runtime update apply ends that"
    for name, version in sorted(state.highest.items()):
        yield f"highest    {name}/{version}"
    if state.last:
        yield f"last       {state.last}"
    for one in reversed(state.history):
        when = in_words(one.at_s) if one.at_s else "without a date"
        yield f"ended      {when}  {one.bundle}  {one.result}{one.reason and f': {one.reason}'}"


@command("update apply", "lift a hold, and try again what was held back or refused; with BUNDLE, install that file")
def apply(options: UpdateApplyOptions) -> CommandAnswer:
    return _post("apply", options, options.bundle)


@command("update hold", "take no updates until apply")
def hold(options: UpdateOptions) -> CommandAnswer:
    return _post("hold", options)


@command("update rollback", "go back to what ran before, and hold back what runs now")
def rollback(options: UpdateOptions) -> CommandAnswer:
    return _post("rollback", options)
