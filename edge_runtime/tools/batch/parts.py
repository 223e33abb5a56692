"""Folder of the answers so far, a part for each group: what an interrupted job goes on from.

``OUT.parts/NAME.jsonl`` has the answers of a group, ``NAME.json`` what came of it. The second is written last, so a
part counts when it is there. NAME is a digest of the job and of the group's files as they were: when either changes,
the group is answered again.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from edge_runtime.base.system import durable_file
from edge_runtime.errors import ConfigError
from edge_runtime.tools.batch.job import Group, GroupFigures


class Parts:
    """The folder beside the file of answers; a context manager, for one process at a time.

    Args:
        out: file of all answers.
        job: digest of the job.

    Raises:
        ConfigError: the folder cannot be made, or another process has it.
    """

    def __init__(self, out: Path, job: str) -> None:
        self.folder = out.with_name(out.name + ".parts")
        self._job = job
        try:
            self.folder.mkdir(exist_ok=True)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError(f"{self.folder}: cannot be made: {error.strerror or error}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ConfigError(
                f"{out}: another process is writing it (it has {self.folder}); name another file"
            ) from None

    def __enter__(self) -> Parts:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def lines_of(self, group: Group) -> Path:
        """Return where the answers of a group stand, or are to stand."""
        return self.folder / f"{group.digest(self._job)}.jsonl"

    def done(self, group: Group) -> GroupFigures | None:
        """Return what came of a group that is done; None where it is not, or had broken recordings."""
        lines = self.lines_of(group)
        try:
            figures = GroupFigures.from_json(lines.with_suffix(".json").read_bytes())
        except (OSError, ValueError):
            return None
        return figures if lines.exists() else None

    def keep(self, group: Group, figures: GroupFigures) -> None:
        """Count a group as done. One with broken recordings is tried again by the next run: they may be mended.

        Raises:
            OSError: the disk takes no more.
        """
        if not figures.broken:
            durable_file.write(self.lines_of(group).with_suffix(".json"), figures.to_json())

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def paths(self, groups: Sequence[Group]) -> list[Path]:
        """Return the files of answers of groups, in the order of the job."""
        return [path for group in groups if (path := self.lines_of(group)).exists()]
