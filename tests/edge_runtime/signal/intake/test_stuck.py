"""Channels that keep one value, told from those that rest by nature."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from edge_runtime.manifest import Channel, InputContract, Reference
from edge_runtime.signal.intake.stuck import LOOK_S, SHORTEST_S, TIMES, KeyStuck, Stuck, StuckCheck
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Float32, Reading

RATE = 50.0
WATCH = InputContract(
    channels=tuple(
        Channel(name=f"{kind}{axis}", unit=unit) for kind, unit in (("a", "g"), ("w", "rad/s")) for axis in "xyz"
    ),
    rate_hz=RATE,
    window=100,
    hop=50,
)


def motion(seconds: float, channels: int = 6, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(0.5, 0.3, (round(RATE * seconds), channels)).astype(np.float32)


def looks(
    values: Float32, contract: InputContract = WATCH, t: float = 1000.0, references: Sequence[Reference] = ()
) -> list[tuple[float, Stuck | None]]:
    """What is stuck at the end of each window that is due, with the second at which it ends."""
    check, key, windower, found = StuckCheck(contract, references), KeyStuck(), Windower(contract), []
    for window in windower.push([Reading("w", t, values)]):
        if window.slot >= key.due:
            stuck = check.run(key, window)
            found.append((window.start + contract.window / contract.rate_hz - t, stuck))
    return found


def stuck(found: Sequence[tuple[float, Stuck | None]]) -> list[tuple[int, ...]]:
    return [one.columns for _, one in found if one is not None]


def test_an_axis_that_freezes_is_found_and_so_is_its_recovery() -> None:
    values = motion(60)
    values[1000:2000, 2] = values[1000, 2]
    found = looks(values)
    times = [end for end, one in found if one is not None]
    assert 20 + SHORTEST_S <= times[0] <= 20 + SHORTEST_S + LOOK_S + 2.5
    assert times[-1] <= 41
    assert set(stuck(found)) == {(2,)}
    assert found[-1][1] is None
    first = next(one for _, one in found if one is not None)
    assert list(first.values) == pytest.approx([values[1000, 2]])
    assert first.seconds >= SHORTEST_S


def test_windows_are_looked_at_now_and_then_until_one_rests() -> None:
    assert len(looks(motion(100))) == pytest.approx(100 / LOOK_S, abs=2)
    frozen = motion(100)
    frozen[:, 2] = 0.25
    assert len(looks(frozen)) == 99
    still = np.tile(np.array([0, 0, 1.0, 0, 0, 0], np.float32), (5000, 1))
    assert len(looks(still)) == pytest.approx(10 + 90 / LOOK_S, abs=2), "each one until the limit"


def test_an_accelerometer_that_sends_zeros_is_stuck() -> None:
    values = motion(30)
    values[:, :3] = 0
    assert set(stuck(looks(values))) == {(0, 1, 2)}
    values = motion(30)
    values[:, :] = 0
    assert set(stuck(looks(values))) == {(0, 1, 2)}, "rotation may rest"


def test_a_sensor_that_lies_still_with_coarse_values_is_not_stuck() -> None:
    """Steps of 1/16 g and of 1/16 rad/s: on a table nothing changes, and on a slow wrist little does."""
    still = np.tile(np.array([0.0625, 0, 1.0, 0, 0, 0], np.float32), (3000, 1))
    assert stuck(looks(still)) == []
    slow = np.sin(np.arange(3000) / 400)[:, None] * np.array([0.1, 0, 0.3, 0, 0.2, 0])
    assert stuck(looks((np.round(slow * 16) / 16).astype(np.float32))) == []


def test_channels_that_are_often_constant_are_not_stuck() -> None:
    """A flag, the light at night: nothing says how long they may rest."""
    names = ("occupied", "light", "co2")
    room = InputContract(
        channels=tuple(Channel(name=name, unit="1") for name in names), rate_hz=RATE, window=100, hop=50
    )
    values = motion(120, 3)
    values[:, :2] = 0
    assert stuck(looks(values, room)) == []


def test_a_gap_begins_the_time_again() -> None:
    values = motion(8)
    values[:, 0] = 0.5
    check, key, windower = StuckCheck(WATCH), KeyStuck(), Windower(WATCH)
    for i in range(10):
        for window in windower.push([Reading("w", 1000.0 + 20 * i, values)]):
            assert check.run(key, window) is None


@pytest.mark.parametrize("value", [0.0, -3.5, 1e-9])
def test_whatever_the_value_is_at_which_it_freezes(value: float) -> None:
    values = motion(30)
    values[:, 4] = value
    assert set(stuck(looks(values))) == {(4,)}


def reference(channels: Sequence[str], still_s: float | None) -> Reference:
    return Reference(channels=tuple(channels), quantiles=(0.0,) * 9, span_s=10, still_s=still_s)


TEMPERATURE = InputContract(channels=(Channel(name="t", unit="Cel"),), rate_hz=RATE, window=100, hop=50)


@pytest.mark.parametrize(("still_s", "limit_s"), [(0.02, SHORTEST_S), (8.0, 8.0 * TIMES)])
def test_training_says_how_long_a_channel_rests(still_s: float, limit_s: float) -> None:
    values = motion(100, 1)
    values[1000:4000] = 21.5
    found = looks(values, TEMPERATURE, references=[reference("t", still_s)])
    times = [end for end, one in found if one is not None]
    assert 20 + limit_s <= times[0] <= 20 + limit_s + LOOK_S + 2.5
    assert found[-1][1] is None


@pytest.mark.parametrize("references", [[], [reference("t", None)]], ids=["no reference", "it may rest"])
def test_a_channel_that_may_rest_is_never_stuck(references: Sequence[Reference]) -> None:
    assert stuck(looks(np.full((5000, 1), 21.5, np.float32), TEMPERATURE, references=references)) == []


def test_training_that_says_that_a_triad_may_rest_is_believed() -> None:
    values = motion(40)
    values[:, 2] = 0
    assert set(stuck(looks(values, references=[reference(["ax", "ay", "az"], None)]))) == set()
    assert set(stuck(looks(values, references=[reference(["ax", "ay", "az"], 0.1)]))) == {(2,)}


def test_all_channels_that_freeze_are_found_where_training_never_rested() -> None:
    values = motion(60)
    values[1000:] = values[1000]
    references = [reference(["ax", "ay", "az"], 0.04), reference(["wx", "wy", "wz"], 0.04)]
    assert set(stuck(looks(values, references=references))) == {(0, 1, 2, 3, 4, 5)}


def test_a_frozen_value_that_is_resampled_is_still_one_value() -> None:
    """Interpolation between two equal values rounds: the last digit flickers."""
    values = motion(60)
    values[:, 1] = 0.8193727
    t = 1000.0 + np.cumsum(np.random.default_rng(0).uniform(0.01, 0.03, len(values)))
    check, key, windower = StuckCheck(WATCH), KeyStuck(), Windower(WATCH)
    windows = windower.push([Reading("w", t, values)])
    assert all(len(np.unique(window.samples[:, 1])) > 1 for window in windows)
    assert [check.run(key, window) for window in windows][-1] is not None
