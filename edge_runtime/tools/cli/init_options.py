"""InitOptions of ``edge-runtime init``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, ExistingFile, Factor
from edge_runtime.tools.cli.install_service import UNITS
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandOptions


@dataclass(frozen=True, kw_only=True)
class InitOptions(CommandOptions):
    app: Path = operand("the application's file, which is made (default: app.toml)", "APP.toml", Path("app.toml"))
    broker: str | None = option("host, host:port or URL, with USER@ before the host if it asks", None, "URL")
    topic: str | None = option("topic of the readings; or 'listen' finds them by their traffic", None, "FILTER")
    bundle: BundlePath | None = option("the model, or the name of one", None, "FILE.edge")
    cloud: str | None = option("server that is asked about hard cases; or 'none'", None, "URL")
    home_assistant: bool | None = option("show each key in Home Assistant, by this broker", None)
    password_file: ExistingFile | None = option("for the broker's user", None, "FILE")
    cloud_model: str = option("its name there (default: the bundle's and -teacher)", "", "NAME")
    cloud_token_file: ExistingFile | None = option("bearer token for the cloud", None, "FILE")
    trusted_key: tuple[ExistingFile, ...] = arguments.trusted_key()
    seconds: Factor = option("how long to listen", 10.0)
    state: Path | None = option(
        "of its state (default: state beside it, or /var/lib/NAME for one below /etc)", None, "FOLDER"
    )
    name: str = option("name of the service", "edge-runtime")
    user: str = option("who the service runs as", "edge-runtime")
    units: Path | None = option(f"where the unit goes (default: {UNITS}, or beside APP.toml)", None, "FOLDER")
    no_service: bool = option("write no unit", default=False)
