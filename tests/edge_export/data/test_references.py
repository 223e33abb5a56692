"""What the sensors delivered in training: norms of triads, ranges of single channels, and how long they rest."""

from __future__ import annotations

import numpy as np
import pytest
from edge_export.data.dataset import Dataset, Float32, Recording, Windows
from edge_export.data.labels import label_windows
from edge_export.data.references import SPAN_ROWS, SPAN_S, measure_references, rates_of

from edge_runtime.manifest import REFERENCE_LEVELS, Channel, InputContract
from edge_runtime.signal.windowing.recorded import Table
from tests.edge_runtime.base.media.sounds import resampled

UNITS = {"ax": "g", "ay": "g", "az": "g", "t": "Cel"}


def contract(rate_hz: float = 50.0, **unit: str) -> InputContract:
    channels = tuple(Channel(name=name, unit=unit) for name, unit in (unit or UNITS).items())
    return InputContract(channels=channels, rate_hz=rate_hz, window=20, hop=10)


def cut(described: InputContract, *recordings: Float32) -> Windows:
    dataset = Dataset(
        name="d",
        channels=described.channels,
        rate_hz=described.rate_hz,
        classes=("a",),
        recordings=tuple(
            Recording(name=f"r{i}", group="p", label=0, values=values) for i, values in enumerate(recordings)
        ),
    )
    return label_windows(dataset, described)


def noise(n: int, channels: int = 4, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(1, 0.2, (n, channels)).astype(np.float32)


def test_triads_have_one_reference_and_other_channels_their_own() -> None:
    rows = noise(1000)
    acceleration, temperature = measure_references(cut(contract(), rows), contract())
    assert acceleration.channels == ("ax", "ay", "az")
    assert temperature.channels == ("t",)
    norms = np.linalg.norm(rows[:, :3].astype(float), axis=1)
    assert acceleration.quantiles == pytest.approx(np.quantile(norms, REFERENCE_LEVELS), rel=0.02)
    assert temperature.quantiles == pytest.approx(np.quantile(rows[:, 3], REFERENCE_LEVELS), rel=0.02)
    assert all(float(f"{quantile:.4g}") == quantile for quantile in acceleration.quantiles), "short in the manifest"


def test_triads_can_be_stated_and_masks_have_none() -> None:
    described = contract(one="g", two="g", three="g", t="Cel")
    stated, _ = measure_references(cut(described, noise(100)), described, [("one", "two", "three")])
    assert stated.channels == ("one", "two", "three")
    channels = (Channel(name="co2", unit="ppm", missing="last"), Channel(name="m", unit="1", mask_of="co2"))
    masked = InputContract(channels=channels, rate_hz=50, window=20, hop=10)
    (only,) = measure_references(cut(masked, noise(100, 1)), masked)
    assert only.channels == ("co2",)


def test_of_sound_they_say_how_far_up_it_reaches() -> None:
    """Short recordings are taken together; a span is 10 s."""
    described = InputContract(channels=(Channel(name="mic", unit="1"),), rate_hz=4000, window=2000, hop=2000)
    whole = [noise(8000, 1, seed) - 1 for seed in range(6)]
    (full,) = measure_references(cut(described, *whole), described)
    assert full.top_hz == 2000
    below = [resampled(one[:4000], 2000, 4000) for one in whole]
    (half,) = measure_references(cut(described, *below), described)
    assert half.top_hz == pytest.approx(1000, rel=0.1)
    (short,) = measure_references(cut(described, whole[0]), described)
    assert short.top_hz is None, "8,000 samples are 2 s"


def test_a_comparison_needs_time_and_rows() -> None:
    assert measure_references(cut(contract(), noise(100)), contract())[0].span_s == SPAN_S
    hourly = contract(1 / 60)
    assert measure_references(cut(hourly, noise(100)), hourly)[0].span_s == 60 * SPAN_ROWS


def test_rates_are_those_of_the_recordings_before_they_are_resampled() -> None:
    """One at 360 Hz in bursts, with a pause; one at 104 Hz; one without stamps, at the set's rate."""
    bursts = np.repeat(np.arange(0, 20, 5 / 360), 5)
    bursts[len(bursts) // 2 :] += 100
    recordings = tuple(
        Recording(name=f"{i}", group="p", label=0, values=noise(1000 if t is None else len(t)), t=t)
        for i, t in enumerate([bursts, np.arange(500) / 104, None])
    )
    dataset = Dataset(name="d", channels=(), rate_hz=200.0, classes=("a",), recordings=recordings)
    rates_hz = rates_of(dataset, contract())
    assert rates_hz is not None
    low, high = rates_hz
    assert low == pytest.approx(104 + 0.1 * (200 - 104), rel=0.01), "one in twenty left out"
    assert high == pytest.approx(360 - 0.1 * (360 - 200), rel=0.01)
    windows = cut(contract(), noise(100))
    assert measure_references(windows, contract(), rates_hz=rates_hz)[1].rates_hz == rates_hz


def test_sensors_with_stamps_of_their_own_have_no_common_rate() -> None:
    table = Table(columns=(0,), t=np.arange(9.0), values=noise(9, 1))
    apart = Recording(name="r", group="p", label=0, values=noise(0), t=np.arange(9.0), tables=(table,))
    dataset = Dataset(name="d", channels=(), rate_hz=50.0, classes=("a",), recordings=(apart,))
    assert rates_of(dataset, contract()) is None


def test_the_longest_rest_is_that_of_the_channel_that_rests_longest() -> None:
    rows, other = noise(1000), noise(500, seed=1)
    rows[300:340, 1] = 1.25
    acceleration, temperature = measure_references(cut(contract(), rows, other), contract())
    assert acceleration.still_s == pytest.approx(40 / 50, abs=0.021)
    assert temperature.still_s == pytest.approx(1 / 50, abs=0.021)


def test_values_that_are_equal_but_for_rounding_rest() -> None:
    rows = noise(1000)
    rows[300:340, 0] = np.float32(9.806651)
    rows[300:340:2, 0] = np.nextafter(np.float32(9.806651), np.float32(10))
    assert measure_references(cut(contract(), rows), contract())[0].still_s == pytest.approx(0.8, abs=0.021)


def test_a_channel_that_rests_for_most_of_a_recording_may_do_so_for_any_time() -> None:
    rows, dark = noise(1000), noise(500, seed=1)
    dark[:, 3] = 0
    acceleration, light = measure_references(cut(contract(), rows, dark), contract())
    assert light.still_s is None
    assert acceleration.still_s is not None


def test_the_same_value_in_two_recordings_is_no_rest() -> None:
    parts = [noise(200, seed=seed) for seed in range(2)]
    parts[0][-20:, 3] = parts[1][:20, 3] = 0.5
    _, temperature = measure_references(cut(contract(), *parts), contract())
    assert temperature.still_s == pytest.approx(20 / 50, abs=0.021)


def test_the_share_at_an_end_of_a_channel_is_measured_where_it_matters() -> None:
    rows = noise(1000)
    rows[:, 3] = np.maximum(rows[:, 3], np.quantile(rows[:, 3], 0.2))
    acceleration, temperature = measure_references(cut(contract(), rows), contract())
    assert acceleration.rail_share == 0
    assert temperature.rail_share is not None
    assert 0.2 <= temperature.rail_share <= 0.5, "that of the window which has most"
