"""``edge-export events``: event rules put into a bundle, which is signed again."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from edge_export.cli.sign import Signing
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, ExistingFile, OutputFile
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class RulesOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    rules: ExistingFile = option("file with [[events]]", metavar="FILE.toml")
    out: OutputFile | None = option("write another bundle (default: replace this one)", None, "OUT.edge")
    signing: Signing


@command(
    "events",
    "put event rules into a bundle",
    "Put the [[events]] of a TOML file, such as an application or what `edge-runtime events tune` prints, into a "
    "bundle, in place of those that it has. Devices follow them unless their application has rules of its own. A "
    "signed bundle is signed again, so it needs its key. Earlier releases refuse a bundle with rules.",
    "events sounds.edge --rules app.toml --key release.pem",
)
def run(options: RulesOptions) -> CommandAnswer:
    """Check the rules against the bundle, and write them into it."""
    from edge_export.package.rewrite import rewrite  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.app.config import load_events  # noqa: PLC0415
    from edge_runtime.manifest import Manifest, needed_schema  # noqa: PLC0415

    rules = load_events(options.rules)
    signer, by = options.signing.again(options.bundle, "event rules")

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
    names = [rule.name for rule in rules]
    line = f"{written}: event rules: {', '.join(names) or 'none'}; {by}"
    return CommandAnswer({"file": written, "rules": names, "signed": by}, line)
