from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.answer.gate.adaptive import PRIOR, REACH, STEP, AdaptiveGate
from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.errors import StoreError
from edge_runtime.manifest import Manifest, Surround
from edge_runtime.manifest.surround import SurroundGate
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float64
from tests.edge_runtime.manifests import manifest

BLANK = np.zeros((4, 2), np.float32)
OWED = 4 * REACH / STEP
"""Windows that may be too many or too few, of any stream within reach."""


def bundle(share: float = 0.1, threshold: float = 0.9, **more: float) -> Manifest:
    surround = Surround(gate=SurroundGate(share=share, threshold=threshold, **more))  # type: ignore[arg-type]
    return replace(manifest(), schema_version=2, surround=surround)


def begun(of: Manifest | None = None, *, max_keys: int = 99, metrics: Metrics | None = None) -> AdaptiveGate:
    gate = AdaptiveGate(max_keys=max_keys, metrics=metrics)
    gate.use(of or bundle())
    return gate


def windows(key: str, n: int, first: int = 0) -> list[Window]:
    return [Window(key, slot, 0.0, BLANK, BLANK, 0.0) for slot in range(first, first + n)]


def play(of: AdaptiveGate, trust: Sequence[float] | Float64, key: str = "k", first: int = 0) -> np.ndarray:
    """Whether each window of a key is hard, one call each."""
    decided = [of.hard([window], [one]) for window, one in zip(windows(key, len(trust), first), trust, strict=True)]
    return np.array(decided)[:, 0]


def scores(log_odds: Float64) -> Float64:
    return np.asarray(1 / (1 + np.exp(-log_odds)))


def drawn(n: int, middle: float = 5.0, spread: float = 2.0, seed: int = 0) -> Float64:
    return scores(np.random.default_rng(seed).normal(middle, spread, n))


@pytest.mark.parametrize("share", [0.02, 0.08, 0.1, 0.3])
@pytest.mark.parametrize("middle", [1.0, 4.0, 7.0], ids=["doubted", "as trained", "sure"])
def test_the_share_is_held_on_people_whom_a_threshold_that_stays_would_not_fit(share: float, middle: float) -> None:
    trust = drawn(2000, middle)
    fixed = float((trust < 0.8).mean())
    held = float(play(begun(bundle(share, 0.8)), trust).mean())
    assert abs(held - share) <= max(0.1 * share, 0.002)
    assert abs(held - share) < abs(fixed - share) or abs(fixed - share) < 0.01


LEVELS = st.lists(st.tuples(st.integers(1, 800), st.floats(-6, 6), st.floats(0, 3)), min_size=1, max_size=8)


