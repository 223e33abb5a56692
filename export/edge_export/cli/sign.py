"""``edge-export sign``, and the options by which every command is given a private key."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import existing_file

if TYPE_CHECKING:
    from edge_export.package.rewrite import Signer
    from edge_export.package.sign import SigningKey


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "sign",
        help="sign bundles",
        description="Sign bundles in place; a signature that they have is replaced. Signing twice changes nothing.",
        epilog="example: edge-export sign watch.edge --key release.pem",
    )
    parser.add_argument("bundles", type=existing_file, nargs="+", metavar="BUNDLE")
    add_key(parser, required=True)
    parser.add_argument(
        "--signature",
        type=existing_file,
        metavar="FILE",
        help="made elsewhere over the unpacked bundle; needs its public KEY",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Sign, and print by which key."""
    from edge_export.package.sign import attach, sign_bundle  # noqa: PLC0415 - cryptography, only when it is needed
    from edge_runtime.model.bundle.signature import load_key  # noqa: PLC0415

    if options.signature is not None:
        if len(options.bundles) != 1:
            raise ConfigError("--signature belongs to one bundle; name that one alone")
        public = load_key(options.key)
        attach(options.bundles[0], options.signature.read_bytes(), public)
        print(f"{options.bundles[0]}: signed by {public}")
        return 0
    key = signing_key(options)
    assert key is not None
    for bundle in options.bundles:
        sign_bundle(bundle, key)
        print(f"{bundle}: signed by {key.public}")
    return 0


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
    """Load the key that was named; None where none was.

    Raises:
        ConfigError: it cannot be used.
    """
    from edge_export.package.sign import SigningKey  # noqa: PLC0415 - cryptography, only where something is signed

    return None if options.key is None else SigningKey(options.key, password(options.password_file))


def signing_again(options: argparse.Namespace, what: str, advice: str = "") -> tuple[Signer | None, str]:
    """Return what signs `options.bundle` again once its manifest has changed, and words for who signs it.

    Args:
        options: the command line's options, with ``bundle`` and ``--key``.
        what: words for what is written into it, in the plural.
        advice: more to do in place of ``--key``.

    Raises:
        ConfigError: it is signed, and no key is named.
        BundleError: it is not signed by this key: a new signature vouches for the whole file.
    """
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy and the rest, only when needed

    key = signing_key(options)
    with open_bundle(options.bundle) as bundle:
        signed = bundle.signature != "unsigned"
    if key is None:
        if signed:
            raise ConfigError(
                f"{options.bundle} is signed, and {what} in it break the signature: give --key KEY.pem{advice}"
            )
        return None, "unsigned"
    if signed:
        open_bundle(options.bundle, trusted=[key.public]).close()

    def sign(path: Path) -> None:
        from edge_export.package.sign import sign_bundle  # noqa: PLC0415

        sign_bundle(path, key)

    return sign, f"signed by {key.public}"


def password(file: Path | None) -> bytes | None:
    """Read a password from a file, without its line end; None where no file was named.

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
