"""The files that traces tell of."""

from __future__ import annotations

import sys

from benchmarks.traces import Files, Returns, ours
from edge_runtime.metrics import Metrics


def test_a_file_is_named_below_its_package() -> None:
    assert ours("/somewhere/edge_runtime/io/mqtt/client.py", "edge_runtime") == "io/mqtt/client.py"
    assert ours("/usr/lib/python3/queue.py", "edge_runtime") == ""


def test_files_are_taken_down_while_the_trace_is_on() -> None:
    trace = Files()
    sys.setprofile(trace)
    Metrics().snapshot()
    before = set(trace.entered)
    trace.on = True
    Metrics().snapshot()
    sys.setprofile(None)
    assert before == set()
    assert "metrics.py" in trace.entered


def test_a_move_to_a_file_that_was_left_is_a_return() -> None:
    assert Returns(route=["build.py", "data/read.py", "build.py", "learn/fit.py", "data/read.py"]).count == 2
