"""``edge-export events``: event rules put into a bundle, which is signed again."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from edge_export.cli.sign import add_key, signing_again
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import existing_file, output_file


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "events",
        help="put event rules into a bundle",
        description=(
            "Put the [[events]] of a TOML file, such as an application or what `edge-runtime events tune` prints, into "
            "a bundle, in place of those that it has. Devices follow them unless their application has rules of its "
            "own. A signed bundle is signed again, so it needs its key. Earlier releases refuse a bundle with rules."
        ),
        epilog="example: edge-export events sounds.edge --rules app.toml --key release.pem",
    )
    parser.add_argument("bundle", type=existing_file, metavar="BUNDLE", help="the .edge file")
    parser.add_argument("--rules", type=existing_file, required=True, metavar="FILE.toml", help="file with [[events]]")
    parser.add_argument(
        "-o", "--out", type=output_file, metavar="OUT.edge", help="write another bundle (default: replace this one)"
    )
    add_key(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Check the rules against the bundle, and write them into it."""
    from edge_export.package.rewrite import rewrite  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.app.config import load_events  # noqa: PLC0415
    from edge_runtime.manifest import Manifest, needed_schema  # noqa: PLC0415

    rules = load_events(options.rules)
    signer, by = signing_again(options, "event rules")

    def with_rules(before: Manifest) -> Manifest:
        version = needed_schema(
            before.input,
            before.references,
            rules,
            output=before.output,
            stages=before.stages,
            sensors=before.sensors,
            surround=before.surround,
        )
        try:
            return dataclasses.replace(before, events=rules, schema_version=version)
        except ValueError as error:
            raise ConfigError(f"{options.rules}: {error}") from error

    written = rewrite(options.bundle, with_rules, signer=signer, out=options.out)
    names = ", ".join(rule.name for rule in rules) or "none"
    print(f"{written}: event rules: {names}; {by}")
    return 0
