"""``edge-export stream``: a bundle whose model computes only what a hop brings, made of a windowed one."""

from __future__ import annotations

from dataclasses import dataclass

from edge_export.cli.sign import Signing
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, Count, OutputFile
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class StreamOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    out: OutputFile = option("the bundle to write", metavar="OUT.edge")
    hop: Count = option("samples from one window to the next (default: the bundle's)", 0, "N")
    bundle_version: Count = option("of the new bundle (default: the bundle's)", 0, "N")
    signing: Signing


@command(
    "stream",
    "make a bundle that computes only what a hop of new samples brings",
    "Convert each file of a bundle into one that keeps what it computed of the window before, compare its answers with "
    "the windowed file's, and write a bundle. It gives the same answers under the same ids. A signed bundle is signed "
    "again, so it needs its key. Earlier releases refuse the new bundle.",
    "stream watch.edge --hop 8 -o watch-streaming.edge",
)
def run(options: StreamOptions) -> CommandAnswer:
    """Convert, compare, write, and tell of each variant."""
    try:
        from edge_export.package.streaming_bundle import stream_bundle  # noqa: PLC0415 - onnx and the rest, only when needed
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    signer, by = options.signing.again(options.bundle, "other models")
    made = stream_bundle(options.bundle, options.out, hop=options.hop, version=options.bundle_version)
    if signer is not None:
        signer(options.out)
    lines = [
        f"{one.name}: {made.work[one.name]:.0%} of a window's work, {made.state_bytes[one.name]} bytes a key, answers "
        f"differ by up to {made.differences[one.name]:.2g}"
        for one in made.manifest.variants
    ]
    lines += [f"not {name}: {reason}" for name, reason in made.left_out.items()]
    contract = made.manifest.input
    overlap = 1 - contract.hop / contract.window
    lines.append(
        f"{options.out}: {len(made.manifest.variants)} variants, a window of {contract.window} samples every "
        f"{contract.hop} ({overlap:.0%} overlap), compared on {made.compared} windows; {by}"
    )
    document = {
        "file": options.out,
        "work": made.work,
        "state_bytes": made.state_bytes,
        "differences": made.differences,
        "left_out": made.left_out,
        "compared": made.compared,
        "signed": by,
    }
    return CommandAnswer(document, lines)
