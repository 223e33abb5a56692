"""File trees of machines, planted under a temporary folder.

`tests/data/devices/NAME.json` holds ``source`` (where the layout is from), and ``files``: the text of each file by its
path on the machine; ``{"hex": ...}`` stands for bytes, ``null`` for an empty folder. `record.py` makes one from the
machine it runs on.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "data" / "devices"

NAMES = sorted(path.stem for path in DATA.glob("*.json"))


def read(name: str) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads((DATA / f"{name}.json").read_text("utf-8"))["files"]
    return tree


def plant(root: Path, files: dict[str, Any]) -> Path:
    """Write the files below `root`, and give it back."""
    for name, content in files.items():
        path = root / name.lstrip("/")
        if content is None:
            path.mkdir(parents=True, exist_ok=True)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes.fromhex(content["hex"]) if isinstance(content, dict) else content.encode("utf-8"))
    return root


def machine(root: Path, name: str) -> Path:
    """The recorded machine of this name, planted below `root`."""
    return plant(root, read(name))
