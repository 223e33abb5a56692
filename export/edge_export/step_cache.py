"""Step cache: the result of each build step lies in a folder that is named by the digest of its inputs.

An interrupted build continues where it stopped, and a changed number in the recipe repeats only what depends on it. A
step writes into a temporary folder that is renamed when the step has ended, so half a result is never found.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, Final

import orjson

import edge_export
import edge_runtime
from edge_runtime.clock import Clock

Say = Callable[[str], None]
"""Callback that takes progress, a line at a time."""


def digest(value: Any) -> str:
    """SHA-256 of a value made of dataclasses, mappings, lists, texts and numbers, as hexadecimal.

    A path stands for what lies there: the same file has the same digest wherever it is.
    """
    plain = asdict(value) if is_dataclass(value) and not isinstance(value, type) else value
    return hashlib.sha256(orjson.dumps(plain, option=orjson.OPT_SORT_KEYS, default=_plain)).hexdigest()


def file_digest(path: Path) -> str:
    """SHA-256 of a file, or of all files of a folder with their names, as hexadecimal."""
    whole = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{file.relative_to(path).as_posix() if path.is_dir() else ''}\0{content}\n".encode())
    return whole.hexdigest()


PACKAGES: Final = tuple(Path(str(package.__file__)).parent for package in (edge_export, edge_runtime))
"""Packages whose code a build runs."""


def code_digest(packages: Sequence[Path] = PACKAGES) -> str:
    """SHA-256 of the Python files of packages, as hexadecimal; an upgrade changes it, and so does an edit.

    Args:
        packages: their folders; by default those that a build runs.
    """
    whole = hashlib.sha256()
    for package in packages:
        for file in sorted(package.rglob("*.py")):
            content = hashlib.sha256(file.read_bytes()).hexdigest()
            whole.update(f"{package.name}/{file.relative_to(package).as_posix()}\0{content}\n".encode())
    return whole.hexdigest()


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Path):
        return file_digest(value)
    raise TypeError(f"{type(value).__name__} has no digest")


class StepCache:
    """Results of finished steps, by the digest of their inputs; runs a step whose result is missing.

    Args:
        folder: the results' folder.
        versions: versions of the packages that results depend on, and `code_digest` of our own; part of every digest.
        say: takes one line per step.
        clock: measures how long steps take.
    """

    def __init__(self, folder: Path, versions: Mapping[str, str], say: Say, clock: Clock) -> None:
        self.folder = folder
        self.versions = dict(versions)
        self._say = say
        self._clock = clock

    def quietly(self) -> StepCache:
        """Return the same cache without progress lines."""
        return StepCache(self.folder, self.versions, lambda _line: None, self._clock)

    def folder_of(self, name: str, inputs: Mapping[str, Any]) -> Path:
        """Name the folder that the result of a step lies in, or will lie in."""
        return self.folder / f"{name}-{digest({'inputs': dict(inputs), 'versions': self.versions})[:20]}"

    def run(self, name: str, inputs: Mapping[str, Any], make: Callable[[Path], None]) -> Path:
        """Run a step, unless its result is there.

        Args:
            name: the step's name; names its folder.
            inputs: everything that the result depends on: parts of the recipe, names of the folders of earlier steps.
            make: writes the result into the folder it is given.

        Returns:
            The folder with the result; its name stands for the result in the `inputs` of later steps.
        """
        result = self.folder_of(name, inputs)
        if result.is_dir():
            self._say(f"{name}: found in the cache")
            return result
        began = self._clock.monotonic()
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(dir=self.folder, prefix=f".{name}-"))
        try:
            make(temporary)
            temporary.rename(result)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        self._say(f"{name}: done in {self._clock.monotonic() - began:.1f} s")
        return result
