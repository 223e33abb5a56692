from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import MultiLabelOutput
from edge_runtime.model.tasks import Finding
from edge_runtime.model.tasks.multi_label import MultiLabel
from tests.edge_runtime.manifests import manifest


def task(labels: tuple[str, ...] = (), threshold: float | None = None, **output: Any) -> MultiLabel:
    contract = MultiLabelOutput(**{"labels": ("dog", "rain", "wind"), "thresholds": (0.5, 0.2, 0.8)} | output)
    return MultiLabel(manifest(output=contract), contract, threshold, labels)


def one(of: MultiLabel, *numbers: float) -> Finding:
    (found,) = of.findings(np.array([numbers], np.float32))
    return found


def test_labels_are_those_that_reach_their_threshold() -> None:
    assert one(task(), 0.5, 0.2, 0.79).own == {"labels": ["dog", "rain"]}
    assert one(task(), 0.5, 0.2, 0.79).label == "dog, rain"
    assert one(task(), 0.4, 0.1, 0.8).label == "wind"
    nothing = one(task(), 0.0, 0.0, 0.0)
    assert (nothing.label, nothing.own) == ("", {"labels": []})


def test_trust_is_that_of_the_label_nearest_to_its_threshold() -> None:
    assert one(task(), 0.0, 0.0, 0.0).confidence == 1
    assert one(task(), 1.0, 1.0, 1.0).confidence == 1
    assert one(task(), 0.0, 0.2, 1.0).confidence == 0
    assert one(task(), 0.0, 0.1, 0.0).confidence == pytest.approx(0.5)  # half-way from 0 to .2
    assert one(task(), 0.0, 0.6, 0.0).confidence == pytest.approx(0.5)  # half-way from .2 to 1


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=2))
def test_with_thresholds_of_a_half_trust_is_twice_the_distance(p: list[float]) -> None:
    found = one(task(thresholds=(0.5,)), *p, 0.0)
    assert found.confidence == pytest.approx(min(abs(2 * x - 1) for x in p), abs=1e-6)


def test_logits_and_rows_become_one_probability_a_label() -> None:
    of = task(values="logit", rows=2)
    (found,) = of.findings(np.array([[[0.0, -100.0, 1.0], [-1.0, -2.0, 100.0]]], np.float32))
    assert found.scores == pytest.approx([0.5, 1 / (1 + np.exp(2)), 1.0])


def test_the_cloud_may_know_the_labels_in_another_order() -> None:
    of = task(labels=("wind", "dog"))
    (found,) = of.read_reply({"probabilities": np.array([[0.7, 0.9]], np.float32)}, 1, "probabilities")
    assert found.own == {"labels": ["dog"]}, "each label has the threshold of the bundle"
    (found,) = of.read_reply({"probabilities": np.array([[9.0, -9.0]], np.float32)}, 1, "logits")
    assert found.own == {"labels": ["wind"]}


def test_numbers_that_are_no_probabilities_are_refused_with_the_setting_to_look_at() -> None:
    with pytest.raises(CloudRejected, match="output_kind"):
        task().read_reply({"probabilities": np.array([[0.1, 2.0, 0.3]], np.float32)}, 1, "probabilities")
