"""Unsigned bundles written again with another filling rule: same models, same golden vectors, a new manifest.

::

    python -m export.repack examples/exercise-watch/teacher.edge --fill first

The same bundle gives the same bytes on every run; one that says so already is left as it is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from edge_runtime import archive, manifest
from edge_runtime.bundle import MANIFEST, SIGNATURE, open_bundle
from edge_runtime.errors import BundleError, EdgeError
from export.pack import put_in_place


def repack(path: Path, fill: Literal["", "first"]) -> bool:
    """Set how a server fills the missing beginning of a window (`InputContract.fill`).

    Args:
        path: the ``.edge`` file; replaced in one step.
        fill: the rule that its model was trained with.

    Returns:
        Whether the file was changed.

    Raises:
        BundleError: it is no bundle, is signed, or cannot be written.
    """
    with open_bundle(path) as bundle:
        before = bundle.manifest
        if SIGNATURE in bundle.names:
            raise BundleError(
                f"{path.name} is signed, and a changed manifest breaks the signature; repack the unsigned bundle"
            )
        files = {name: bundle.file(name) for name in bundle.names if name != MANIFEST}
    after = replace(before, input=replace(before.input, fill=fill))
    if after == before:
        return False
    put_in_place(path, archive.pack({MANIFEST: manifest.dump(after), **files}))
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m export.repack",
        description="Set how a server fills the missing beginning of a bundle's window.",
        epilog="example: python -m export.repack examples/exercise-watch/teacher.edge --fill first",
    )
    parser.add_argument("bundle", type=Path, help="unsigned .edge file; replaced")
    parser.add_argument("--fill", choices=["", "first"], required=True, help="as the model's training did")
    options = parser.parse_args(arguments)
    try:
        changed = repack(options.bundle, options.fill)
    except EdgeError as error:
        print(f"export.repack: {error}", file=sys.stderr)
        return 2
    print(f"{options.bundle}: {'written' if changed else 'says so already'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
