"""Description of a bundle as plain values: what ``edge-runtime inspect`` shows."""

from __future__ import annotations

import dataclasses
from typing import Any

from edge_runtime.bundle.bundle import Bundle
from edge_runtime.bundle.variants import refusals


def describe(bundle: Bundle) -> dict[str, Any]:
    """Describe an open bundle as values that become JSON, with what of it runs on this machine."""
    manifest = dataclasses.asdict(bundle.manifest)
    for variant in manifest["variants"]:
        variant["runs_here"] = not refusals(bundle.variant(variant["name"]))
    return {
        "path": str(bundle.path),
        "size": bundle.size,
        "digest": bundle.digest,
        "root": bundle.root,
        "signature": bundle.signature,
        "model": bundle.manifest.model,
        "manifest": manifest,
    }
