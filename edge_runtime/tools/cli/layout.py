"""Options that say where things stand in a recording, and the layout that they make."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import AppFile, ChannelText, Factor, Scale, TimeUnit
from edge_runtime.tools.cli.options import option

if TYPE_CHECKING:
    from edge_runtime.io.sources.recording import RecordingConfig


@dataclass(frozen=True, kw_only=True)
class RecordingColumns:
    """Columns of the recordings."""

    key_column: str | None = option("column with the key of each row (default: key)", None, "COLUMN")
    time_column: str | None = option("column with the stamps (default: t, time, ...)", None, "COLUMN")
    column: tuple[ChannelText, ...] = option("column of a channel; may be repeated", (), "CHANNEL=COLUMN")

    def settings(self) -> dict[str, Any]:
        """Return what is given, by field of `edge_runtime.io.recordings.layout.RecordingLayout`."""
        given = {"key_column": self.key_column, "time": self.time_column, "columns": dict(self.column) or None}
        return {name: value for name, value in given.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Layout(RecordingColumns):
    """Layout of the recordings."""

    source: AppFile | None = option(
        "read them as the [[source]] of this application does; options below count more", None, "APP"
    )
    format: Literal["lines", "csv", "parquet", "npz", "wav", "pictures"] | None = option(
        "format (default: by the file's suffix)", None
    )
    key: str | None = option("key of all readings (default: as in the file, or the file's name)", None)
    time_unit: TimeUnit | None = option("unit of the stamps (default: by the column)", None)
    rate: Factor | None = option("samples per second of files without stamps", None, "HZ")
    partial: bool = option(
        "a file or row may bring some of the channels, others the others of the same key", default=False
    )
    unit: tuple[ChannelText, ...] = option("unit of a channel, where its column's name has none", (), "CHANNEL=UNIT")
    scale: Scale | None = option("factor of the numbers: one for all channels, or one for each", None, "FACTOR[,...]")
    separator: str | None = option("between the cells of a CSV file (default: found)", None, "CHARACTER")
    values: str | None = option("array of an NPZ with the samples (default: x)", None, "ARRAY")
    boundaries: str | None = option(
        "array of an NPZ with the first rows of recordings (default: offset)", None, "ARRAY"
    )

    def settings(self) -> dict[str, Any]:
        """Return what is given, as `RecordingColumns.settings` does."""
        given: dict[str, Any] = {
            "format": self.format, "key": self.key, "time_unit": self.time_unit, "rate_hz": self.rate,
            "partial": self.partial or None, "units": dict(self.unit) or None, "scale": self.scale,
            "delimiter": self.separator, "values": self.values, "boundaries": self.boundaries,
        }  # fmt: skip
        return super().settings() | {name: value for name, value in given.items() if value is not None}

    def of(self, files: tuple[Path, ...], label: str | None = None) -> RecordingConfig:
        """Return the layout of files: that of the application's source, with what the options say otherwise.

        Args:
            files: recordings.
            label: column with the class of each sample.

        Raises:
            ConfigError: it contradicts itself, or the application has no source that files can stand for.
        """
        from dataclasses import replace  # noqa: PLC0415 - numpy and the rest, only when needed

        from edge_runtime.io.sources.recording import RecordingConfig  # noqa: PLC0415

        told = self.settings() if label is None else self.settings() | {"label": label}
        try:
            if self.source is None:
                return RecordingConfig(files=files, **told)
            config = _named(self.source, files)
            if config.mqtt and told:
                raise ConfigError(
                    f"replay: {', '.join(told)}: not for captured messages, which are read as {self.source} says"
                )
            return replace(config, **told)
        except ValueError as error:
            raise ConfigError(f"replay: {error}") from error


def _named(path: Path, files: tuple[Path, ...]) -> RecordingConfig:
    from edge_runtime.app.config import load_sources  # noqa: PLC0415 - as in `Layout.of`
    from edge_runtime.io.sources.build import as_recording  # noqa: PLC0415

    sources = load_sources(path)
    try:
        return as_recording(sources, files)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
