"""The key that commands sign with: one pair of options for all of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edge_runtime.cli.arguments import existing_file
from edge_runtime.errors import ConfigError

if TYPE_CHECKING:
    from edge_export.package.sign import SigningKey


def add_key(parser: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Declare ``--key`` and ``--password-file``."""
    parser.add_argument(
        "--key", type=existing_file, required=required, metavar="KEY.pem", help="private key that signs the bundle"
    )
    add_password(parser)


def add_password(parser: argparse.ArgumentParser) -> None:
    """Declare ``--password-file``."""
    parser.add_argument(
        "--password-file", type=existing_file, metavar="FILE", help="file with the private key's password"
    )


def signing_key(options: argparse.Namespace) -> SigningKey | None:
    """The key that was named; None where none was.

    Raises:
        ConfigError: it cannot be used.
    """
    from edge_export.package.sign import SigningKey  # noqa: PLC0415 - cryptography, only where something is signed

    return None if options.key is None else SigningKey(options.key, password(options.password_file))


def password(file: Path | None) -> bytes | None:
    """What a file holds, without its line end; None where no file was named.

    Raises:
        ConfigError: it cannot be read, or is empty.
    """
    if file is None:
        return None
    try:
        found = file.read_bytes().rstrip(b"\r\n")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    if not found:
        raise ConfigError(f"{file}: is empty; write the password into it")
    return found
