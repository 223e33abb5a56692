from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import StoreError
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import AnomalyOutput
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks.anomaly import conformal_threshold
from edge_runtime.model.tasks.build import build_task
from edge_runtime.model.tasks.key_thresholds import KeyThresholds
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32
from tests.edge_runtime.batches import numbers_after
from tests.edge_runtime.manifests import manifest

BLANK = np.zeros((4, 2), np.float32)


def bundle(rate: float = 0.1, **more: object) -> Manifest:
    return manifest(output=AnomalyOutput(**{"threshold": 9.0, "false_alarm_rate": rate, "adapt": "quantile"} | more))  # type: ignore[arg-type]


def begun(of: Manifest | None = None, *, max_keys: int = 99, metrics: Metrics | None = None) -> KeyThresholds:
    thresholds = KeyThresholds(max_keys, metrics)
    thresholds.use(of or bundle())
    return thresholds


def windows(keys: list[str]) -> list[Window]:
    return [Window(key, slot, 0.0, BLANK, BLANK, 0.0) for slot, key in enumerate(keys)]


def play(of: KeyThresholds, scores: Float32, key: str = "k") -> Float32:
    """Threshold for each score of a key, one call each."""
    made = [numbers_after(of, windows([key]), np.array([[score]], np.float32))[0, 1] for score in scores]
    return np.array(made, np.float32)


def alarms(of: KeyThresholds, scores: Float32, key: str = "k") -> float:
    """Share of the scores that lie above their threshold."""
    return float((scores > play(of, scores, key)).mean())


def test_a_key_has_the_bundles_threshold_until_its_warm_up_is_over() -> None:
    drawn = np.random.default_rng(1).standard_normal(201).astype(np.float32)
    found = play(begun(), drawn)
    assert np.isnan(found[:200]).all()
    assert found[200] == np.float32(conformal_threshold(np.sort(drawn[:200]), 0.1))


@settings(derandomize=True, deadline=None, max_examples=12)
@given(rate=st.sampled_from([0.01, 0.05, 0.1, 0.2, 0.3]), seed=st.integers(0, 999))
def test_the_highest_scores_are_enough_for_the_threshold_of_all(rate: float, seed: int) -> None:
    n = round(20 / rate)
    drawn = np.random.default_rng(seed).exponential(size=n + 1).astype(np.float32)
    assert play(begun(bundle(rate)), drawn)[n] == np.float32(conformal_threshold(np.sort(drawn[:n]), rate))


@pytest.mark.parametrize("rate", [0.02, 0.1])
@pytest.mark.parametrize("drift", [0.0, 3.0], ids=["steady", "drifting"])
def test_alarms_come_at_the_stated_rate_also_where_scores_drift(rate: float, drift: float) -> None:
    """Over a hundred times as many scores as one alarm takes; a threshold that stays would be off by far."""
    rng = np.random.default_rng(3)
    warm = round(20 / rate)
    scores = (rng.gamma(4, size=warm + 6000) + drift * np.linspace(0, 1, warm + 6000)).astype(np.float32)
    of = begun(bundle(rate))
    play(of, scores[:warm])
    assert alarms(of, scores[warm:]) == pytest.approx(rate, rel=0.2)


def test_a_fault_far_above_becomes_normal_ten_times_as_slowly_as_a_drift() -> None:
    rng = np.random.default_rng(4)
    of = begun()
    play(of, rng.standard_normal(400).astype(np.float32))
    before = play(of, np.zeros(1, np.float32))[0]
    assert alarms(of, np.full(50, 100, np.float32)) == 1.0
    assert play(of, np.zeros(1, np.float32))[0] - before < 1.5


def test_keys_do_not_touch_each_other_and_a_batch_is_as_good_as_one_after_another() -> None:
    rng = np.random.default_rng(5)
    keys = [f"k{i}" for i in rng.integers(0, 3, 900)]
    scores = rng.standard_normal((900, 1)).astype(np.float32)
    together, apart = begun(), begun()
    made = [numbers_after(together, windows(keys)[at : at + 7], scores[at : at + 7]) for at in range(0, 900, 7)]
    found = np.concatenate(made)[:, 1]
    for key in set(keys):
        of = [i for i, one in enumerate(keys) if one == key]
        np.testing.assert_array_equal(found[of], play(apart, scores[of, 0], key))


def test_nothing_is_learnt_of_numbers_that_are_none_nor_of_suspect_readings() -> None:
    of = begun()
    scores = np.arange(250, dtype=np.float32)
    scores[10] = np.nan
    play(of, scores[:200])
    assert np.isnan(play(of, scores[200:201])).all(), "one score is missing from the warm-up"
    before = of.save()
    numbers_after(of, windows(["k"]), np.array([[1e9]], np.float32), {("k", 0)})
    assert of.save() == before


def test_scores_that_are_all_the_same_are_no_error() -> None:
    of = begun()
    assert alarms(of, np.ones(400, np.float32)) == 0
    assert np.isfinite(play(of, np.full(100, 2, np.float32))).all()


def test_a_restart_goes_on_where_it_was() -> None:
    scores = np.random.default_rng(6).standard_normal(500).astype(np.float32)
    for cut in (150, 350):
        first, whole = begun(), begun()
        play(first, scores[:cut])
        play(whole, scores[:cut])
        second = begun()
        assert second.restore(first.save())
        np.testing.assert_array_equal(play(second, scores[cut:]), play(whole, scores[cut:]))


def test_another_model_begins_again() -> None:
    of = begun()
    play(of, np.ones(250, np.float32))
    saved = of.save()
    other = bundle()
    object.__setattr__(other, "version", 4)
    of.use(other)
    assert np.isnan(play(of, np.ones(1, np.float32))).all()
    assert not of.restore(saved)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"model":"m","rate":0.1,"keys":{"k":[1,2]}}'])
def test_bytes_that_are_something_else_are_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        begun().restore(data)


def test_keys_are_bounded_and_those_that_leave_are_counted() -> None:
    metrics = Metrics()
    of = begun(max_keys=2, metrics=metrics)
    for key in ("a", "b", "a", "c"):
        numbers_after(of, windows([key]), np.ones((1, 1), np.float32))
    assert metrics.counts["threshold_keys_evicted_total"] == 1
    assert b'"b"' not in of.save()


def test_only_a_bundle_that_asks_for_it_has_thresholds_of_keys() -> None:
    assert begun().active
    assert not begun(bundle(adapt="none")).active
    assert not begun(manifest()).active


def test_the_task_takes_the_threshold_behind_a_score() -> None:
    task = build_task(bundle(), files=None)
    found = task.decide(np.array([[5.0, np.nan], [5.0, 4.0], [10.0, np.nan], [np.nan, 4.0]], np.float32))
    assert [one.label for one in found.best] == ["normal", "anomalous", "anomalous", ""]
    assert [one.own.get("threshold") for one in found.best] == [9.0, 4.0, 9.0, None]
    assert found.hard[3]
