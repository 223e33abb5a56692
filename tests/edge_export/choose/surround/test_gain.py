from __future__ import annotations

import numpy as np
import pytest
from edge_export.choose.evaluation.calibration import scores
from edge_export.choose.surround.asking import trust_by
from edge_export.choose.surround.gain import fit_gain

from edge_runtime.types import Float32
from tests.edge_export.choose.surround.streams import CLASSES, simulated

RIGHT = np.eye(CLASSES, dtype=np.float32)


def answered(helps: np.ndarray[tuple[int], np.dtype[np.bool_]], device: Float32, y: np.ndarray) -> Float32:
    """Answers that are right where the cloud helps, and the device's elsewhere."""
    return np.where(helps[:, None], RIGHT[y], device)


def test_more_is_expected_of_asking_the_less_sure_an_answer_is() -> None:
    given = simulated()
    gain = fit_gain(given.device, RIGHT[given.y], given.y, given.group)  # a cloud that knows all
    trust = trust_by(gain, given.device)
    ranks = np.argsort(np.argsort(trust)), np.argsort(np.argsort(scores(given.device, "confidence")))
    assert np.corrcoef(*ranks)[0, 1] > 0.9
    wrong = given.device.argmax(axis=1) != given.y
    doubtful = trust < np.quantile(trust, 0.2)
    assert (0.5 - trust[doubtful].mean()) * 2 == pytest.approx(wrong[doubtful].mean(), abs=0.1)


def test_a_cloud_that_changes_nothing_gains_nothing() -> None:
    given = simulated()
    gain = fit_gain(given.device, given.device, given.y, given.group)
    assert trust_by(gain, given.device) == pytest.approx(0.5)


def test_a_label_that_the_cloud_knows_better_in_all_groups_is_asked_about_first() -> None:
    given = simulated()
    best = given.device.argmax(axis=1)
    gain = fit_gain(given.device, answered(best == 2, given.device, given.y), given.y, given.group)
    assert max(range(CLASSES), key=lambda label: gain.bias[label]) == 2
    assert gain.bias[2] > 0.05 + max(gain.bias[:2])


def test_a_label_about_which_groups_disagree_has_no_bias_of_its_own() -> None:
    given = simulated(3)
    best, group = given.device.argmax(axis=1), given.group.astype(int)
    rightly, wrongly = (best == 2) & (group < 4), (best == 2) & (group >= 4)
    joined = answered(rightly, given.device, given.y)
    joined = np.where((wrongly & (best == given.y))[:, None], RIGHT[(given.y + 1) % CLASSES], joined)
    gain = fit_gain(given.device, joined, given.y, given.group)
    assert gain.bias[2] == pytest.approx(np.median(gain.bias), abs=0.03)


def test_two_groups_say_nothing_of_a_label() -> None:
    given = simulated(groups=2)
    best = given.device.argmax(axis=1)
    gain = fit_gain(given.device, answered(best == 2, given.device, given.y), given.y, given.group)
    assert len(set(gain.bias)) == 1
