"""The parent over real processes that are no applications: started in order, restarted, given up, stopped together."""

from __future__ import annotations

import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge_runtime.app.workers import supervisor as supervision
from edge_runtime.app.workers.child import Child
from edge_runtime.app.workers.status import facts_of, parts_of
from edge_runtime.app.workers.supervisor import Supervisor
from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.base.system.sd_notify import SystemdNotifier
from edge_runtime.clock import SystemClock

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, pathlib, socket, sys, time
worker, folder = sys.argv[1], pathlib.Path(sys.argv[2])
starts = folder / f"starts-{worker}"
with starts.open("a") as file:
    file.write("x")
start = len(starts.read_text())
def say(*lines):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.sendto("\\n".join(lines).encode(), os.environ["NOTIFY_SOCKET"])
"""
WAITS = 'say("READY=1")\nsys.stdin.read()\n'


class Folded:
    """Processes of one program, and what their parent says."""

    def __init__(
        self, folder: Path, program: str, workers: int, watchdog_s: float = 60.0, drain_s: float = 30.0
    ) -> None:
        self.folder = folder
        self.code: int | None = None
        script = folder / "worker.py"
        script.write_text(textwrap.dedent(PROGRAM) + textwrap.dedent(program))
        loop, clock = Loop(), SystemClock()
        self.loop = loop
        self.children = [
            Child(
                worker,
                [sys.executable, "-S", str(script), str(worker), str(folder)],
                folder,
                loop=loop,
                clock=clock,
                watchdog_s=watchdog_s,
                on_change=self._changed,
            )
            for worker in range(1, workers + 1)
        ]
        self.states: list[str] = []
        self.supervisor = Supervisor(
            loop, clock, self.children, SystemdNotifier(), drain_s=drain_s, on_change=self._note
        )

    def _changed(self) -> None:
        self.supervisor.changed()

    def _note(self) -> None:
        self.states.append(str(facts_of(self.children, self.supervisor.restarts)["state"]))

    def starts(self, worker: int) -> int:
        path = self.folder / f"starts-{worker}"
        return len(path.read_text()) if path.exists() else 0

    def stop_when(self, condition: Callable[[], object]) -> None:
        self.loop.call_every(0.02, lambda: self.supervisor.stop() if condition() else None)

    def run(self) -> int:
        try:
            return self.supervisor.run()
        finally:
            self.loop.close()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "_AGAIN", Retry(base_s=0.01, cap_s=0.02))
    monkeypatch.setattr(supervision, "LOOK_S", 0.05)


@contextmanager
def deadline(one: Folded, seconds: float = 60.0) -> Iterator[None]:
    """Ends a test that would hang."""
    timer = threading.Timer(seconds, one.supervisor.stop)
    timer.start()
    try:
        yield
    finally:
        assert timer.is_alive(), "it did not come about"
        timer.cancel()


def test_the_others_start_when_the_first_is_ready_and_all_stop_together(tmp_path: Path) -> None:
    program = f'assert worker == "1" or (folder / "first").exists()\n(folder / "first").touch()\n{WAITS}'
    one = Folded(tmp_path, program, 3)
    one.stop_when(lambda: all(child.ready for child in one.children))
    with deadline(one):
        assert one.run() == 0
    assert [one.starts(worker) for worker in (1, 2, 3)] == [1, 1, 1]
    assert one.states[0] == "degraded"
    assert one.states[-1] == "well"  # a stop that was asked for is no trouble


def test_a_worker_that_ended_is_started_again_while_the_others_go_on(tmp_path: Path) -> None:
    one = Folded(tmp_path, f'if worker == "2" and start < 3: say("READY=1"); os.kill(os.getpid(), 9)\n{WAITS}', 2)
    one.stop_when(lambda: one.starts(2) == 3 and all(child.ready for child in one.children))
    with deadline(one):
        assert one.run() == 0
    assert (one.starts(1), one.supervisor.restarts) == (1, {2: 2})


def test_a_worker_that_ends_again_and_again_ends_the_application(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = Folded(tmp_path, f'if worker == "2": sys.exit(7)\n{WAITS}', 2)
    with deadline(one):
        assert one.run() == 1
    assert one.starts(2) == supervision.MOST_ENDS
    assert "worker 2 ended with exit code 7, 5 times in a row, so the application ends" in caplog.text


def test_a_wrong_configuration_is_not_tried_again_and_stops_before_the_others_start(tmp_path: Path) -> None:
    one = Folded(tmp_path, "sys.exit(2)\n", 3)
    with deadline(one):
        assert one.run() == 2
    assert [one.starts(worker) for worker in (1, 2, 3)] == [1, 0, 0]


def test_a_worker_that_shows_no_life_is_replaced(tmp_path: Path) -> None:
    program = """
    say("READY=1")
    if start == 1: time.sleep(600)
    import select
    while not select.select([0], [], [], 0.05)[0]: say("WATCHDOG=1")
    """
    one = Folded(tmp_path, program, 1, watchdog_s=1.0)
    one.stop_when(lambda: one.starts(1) >= 2 and one.children[0].ready)
    with deadline(one):
        one.run()
    assert one.supervisor.restarts[1] >= 1


def test_a_worker_that_does_not_stop_is_killed_and_the_end_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervision, "SLACK_S", 0.2)
    one = Folded(tmp_path, 'say("READY=1")\ntime.sleep(600)\n', 1, drain_s=0.1)
    one.stop_when(lambda: one.children[0].ready)
    with deadline(one):
        assert one.run() == 1
    assert "worker 1 has not stopped" in caplog.text


def test_the_code_of_losses_is_passed_on(tmp_path: Path) -> None:
    one = Folded(tmp_path, f'{WAITS}sys.exit(3 if worker == "2" else 0)\n', 2)
    one.stop_when(lambda: all(child.ready for child in one.children))
    with deadline(one):
        assert one.run() == 3


def test_the_status_of_parts_is_that_of_the_worker_where_something_is_wrong(tmp_path: Path) -> None:
    program = f"""
    outbox = {{"accepting": worker != "2", "failure_reason": "full"}}
    for part, facts in [("model", {{"failed": {{}}}}), ("outbox", outbox)]:
        say("X_EDGE_PART=" + json.dumps({{"part": part, "facts": facts}}))
    say("X_EDGE_PART=no json", "STATUS=fine")
    {WAITS.replace(chr(10), chr(10) + "    ")}
    """
    one = Folded(tmp_path, program, 3)
    found: list[object] = []

    def look() -> bool:
        if not all(child.ready for child in one.children):
            return False
        found[:] = [facts_of(one.children, one.supervisor.restarts), parts_of(one.children)]
        return True

    one.stop_when(look)
    with deadline(one):
        assert one.run() == 0
    facts, parts = found
    assert facts == {"state": "degraded", "ready": 3, "of": 3, "restarts": 0, "degraded": {"2": "outbox: full"}}
    assert parts == {"model": {"failed": {}}, "outbox": {"accepting": False, "failure_reason": "full"}}
