"""``edge-export report``: the metrics of a build as a page for people, written again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import orjson

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import ExistingFile
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class ReportOptions(CommandOptions):
    figures: ExistingFile = operand("what edge-export build wrote", "REPORT.json")
    out: Path | None = option("folder to write into (default: beside it)", None, "FOLDER")


@command(
    "report",
    "write the HTML report of a build again",
    "Write report.html from the figures of a build; the same figures give the same bytes.",
    "report out/report.json",
)
def run(options: ReportOptions) -> CommandAnswer:
    """Write the page, and tell where it is."""
    from edge_export.report import write_report  # noqa: PLC0415 - only when it is asked for

    try:
        figures = orjson.loads(options.figures.read_bytes())
    except OSError as error:
        raise ConfigError(f"{options.figures}: cannot be read: {error.strerror}") from error
    except orjson.JSONDecodeError as error:
        raise ConfigError(f"{options.figures}: not JSON: {error}") from error
    if not isinstance(figures, dict):
        raise ConfigError(f"{options.figures}: not a report of edge-export build")
    try:
        page = write_report(figures, options.out or options.figures.parent)
    except ConfigError as error:
        raise ConfigError(f"{options.figures}: {error}") from error
    return CommandAnswer({"file": page}, str(page))
