"""``edge-runtime verify``: may this bundle run here?"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

import orjson

from edge_runtime.tools.cli.arguments import add_bundle, add_trusted

if TYPE_CHECKING:
    from edge_runtime.model.bundle.bundle import Bundle


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "verify",
        help="check a bundle, and replay its golden vectors on this machine",
        description=(
            "Check sizes, digests and contents of a bundle, and with --key who signed it; then load every variant that "
            "this machine can run, in a child process, and compare its answers to the golden vectors. Exit code 1 when "
            "anything does not hold."
        ),
        epilog="example: edge-runtime verify examples/exercise-watch/watch.edge",
    )
    add_bundle(parser)
    add_trusted(parser, "--key")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Verify, print, and return the exit code."""
    from edge_runtime.clock import SystemClock  # noqa: PLC0415
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.model.bundle.signature import load_keys  # noqa: PLC0415

    trusted = load_keys(options.trusted_keys) if options.trusted_keys else None
    with open_bundle(options.bundle, trusted=trusted) as bundle:
        expired = bundle.expired(SystemClock())
        variants = [_check(bundle, variant.name) for variant in bundle.manifest.variants]
        ran = [variant for variant in variants if variant["outcome"] != "skipped"]
        ok = bool(ran) and all(variant["outcome"] == "ok" for variant in ran) and not expired
        if options.json:
            report = {
                "bundle": str(options.bundle),
                "ok": ok,
                "signature": bundle.signature,
                "expired": expired,
                "variants": variants,
            }
            print(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
        else:
            print(f"{options.bundle}: contents are what the manifest says; {bundle.signature}")
            for variant in variants:
                print("  {name:<20} {outcome:<8} {detail}".format(**variant))
            if expired:
                print(f"it expired on {bundle.manifest.expires}, so nothing will run it; get a newer one")
            if not ran:
                print("no variant can run on this machine; see `edge-runtime doctor`")
    return 0 if ok else 1


def _check(bundle: Bundle, name: str) -> dict[str, str]:
    from edge_runtime.model.bundle.sandbox import probe  # noqa: PLC0415
    from edge_runtime.model.bundle.variants import refusals  # noqa: PLC0415

    reasons = refusals(bundle.variant(name))
    if reasons:
        return {"name": name, "outcome": "skipped", "detail": "; ".join(reasons)}
    report = probe(bundle, name)
    detail = report.reason or f"{report.engine}, differs from the golden vectors by at most {report.worst:.2g}"
    return {"name": name, "outcome": report.outcome, "detail": detail}
