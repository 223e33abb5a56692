"""Wheels of all distributions, built twice in unlike places; the same bytes, or exit code 1.

    python -m scripts.wheels [--out dist] [--also torch==2.13.0]      make wheels

Built is what git tracks, as it is in the working tree. Every time inside is that of the last commit, so anyone who
builds this commit with the same hatchling gets these bytes. Beside each wheel lies its bill of materials: what the
locks name for its extras.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_runtime._version import __version__
from scripts import locks, sbom

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDERS = (".", "devices", "export")
"""Folders of each pyproject.toml: the device's, what comes beside it, and the workstation's."""


@dataclass(frozen=True)
class Place:
    """Differences between two machines that build."""

    name: str
    environment: tuple[tuple[str, str], ...]
    mode: int
    """Permissions of the source files."""


PLACES = (
    Place("a", (("TZ", "UTC"), ("LC_ALL", "C.UTF-8"), ("PYTHONHASHSEED", "1")), 0o644),
    Place("another-place", (("TZ", "Asia/Kathmandu"), ("LC_ALL", "C"), ("PYTHONHASHSEED", "2")), 0o600),
)


def main() -> int:
    """Build, compare and keep."""
    parser = argparse.ArgumentParser(description="Build the wheels twice and compare them.")
    parser.add_argument("--out", type=Path, default=CHECKOUT / "dist", help="folder (default: %(default)s)")
    parser.add_argument(
        "--also", nargs="+", default=[], metavar="NAME==VERSION", help="parts of edge-export that no lock names"
    )
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    same = True
    stated = sbom.licences()
    for folder, parts in zip(FOLDERS, parts_of(options.also), strict=True):
        with tempfile.TemporaryDirectory() as place:
            one, other = (build(folder, Path(place, each.name), each) for each in PLACES)
            data = one.read_bytes()
            equal = data == other.read_bytes()
            same = same and equal
            print(f"{one.name}  {len(data):,} bytes  {'the same twice' if equal else 'NOT THE SAME TWICE'}")
            print(f"  sha256 {hashlib.sha256(data).hexdigest()}")
            kept = Path(shutil.copy(one, out))
            name, version = kept.name.split("-")[:2]
            product = sbom.Product(kept, "pypi", name.replace("_", "-"), version, {})
            sbom.write(product, parts, stated, commit_time())
    return 0 if same else 1


def parts_of(also: Sequence[str]) -> tuple[list[locks.Pin], list[locks.Pin], list[locks.Pin]]:
    """Read what is installed with each wheel: all that the locks of its extras name, for every Python and machine.

    Args:
        also: ``name==version`` of what edge-export needs and no lock names.
    """
    device, workstation = (_extras(project) for project in locks.projects())
    unlocked = [
        locks.Pin(name, version, None, (), (locks.PROJECT,)) for name, version, _ in locks.pins("\n".join(also))
    ]
    ours = locks.Pin("edge-runtime", __version__, None, (), (locks.PROJECT,))
    # Those for training are in a lock of another name.
    names = ["export" if name == "train" else name for name in workstation]
    return _named(device), [ours], [*_named(names), ours, *unlocked]


def _extras(project: Mapping[str, object]) -> list[str]:
    table = project["project"]
    assert isinstance(table, Mapping)
    return list(table["optional-dependencies"])


def _named(names: Sequence[str]) -> list[locks.Pin]:
    return [pin for name in names for pin in locks.packages((locks.FOLDER / f"{name}.txt").read_text("utf-8"))]


def build(folder: str, at: Path, place: Place) -> Path:
    """Build a wheel from a copy of what git tracks; needs hatchling, and no network.

    Args:
        folder: of its pyproject.toml, from the checkout.
        at: an empty place for the copy.
        place: what is unlike there.

    Raises:
        subprocess.CalledProcessError: git or hatchling failed; it has said why.
    """
    tree, out = at / "tree", at / "out"
    tree.mkdir(parents=True)
    for name in _git("ls-files", "-z").split("\0"):
        if name and (source := CHECKOUT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, tree / name)
            (tree / name).chmod(place.mode)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(commit_time())}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out],
        cwd=tree / folder,
        env=environment | dict(place.environment),
        stdout=subprocess.PIPE,
        check=True,
    )
    (wheel,) = out.glob("*.whl")
    return wheel


def commit_time() -> int:
    """Seconds since 1970 of the last commit: the time of every file that is built."""
    return int(_git("log", "-1", "--format=%ct"))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
