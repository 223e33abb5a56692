from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from edge_export.choose.surround.asking import RANDOM, SHARES, CalibratedAnswers, _cross_fitted, fit_asking, least

from tests.edge_export.choose.surround.streams import CLASSES, simulated


def test_a_cloud_that_knows_more_is_asked_and_what_is_chosen_beats_what_is_drawn() -> None:
    asking = fit_asking(simulated(n=2400, device=2.0, cloud=3.0), share=0.08)
    assert asking.way is not None
    assert asking.why.startswith(f"ask the cloud: {asking.way} at 8%")
    assert sorted(asking.measured) == sorted(SHARES)
    for gains in asking.measured.values():
        assert gains[asking.way].gain > 2 * gains[RANDOM].gain


def test_a_cloud_that_knows_less_is_left_out_and_it_is_said_why() -> None:
    asking = fit_asking(simulated(n=2400, device=2.0, cloud=0.3), share=0.08)
    assert (asking.way, asking.fusion, asking.gain) == (None, None, None)
    assert asking.why.startswith("ship without the cloud: ")
    assert "over 8 groups" in asking.why


def test_a_cloud_that_helps_one_group_and_harms_another_is_left_out() -> None:
    given = simulated(n=2400)
    harmed = given.group.astype(int) < 4
    given = replace(given, cloud=np.where(harmed[:, None], np.roll(given.cloud, 1, axis=1), given.cloud))
    assert fit_asking(given, share=0.2).way is None


@pytest.mark.slow
def test_two_that_err_on_different_windows_are_fused() -> None:
    given = simulated(n=4000, device=1.5, cloud=1.5)
    asking = fit_asking(given, share=0.2)
    assert asking.way in {"fused", "fused, by gain"}
    assert asking.fusion is not None
    assert asking.measured[0.2]["fused"].gain > asking.measured[0.2]["replaced"].gain


def one_label_helped() -> CalibratedAnswers:
    """The cloud knows all where the device says label 2, and nothing elsewhere."""
    given = simulated(n=4000, device=1.0)
    said = given.device.argmax(axis=1) == 2
    certain = np.full((len(said), CLASSES), 1e-4, np.float32)
    certain[np.arange(len(said)), given.y] = 1 - (CLASSES - 1) * 1e-4
    nothing = np.full((len(said), CLASSES), 1 / CLASSES, np.float32)
    return replace(given, cloud=np.where(said[:, None], certain, nothing))


@pytest.mark.slow
def test_where_the_cloud_knows_one_label_the_expected_gain_finds_its_windows() -> None:
    asking = fit_asking(one_label_helped(), share=0.1)
    assert asking.way == "fused, by gain"
    assert asking.gain is not None
    assert max(range(CLASSES), key=lambda label: asking.gain.bias[label]) == 2  # type: ignore[union-attr]
    gains = asking.measured[0.1]
    assert gains["fused, by gain"].gain > 1.5 * gains["fused"].gain


def test_what_a_fold_is_judged_by_has_not_seen_its_labels() -> None:
    given = simulated()
    held = given.fold == 1
    other = replace(given, y=np.where(held, (given.y + 1) % CLASSES, given.y))
    one, two = _cross_fitted(given), _cross_fitted(other)
    np.testing.assert_array_equal(one.fused[held], two.fused[held])
    np.testing.assert_array_equal(one.by_gain[held], two.by_gain[held])
    assert not np.array_equal(one.by_gain[~held], two.by_gain[~held])


def test_each_group_is_asked_about_the_same_share_of_its_least_trusted_windows() -> None:
    group = np.array(["a"] * 10 + ["b"] * 5)
    trust = np.concatenate([np.arange(10.0), np.arange(5.0) / 10])
    asked = least(trust, group, 0.2)
    assert np.flatnonzero(asked).tolist() == [0, 1, 10]


@pytest.mark.slow
def test_macro_f1_counts_rare_labels_where_that_is_the_metric() -> None:
    given = simulated(n=2400)
    by_accuracy, by_f1 = (fit_asking(given, share=0.1, metric=metric) for metric in ("accuracy", "macro_f1"))
    assert "macro_f1" in by_f1.why
    assert by_accuracy.measured[0.1]["replaced"] != by_f1.measured[0.1]["replaced"]