@settings(max_examples=40, deadline=None)
@given(share=st.sampled_from([0.05, 0.1, 0.25]), parts=LEVELS, seed=st.integers(0, 99))
def test_any_stream_within_reach_has_as_many_hard_windows_as_asked_but_for_a_number_that_does_not_grow(
    share: float, parts: list[tuple[int, float, float]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    places = np.concatenate([rng.normal(middle, spread, n) for n, middle, spread in parts])
    hard = play(begun(bundle(share, 0.5)), scores(np.clip(places, STEP - REACH, REACH - STEP)))  # a step from its bound
    owed = np.abs(np.cumsum(hard - share))
    assert owed.max() <= OWED


ADVERSARIES: list[Callable[[int, float], float]] = [
    lambda _, threshold: threshold - 0.01,
    lambda _, threshold: threshold + 0.01,
    lambda n, _: -9.0 if n // 500 % 2 else 9.0,
    lambda n, threshold: threshold + (1 if n // 300 % 2 else -1) * 0.01,
]


@pytest.mark.parametrize("adversary", ADVERSARIES, ids=["below", "above", "jumps", "turns"])
def test_one_who_sees_the_threshold_cannot_make_it_owe_more(adversary: Callable[[int, float], float]) -> None:
    gate = begun(bundle(0.1, 0.5))
    owed = 0.0
    threshold = 0.0
    worst = 0.0
    for n, window in enumerate(windows("k", 4000)):
        place = min(max(adversary(n, threshold), 0.1 - REACH), REACH - 0.1)
        owed += gate.hard([window], [float(scores(np.array(place)))])[0] - 0.1
        threshold = gate._keys["k"].threshold
        worst = max(worst, abs(owed))
    assert worst <= OWED + 1


def test_keys_of_different_difficulty_each_have_the_share_also_in_shared_batches() -> None:
    gate = begun()
    n, keys = 1500, {"easy": 9.0, "middling": 5.0, "difficult": 1.0}
    trust = {key: drawn(n, middle, seed=i) for i, (key, middle) in enumerate(keys.items())}
    hard: dict[str, list[bool]] = {key: [] for key in keys}
    for slot in range(n):
        batch = [windows(key, 1, slot)[0] for key in keys]
        for key, one in zip(keys, gate.hard(batch, [trust[key][slot] for key in keys]), strict=True):
            hard[key].append(one)
    for key, decided in hard.items():
        assert sum(decided) / n == pytest.approx(0.1, rel=0.1), key


def test_a_batch_is_as_good_as_one_after_another() -> None:
    trust = drawn(900)
    together = begun()
    found = [together.hard(windows("k", 9, at), trust[at : at + 9].tolist()) for at in range(0, 900, 9)]
    np.testing.assert_array_equal(np.concatenate(found), play(begun(), trust))


def test_what_is_sent_is_what_is_doubted_most_and_no_random_choice() -> None:
    trust = drawn(3000, 3.0)
    hard = play(begun(), trust)
    least = np.argsort(trust)[: int(hard.sum())]
    assert hard[least].mean() > 0.7


def test_a_new_key_begins_where_the_pool_is_and_not_where_the_bundle_was() -> None:
    gate = begun(bundle(0.1, 0.5))
    for key in ("a", "b", "c"):
        play(gate, drawn(600, 6.0, 1.0), key)
    first = play(gate, drawn(60, 6.0, 1.0, seed=9), "new").mean()
    alone = play(begun(bundle(0.1, 0.5)), drawn(60, 6.0, 1.0, seed=9)).mean()
    assert abs(first - 0.1) < abs(alone - 0.1)
    gate.hard(windows("newest", 1), [0.999])
    assert gate._keys["newest"].pool == pytest.approx(gate._pool, abs=0.2)


def test_a_key_leans_on_the_pool_with_few_windows_and_no_more_with_many() -> None:
    gate = begun(bundle(0.1, 0.5))
    moved = []
    for seen in (1, 50 * PRIOR):
        gate.begin("m", threshold=0.5, share=0.1)
        play(gate, np.full(seen, 0.9))
        own = gate._keys["k"].threshold
        gate._pool += 2.0
        gate.hard(windows("k", 1, seen), [0.9999])
        moved.append(gate._keys["k"].threshold - own)
    assert moved[0] > 1.5
    assert moved[1] < 0.2


def test_a_threshold_stays_within_reach_so_worthless_answers_are_not_trusted_for_being_alike() -> None:
    gate = begun(bundle(0.1, 0.9, spread=0.2))
    assert play(gate, np.full(3000, 0.4)).all(), "2.6 below in log-odds, five times 0.2 are in reach"
    assert gate._keys["k"].threshold == pytest.approx(math.log(9) - 1.0)


def test_scores_that_cannot_be_told_from_one_have_the_share_and_the_same_windows_on_every_run() -> None:
    trust = np.ones(4000)
    found = [play(begun(bundle(0.1, 0.999, spread=2.0)), trust) for _ in range(2)]
    np.testing.assert_array_equal(found[0], found[1])
    assert found[0].mean() == pytest.approx(0.1, rel=0.1)
    at = np.flatnonzero(found[0][2000:])
    assert len(np.unique(np.diff(at))) > 5, "not every tenth, which a machine's own rhythm might fall in with"


@pytest.mark.parametrize("steps", [2, 5, 20])
def test_scores_of_few_values_hold_the_share_all_the_same(steps: int) -> None:
    trust = np.random.default_rng(1).integers(1, steps + 1, 4000) / (steps + 1)
    assert play(begun(bundle(0.1, 0.5)), trust).mean() == pytest.approx(0.1, rel=0.1)


def test_nothing_is_learnt_of_suspect_windows_nor_of_numbers_that_are_none_and_the_latter_are_hard() -> None:
    gate = begun()
    play(gate, drawn(200))
    before = gate.save()
    (window,) = windows("k", 1, 200)
    assert gate.hard([window], [0.0001], {("k", 200)}) == [True]
    assert gate.hard([window, window], [math.nan, -1.0]) == [True, True]
    assert gate.save() == before


def test_a_stream_that_is_thinned_has_the_share_of_the_windows_that_are_left() -> None:
    gate, trust = begun(), drawn(6000, 2.0)
    kept = range(0, 6000, 4)
    hard = [gate.hard(windows("k", 1, slot), [trust[slot]])[0] for slot in kept]
    assert sum(hard) / len(kept) == pytest.approx(0.1, rel=0.1)


def test_a_restart_goes_on_where_it_was() -> None:
    trust = drawn(900)
    for cut in (3, 350):
        first, whole = begun(), begun()
        for gate in (first, whole):
            play(gate, trust[:cut])
            play(gate, trust[::-1][:cut], "other")
        second = begun()
        assert second.restore(first.save())
        np.testing.assert_array_equal(play(second, trust[cut:], first=cut), play(whole, trust[cut:], first=cut))


def test_another_model_or_share_begins_again_and_the_same_one_goes_on() -> None:
    gate = begun()
    play(gate, drawn(250))
    saved = gate.save()
    gate.use(bundle())
    assert gate.save() == saved
    assert not begun(bundle(0.2)).restore(saved)
    gate.use(replace(bundle(), version=4))
    assert b'"k"' not in gate.save()
    assert not gate.restore(saved)


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"{}", b'{"model":"m","share":0.1,"pool":[0,1],"keys":{"k":[1,2]}}', b'{"keys":{},"pool":1}']
)
def test_bytes_that_are_something_else_are_refused(data: bytes) -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        begun().restore(data)


def test_numbers_that_no_run_has_left_are_refused_too() -> None:
    with pytest.raises(StoreError, match="cannot be read"):
        begun().restore(b'{"model":"bench/3","share":0.1,"pool":[0,1],"keys":{"k":[null,0,1,0.1]}}')


def test_keys_are_bounded_and_those_that_leave_are_counted() -> None:
    metrics = Metrics()
    gate = begun(max_keys=2, metrics=metrics)
    for key in ("a", "b", "a", "c"):
        gate.hard(windows(key, 1), [0.9])
    assert metrics.counts["gate_keys_evicted_total"] == 1
    assert b'"b"' not in gate.save()


def test_the_ranges_over_the_keys_are_shown() -> None:
    metrics = Metrics()
    gate = begun(metrics=metrics)
    for key, middle in (("easy", 7.0), ("difficult", 1.0)):
        play(gate, drawn(1000, middle), key)
    lowest, highest = (metrics.gauges[f'gate_threshold{{key="{which}"}}'] for which in ("lowest", "highest"))
    assert lowest < 0.5 < 0.95 < highest
    for which in ("lowest", "highest"):
        assert metrics.gauges[f'gate_hard_ratio{{key="{which}"}}'] == pytest.approx(0.1, rel=0.2)


@pytest.mark.parametrize(
    ("config", "alone", "why"),
    [
        (GateConfig(adapt=False), False, "adapt = false under [gate]"),
        (GateConfig(threshold=0.7), False, "threshold under [gate] is the operator's own"),
        (GateConfig(), True, "alone = true under [model]"),
        (GateConfig(share=0.2), True, "alone = true under [model]"),
    ],
)
def test_what_turns_it_off_is_said(config: GateConfig, alone: bool, why: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    gate = AdaptiveGate(config, alone=alone)
    for _ in range(2):
        gate.use(bundle())
    assert not gate.active
    assert [record.message.split(": ", 2)[2] for record in caplog.records] == [why]


def test_only_a_bundle_or_an_operator_that_asks_for_it_has_thresholds_of_keys() -> None:
    assert begun().active
    assert not begun(manifest()).active
    assert not begun(bundle(0.0)).active
    gate = AdaptiveGate(GateConfig(share=0.25))
    gate.use(manifest())
    assert play(gate, drawn(2000, 2.0)).mean() == pytest.approx(0.25, rel=0.05)


@pytest.mark.parametrize("threshold", [0.0, 1.1])
def test_a_gate_that_trusts_all_answers_or_none_is_no_place_to_begin(
    threshold: float, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    gate = AdaptiveGate(GateConfig(share=0.1))
    gate.use(manifest(threshold=threshold))
    assert not gate.active
    assert f"is not kept: the bundle's threshold is {threshold:g}, which says nothing of its scores" in caplog.text


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"share": 0.0}, "share must be above 0"),
        ({"share": 0.6}, "at most 0.5"),
        ({"share": 0.1, "threshold": 0.5}, "share moves the threshold"),
        ({"share": 0.1, "adapt": False}, "share moves the threshold"),
        ({"max_local_error": 0.0, "audit_share": 0.1}, "max_local_error must be above 0"),
        ({"max_local_error": 0.1}, "set audit_share, for example 0.02"),
        ({"max_local_error": 0.1, "audit_share": 0.1, "threshold": 0.5}, "max_local_error moves the threshold"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(wrong: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        GateConfig(**wrong)  # type: ignore[arg-type]


def audited_stream(gate: AdaptiveGate, n: int, *, key: str = "k", seed: int = 0, every: int = 5) -> tuple[float, float]:
    """Share that is hard and error rate of the others, over the second half; every 5th trusted answer is audited."""
    rng = np.random.default_rng(seed)
    trust = drawn(n, 2.0, 1.5, seed)
    wrong = rng.random(n) > trust
    hard = np.zeros(n, bool)
    for i, window in enumerate(windows(key, n)):
        hard[i] = gate.hard([window], [float(trust[i])])[0]
        gate.learn([(bool(hard[i]), not wrong[i])] if hard[i] or i % every == 0 else [])
    half = slice(n // 2, None)
    return float(hard[half].mean()), float(wrong[half][~hard[half]].mean())


def test_where_audits_find_the_promise_broken_more_is_hard_until_it_is_kept() -> None:
    limit = 0.08
    free, promised = begun(), AdaptiveGate(GateConfig(max_local_error=limit, audit_share=0.2))
    promised.use(bundle())
    share, error = audited_stream(free, 20_000)
    assert share == pytest.approx(0.1, rel=0.1)
    assert error > 1.2 * limit
    share, error = audited_stream(promised, 20_000)
    assert 0.12 < share <= 0.5
    assert error <= 1.1 * limit


def test_a_promise_that_is_kept_leaves_the_share() -> None:
    gate = AdaptiveGate(GateConfig(max_local_error=0.3, audit_share=0.2))
    gate.use(bundle())
    assert audited_stream(gate, 6000)[0] == pytest.approx(0.1, rel=0.1)


def test_a_share_that_audits_have_raised_outlives_a_restart() -> None:
    config = GateConfig(max_local_error=0.02, audit_share=0.2)
    first, second = AdaptiveGate(config), AdaptiveGate(config)
    for gate in (first, second):
        gate.use(bundle())
    audited_stream(first, 3000)
    assert second.restore(first.save())
    assert second.save() == first.save()
    assert play(second, drawn(1000, 2.0, 1.5)).mean() > 0.15


def test_a_promise_without_a_share_is_said_to_be_held_by_nothing(caplog: pytest.LogCaptureFixture) -> None:
    AdaptiveGate(GateConfig(max_local_error=0.05, audit_share=0.2)).use(manifest())
    assert "max_local_error is not held: the bundle asks for no share; set share under [gate]" in caplog.text
