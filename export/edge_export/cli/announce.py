"""``edge-export announce``: the signed message that makes devices fetch a bundle."""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edge_export.cli.sign import add_key, signing_key
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import existing_file, output_file


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "announce",
        help="make the signed message that makes devices fetch a bundle",
        description=(
            "Make the announcement of a signed bundle, to be published retained on the topic of updates. Name, "
            "version, size and digest are those of the file."
        ),
        epilog="example: edge-export announce watch-4.edge --key release.pem --url https://example.org/watch-4.edge "
        "--out announce.json",
    )
    parser.add_argument("bundle", type=existing_file, metavar="BUNDLE")
    add_key(parser, required=True)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--url", default="", help="where devices find the file: https://... or http://...")
    where.add_argument("--chunks", default="", metavar="TOPIC", help="the file lies in parts on TOPIC/0, TOPIC/1, ...")
    parser.add_argument(
        "--chunk-bytes", type=int, default=65_536, metavar="N", help="of each part but the last (65536)"
    )
    parser.add_argument(
        "--devices", action="append", metavar="ID", help="device id, or a pattern such as 'watch-*'; repeat it (all)"
    )
    parser.add_argument("--canary", type=float, default=1.0, metavar="SHARE", help="share of them that take it now (1)")
    parser.add_argument("--expires", default="", metavar="TIME", help="ISO 8601; refused from then on (in 30 days)")
    parser.add_argument(
        "--not-before", default="", metavar="TIME", help="ISO 8601; no device takes it before (default: at once)"
    )
    parser.add_argument(
        "--sequence", type=int, metavar="N", help="higher than that of the announcement before (seconds since 1970)"
    )
    parser.add_argument("--out", type=output_file, required=True, metavar="FILE", help="what is written")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from edge_export.package.announce import announce  # noqa: PLC0415 - cryptography, only when it is needed

    key = signing_key(options)
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
    print(f"{options.out}: {made.model}, sequence {made.sequence}, {whom}, until {made.expires}")
    return 0


def _write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from error
