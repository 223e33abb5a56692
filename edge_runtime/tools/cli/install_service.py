"""``edge-runtime install-service``: the systemd unit of an application."""

from __future__ import annotations

import dataclasses
import grp
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import AppFile, Count
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command

if TYPE_CHECKING:
    from edge_runtime.app.config import AppConfig
    from edge_runtime.tools.cli.systemd_unit import ServiceConfig

UNITS = Path("/etc/systemd/system")


@dataclass(frozen=True, kw_only=True)
class InstallServiceOptions(CommandOptions):
    app: AppFile = arguments.app()
    dry_run: bool = option("print the unit, and write nothing", default=False)
    name: str = option("name of the unit", "edge-runtime")
    user: str = option("who it runs as", "edge-runtime")
    group: tuple[str, ...] = option("a further group whose devices it may open: gpio, i2c, video; may be repeated", ())
    memory: str = option("bound on memory (default: 256M for each worker)", "")
    cpu: Count = option("bound, of one core (default: 100 for each thread of each worker)", 0, "PERCENT")
    watchdog: Count = option("how long it may hang", 30, "SECONDS")
    units: Path = option("where the unit goes", UNITS, "FOLDER")
    """Not checked as it is parsed: in a dry run it need not exist."""


@command(
    "install-service",
    "write the systemd unit of an application, hardened",
    "Write a systemd unit for an application: hardened, bounded in memory and processor time, "
    "restarted when it fails or hangs, and allowed what its configuration needs and nothing else. Prints what to "
    "type next; starts nothing, and makes no user.",
    "install-service app.toml --dry-run",
    "install-service /etc/edge-runtime/app.toml --name watch --memory 128M",
    renamed={"--print": "--dry-run", "--folder": "--units"},
)
def run(options: InstallServiceOptions) -> CommandAnswer:
    """Make the unit, write or print it, and tell what to do next."""
    from edge_runtime.app import config as configuration  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.tools.cli import systemd_unit  # noqa: PLC0415

    file = options.app.absolute()
    app = configuration.load_config(file)
    app.require_ends()
    try:
        wanted = systemd_unit.ServiceConfig(
            app=file,
            python=Path(sys.executable).absolute(),
            name=options.name,
            user=options.user,
            groups=options.group,
            memory_max=options.memory or f"{256 * app.workers}M",
            cpu_percent=options.cpu,
            watchdog_s=options.watchdog,
        )
    except ValueError as error:
        raise ConfigError(f"install-service: {error}") from error
    text, next_steps = unit_and_steps(app, wanted)
    document = {"unit": None, "text": text, "next": next_steps}
    if options.dry_run:
        if not options.json:
            print("\n".join(next_steps), file=sys.stderr)
        return CommandAnswer(document, text.removesuffix("\n"))
    path = options.units / f"{options.name}.service"
    _write(path, text, systemd_unit.MARK)
    return CommandAnswer(document | {"unit": path}, [f"{path} written; next:", *next_steps])


def unit_and_steps(app: AppConfig, wanted: ServiceConfig) -> tuple[str, list[str]]:
    """Make the text of a unit, and the lines to type before it can start.

    Raises:
        ConfigError: a path in the configuration that a service cannot use.
    """
    from edge_runtime.model.serving.choice import expected  # noqa: PLC0415
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
            f"{path} cannot be written: {error.strerror}; run it with sudo, or take what --dry-run prints"
        ) from error
