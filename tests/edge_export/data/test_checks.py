"""Data that nothing can be learnt from is refused before training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from edge_export.data.checks import check_scales, check_units, check_windows, few_windows
from edge_export.data.dataset import Windows

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel

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
    with pytest.raises(ConfigError, match="train: class 'yes' has 1 windows, at least 2 are needed"):
        check_windows(windows(some(), [1] + [0] * 59), CLASSES, what="train")


def test_few_windows_are_no_obstacle_but_it_is_said_how_many_are_missing() -> None:
    few = windows(some(), [1] * 3 + [0] * 57)
    check_windows(few, CLASSES, what="train")
    (line,) = few_windows(few, CLASSES, hop_s=0.5, what="train")
    assert line.startswith(
        "train: class 'yes' has 3 windows; 20 are needed to rely on it: record about 8.5 s more of it"
    )
    assert not few_windows(windows(some(), np.arange(60) % 2), CLASSES, hop_s=0.5, what="train")


def people(scales: list[float], unit: str) -> tuple[Windows, tuple[Channel, ...]]:
    """As many people as there are scales; each is louder in one class than in the other."""
    random = np.random.default_rng(1)
    y = np.tile([0, 1], 20 * len(scales))
    group = np.repeat([f"p{i}" for i in range(len(scales))], 40)
    x = random.standard_normal((len(y), 3, 8)) * (1 + 9 * y[:, None, None]) * np.repeat(scales, 40)[:, None, None]
    # The last one has hardly done what is loud.
    kept = (np.arange(len(y)) < len(y) - 40) | (y == 0) | (np.arange(len(y)) > len(y) - 4)
    made = replace(windows(x, y), group=group)
    chosen = replace(made, **{name: getattr(made, name)[kept] for name in ("contexts", "y", "group")})
    return chosen, tuple(Channel(name=f"a{axis}", unit=unit) for axis in "xyz")


@pytest.mark.parametrize(
    ("scales", "unit", "units"),
    [
        ([1, 1.3, 0.8, 9.81, 1.1], "g", "m/s2 and g"),
        ([1, 1.3, 0.8, 1 / 9.81, 1.1], "m/s2", "m/s2 and g"),
        ([1, 0.7, 57.3, 1, 1.4], "rad/s", "degrees and radians"),
        ([1, 0.7, 1, 0.001, 1.4], "mV", "a unit and its thousandth"),
    ],
)
def test_a_person_in_another_unit_stops_the_build(scales: list[float], unit: str, units: str) -> None:
    odd = max(range(5), key=lambda i: abs(np.log(scales[i])))
    with pytest.raises(ConfigError, match=rf"group p{odd}: .* the ratio of {units}: .*same_units = false"):
        check_scales(*people(scales, unit))


def test_a_person_of_another_strength_is_pointed_out_and_one_like_the_others_is_not() -> None:
    (line,) = check_scales(*people([1, 1.2, 0.9, 9.8, 1.1], "mV"))  # no two units of a voltage differ so
    assert line.startswith("group p3: its values in mV are")
    (line,) = check_scales(*people([1, 1.2, 0.9, 5.5, 1.1], "g"))
    assert "5." in line
    assert not check_scales(*people([1, 1.3, 0.8, 2.5, 0.5], "g"))
    # Of two people nobody can say who is the odd one.
    assert not check_scales(*people([1, 9.8], "g"))


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
