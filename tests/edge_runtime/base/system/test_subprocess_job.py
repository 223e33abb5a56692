"""A job goes to a child and its answer comes back, or one line says what became of the child."""

from __future__ import annotations

import resource
from typing import Any

import pytest

from edge_runtime.base.system import subprocess_job
from edge_runtime.errors import EngineError

DO = "from edge_runtime import errors; from edge_runtime.base.system import subprocess_job; subprocess_job.answer({})"


def ask(program: str, job: Any = None, data: tuple[bytes, ...] = (), **more: Any) -> dict[str, Any]:
    bounds = {"timeout_s": 60.0, "memory_bytes": None} | more
    return subprocess_job.ask(program, job or {}, data, what="it", **bounds)


def test_the_job_and_its_data_arrive_and_the_answer_comes_back() -> None:
    given = ask(DO.format("lambda job, data: {'job': job['n'], 'data': bytes(data).hex()}"), {"n": [1]}, (b"\0", b"ab"))
    assert given == {"job": [1], "data": "006162"}


@pytest.mark.parametrize(
    ("raised", "outcome", "reason"),
    [
        ("errors.BundleError('other  answers')", "wrong", "other answers"),
        ("errors.EngineError('no such\\n model')", "refused", "no such model"),
        ("MemoryError()", "refused", "MemoryError"),
    ],
)
def test_a_refusal_is_one_line_and_wrong_answers_are_told_from_it(raised: str, outcome: str, reason: str) -> None:
    assert ask(DO.format(f"lambda job, data: (_ for _ in ()).throw({raised})")) == {
        "outcome": outcome,
        "reason": reason,
    }


@pytest.mark.parametrize(
    ("program", "how", "said"),
    [
        ("import os; os._exit(3)", "died", "it ended a child process with exit code 3"),
        ("import os; os.abort()", "died", "it ended a child process of SIGABRT"),
        ("raise SystemError('last words')", "died", r"exit code 1 \(SystemError: last words\)"),
        ("print('[]')", "died", "it ended a child process with exit code 0"),
        ("import signal; signal.raise_signal(14)", "hung", "did not end in time"),
        ("import time; time.sleep(60)", "hung", "it did not end within 0.5 s in a child process"),
    ],
)
def test_what_became_of_a_child_that_gives_no_answer(program: str, how: str, said: str) -> None:
    with pytest.raises(EngineError, match=said) as caught:
        ask(program, timeout_s=0.5 if "sleep" in program else 60.0)
    assert caught.value.how == how


def test_that_no_child_can_be_started_is_no_fault_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(EngineError, match="cannot start a child process") as caught:
        ask("pass")
    assert caught.value.how == "raised"


@pytest.mark.parametrize("memory_bytes", [2**31, None])
def test_memory_is_bounded_where_it_is_asked_for(memory_bytes: int | None) -> None:
    told = "{'got': __import__('resource').getrlimit(__import__('resource').RLIMIT_DATA)[0]}"
    free = resource.getrlimit(resource.RLIMIT_DATA)[0]
    assert ask(DO.format(f"lambda job, data: {told}"), memory_bytes=memory_bytes) == {"got": memory_bytes or free}


def test_a_signal_that_has_no_name_is_told_by_its_number() -> None:
    assert subprocess_job.ended(-11) == "of SIGSEGV"
    assert subprocess_job.ended(-250) == "of signal 250"
