"""Description of a bundle as plain values: what ``edge-runtime inspect`` shows."""

from __future__ import annotations

from typing import Any

import orjson

from edge_runtime.manifest import dump
from edge_runtime.model.bundle.bundle import Bundle
from edge_runtime.model.bundle.variants import refusals


def describe(bundle: Bundle) -> dict[str, Any]:
    """Describe an open bundle as values that become JSON: its manifest as written, and what of it runs here."""
    manifest = orjson.loads(dump(bundle.manifest))
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
