"""``edge-runtime run``: the application that a configuration file describes."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import SAFE_PATH, exits
from edge_runtime.tools.cli.arguments import count, existing_file, factor

if TYPE_CHECKING:
    from edge_runtime.app.application import App
    from edge_runtime.app.config import AppConfig
    from edge_runtime.base.system.sd_notify import SystemdNotifier
    from edge_runtime.tools.listen.live_check import LiveCheck


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "run",
        help="run an application: sources, model, sinks, cloud",
        description=(
            "Run until SIGINT or SIGTERM, or until every source has finished. Then nothing new is taken, answers "
            "under way are handed over and hard cases committed, within drain_timeout_s (10 s unless the file says "
            "otherwise). " + exits.HELP
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime run --print-default > app.toml\n"
            "  edge-runtime run --check app.toml\n"
            "  edge-runtime run --check app.toml --seconds 10\n"
            "  edge-runtime run app.toml"
        ),
    )
    parser.add_argument(
        "config", type=existing_file, nargs="?", metavar="APP.toml", help="the configuration; paths in it are beside it"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the file and the bundle; connect to nothing (but see --seconds)",
    )
    parser.add_argument(
        "--seconds",
        type=factor,
        help="with --check: listen to the brokers for so long, and say what comes for the sources, and on other topics",
    )
    parser.add_argument(
        "--workers",
        type=count,
        metavar="N",
        help="processes with a model each, which share the keys, in place of workers in the file (docs/workers.md)",
    )
    parser.add_argument(
        "--machine",
        metavar="I/N",
        help="answer this machine's part of the keys alone, as 2/3 of three machines, in place of machine in the file",
    )
    parser.add_argument("--print-default", action="store_true", help="write a commented example and exit")
    parser.add_argument("--json", action="store_true", help="with --check, or the final figures: one JSON object")
    parser.add_argument("--handed-over", type=orjson.loads, default=None, help=argparse.SUPPRESS)
    parser.add_argument("--worker", type=count, default=0, help=argparse.SUPPRESS)  # this process is one of them
    parser.add_argument("--socket", type=Path, default=None, help=argparse.SUPPRESS)  # on which its parent asks it
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check, print the example, or run."""
    if options.print_default:
        sys.stdout.write(files("edge_runtime.tools.cli").joinpath("default.toml").read_text("utf-8"))
        return 0
    if options.config is None:
        raise ConfigError("which application? name its file: edge-runtime run APP.toml (or --print-default)")

    from edge_runtime.app import config as configuration  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.app.composition.names import warn_container, with_kept_names  # noqa: PLC0415
    from edge_runtime.app.workers import plan  # noqa: PLC0415
    from edge_runtime.base.system.sd_notify import SystemdNotifier  # noqa: PLC0415

    config = configuration.load_config(options.config)
    config = dataclasses.replace(
        config, workers=options.workers or config.workers, machine=options.machine or config.machine
    )
    plan.check(config)
    if options.check:
        config = plan.for_machine(with_kept_names(config, write=False))
        return check(config, options.config, seconds=options.seconds, as_json=options.json)
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


def _run_app(config: AppConfig, configured: AppConfig, notifier: SystemdNotifier, options: argparse.Namespace) -> int:
    """Run an application, or one worker of it, in this process."""
    from edge_runtime.app.application import App  # noqa: PLC0415 - as in `run`
    from edge_runtime.app.composition.names import warn_container  # noqa: PLC0415
    from edge_runtime.app.workers import plan  # noqa: PLC0415
    from edge_runtime.base.system import collector, malloc  # noqa: PLC0415
    from edge_runtime.base.system.signals import stopped_by_signals  # noqa: PLC0415

    worker: int = options.worker
    arguments = [*_command(options, config)]
    part = plan.alone(config)
    if worker:
        arguments += ["--worker", str(worker), "--socket", str(options.socket)]
        part = plan.part_of_worker(config, worker)
        config = plan.for_worker(config, worker, options.socket)
        name_in_log(worker)

    def replace_process(handed_over: Mapping[str, object]) -> None:
        """Start the same program with the same process number, since an engine hangs in this process."""
        os.execv(  # noqa: S606 - no shell is meant
            sys.executable, [*arguments, "--handed-over", orjson.dumps(handed_over).decode()]
        )

    app = App(
        config,
        notifier=notifier,
        replace_process=replace_process,
        handed_over=options.handed_over,
        part=part,
    )
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
        print(orjson.dumps(app.figures()).decode())
    return exits.finished(drained=drained, lost=app.drops.lost(), restarting=app.restarting)


def _command(options: argparse.Namespace, config: AppConfig) -> list[str]:
    """Return what starts this program once more, for the same application, whatever its file says meanwhile."""
    safe = [SAFE_PATH] if getattr(sys.flags, "safe_path", sys.flags.isolated) else []
    flags = [
        *(["--json"] if options.json else []),
        *(["--verbose"] if options.verbose else []),
        *(["--workers", str(config.workers)] if config.workers > 1 else []),
        *(["--machine", config.machine] if config.machine else []),
    ]
    return [sys.executable, *safe, "-m", "edge_runtime", "run", str(options.config), *flags]


def name_in_log(worker: int) -> None:
    """Begin each line of the log with the worker's number."""
    for handler in logging.getLogger().handlers:
        known = handler.formatter._fmt if handler.formatter is not None else None  # noqa: SLF001 - it has no other name
        handler.setFormatter(
            type(handler.formatter or logging.Formatter())(f"worker {worker}: {known or '%(message)s'}")
        )


def check(config: AppConfig, path: Path, *, seconds: float | None = None, as_json: bool = False) -> int:
    """Load all of an application, connect to nothing, and print what it would run.

    Args:
        config: the application.
        path: its file, for the print; it need not be there.
        seconds: how long to listen to its brokers; None connects to nothing.
        as_json: print one JSON object.

    Returns:
        1 if a backend or a source does not work here.

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
    if as_json:
        heard = {} if live is None else {"live": live.lines}
        print(orjson.dumps(found | {"expects": expects, "failed": failed} | heard).decode())
    else:
        print("\n".join(_in_words(path, found, failed, expects, [] if live is None else live.lines)))
    return 1 if failed or (live is not None and not live.fine) else 0


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
    path: Path, found: Mapping[str, object], failed: Mapping[str, str], expects: Mapping[str, str], live: Sequence[str]
) -> list[str]:
    """Render what a check found as lines for a person."""
    from edge_runtime.signal.intake import words  # noqa: PLC0415 - as in `run`

    fine = "; ".join(f"{name} does not work here ({why})" for name, why in failed.items()) or "fine"
    cloud = found["cloud"] or "none (every answer stays local)"
    shown = {**found, "events": found["events"] or "none", "cloud": cloud}
    summary = f"{path}: {fine}. " + ", ".join(f"{key} {value}" for key, value in shown.items())
    expected = [f"  expects {name}: {text}" for name, text in expects.items()] or [f"  {words.UNREFERENCED}"]
    return [summary, *expected, *live]


def _live(app: App, config: AppConfig, seconds: float) -> LiveCheck:
    from edge_runtime.tools.listen.live_check import check_live  # noqa: PLC0415 - as in `run`

    return check_live(config, app.model.manifest.input, seconds)
