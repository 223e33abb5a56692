"""``edge-runtime verify``: may this bundle run here?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, ExistingFile
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command

if TYPE_CHECKING:
    from edge_runtime.model.bundle.bundle import Bundle


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    trusted_key: tuple[ExistingFile, ...] = arguments.trusted_key()


@command(
    "verify",
    "check a bundle, and replay its golden vectors on this machine",
    "Check sizes, digests and contents of a bundle, and with --trusted-key who signed it; then load "
    "every variant that this machine can run, in a child process, and compare its answers to the golden vectors. "
    "Exit code 1 when anything does not hold.",
    "verify examples/exercise-watch/watch.edge",
    renamed={"--key": "--trusted-key"},
)
def run(options: VerifyOptions) -> CommandAnswer:
    """Verify."""
    from edge_runtime.clock import SystemClock  # noqa: PLC0415
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.model.bundle.signature import load_keys  # noqa: PLC0415

    trusted = load_keys(options.trusted_key) if options.trusted_key else None
    with open_bundle(options.bundle, trusted=trusted) as bundle:
        expired = bundle.expired(SystemClock())
        variants = [_check(bundle, variant.name) for variant in bundle.manifest.variants]
        signature, expires = bundle.signature, bundle.manifest.expires
    ran = [variant for variant in variants if variant["outcome"] != "skipped"]
    ok = bool(ran) and all(variant["outcome"] == "ok" for variant in ran) and not expired
    lines = [f"{options.bundle}: contents are what the manifest says; {signature}"]
    lines += ["  {name:<20} {outcome:<8} {detail}".format(**variant) for variant in variants]
    if expired:
        lines.append(f"it expired on {expires}, so nothing will run it; get a newer one")
    if not ran:
        lines.append("no variant can run on this machine; see `edge-runtime doctor`")
    report = {"bundle": options.bundle, "ok": ok, "signature": signature, "expired": expired, "variants": variants}
    return CommandAnswer(report, lines, int(not ok))


def _check(bundle: Bundle, name: str) -> dict[str, str]:
    from edge_runtime.model.bundle.sandbox import probe  # noqa: PLC0415
    from edge_runtime.model.bundle.variants import refusals  # noqa: PLC0415

    reasons = refusals(bundle.variant(name))
    if reasons:
        return {"name": name, "outcome": "skipped", "detail": "; ".join(reasons)}
    report = probe(bundle, name)
    detail = report.reason or f"{report.engine}, differs from the golden vectors by at most {report.worst:.2g}"
    return {"name": name, "outcome": report.outcome, "detail": detail}
