"""``edge-export keys``: pairs of keys, and signed sets of trusted keys."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edge_export.cli.sign import add_password, password, signing_key
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import existing_file, output_file


def add(commands: Any) -> None:
    """Declare the command."""
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
    several = actions.add_parser("set", help="a signed set of keys, which replaces the ones that devices trust")
    several.add_argument("out", type=output_file, metavar="KEYS.json", help="what is written, to be published retained")
    several.add_argument(
        "--version", type=int, required=True, help="higher than that of the set before; the first is 1"
    )
    several.add_argument("--threshold", type=int, default=1, help="how many of these keys the next set will need (1)")
    several.add_argument("--trust", type=existing_file, action="append", required=True, metavar="KEY.pub.pem")
    several.add_argument("--sign", type=existing_file, action="append", required=True, metavar="KEY.pem")
    add_password(several)
    several.set_defaults(run=_set)


def _new(options: argparse.Namespace) -> int:
    from edge_export.package.sign import new_key  # noqa: PLC0415 - cryptography, only when it is needed

    made = new_key(options.file, password(options.password_file))
    print(f"{options.file}: signs; keep it to yourself, and a copy of it somewhere safe")
    print(f"{options.file.with_suffix('.pub.pem')}: devices trust {made}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from edge_runtime.model.bundle.signature import load_key  # noqa: PLC0415

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


def _set(options: argparse.Namespace) -> int:
    from edge_export.package.sign import SigningKey  # noqa: PLC0415
    from edge_export.package.trusted_keys import key_set  # noqa: PLC0415
    from edge_runtime.model.bundle.signature import load_keys  # noqa: PLC0415

    secret = password(options.password_file)
    signers = [SigningKey(path, secret) for path in options.sign]
    made = key_set(load_keys(options.trust), options.version, signers, threshold=options.threshold)
    try:
        options.out.write_bytes(made)
    except OSError as error:
        raise ConfigError(f"{options.out}: cannot be written: {error.strerror}") from error
    print(f"{options.out}: version {options.version}, {len(options.trust)} keys, {len(options.sign)} signatures")
    return 0
