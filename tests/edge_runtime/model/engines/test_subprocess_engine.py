"""An engine in a process of its own: what it answers, how it hangs, how it dies.

That it answers as any engine does is checked by ``tests/contracts/test_engine.py``.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from edge_runtime.errors import EngineError, InputError
from edge_runtime.model.engines import null
from edge_runtime.model.engines import subprocess_engine as worker_module
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.engines.providers import Placement
from edge_runtime.model.engines.subprocess_engine import WorkerEngine

X = np.ones((2, 3, 4), np.float32)
PATIENCE_S = 60.0


def start(model: bytes = null.describe((3, 4), 2), deadline_s: float = PATIENCE_S) -> WorkerEngine:
    return WorkerEngine("null", model, EngineOptions(), deadline_s=deadline_s, load_timeout_s=PATIENCE_S)


@pytest.fixture
def worker() -> Iterator[WorkerEngine]:
    made = start()
    yield made
    made.close()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_call_that_hangs_is_given_up_after_the_deadline_and_its_process_ended() -> None:
    """Stopped, as a driver in an endless wait looks from here.

    Mutation that this finds: no `settimeout` after loading, so that the call waits for as long as loading may take.
    """
    worker = start(deadline_s=0.5)
    pid = worker.pid
    worker.run(X)
    os.kill(pid, signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(EngineError, match=r"not there within 0\.5 s") as caught:
        worker.run(X)
    assert caught.value.how == "hung"
    assert time.monotonic() - began < PATIENCE_S / 2
    assert not alive(pid)
    with pytest.raises(EngineError, match="closed"):
        worker.run(X)
    worker.close()


@pytest.mark.parametrize("moment", ["between", "during"])
def test_a_process_that_dies_is_noticed_at_once(worker: WorkerEngine, moment: str) -> None:
    """Mutation that this finds: letting the socket's own error through, which no fallback chain can name."""
    pid = worker.pid
    if moment == "between":
        os.kill(pid, signal.SIGSEGV)
    else:
        os.kill(pid, signal.SIGSTOP)
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
    with pytest.raises(EngineError, match=r"its process ended of SIG(SEGV|KILL)") as caught:  # noqa: PT012 - when it dies
        for _ in range(1000):
            (_,) = worker.run(X)
    assert caught.value.how == "died"
    assert not alive(pid)


def test_what_the_engine_says_comes_through(worker: WorkerEngine) -> None:
    with pytest.raises(InputError) as caught:
        worker.run(np.full_like(X, np.nan))
    assert caught.value.reason == "not_finite"
    with pytest.raises(EngineError, match="not a description made for the null engine"):
        start(b"{}")
    with pytest.raises(EngineError, match="no engine is called 'tpu'"):
        WorkerEngine("tpu", b"", EngineOptions(), deadline_s=1.0, load_timeout_s=PATIENCE_S)


def test_answers_larger_than_any_before_come_through_whole() -> None:
    worker = start(null.describe((3, 4), 1000))
    for rows in (1, 300, 2):
        x = np.random.default_rng(0).normal(size=(rows, 3, 4)).astype(np.float32)
        (y,) = worker.run(x)
        (expected,) = null.load(null.describe((3, 4), 1000), EngineOptions(), {}).run(x)
        np.testing.assert_array_equal(y, expected)
    worker.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_leaves_it_to_the_parent(worker: WorkerEngine, number: signal.Signals) -> None:
    """Ctrl-C and a service manager tell every process; the parent still drains.

    Mutation that this finds: the child not ignoring them.
    """
    os.kill(worker.pid, number)
    for _ in range(10):
        worker.run(X)


def test_it_ends_when_it_is_closed_or_its_parent_is_gone() -> None:
    worker = start()
    pid = worker.pid
    began = time.monotonic()
    worker.close()
    worker.close()
    assert not alive(pid)
    assert time.monotonic() - began < PATIENCE_S / 2
    assert worker.pid == 0


def test_what_an_accelerator_took_is_told_across_the_processes(worker: WorkerEngine) -> None:
    """Mutation that this finds: leaving it out of what the child says of its engine."""
    placement = Placement(nodes={"CUDAExecutionProvider": 5, "CPUExecutionProvider": 2}, on_cpu=("Softmax",))
    engine = SimpleNamespace(name="onnxruntime", inputs=(), outputs=(), placement=placement)
    about = json.loads(json.dumps(worker_module._about(engine)))
    assert worker_module._placement(about["placement"]) == placement
    assert worker.placement is None
