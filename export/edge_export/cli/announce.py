"""``edge-export announce``: the signed message that makes devices fetch a bundle."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path

from edge_export.cli.sign import NeededSigning
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import ExistingFile, OutputFile
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class AnnounceOptions(CommandOptions):
    bundle: ExistingFile = operand("the signed .edge file", "BUNDLE")
    signing: NeededSigning
    url: str = option("where devices find the file: https://... or http://...", "", one_of="where!")
    chunks: str = option("the file lies in parts on TOPIC/0, TOPIC/1, ...", "", "TOPIC", one_of="where!")
    chunk_bytes: int = option("of each part but the last", 65_536, "N")
    devices: tuple[str, ...] = option("device id, or a pattern as 'watch-*'; may be repeated (default: all)", (), "ID")
    canary: float = option("share of them that take it now", 1.0, "SHARE")
    expires: str = option("ISO 8601; refused from then on (default: in 30 days)", "", "TIME")
    not_before: str = option("ISO 8601; no device takes it before (default: at once)", "", "TIME")
    sequence: int | None = option("higher than the announcement's before (default: seconds since 1970)", None, "N")
    out: OutputFile = option("what is written", metavar="FILE")


@command(
    "announce",
    "make the signed message that makes devices fetch a bundle",
    "Make the announcement of a signed bundle, to be published retained on the topic of updates. Name, version, size "
    "and digest are those of the file.",
    "announce watch-4.edge --key release.pem --url https://example.org/watch-4.edge --out announce.json",
)
def run(options: AnnounceOptions) -> CommandAnswer:
    """Make it."""
    from edge_export.package.announce import announce  # noqa: PLC0415 - cryptography, only when it is needed

    key = options.signing.load()
    assert key is not None
    made, message = announce(
        options.bundle,
        key,
        issued=datetime.now(timezone.utc),
        url=options.url,
        chunks=options.chunks,
        chunk_bytes=options.chunk_bytes,
        devices=options.devices or ("*",),
        canary=options.canary,
        expires=options.expires,
        not_before=options.not_before,
        sequence=options.sequence,
    )
    _write(options.out, message)
    whom = f"for {', '.join(made.devices)}, share {made.canary:g}"
    line = f"{options.out}: {made.model}, sequence {made.sequence}, {whom}, until {made.expires}"
    return CommandAnswer({"file": options.out, "model": made.model, **asdict(made)}, line)


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
