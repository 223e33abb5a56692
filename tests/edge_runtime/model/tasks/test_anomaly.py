from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import BundleError
from edge_runtime.manifest.outputs import AnomalyOutput
from edge_runtime.model.tasks.anomaly import Anomaly, conformal_threshold
from edge_runtime.types import Float32
from tests.edge_runtime.manifests import manifest


def task(normal: Float32 | None = None, **output: float) -> Anomaly:
    contract = AnomalyOutput(**({"normal": "n.npy"} if normal is not None else {}) | output)  # type: ignore[arg-type]
    return Anomaly(manifest(output=contract), contract, None, None if normal is None else lambda _: normal)


def scores(*numbers: float) -> Float32:
    return np.array(numbers, np.float32).reshape(-1, 1)


def test_the_threshold_is_the_kth_of_n_plus_one() -> None:
    normal = np.arange(1.0, 20.0)  # 19: one of 20 may lie above the highest
    assert conformal_threshold(normal, 0.05) == 19.0
    assert conformal_threshold(normal, 0.1) == 18.0
    with pytest.raises(
        ValueError, match=r"18 normal scores cannot keep a false_alarm_rate of 0.05; it needs 19 or more"
    ):
        conformal_threshold(normal[:-1], 0.05)


@settings(derandomize=True, deadline=None, max_examples=25)
@given(n=st.integers(19, 200), seed=st.integers(0, 999), rate=st.sampled_from([0.05, 0.1, 0.2]))
def test_of_exchangeable_scores_at_most_the_stated_share_is_anomalous(n: int, seed: int, rate: float) -> None:
    """The rank of one of n + 1 exchangeable scores is uniform: counted here over all n + 1 choices, not drawn."""
    drawn = np.sort(np.random.default_rng(seed).standard_normal(n + 1).astype(np.float32))
    alarms = sum(drawn[i] > conformal_threshold(np.delete(drawn, i), rate) for i in range(n + 1))
    assert alarms == int(rate * (n + 1) + 1e-9)


def test_a_score_above_the_threshold_is_anomalous_and_says_so_in_one_number() -> None:
    found = task(threshold=2.0).findings(scores(1.0, 2.0, 3.0))
    assert [one.label for one in found] == ["normal", "normal", "anomalous"]
    assert [one.own for one in found] == [
        {"score": 1.0, "threshold": 2.0, "anomalous": False},
        {"score": 2.0, "threshold": 2.0, "anomalous": False},
        {"score": 3.0, "threshold": 2.0, "anomalous": True},
    ]
    assert [one.scores[0] > 0.5 for one in found] == [False, False, True]
    assert [one.confidence for one in found] == pytest.approx([0.5, 0.0, 1 / 3])


@settings(derandomize=True, deadline=None)
@given(st.lists(st.floats(-2, 3, width=32), min_size=2, max_size=9))
def test_a_higher_score_is_never_less_anomalous(numbers: list[float]) -> None:
    found = task(np.linspace(0, 1, 99, dtype=np.float32)).findings(scores(*sorted(numbers)))
    given_out = [one.scores[0] for one in found]
    assert given_out == sorted(given_out)
    assert [one > 0.5 for one in given_out] == [one.own["anomalous"] for one in found]


def test_with_normal_scores_trust_is_the_distance_of_the_p_value_from_the_rate() -> None:
    found = task(np.arange(1, 100, dtype=np.float32), false_alarm_rate=0.1).findings(scores(0.0, 90.0, 90.5, 1000.0))
    assert [one.label for one in found] == ["normal", "normal", "anomalous", "anomalous"]
    assert [one.confidence for one in found] == pytest.approx([1.0, 1 - np.log(0.11) / np.log(0.1), 0.0, 1.0])


@pytest.mark.parametrize(
    ("normal", "words"),
    [
        (np.zeros((3, 3), "f4"), "shape"),
        (np.array([2, 1] * 20, "f4"), "must rise"),
        (np.zeros(3, "f4"), "3 normal scores cannot keep"),
    ],
    ids=["shape", "order", "number"],
)
def test_normal_scores_that_do_not_fit_are_refused(normal: Float32, words: str) -> None:
    with pytest.raises(BundleError, match=f"n.npy: .*{words}"):
        task(normal)
