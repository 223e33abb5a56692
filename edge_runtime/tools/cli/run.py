"""``edge-runtime run``: the application that a configuration file describes."""

from __future__ import annotations

import dataclasses
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import orjson

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import SAFE_PATH, exits
from edge_runtime.tools.cli.arguments import AppFile, Count, Factor
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command, print_json

if TYPE_CHECKING:
    from edge_runtime.app.application import App
    from edge_runtime.app.config import AppConfig
    from edge_runtime.base.system.sd_notify import SystemdNotifier
    from edge_runtime.tools.listen.live_check import LiveCheck


@dataclass(frozen=True, kw_only=True)
class RunOptions(CommandOptions):
    app: AppFile | None = operand("the application: its app.toml, or the folder that holds it", "APP", None)
    check: bool = option("check the file and the bundle; connect to nothing (but see --seconds)", default=False)
    seconds: Factor | None = option("with --check: listen to the brokers for so long, and say what comes", None)
    workers: Count | None = option(
        "processes that share the keys (default: as in the file; docs/workers.md)", None, "N"
    )
    machine: str | None = option(
        "answer this machine's part of the keys, as 2/3 of three (default: as in the file)", None, "I/N"
    )
    print_default: bool = option("write a commented example and exit", default=False)
    handed_over: Annotated[Any, orjson.loads] = option(None, None)
    worker: Count = option(None, 0)
    """Number of this process among several, and the socket on which its parent asks it."""
    socket: Path | None = option(None, None)


@command(
    "run",
    "run an application: sources, model, sinks, cloud",
    "Run until SIGINT or SIGTERM, or until every source has finished. Then nothing new is taken, "
    "answers under way are handed over and hard cases committed, within drain_timeout_s (10 s unless the file says "
    "otherwise). With --json the final figures are the last line of standard output. " + exits.HELP,
    "run --print-default > app.toml",
    "run --check app.toml",
    "run --check app.toml --seconds 10",
    "run app.toml",
)
def run(options: RunOptions) -> CommandAnswer | int:
    """Check, print the example, or run."""
    if options.print_default:
        text = files("edge_runtime.tools.cli").joinpath("default.toml").read_text("utf-8")
        return CommandAnswer({"toml": text}, text.removesuffix("\n"))
    if options.app is None:
        raise ConfigError("which application? name its file: edge-runtime run APP.toml (or --print-default)")

    from edge_runtime.app import config as configuration  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.app.composition.names import warn_container, with_kept_names  # noqa: PLC0415
    from edge_runtime.app.workers import plan  # noqa: PLC0415
    from edge_runtime.base.system.sd_notify import SystemdNotifier  # noqa: PLC0415

    config = configuration.load_config(options.app)
    config = dataclasses.replace(
        config, workers=options.workers or config.workers, machine=options.machine or config.machine
    )
    plan.check(config)
    if options.check:
        config = plan.for_machine(with_kept_names(config, write=False))
        return check(config, options.app, seconds=options.seconds)
    configured, config = config, plan.for_machine(with_kept_names(config, write=True))
    notifier = SystemdNotifier.from_environment(os.environ)
    if config.workers > 1 and not options.worker:
        from edge_runtime.app.workers import parent  # noqa: PLC0415 - only where there are several

        def command(worker: int, folder: Path) -> list[str]:
            socket = folder / f"worker-{worker}.sock"
            return [*_command(options, config), "--worker", str(worker), "--socket", str(socket)]

        warn_container(config, configured)
        return parent.run(config, command, notifier, as_json=options.json)
    return _run_app(config, configured, notifier, options)


def _run_app(config: AppConfig, configured: AppConfig, notifier: SystemdNotifier, options: RunOptions) -> int:
    """Run an application, or one worker of it, in this process."""
    from edge_runtime.app.application import App, ProcessRole  # noqa: PLC0415 - as in `run`
    from edge_runtime.app.composition.names import warn_container  # noqa: PLC0415
    from edge_runtime.app.workers import plan  # noqa: PLC0415
    from edge_runtime.base.system import collector, malloc  # noqa: PLC0415
    from edge_runtime.base.system.signals import stopped_by_signals  # noqa: PLC0415

    worker: int = options.worker
    arguments = [*_command(options, config)]
    part = plan.alone(config)
    if worker and options.socket is not None:
        arguments += ["--worker", str(worker), "--socket", str(options.socket)]
        part = plan.part_of_worker(config, worker)
        config = plan.for_worker(config, worker, options.socket)
        name_in_log(worker)

    def replace_process(handed_over: Mapping[str, object]) -> None:
        """Start the same program with the same process number, since an engine hangs in this process."""
        os.execv(  # noqa: S606 - no shell is meant
            sys.executable, [*arguments, "--handed-over", orjson.dumps(handed_over).decode()]
        )

    role = ProcessRole(notifier=notifier, replace=replace_process, handed_over=options.handed_over, part=part)
    app = App(config, role=role)
    if worker:
        from edge_runtime.app.workers.child import until_parent_ends  # noqa: PLC0415 - only where there are several

        until_parent_ends(app.loop, app.stop)
    else:
        warn_container(config, configured)
    malloc.tune_malloc()
    collector.tune_collector()
    with stopped_by_signals(app.stop):
        drained = app.run()
    if options.json:
        print_json(app.figures())
    return exits.finished(drained=drained, lost=app.drops.lost(), restarting=app.restarting)


