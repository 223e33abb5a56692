"""A new model is accepted by labels only if they could hardly have come of one that is no better."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.update.prove import ACCEPT_AT, FEWEST, Labels, Said, evidence, reversed_by, verdict

COUNT = st.integers(0, 60)


@given(COUNT, COUNT)
def test_evidence_is_the_mean_likelihood_over_coins_that_favour_the_first_side(wins: int, losses: int) -> None:
    p = (np.arange(20_000) + 0.5) / 40_000 + 0.5
    density = p * (1 - p)
    mean = float(((2 * p) ** wins * (2 * (1 - p)) ** losses * density).sum() / density.sum())
    assert evidence(wins, losses) == pytest.approx(mean, rel=1e-3)


@given(COUNT, COUNT)
def test_one_more_throw_of_a_fair_coin_leaves_it_no_larger_on_average(wins: int, losses: int) -> None:
    after = (evidence(wins + 1, losses) + evidence(wins, losses + 1)) / 2
    assert after <= evidence(wins, losses) * (1 + 1e-12)


@given(COUNT, COUNT, COUNT, st.integers(1, 60))
def test_what_is_accepted_won_more_than_it_lost(wins: int, losses: int, neither: int, most: int) -> None:
    found = verdict(Labels(wins=wins, losses=losses, neither=neither), most)
    if found.outcome == "accept":
        assert wins > losses
        assert evidence(wins, losses) >= ACCEPT_AT
    if wins + losses + neither >= most:
        assert found.outcome != "go on", "no label is left"
    assert bool(found.reason) == (found.outcome == "reject")


@given(COUNT, COUNT)
def test_time_that_is_over_rejects_and_takes_nothing_back_that_is_proved(wins: int, losses: int) -> None:
    labels = Labels(wins=wins, losses=losses)
    over = verdict(labels, 60, is_over=True).outcome
    assert over == ("accept" if verdict(labels, 60).outcome == "accept" else "reject")


def accepted(share: float, most: int = 60) -> float:
    """Chance that a change is accepted whose labels are for it with a chance of `share`, exactly."""
    going, found = {(0, 0): 1.0}, 0.0
    while going:
        reached: dict[tuple[int, int], float] = {}
        for (wins, losses), weight in going.items():
            for at, chance in (((wins + 1, losses), share), ((wins, losses + 1), 1 - share)):
                reached[at] = reached.get(at, 0.0) + weight * chance
        going = {}
        for (wins, losses), weight in reached.items():
            outcome = verdict(Labels(wins=wins, losses=losses), most).outcome
            found += weight * (outcome == "accept")
            if outcome == "go on":
                going[wins, losses] = weight
    return found


def test_the_chances_that_docs_updates_states() -> None:
    assert accepted(0.5) == pytest.approx(0.004, abs=5e-4)
    assert accepted(0.4) < 0.0005
    assert accepted(0.7) > 0.5
    assert accepted(0.8) > 0.95
    assert accepted(0.5) <= 1 / ACCEPT_AT
    assert evidence(FEWEST, 0) >= ACCEPT_AT > evidence(FEWEST - 1, 0)


@given(st.lists(st.sampled_from(("for", "against", "neither"))))
def test_labels_are_counted_by_what_they_say(said: list[Said]) -> None:
    found = Labels.of(said)
    assert (found.wins, found.losses, found.given) == (said.count("for"), said.count("against"), len(said))


def test_only_labels_that_speak_clearly_against_it_reverse_a_change() -> None:
    assert reversed_by(Labels()) is None
    assert reversed_by(Labels(wins=3, losses=5)) is None
    assert "0 for it, 12 against" in (reversed_by(Labels(losses=12)) or "")
    assert math.isclose(evidence(0, 0), 1.0)
