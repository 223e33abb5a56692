"""Bundles that come with edge-runtime, by name: ``exercise-watch`` stands for a file wherever a bundle is named.

    edge-runtime inspect exercise-watch

This is the one place that knows the names. A file of the same name in the folder goes first. They are not signed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parents[2]
_FOLDERS: Final = (_PACKAGE / "tools" / "demo" / "data", _PACKAGE.parent / "examples" / "exercise-watch")
FOLDER: Final = next((folder for folder in _FOLDERS if (folder / "app.toml").exists()), _FOLDERS[0])
"""Where their files lie, and the demo's: in an installed wheel, and in a checkout."""

SHIPPED: Final[Mapping[str, Path]] = MappingProxyType(
    {"exercise-watch": FOLDER / "watch.edge", "exercise-watch-teacher": FOLDER / "teacher.edge"}
)
"""Files by name."""


def bundle_file(text: str | os.PathLike[str], base: Path | None = None) -> Path:
    """Return the file that a person means: a path as it is, or the file of a name.

    Args:
        text: what was written.
        base: folder that a relative path is taken from; None: the working directory, and the path stays relative.

    Raises:
        ValueError: a bare word that is neither a file nor a name.
    """
    path = Path(text).expanduser()
    if base is not None:
        path = base / path
    word = os.fspath(text)
    if path.is_file() or not _is_name(word):
        return path
    if word in SHIPPED:
        return SHIPPED[word]
    raise ValueError(f"{word}: no such file, and no bundle of this name comes with edge-runtime: {', '.join(SHIPPED)}")


def written(bundle: Path, folder: Path) -> str:
    """Return the text that names a bundle in a configuration in `folder`: its name, or the way to the file."""
    return next((name for name, path in SHIPPED.items() if path == bundle), os.path.relpath(bundle, folder))


def _is_name(text: str) -> bool:
    """Tell a bare word from a path: no folder, no suffix."""
    return os.sep not in text and "." not in text and bool(text)
