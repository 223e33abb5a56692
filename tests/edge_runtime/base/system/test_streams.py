"""Standard streams of a command: closed ones, and the journal's priorities."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_runtime.base.system.streams import JournalFormatter, writes_to_journal
from tests.integration.running import environment


@pytest.mark.parametrize("program", ["edge_runtime.tools.cli", "edge_export.cli"])
@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_whose_standard_streams_are_closed_ends_as_usual(program: str, closed: str, tmp_path: Path) -> None:
    """Mutation: `open_standard_streams` does nothing: a traceback, or output in the file that is opened next."""
    log = tmp_path / "log"
    script = f"import sys; from {program} import main; sys.exit(main(sys.argv[1:]))"
    command = f'exec "$0" -c "$1" --help {closed}'
    with log.open("wb") as out:
        done = subprocess.run(
            ["sh", "-c", command, sys.executable, script], stdout=out, stderr=out, env=environment(), check=False
        )
    assert "Traceback" not in log.read_text()
    assert done.returncode == 0


def test_each_line_of_a_record_has_the_priority_of_its_level() -> None:
    formatter = JournalFormatter("%(message)s")
    for level, priority in ((10, 7), (20, 6), (25, 6), (30, 4), (40, 3), (50, 2)):
        record = logging.LogRecord("a", level, __file__, 1, "one\ntwo", None, None)
        record.exc_text = "Traceback:\nend"
        assert formatter.format(record) == f"<{priority}>one\\ntwo\n<{priority}>Traceback:\n<{priority}>end"


def test_only_the_journal_s_own_stream_gets_priorities() -> None:
    found = os.fstat(2)
    assert writes_to_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
    for other in ({}, {"JOURNAL_STREAM": "1:2"}, {"JOURNAL_STREAM": "x"}, {"JOURNAL_STREAM": "1:2:3"}):
        assert not writes_to_journal(other)
