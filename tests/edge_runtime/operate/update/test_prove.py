"""A new model is accepted by labels only if they could hardly have come of one that is no better."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.prove import chances
from edge_runtime.operate.update.prove import (
    ERROR,
    FEWEST,
    MOST,
    REVERSE,
    DisputedLabels,
    Said,
    bounds,
    looks,
    reversed_by,
    verdict,
)
from edge_runtime.store.cases.draw import drawn
from tests.edge_runtime.store.cases.kept import in_order

SAID = st.sampled_from(("for", "against", "neither"))
TRIALS = 2000


@given(st.lists(SAID, max_size=80), st.integers(FEWEST, 300))
def test_a_look_that_has_decided_decides_whatever_is_said_later(said: list[Said], most: int) -> None:
    found = verdict(said, most)
    assert bool(found.reason) == (found.outcome == "reject")
    if found.outcome != "go on":
        assert verdict([*said, "for", "against", "against"], most) == found
    if found.outcome == "accept":
        assert DisputedLabels.of(said).wins > 0
    assert verdict(said, most, is_last=True).outcome != "go on", "no label can come any more"


@given(st.lists(st.integers(0, 60), min_size=1, max_size=5).map(sorted), st.floats(0.001, 0.2))
def test_a_fair_coin_reaches_the_bounds_of_all_looks_together_as_seldom_as_stated(
    throws: list[int], error: float
) -> None:
    """Counted by walking on, in another way than `bounds` does: all walks, and those that reached a bound by then."""
    found = bounds(tuple(throws), tuple(error * (at + 1) / len(throws) for at in range(len(throws))))
    chance: dict[tuple[int, bool], float] = {(0, False): 1.0}
    before = 0
    for n, bound in zip(throws, found, strict=True):
        for _ in range(n - before):
            after: dict[tuple[int, bool], float] = {}
            for (heads, over), weight in chance.items():
                for more in (0, 1):
                    after[heads + more, over] = after.get((heads + more, over), 0.0) + weight / 2
            chance = after
        before = n
        reached: dict[tuple[int, bool], float] = {}
        for (heads, over), weight in chance.items():
            at = heads, over or heads >= bound
            reached[at] = reached.get(at, 0.0) + weight
        chance = reached
    assert sum(weight for (_, over), weight in chance.items() if over) <= error * (1 + 1e-9)


def test_the_chances_that_docs_updates_states() -> None:
    accepted = {share: chances(share).accepted for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)}
    assert accepted[0.5] <= ERROR
    assert accepted[0.4] < 0.0005
    assert accepted[0.6] > 0.1
    assert accepted[0.7] > 0.6
    assert accepted[0.8] > 0.97
    assert verdict(["for"] * FEWEST, FEWEST).outcome == "accept"
    assert looks(60) == [15, 30, 45, 60]
    assert looks(10**6)[-1] == MOST


# A stream of windows, each for or against the new model or neither; as many for it as against: it is no better.
N = 300


def streams() -> Iterator[tuple[str, list[Said]]]:
    """Orders of a stream that would suit who wants the new model to pass."""
    half: list[Said] = ["for"] * (N // 2)
    other: list[Said] = ["against"] * (N // 2)
    blocks: list[Said] = [said for at in range(0, N, 20) for said in (*half[:10], *other[:10])]
    rng = np.random.default_rng(5)
    drift = np.argsort(np.r_[rng.normal(0.0, 1.0, N // 2), rng.normal(1.5, 1.0, N // 2)])
    yield "all for it first", [*half, *other]
    yield "blocks of ten", blocks
    yield "drift", [(*half, *other)[at] for at in drift]
    nothing: list[Said] = ["neither"] * (N // 3)
    yield "every third one says nothing", [*half[: N // 3], *nothing, *other[: N // 3]]


def asked(stream: Sequence[Said], secret: bytes, keys: int) -> list[Said]:
    """Labels in the order in which a device with this secret has them count."""
    drawn_ = [(f"k{at % keys}", drawn(secret, f"k{at % keys}@{at}"), said) for at, said in enumerate(stream)]
    return [said for _, _, said in in_order(drawn_)]


@pytest.mark.slow
@pytest.mark.parametrize("keys", [1, 7])
@pytest.mark.parametrize(("order", "stream"), list(streams()))
def test_a_model_that_is_no_better_passes_as_seldom_as_stated_whatever_the_order(
    order: str, stream: list[Said], keys: int
) -> None:
    """Today's rule let 100 % pass with all for it first. Secrets are new each time, so the bound has five sigmas."""
    passed = reversed_ = 0
    for _ in range(TRIALS):
        said = asked(stream, secrets.token_bytes(32), keys)
        passed += verdict(said[:60], 60).outcome == "accept"
        reversed_ += reversed_by([_SWAPPED[one] for one in said[60:120]], 60) is not None
    most = [TRIALS * share + 5 * (TRIALS * share) ** 0.5 for share in (ERROR, REVERSE)]
    assert passed <= most[0], order
    assert reversed_ <= most[1], order


_SAID: dict[bool, Said] = {True: "against", False: "for"}
_SWAPPED: dict[Said, Said] = {"for": "against", "against": "for", "neither": "neither"}


@pytest.mark.slow
@given(st.lists(SAID, min_size=60, max_size=60), st.randoms(use_true_random=False))
def test_no_order_in_which_people_label_changes_the_verdict(said: list[Said], random: object) -> None:
    """What waits in between holds back what comes after it, however well that speaks of the new model."""
    order = list(range(60))
    random.shuffle(order)  # type: ignore[attr-defined]
    given_: dict[int, Said] = {}
    outcomes = []
    for at in order:
        given_[at] = said[at]
        prefix = [given_[place] for place in range(next(n for n in range(61) if n not in given_))]
        outcomes.append(verdict(prefix, 60))
    decided = [one for one in outcomes if one.outcome != "go on"]
    assert all(one == verdict(said, 60) for one in decided)


@given(st.lists(SAID))
def test_labels_are_counted_by_what_they_say(said: list[Said]) -> None:
    found = DisputedLabels.of(said)
    assert (found.wins, found.losses, found.given) == (said.count("for"), said.count("against"), len(said))


@cache
def _losses_that_reverse() -> int:
    return next(n for n in range(16) if reversed_by([_SAID[at < n] for at in range(15)], 60))


def test_only_labels_that_speak_clearly_against_it_reverse_a_change() -> None:
    assert reversed_by([], 60) is None
    assert reversed_by(["against"] * 14, 60) is None, "the first look is at 15"
    assert 11 <= _losses_that_reverse() <= 13
    assert "0 for it, 15 against" in (reversed_by(["against"] * 15, 60) or "")
