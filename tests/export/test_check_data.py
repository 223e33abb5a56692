"""Data that nothing can be learnt from is refused before training."""

from __future__ import annotations

import numpy as np
import pytest

from edge_runtime.errors import ConfigError
from export.check_data import check_units, check_windows
from export.data import Channel, Windows

CLASSES = ("no", "yes")


def windows(x: np.ndarray, y: list[int] | np.ndarray) -> Windows:
    n = len(x)
    return Windows(
        contexts=x.astype(np.float32),
        samples=x.shape[2],
        y=np.asarray(y, np.int64),
        group=np.full(n, "ann"),
        recording=np.zeros(n, np.int64),
        start=np.arange(n),
    )


def some(n: int = 60) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, 2, 8))


def test_sound_windows_pass() -> None:
    check_windows(windows(some(), np.arange(60) % 2), CLASSES, what="train")


def test_a_class_with_too_few_windows_is_named() -> None:
    with pytest.raises(ConfigError, match="train: class 'yes' has 3 windows, at least 20 are needed"):
        check_windows(windows(some(), [1] * 3 + [0] * 57), CLASSES, what="train")


def test_values_that_are_not_finite_name_their_group() -> None:
    x = some()
    x[7, 1, 2] = np.nan
    with pytest.raises(ConfigError, match="a window of group ann holds values that are not finite"):
        check_windows(windows(x, np.arange(60) % 2), CLASSES, what="train")


def test_two_classes_with_the_same_windows_are_refused() -> None:
    x = some()
    x[1::2] = x[::2]
    with pytest.raises(ConfigError, match="shares its windows with another class"):
        check_windows(windows(x, np.arange(60) % 2), CLASSES, what="train")


def test_a_lone_shared_window_is_none() -> None:
    x = some()
    x[1] = x[0] = 0
    check_windows(windows(x, np.arange(60) % 2), CLASSES, what="train")


def test_another_unit_is_recognised() -> None:
    x = some().astype(np.float32)
    channels = (Channel(name="ax", unit="g"), Channel(name="ay", unit="g"))
    check_units(x, x * 3, channels, what="calibration")
    other = x.copy()
    other[:, 1] *= 1000
    with pytest.raises(ConfigError, match=r"calibration: channel ay is .* g \(root mean square\), in .*unit\?"):
        check_units(x, other, channels, what="calibration")


def test_a_silent_channel_has_no_unit_to_compare() -> None:
    x = some().astype(np.float32)
    silent = x.copy()
    silent[:, 0] = 0
    check_units(x, silent, (Channel(name="ax", unit="g"), Channel(name="ay", unit="g")), what="calibration")
