"""``edge-export keys`` and ``edge-export sign``: keys, sets of keys, and signatures of bundles."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from edge_export.cli.signing import add_key, add_password, password, signing_key
from edge_runtime.cli.arguments import existing_file, output_file
from edge_runtime.errors import ConfigError


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
    sign = commands.add_parser(
        "sign",
        help="sign bundles",
        description="Sign bundles in place; a signature that they have is replaced. Signing twice changes nothing.",
        epilog="example: edge-export sign watch.edge --key release.pem",
    )
    sign.add_argument("bundles", type=existing_file, nargs="+", metavar="BUNDLE")
    add_key(sign, required=True)
    sign.add_argument(
        "--signature",
        type=existing_file,
        metavar="FILE",
        help="made elsewhere over the unpacked bundle; needs its public KEY",
    )
    sign.set_defaults(run=_sign)


def _new(options: argparse.Namespace) -> int:
    from edge_export.package.sign import new_key  # noqa: PLC0415 - cryptography, only when it is needed

    made = new_key(options.file, password(options.password_file))
    print(f"{options.file}: signs; keep it to yourself, and a copy of it somewhere safe")
    print(f"{options.file.with_suffix('.pub.pem')}: devices trust {made}")
    return 0


def _show(options: argparse.Namespace) -> int:
    from edge_runtime.bundle.signature import load_key  # noqa: PLC0415

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
    from edge_runtime.bundle.signature import load_keys  # noqa: PLC0415

    secret = password(options.password_file)
    signers = [SigningKey(path, secret) for path in options.sign]
    made = key_set(load_keys(options.trust), options.version, signers, threshold=options.threshold)
    try:
        options.out.write_bytes(made)
    except OSError as error:
        raise ConfigError(f"{options.out}: cannot be written: {error.strerror}") from error
    print(f"{options.out}: version {options.version}, {len(options.trust)} keys, {len(options.sign)} signatures")
    return 0


def _sign(options: argparse.Namespace) -> int:
    from edge_export.package.sign import attach, sign_bundle  # noqa: PLC0415
    from edge_runtime.bundle.signature import load_key  # noqa: PLC0415

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
