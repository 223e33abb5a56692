"""``edge-runtime install-service``: the systemd unit of an application."""

from __future__ import annotations

import argparse
import dataclasses
import grp
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.tools.cli.arguments import count, existing_file

if TYPE_CHECKING:
    from edge_runtime.app.config import AppConfig
    from edge_runtime.tools.cli.systemd_unit import ServiceConfig

UNITS = Path("/etc/systemd/system")


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "install-service",
        help="write the systemd unit of an application, hardened",
        description=(
            "Write a systemd unit for an application: hardened, bounded in memory and processor time, restarted "
            "when it fails or hangs, and allowed what its configuration needs and nothing else. Prints what to type "
            "next; starts nothing, and makes no user."
        ),
        epilog=(
            "examples:\n"
            "  edge-runtime install-service app.toml --print\n"
            "  edge-runtime install-service /etc/edge-runtime/app.toml --name watch --memory 128M"
        ),
    )
    parser.add_argument("config", type=existing_file, metavar="APP.toml", help="the application's configuration")
    parser.add_argument("--print", action="store_true", dest="show", help="print the unit, and write nothing")
    parser.add_argument("--name", default="edge-runtime", help="name of the unit (default: %(default)s)")
    parser.add_argument("--user", default="edge-runtime", help="who it runs as (default: %(default)s)")
    parser.add_argument(
        "--group",
        action="append",
        default=[],
        help="a group whose devices it may open, besides those of its sources: gpio, i2c, video; may be repeated",
    )
    parser.add_argument("--memory", default="", help="bound on memory (default: 256M for each worker)")
    parser.add_argument(
        "--cpu",
        type=count,
        default=0,
        metavar="PERCENT",
        help="bound, of one core (default: 100 for each thread of each worker)",
    )
    parser.add_argument(
        "--watchdog", type=count, default=30, metavar="SECONDS", help="how long it may hang (default: %(default)s)"
    )
    parser.add_argument(
        "--folder", type=Path, default=UNITS, help="where units lie (default: %(default)s)"
    )  # not checked here: with --print it need not exist
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Make the unit, write or print it, and print what to do next."""
    from edge_runtime.app import config as configuration  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.tools.cli import systemd_unit  # noqa: PLC0415

    file = options.config.absolute()
    app = configuration.load_config(file)
    app.require_ends()
    try:
        wanted = systemd_unit.ServiceConfig(
            app=file,
            python=Path(sys.executable).absolute(),
            name=options.name,
            user=options.user,
            groups=tuple(options.group),
            memory_max=options.memory or f"{256 * app.workers}M",
            cpu_percent=options.cpu,
            watchdog_s=options.watchdog,
        )
    except ValueError as error:
        raise ConfigError(f"install-service: {error}") from error
    text, next_steps = unit_and_steps(app, wanted)
    if options.show:
        sys.stdout.write(text)
        print("\n".join(next_steps), file=sys.stderr)
        return 0
    path: Path = options.folder / f"{options.name}.service"
    _write(path, text, systemd_unit.MARK)
    print(f"{path} written; next:")
    print("\n".join(next_steps))
    return 0


def unit_and_steps(app: AppConfig, wanted: ServiceConfig) -> tuple[str, list[str]]:
    """Make the text of a unit, and the lines to type before it can start.

    Raises:
        ConfigError: a path in the configuration that a service cannot use.
    """
    from edge_runtime.model.serving.accelerator_choice import expected  # noqa: PLC0415
    from edge_runtime.tools.cli import systemd_unit  # noqa: PLC0415 - numpy and the rest, only when needed

    # One that has won here needs its device nodes as much as one that is configured.
    app = dataclasses.replace(app, model=dataclasses.replace(app.model, accelerators=expected(app.model)))
    groups = [entry.gr_name for entry in grp.getgrall()]
    return systemd_unit.unit(app, wanted), systemd_unit.hints(app, wanted, groups)


def _write(path: Path, text: str, mark: str) -> None:
    """Put the unit in its place, all or nothing, unless another program's unit is there."""
    try:
        if path.exists() and not path.read_text("utf-8", "replace").startswith(mark):
            raise ConfigError(f"{path} was not made by edge-runtime; take another --name, or remove it")
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as unit:
                unit.write(text)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise EdgeError(
            f"{path} cannot be written: {error.strerror}; run it with sudo, or take what --print prints"
        ) from error
