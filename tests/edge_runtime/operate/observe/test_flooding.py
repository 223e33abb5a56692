"""Callers that flood: what they get of the process is bounded, whatever they ask, and however busy the machine is."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from pathlib import Path

import pytest

from edge_runtime.operate.observe.duty import BURST_S
from tests.edge_runtime.operate.observe.looking import get, running, tcp

CALLERS = 10
SECONDS = 3.0
LONGEST_ITERATION_S = 0.1
"""CPU of one iteration with a request of each caller, after which the thread rests: far more than it takes."""


@pytest.mark.slow
def test_ten_callers_that_flood_get_two_hundredths_of_a_core_and_windows_are_answered(tmp_path: Path) -> None:
    with running(tmp_path, '[observe]\nlisten = "127.0.0.1:0"') as (app, source):
        assert app.observation is not None
        host, port = app.observation.address
        source.give("a", 1)
        with tcp(app) as connection:
            assert get(connection, "/api/report")[0] == 200
        ended = threading.Event()
        answers = [0] * CALLERS

        def floods(at: int) -> None:
            with (
                contextlib.suppress(OSError, http.client.HTTPException),
                contextlib.closing(http.client.HTTPConnection(host, port, timeout=60)) as connection,
            ):
                while not ended.is_set():
                    get(connection, "/metrics" if at % 2 else "/api/report?keys=200")
                    answers[at] += 1

        threads = [threading.Thread(target=floods, args=(at,)) for at in range(CALLERS)]
        observers = next(one for one in threading.enumerate() if one.name == "observe")
        assert observers.ident is not None
        clock = time.pthread_getcpuclockid(observers.ident)
        used, began = time.clock_gettime(clock), time.monotonic()
        for thread in threads:
            thread.start()
        windows = 0
        while time.monotonic() - began < SECONDS:
            source.give(f"key {windows}", 1)
            windows += 1
            time.sleep(0.01)
        used, passed = time.clock_gettime(clock) - used, time.monotonic() - began
        ended.set()
        for thread in threads:
            thread.join(60)
        assert min(answers) > 0
        assert used <= 0.02 * passed + BURST_S + LONGEST_ITERATION_S
        assert app.metrics.counts["predictions_total"] == 1 + windows
