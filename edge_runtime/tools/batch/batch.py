"""A replay of many recordings: what is done already is skipped, the rest answered, all of it put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from edge_runtime.base.system.progress import Progress
from edge_runtime.tools.batch.answering import NotWritten
from edge_runtime.tools.batch.job import Group, GroupFigures, Job, Totals, grouped, joined
from edge_runtime.tools.batch.parts import Parts
from edge_runtime.tools.batch.table import require_writable, write_all
from edge_runtime.tools.batch.workers import GroupDone


class Pool(Protocol):
    """Processes that answer groups, of this machine, or of a cluster."""

    def answer(self, tasks: Sequence[tuple[Group, Path]]) -> Iterator[GroupDone]:
        """Answer groups, each into a file; ends early when stopped.

        Raises:
            EdgeError: none of them can be answered.
        """
        ...


def run(
    job: Job,
    files: Sequence[tuple[Path, str]],
    out: Path,
    pool: Pool,
    totals: Totals,
    *,
    progress: Progress,
) -> bool:
    """Answer recordings into one file.

    Args:
        job: what is done with them.
        files: recordings with their keys.
        out: JSONL, or Parquet by its suffix; in the order of the files.
        pool: answers.
        totals: receives what came of all.
        progress: advanced by the bytes of the recordings.

    Returns:
        Whether everything was answered; if not, the same call goes on from where this one stopped.

    Raises:
        EdgeError: it cannot be done, or the disk takes no more; what is done is kept.
    """
    require_writable(out)
    with Parts(out, job.digest()) as parts:
        came = _answer_until_none_shares_a_key(grouped(files, job.layout), parts, pool, progress)
        for answered in came.answered:
            totals.add(answered.figures)
        if not came.whole:
            return False
        try:
            write_all(out, parts.paths([answered.group for answered in came.answered]))
        except OSError as error:
            raise NotWritten.because(out, error) from None
        parts.remove()
    return True


class _Came(NamedTuple):
    answered: list[GroupDone]
    """In the order of the job."""
    whole: bool
    """Nothing is missing."""


def _answer_until_none_shares_a_key(groups: Sequence[Group], parts: Parts, pool: Pool, progress: Progress) -> _Came:
    """Answer groups; those that turn out to share a key, which only their answers show, once more as one."""
    came: dict[int, GroupDone] = {}
    while groups:
        _answer(groups, parts, pool, came, progress)
        if any(group.number not in came for group in groups):
            return _Came(_in_order(came), whole=False)
        groups = joined(_in_order(came))
        again = {path for group in groups for path, _ in group.files}
        came = {number: one for number, one in came.items() if one.group.files[0][0] not in again}
        _announce(groups, progress)
    return _Came(_in_order(came), whole=True)


def _announce(groups: Sequence[Group], progress: Progress) -> None:
    for group in groups:
        progress.note(f"{group.name}: have keys in common, and are answered together")


def _in_order(came: dict[int, GroupDone]) -> list[GroupDone]:
    return [came[number] for number in sorted(came)]


def _answer(groups: Sequence[Group], parts: Parts, pool: Pool, came: dict[int, GroupDone], progress: Progress) -> None:
    """Answer the groups that are not done."""
    left = []
    for group in groups:
        if (figures := parts.done(group)) is None:
            left.append((group, parts.lines_of(group)))
        else:
            came[group.number] = GroupDone(group, figures)
            progress.skip(group.size)
    for answered in pool.answer(left):
        _keep(parts, *answered)
        came[answered.group.number] = answered
        progress.advance(answered.group.size, answered.group.name)


def _keep(parts: Parts, group: Group, figures: GroupFigures) -> None:
    try:
        parts.keep(group, figures)
    except OSError as error:
        raise NotWritten.because(parts.folder, error) from None
