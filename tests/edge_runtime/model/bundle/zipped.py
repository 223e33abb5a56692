"""Bundles taken apart and put together with changes."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_runtime.model.bundle import archive
from edge_runtime.model.bundle.archive import BundleLimits


def files_of(path: Path) -> dict[str, bytes]:
    fd = os.open(path, os.O_RDONLY)
    try:
        opened = archive.Archive(fd, BundleLimits(), {})
        return {name: opened.read(name) for name in opened.entries}
    finally:
        os.close(fd)


def rewritten(
    path: Path, to: Path, change: Callable[[dict[str, bytes], dict[str, Any]], None], *, honest: bool = False
) -> Path:
    """The bundle with its files and manifest changed; `honest` makes the digests those of the changed files."""
    files = files_of(path)
    manifest = json.loads(files.pop("manifest.json"))
    change(files, manifest)
    if honest:
        for item in (*manifest["variants"], *manifest["files"]):
            data = files[item["file"]]
            item["size"], item["sha256"] = len(data), hashlib.sha256(data).hexdigest()
    if "manifest.json" not in files:
        files["manifest.json"] = json.dumps(manifest).encode()
    out = to / "changed.edge"
    out.write_bytes(archive.pack(files))
    return out
