"""Answers over time: the forward filter against matrices written out, and what begins a key again."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest import Manifest, OutputContract, Surround
from edge_runtime.manifest.surround import OverTime, SurroundGate
from edge_runtime.metrics import Metrics
from edge_runtime.model.over_time import FORGET, AnswersOverTime, OverTimeFilter
from edge_runtime.signal.windowing.window import Window
from tests.edge_runtime.batches import numbers_after
from tests.edge_runtime.manifests import manifest

HOP = 2
NOTHING = np.zeros((1, 1), np.float32)
SPEC = OverTime(transition=((0.9, 0.06, 0.04), (0.1, 0.85, 0.05), (0.02, 0.08, 0.9)), prior=(0.5, 0.3, 0.2), weight=0.6)


def bundle(spec: OverTime | None = SPEC) -> Manifest:
    surround = Surround(gate=SurroundGate(threshold=0.5), over_time=spec)
    plain = manifest(output=OutputContract(labels=("a", "b", "c")))
    return dataclasses.replace(plain, schema_version=2, surround=surround)


def windows(*slots: int, key: str = "k") -> list[Window]:
    return [Window(key, slot, slot / 10, NOTHING, NOTHING, 0.0) for slot in slots]


def answers(n: int, seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).dirichlet(np.ones(3), n).astype(np.float32)


def started(**settings: Any) -> AnswersOverTime:
    filters = AnswersOverTime(**settings)
    filters.use(bundle())
    return filters


def by_matrices(rows: npt.NDArray[np.float32], hops: list[int]) -> npt.NDArray[np.float64]:
    a, prior = np.array(SPEC.transition), np.array(SPEC.prior)
    state, out = prior, []
    for row, passed in zip(rows.astype(np.float64), hops, strict=True):
        expected = state @ np.linalg.matrix_power(a, passed)
        state = expected * (row / prior) ** SPEC.weight
        state /= state.sum()
        out.append(state)
    return np.array(out)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(0, 2**32 - 1))
def test_the_filter_is_the_forward_procedure(hops: list[int], seed: int) -> None:
    rows = answers(len(hops), seed)
    slots = np.cumsum(hops) * HOP
    found = numbers_after(started(), windows(*slots.tolist()), rows)
    # The first window of a key has no transition before it.
    np.testing.assert_allclose(found, by_matrices(rows, [0, *hops[1:]]), atol=1e-6)


def test_a_first_answer_keeps_its_order_and_an_undecided_one_follows_the_key() -> None:
    filters = started()
    sure, unsure = np.array([[0.96, 0.02, 0.02]], np.float32), np.array([[0.34, 0.33, 0.33]], np.float32)
    assert numbers_after(filters, windows(0), sure)[0].argmax() == 0
    for slot in range(1, 4):
        assert numbers_after(filters, windows(slot * HOP), unsure)[0].argmax() == 0


@pytest.mark.parametrize("slot", [HOP * (FORGET + 1), HOP + 1, 0, -HOP])
def test_a_gap_another_grid_and_a_clock_set_back_begin_a_key_again(slot: int) -> None:
    filters = started()
    rows = answers(2)
    numbers_after(filters, windows(0), rows[:1])
    again = numbers_after(filters, windows(slot), rows[1:])
    np.testing.assert_array_equal(again, numbers_after(started(), windows(slot), rows[1:]))


def test_keys_do_not_touch_each_other_in_one_batch() -> None:
    rows = answers(6)
    together = numbers_after(started(), [*windows(0, HOP, 2 * HOP), *windows(0, HOP, 2 * HOP, key="other")], rows)
    apart = [numbers_after(started(), windows(0, HOP, 2 * HOP), part) for part in (rows[:3], rows[3:])]
    np.testing.assert_array_equal(together, np.concatenate(apart))


def test_a_suspect_window_keeps_its_answer_and_teaches_nothing() -> None:
    rows = answers(3)
    filters, other = started(), started()
    found = numbers_after(filters, windows(0, HOP, 2 * HOP), rows, {("k", HOP)})
    np.testing.assert_array_equal(found[1], rows[1])
    expected = numbers_after(other, windows(0, 2 * HOP), rows[[0, 2]])
    np.testing.assert_array_equal(found[[0, 2]], expected)


def test_an_answer_that_is_no_distribution_stays_and_counts_as_missing() -> None:
    rows = answers(3)
    rows[1, 0] = np.nan
    found = numbers_after(started(), windows(0, HOP, 2 * HOP), rows)
    assert np.isnan(found[1, 0])
    np.testing.assert_array_equal(found[[0, 2]], numbers_after(started(), windows(0, 2 * HOP), rows[[0, 2]]))


@settings(max_examples=30)
@given(st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_a_restart_goes_on_bit_for_bit(cut: int, seed: int) -> None:
    rows, slots = answers(10, seed), [n * HOP for n in range(10)]
    whole = numbers_after(started(), windows(*slots), rows)
    first = started()
    before = numbers_after(first, windows(*slots[:cut]), rows[:cut])
    saved = orjson.loads(orjson.dumps(first.changes))
    second = started()
    second.restore(saved)
    np.testing.assert_array_equal(
        np.concatenate([before, numbers_after(second, windows(*slots[cut:]), rows[cut:])]), whole
    )


def test_states_of_other_labels_are_not_taken_over() -> None:
    filters = started()
    filters.restore({"k": [0, [0.5, 0.5]]})
    np.testing.assert_array_equal(
        numbers_after(filters, windows(HOP), answers(1)), numbers_after(started(), windows(HOP), answers(1))
    )


def test_the_key_silent_longest_leaves_and_is_counted() -> None:
    metrics = Metrics()
    filters = started(max_keys=2, metrics=metrics)
    for key in ("a", "b", "a", "c"):
        numbers_after(filters, windows(0, key=key), answers(1))
    assert metrics.counts["over_time_keys_evicted_total"] == 1
    changed = filters.changes
    assert changed["b"] is None
    assert changed["a"]
    assert changed["c"]


def test_bundles_without_a_filter_leave_answers_as_they_are() -> None:
    filters = started()
    numbers_after(filters, windows(0), answers(1))
    filters.use(bundle(None))
    assert not filters.active
    assert filters.changes == {"k": None}


def test_a_version_that_filters_alike_goes_on_and_another_begins_again() -> None:
    filters = started()
    numbers_after(filters, windows(0), answers(1))
    filters.use(dataclasses.replace(bundle(), version=2))
    assert filters.reset(["k"])
    numbers_after(filters, windows(0), answers(1))
    filters.use(bundle(dataclasses.replace(SPEC, weight=1.0)))
    assert not filters.reset(["k"])


def test_an_impossible_answer_does_not_end_in_nothing() -> None:
    state = OverTimeFilter(SPEC, HOP).step(None, 0, [0.0, 0.0, 0.0])
    assert sum(state[1]) == pytest.approx(1)
