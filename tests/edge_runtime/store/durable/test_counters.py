"""Lifetime counters: added up over runs, whole after any torn write, within their two slots whatever is counted."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.clock import SystemClock
from edge_runtime.errors import StoreUnusable
from edge_runtime.metrics import Metrics
from edge_runtime.store.durable import counters as module
from edge_runtime.store.durable.counters import SLOT_BYTES, CounterTotals, LifetimeCounters, read_totals

PATIENCE_S = 60.0


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DROPS_S", 0.01)


def opened(path: Path, metrics: Metrics | None = None) -> tuple[LifetimeCounters, Metrics]:
    metrics = metrics or Metrics()
    counters = LifetimeCounters(path, metrics, SystemClock())
    counters.open()
    return counters, metrics


def test_runs_are_added_up_and_a_run_that_is_killed_counts_too(tmp_path: Path, hasty: None) -> None:
    """Mutation that this finds: starting from nothing, or from this run alone."""
    path = tmp_path / "outbox.counters"
    counters, metrics = opened(path)
    metrics.counts["windows_total"] = 10
    metrics.dropped["late"] = 3
    counters.close()
    counters, metrics = opened(path)
    metrics.dropped["late"] = 4
    metrics.dropped["full"] = 1
    until(lambda: (found := read_totals(path)) is not None and found.dropped == {"late": 7, "full": 1})
    shutil.copy(path, tmp_path / "killed.counters")  # as it is when the process ends now
    counters.close()
    counters, metrics = opened(tmp_path / "killed.counters")
    found = counters.totals()
    counters.close()
    assert (found.starts, found.counts, found.dropped) == (3, {"windows_total": 10}, {"late": 7, "full": 1})
    assert 0 < found.since <= time.time()


def test_the_file_never_grows_and_is_for_this_user_alone(tmp_path: Path, hasty: None) -> None:
    path = tmp_path / "outbox.counters"
    counters, metrics = opened(path)
    for i in range(400):
        metrics.dropped[f"a reason of a certain length, number {i}"] = i + 1
        metrics.counts[f"a counter of a certain length, number {i}"] = i + 1
    until(lambda: (found := read_totals(path)) is not None and found.dropped.total() == sum(range(401)))
    counters.close()
    assert path.stat().st_size == 2 * SLOT_BYTES
    assert path.stat().st_mode & 0o777 == 0o600
    found = read_totals(path)
    assert found is not None
    assert found.dropped.total() == found.counts.total() == sum(range(401)), "what does not fit is added up"
    assert found.dropped["a reason of a certain length, number 399"] == 400, "the largest keep their names"


@given(at=st.integers(0, 2 * SLOT_BYTES - 1), bit=st.integers(0, 7))
def test_a_bit_that_flips_costs_one_slot_at_most(at: int, bit: int) -> None:
    before, after = CounterTotals(1.0, 1, Counter(a=1)), CounterTotals(1.0, 1, Counter(a=2))
    data = bytearray(module._slot(7, before) + module._slot(8, after))
    data[at] ^= 1 << bit
    seq, found = module._newest(bytes(data))
    assert found in (before, after)
    assert (seq == 8) == (found == after)


@pytest.mark.parametrize("cut", [0, 3, SLOT_BYTES - 1, SLOT_BYTES + 5])
def test_a_file_that_is_cut_short_or_nonsense_is_begun_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "outbox.counters"
    counters, _ = opened(path)
    counters.close()
    os.truncate(path, cut)
    counters, _ = opened(path)
    assert counters.totals().starts >= 1
    counters.close()
    assert read_totals(path) is not None
    assert read_totals(tmp_path / "missing") is None


def test_a_file_that_is_removed_is_said_and_written_again(
    tmp_path: Path, hasty: None, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state" / "outbox.counters"
    path.parent.mkdir()
    counters, metrics = opened(path)
    metrics.dropped["late"] = 5
    until(lambda: (found := read_totals(path)) is not None and found.dropped["late"] == 5)
    shutil.rmtree(path.parent)
    until(lambda: "cannot be written" in caplog.text)
    path.parent.mkdir()
    until(lambda: (found := read_totals(path)) is not None and found.dropped["late"] == 5)
    counters.close()
    assert caplog.text.count("removed while") == 1


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "outbox.counters"
    path.write_bytes(b"")
    path.chmod(0o666)
    with pytest.raises(StoreUnusable, match="may be written by others"):
        opened(path)