def _command(options: RunOptions, config: AppConfig) -> list[str]:
    """Return what starts this program once more, for the same application, whatever its file says meanwhile."""
    safe = [SAFE_PATH] if getattr(sys.flags, "safe_path", sys.flags.isolated) else []
    flags = [
        *(["--json"] if options.json else []),
        *(["--verbose"] if options.verbose else []),
        *(["--workers", str(config.workers)] if config.workers > 1 else []),
        *(["--machine", config.machine] if config.machine else []),
    ]
    return [sys.executable, *safe, "-m", "edge_runtime", "run", str(options.app), *flags]


def name_in_log(worker: int) -> None:
    """Begin each line of the log with the worker's number."""
    for handler in logging.getLogger().handlers:
        known = handler.formatter._fmt if handler.formatter is not None else None  # noqa: SLF001 - it has no other name
        handler.setFormatter(
            type(handler.formatter or logging.Formatter())(f"worker {worker}: {known or '%(message)s'}")
        )


def check(config: AppConfig, path: Path, *, seconds: float | None = None) -> CommandAnswer:
    """Load all of an application, connect to nothing, and tell what it would run.

    Args:
        config: the application.
        path: its file, for people; it need not be there.
        seconds: how long to listen to its brokers; None connects to nothing.

    Returns:
        What it would run; with exit code 1 if a backend or a source does not work here.

    Raises:
        EdgeError: something that the configuration names is missing, unusable or refused.
    """
    from edge_runtime.app.application import App  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.signal.intake import words  # noqa: PLC0415 - as above

    # Measuring takes a while, and its figures would be saved.
    config = dataclasses.replace(config, model=dataclasses.replace(config.model, tune_at_start_s=0.0))
    _check_stores(config)
    app = App(config, rehearsal=True)
    chain = app.fallback_chain
    backend = chain.backend if chain is not None else None
    app.close()
    live = _live(app, config, seconds) if seconds else None
    found = {
        "model": app.model.manifest.model,
        "signature": app.model.bundle.signature,
        "variant": app.model.variant.name,
        "engine": app.model.engine.name,
        "answers": backend.name if backend is not None else app.model.variant.name,
        "sources": len(config.source),
        "sinks": len(config.sink),
        "events": " ".join(rule.name for rule in app.events.rules) or None,
        "cloud": config.cloud.url if config.cloud else None,
    }
    expects = words.references(app.model.manifest.references, app.model.manifest.input)
    failed = chain.status()["failed"] if chain is not None else {}
    lines = () if live is None else live.lines
    heard = {} if live is None else {"live": live.lines}
    return CommandAnswer(
        found | {"expects": expects, "failed": failed} | heard,
        [*_in_words(path, found, failed, expects), *lines],
        1 if failed or (live is not None and not live.fine) else 0,
    )


def _check_stores(config: AppConfig) -> None:
    """Refuse a path at which no cases or updates can be kept: a run would go on without them."""
    from edge_runtime.store.durable.outbox import path_checks  # noqa: PLC0415 - SQLite, when needed

    if config.cases is not None and config.cases.keep != "nothing":
        path_checks.check(config.cases.path, "cases.path")
    if config.update is not None:
        folder = config.update.folder
        made = folder if folder.exists() else folder.parent
        if not made.is_dir() or not os.access(made, os.W_OK | os.X_OK):
            raise ConfigError(f"update.folder {folder}: no folder that this user can write; make {made} one")


def _in_words(
    path: Path, found: Mapping[str, object], failed: Mapping[str, str], expects: Mapping[str, str]
) -> Iterator[str]:
    """Render what a check found as lines for a person."""
    from edge_runtime.signal.intake import words  # noqa: PLC0415 - as in `run`

    fine = "; ".join(f"{name} does not work here ({why})" for name, why in failed.items()) or "fine"
    cloud = found["cloud"] or "none (every answer stays local)"
    shown = {**found, "events": found["events"] or "none", "cloud": cloud}
    yield f"{path}: {fine}. " + ", ".join(f"{key} {value}" for key, value in shown.items())
    yield from [f"  expects {name}: {text}" for name, text in expects.items()] or [f"  {words.UNREFERENCED}"]


def _live(app: App, config: AppConfig, seconds: float) -> LiveCheck:
    from edge_runtime.tools.listen.live_check import check_live  # noqa: PLC0415 - as in `run`

    return check_live(config, app.model.manifest.input, seconds)
