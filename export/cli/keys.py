"""``edge-export keys`` and ``edge-export sign``: who made a bundle, provable on the device."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edge_runtime.cli.arguments import existing_file
from edge_runtime.errors import ConfigError
from export.cli.signing import add_key, add_password, password, signing_key


def add(commands: Any) -> None:
    """Declare both commands."""
    parser = commands.add_parser(
        "keys",
        help="make a pair of keys, or show which one a file holds",
        description="Make a pair of keys for signing, or show the id of a key. Nothing secret is ever printed.",
        epilog="example: edge-export keys new release.pem",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    new = actions.add_parser("new", help="make NAME.pem, which signs, and NAME.pub.pem, which devices are given")
    new.add_argument("file", type=Path, metavar="NAME.pem")
    add_password(new)
    new.set_defaults(run=_new)
    show = actions.add_parser("show", help="the id of a public or private key, as bundles and devices name it")
    show.add_argument("file", type=existing_file, metavar="KEY.pem")
    add_password(show)
    show.set_defaults(run=_show)
    sign = commands.add_parser(
        "sign",
        help="sign bundles",
        description="Sign bundles in place; a signature that they have is replaced. Signing twice changes nothing.",
        epilog="example: edge-export sign watch.edge --key release.pem",
    )
    sign.add_argument("bundles", type=existing_file, nargs="+", metavar="BUNDLE")
    add_key(sign, required=True)
    sign.set_defaults(run=_sign)


def _new(options: argparse.Namespace) -> int:
    from export.sign import new_key  # noqa: PLC0415 - cryptography, only when it is needed

    made = new_key(options.file, password(options.password_file))
    print(f"{options.file}: signs; keep it to yourself, and a copy of it somewhere safe")
    print(f"{options.file.with_suffix('.pub.pem')}: devices trust {made}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from edge_runtime.signature import load_key  # noqa: PLC0415

    options.key = options.file
    try:
        data = options.file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{options.file}: cannot be read: {error.strerror}") from error
    if b"PRIVATE KEY" in data:
        private = signing_key(options)
        assert private is not None
        print(f"{options.file}: private key of {private.public}")
    else:
        print(f"{options.file}: public key {load_key(options.file)}")
    return 0


def _sign(options: argparse.Namespace) -> int:
    from export.sign import sign_bundle  # noqa: PLC0415

    key = signing_key(options)
    assert key is not None
    for bundle in options.bundles:
        sign_bundle(bundle, key)
        print(f"{bundle}: signed by {key.public}")
    return 0
