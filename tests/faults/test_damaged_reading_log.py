"""R3: journals at rest whose bits, sectors or pages are spoilt, or whose end is cut off.

Whatever the file has become, the next run reads what came before the damage, or nothing; never other bytes; and what it
writes down itself is there for the run after it.

Mutations that were seen to fail here: `is_damage` that takes every OperationalError for the disk's (a table definition
or a text that was spoilt then ends every start); no look at whether the turns follow each other (pages that changed
places hide some); `_transact` that leaves a damaged file in its place.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

from edge_runtime.errors import StoreError
from edge_runtime.store.durable.reading_log_file import LogEntry, ReadingLogFile
from tests.edge_runtime.store.durable.outbox.outboxes import crash_image
from tests.faults.conftest import Note
from tests.faults.damage import spoil
from tests.long_tier import Tier

NAME = "journal.db"
SNAPSHOT, LAST, SETTLED = 150, 300, 233


def written(folder: Path, rng: random.Random, *, closed: bool) -> tuple[dict[str, bytes], list[LogEntry]]:
    """The files of a run that ended, or was killed, and its turns; a snapshot stands in the place of the first half."""
    entries = [LogEntry(seq, rng.randbytes(rng.choice((40, 300, 1_500)))) for seq in range(1, LAST)]
    file = ReadingLogFile(folder / NAME, 2**20)
    file.read()
    file.append(entries[:SNAPSHOT], SETTLED - 100)
    file.replace("contract", LogEntry(SNAPSHOT, rng.randbytes(700)))
    for entry in entries[SNAPSHOT:]:
        file.append([entry], SETTLED)
    image = crash_image(folder, folder / "killed", NAME)
    file.close()
    source = folder if closed else image
    files = {one.name: one.read_bytes() for one in source.glob(f"{NAME}*") if one.suffix != ".lock" and one.is_file()}
    return files, entries


def at_second_try(file: ReadingLogFile, *entries: LogEntry) -> None:
    """Start again with a snapshot and go on, as `ReadingLog` does; damage that shows only now costs one try."""
    snapshot, *others = entries
    for attempt in range(2):
        try:
            file.replace("contract", snapshot)
            for entry in others:
                file.append([entry], snapshot.seq)
        except StoreError:
            assert attempt == 0
            with pytest.raises(StoreError, match="a snapshot comes first"):
                file.append(others, snapshot.seq)
        else:
            return


def test_a_damaged_journal_gives_its_beginning_or_nothing_and_can_be_written_to(
    memory: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    runs = []
    for closed in (True, False):
        (memory / str(closed)).mkdir()
        runs.append(written(memory / str(closed), rng, closed=closed))
    outcomes: Counter[str] = Counter()
    tried = tier(1_000, 20_000)
    for number in range(tried):
        files, entries = runs[number % 2]
        folder = memory / "damaged"
        folder.mkdir()
        name, damage = spoil(files, folder, rng)
        try:
            outcomes[examine(folder, entries)] += 1
        except Exception as error:
            raise AssertionError(f"journal {number}: {damage} on {name}") from error
        shutil.rmtree(folder)
    said = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    note("R3", f"{tried:,} damaged journals, all read: {said}; 0 wrong bytes, 0 not to be written to")
    assert {"whole", "its beginning", "nothing"} == set(outcomes)


def examine(folder: Path, entries: list[LogEntry]) -> str:
    """Read it, go on as a run does, and read that again."""
    file = ReadingLogFile(folder / NAME, 2**20)
    found = file.read()
    seqs = [entry.seq for entry in found.entries]
    first = SNAPSHOT + 1 if found.contract else 1  # without the end of the log there may be no snapshot yet
    assert seqs == list(range(first, first + len(seqs)))
    assert found.entries == [entries[seq - 1] for seq in seqs]
    assert found.contract in {"contract", ""}
    assert found.acked in {0, SETTLED - 100, SETTLED}
    fresh = LogEntry(found.seq + 1, b"snapshot"), LogEntry(found.seq + 2, b"one"), LogEntry(found.seq + 3, b"two")
    at_second_try(file, *fresh)
    file.close()
    file = ReadingLogFile(folder / NAME, 2**20)
    again = file.read()
    file.close()
    assert (again.contract, again.snapshot, again.entries, again.damaged) == (
        "contract",
        b"snapshot",
        list(fresh[1:]),
        0,
    )
    if seqs and seqs[-1] == LAST - 1:
        return "whole"
    return "its beginning" if seqs else "nothing"
