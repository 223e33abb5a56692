"""``edge-export stream``: a bundle whose model computes only what a hop brings, made of a windowed one."""

from __future__ import annotations

import argparse
from typing import Any

from edge_export.cli.sign import add_key, signing_again
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import count, existing_file, output_file


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "stream",
        help="make a bundle that computes only what a hop of new samples brings",
        description=(
            "Convert each file of a bundle into one that keeps what it computed of the window before, compare its "
            "answers with the windowed file's, and write a bundle. It gives the same answers under the same ids. "
            "A signed bundle is signed again, so it needs its key. Earlier releases refuse the new bundle."
        ),
        epilog="example: edge-export stream watch.edge --hop 8 -o watch-streaming.edge",
    )
    parser.add_argument("bundle", type=existing_file, metavar="BUNDLE", help="the .edge file of a windowed model")
    parser.add_argument("-o", "--out", type=output_file, required=True, metavar="OUT.edge", help="the bundle to write")
    parser.add_argument(
        "--hop", type=count, default=0, metavar="N", help="samples from one window to the next (default: the bundle's)"
    )
    parser.add_argument(
        "--bundle-version", type=count, default=0, metavar="N", help="of the new bundle (default: the bundle's)"
    )
    add_key(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Convert, compare, write, and print a line for each variant."""
    try:
        from edge_export.package.streaming_bundle import stream_bundle  # noqa: PLC0415 - onnx and the rest, only when needed
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    signer, by = signing_again(options, "other models")
    made = stream_bundle(options.bundle, options.out, hop=options.hop, version=options.bundle_version)
    if signer is not None:
        signer(options.out)
    for variant in made.manifest.variants:
        name = variant.name
        print(
            f"{name}: {made.work[name]:.0%} of a window's work, {made.state_bytes[name]} bytes a key, answers differ "
            f"by up to {made.differences[name]:.2g}"
        )
    for name, reason in made.left_out.items():
        print(f"not {name}: {reason}")
    contract = made.manifest.input
    overlap = 1 - contract.hop / contract.window
    print(
        f"{options.out}: {len(made.manifest.variants)} variants, a window of {contract.window} samples every "
        f"{contract.hop} ({overlap:.0%} overlap), compared on {made.compared} windows; {by}"
    )
    return 0
