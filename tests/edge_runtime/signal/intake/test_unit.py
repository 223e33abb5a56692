"""Values in another unit, told from training by their size; and right ones, which are not."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Sequence

import numpy as np
import pytest
from edge_export.data.dataset import Dataset, Recording
from edge_export.data.labels import label_windows
from edge_export.data.references import measure_references
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime import units
from edge_runtime.manifest import Channel, InputContract, Reference
from edge_runtime.signal.intake import words
from edge_runtime.signal.intake.unit import ANCHORED, REST, KeySpan, Misfit, UnitCheck
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Float32, Reading

RATE = 50.0
SPAN_S = 10.0


def contract(**unit: str) -> InputContract:
    channels = tuple(Channel(name=name, unit=unit) for name, unit in unit.items())
    return InputContract(channels=channels, rate_hz=RATE, window=100, hop=50)


WATCH = contract(ax="g", ay="g", az="g", wx="rad/s", wy="rad/s", wz="rad/s")


def wrist(seconds: float, seed: int = 0, vigour: float = 1.0) -> Float32:
    """Gravity that turns, with movement on it: 1 g in the middle; rotation around 0."""
    rng = np.random.default_rng(seed)
    n = round(RATE * seconds)
    angle = np.cumsum(rng.normal(0, 0.05, n))
    gravity = np.stack([np.cos(angle), np.sin(angle), np.zeros(n)], axis=1)
    rows = np.hstack([gravity + vigour * rng.normal(0, 0.2, (n, 3)), vigour * rng.normal(0, 1.2, (n, 3))])
    return rows.astype(np.float32)


def measured(described: InputContract, rows: Float32) -> tuple[Reference, ...]:
    recordings = (Recording(name="r", group="p", label=0, values=rows),)
    dataset = Dataset(name="d", channels=described.channels, rate_hz=RATE, classes=("a",), recordings=recordings)
    return measure_references(label_windows(dataset, described), described)


def in_unit(rows: Float32, columns: slice, given: str, wanted: str) -> Float32:
    """Values of some columns, which are in one unit, in another one."""
    factor, offset = units.convert(given, wanted)
    changed = rows.copy()
    changed[:, columns] = changed[:, columns] * factor + offset
    return changed


def spans(
    described: InputContract, references: Sequence[Reference], rows: Float32, sizes: Sequence[int] = (10**9,)
) -> list[tuple[float, tuple[Misfit, ...]]]:
    """Second at which each comparison ends, and what it finds."""
    check, key, windower, found = UnitCheck(described, references), KeySpan(), Windower(described), []
    at, turns = 0, itertools.cycle(sizes)
    while at < len(rows):
        size = next(turns)
        for window in windower.push([Reading("w", 1000.0 + at / RATE, rows[at : at + size])]):
            if window.slot >= key.due and (misfits := check.run(key, window)) is not None:
                found.append((window.start + described.window / RATE - 1000.0, misfits))
        at += size
    return found


@pytest.fixture(scope="module")
def references() -> tuple[Reference, ...]:
    return measured(WATCH, wrist(300))


ACCELERATION, ROTATION = slice(0, 3), slice(3, 6)


@pytest.mark.parametrize("given", ["m/s2", "mg"])
@pytest.mark.parametrize("wanted", ["g", "m/s2"])
def test_an_accelerometer_in_another_unit_is_found_and_named(wanted: str, given: str) -> None:
    if wanted == given:
        return
    described = contract(ax=wanted, ay=wanted, az=wanted)
    right = in_unit(wrist(300), ACCELERATION, "g", wanted)[:, ACCELERATION]
    found = spans(described, measured(described, right), in_unit(wrist(20, seed=1), ACCELERATION, "g", given)[:, :3])
    end, (misfit,) = found[0]
    assert end <= SPAN_S + 2
    assert (misfit.channels, misfit.unit, misfit.likely) == (("ax", "ay", "az"), wanted, given)
    factor, _ = units.convert(wanted, given)
    assert misfit.ratio == pytest.approx(factor, rel=0.2)


def test_a_gyroscope_in_degrees_is_found_and_named(references: tuple[Reference, ...]) -> None:
    found = spans(WATCH, references, in_unit(wrist(20, seed=1), ROTATION, "rad/s", "deg/s"))
    _, (misfit,) = found[0]
    assert (misfit.channels, misfit.likely) == (("wx", "wy", "wz"), "deg/s")


def test_a_gyroscope_in_radians_is_found_once_the_sensor_moves() -> None:
    described = contract(ax="g", ay="g", az="g", wx="deg/s", wy="deg/s", wz="deg/s")
    references = measured(described, in_unit(wrist(300), ROTATION, "rad/s", "deg/s"))
    still, moving = wrist(11, seed=1, vigour=0.01), wrist(60, seed=2)
    found = spans(described, references, np.concatenate([still, moving]))
    assert found[0][1] == (), "who lies still turns slowly too"
    misfits = [misfit for _, span in found[1:] for misfit in span]
    assert {(misfit.channels, misfit.likely) for misfit in misfits} == {(("wx", "wy", "wz"), "rad/s")}


@pytest.mark.parametrize("vigour", [0.0, 0.01, 0.3, 1.0, 3.0])
def test_people_rest_and_run(references: tuple[Reference, ...], vigour: float) -> None:
    for _, misfits in spans(WATCH, references, wrist(120, seed=3, vigour=vigour)):
        assert misfits == ()


def test_the_first_span_is_compared_and_then_one_after_each_rest(references: tuple[Reference, ...]) -> None:
    ends = [end for end, _ in spans(WATCH, references, wrist(120))]
    assert ends[0] == pytest.approx(SPAN_S, abs=1.1)
    assert np.diff(ends) == pytest.approx((REST + 1) * SPAN_S, abs=1.1)


def test_a_key_that_fails_is_compared_all_the_time(references: tuple[Reference, ...]) -> None:
    wrong = in_unit(wrist(60, seed=1), ACCELERATION, "g", "m/s2")
    found = spans(WATCH, references, np.concatenate([wrong, wrist(60, seed=2)]))
    ends = [end for end, misfits in found if misfits]
    assert np.diff(ends) == pytest.approx(SPAN_S, abs=1.1)
    assert found[len(ends)][0] <= 60 + 2 * SPAN_S + 2, "and passes again soon after it is put right"
    assert not any(misfits for _, misfits in found[len(ends) :])


def test_a_size_that_no_unit_explains_is_found_without_a_name(references: tuple[Reference, ...]) -> None:
    raw = wrist(20, seed=1)
    raw[:, ACCELERATION] *= 55
    _, (misfit,) = spans(WATCH, references, raw)[0]
    assert misfit.likely == ""
    assert misfit.ratio == pytest.approx(55, rel=0.2)


ROOM = contract(temperature="Cel", humidity="%", co2="ppm", occupied="1")


def room(seconds: float, seed: int = 0) -> Float32:
    rng = np.random.default_rng(seed)
    n = round(RATE * seconds)
    wave = np.sin(np.arange(n) / n * 7)
    columns = [21 + wave, 32 + 8 * wave, 900 + 450 * wave, wave > 0.5]
    return (np.stack(columns, axis=1) + rng.normal(0, 0.01, (n, 4)) * [1, 1, 1, 0]).astype(np.float32)


@pytest.mark.parametrize(
    ("column", "given", "wanted"), [(0, "[degF]", "Cel"), (0, "K", "Cel"), (1, "1", "%"), (2, "%", "ppm")]
)
def test_single_channels_fail_where_a_conversion_explains_them(column: int, given: str, wanted: str) -> None:
    references = measured(ROOM, room(300))
    rows = in_unit(room(60, seed=1), slice(column, column + 1), wanted, given)
    _, (misfit,) = spans(ROOM, references, rows)[0]
    assert (misfit.channels, misfit.likely) == ((ROOM.channels[column].name,), given)


def test_other_weather_is_no_unit() -> None:
    references = measured(ROOM, room(300))
    warm = room(60, seed=1) + np.array([12, 25, 700, 0], np.float32)
    assert spans(ROOM, references, warm)[0][1] == ()
    cold = room(60, seed=1) - np.array([30, 20, 300, 0], np.float32)
    assert spans(ROOM, references, cold)[0][1] == ()


def test_what_no_unit_explains_must_be_far_outside() -> None:
    sound = contract(sound="1")
    rng = np.random.default_rng(0)
    quiet = rng.normal(0, 0.02, (3000, 1)).astype(np.float32)
    references = measured(sound, quiet)
    assert spans(sound, references, quiet * 5)[0][1] == ()
    _, (misfit,) = spans(sound, references, quiet * 32768)[0]
    assert (misfit.likely, misfit.ratio) == ("", 0.0)


def test_a_triad_that_never_moved_in_training_says_nothing() -> None:
    described = contract(wx="rad/s", wy="rad/s", wz="rad/s")
    silent = measured(described, np.zeros((3000, 3), np.float32))
    assert spans(described, silent, wrist(20)[:, ROTATION])[0][1] == ()


def test_masks_and_few_of_many_channels_are_no_obstacle() -> None:
    described = contract(ax="g", ay="g", az="g", wx="rad/s", wy="rad/s", wz="rad/s")
    (only,) = (reference for reference in measured(described, wrist(300)) if reference.channels[0] == "wx")
    found = spans(described, [only], in_unit(wrist(20, seed=1), ROTATION, "rad/s", "deg/s"))
    assert [misfit.likely for misfit in found[0][1]] == ["deg/s"]


def test_words_name_the_cause_and_the_line_to_write(references: tuple[Reference, ...]) -> None:
    _, (misfit,) = spans(WATCH, references, in_unit(wrist(20, seed=1), ACCELERATION, "g", "m/s2"))[0]
    text = words.misfit(misfit)
    assert re.search(r": (9.\d|1\d) times too large: m/s2 instead of g\? Then write ", text)
    assert 'units = {ax = "m/s2", ay = "m/s2", az = "m/s2"} under [source.codec]' in text
    unnamed = words.misfit(misfit._replace(likely="", ratio=0.018))
    assert "56 times too small: compare the sensor's unit and range" in unnamed
    single = Misfit(("t",), "Cel", misfit.found, misfit.usual, 0.0, "[degF]")
    assert ': [degF] instead of Cel? Then write units = {t = "[degF]"}' in words.misfit(single)


def test_references_are_described_in_words(references: tuple[Reference, ...]) -> None:
    texts = words.references(references, WATCH)
    assert list(texts) == ["norm of ax, ay, az", "norm of wx, wy, wz"]
    assert " g in 90 % of training, compared over 10 s; never rests for more than 0." in texts["norm of ax, ay, az"]
    may_rest = dataclasses.replace(references[0], still_s=None)
    assert words.references([may_rest], WATCH)["norm of ax, ay, az"].endswith("; may rest")


@pytest.mark.slow
@given(
    scale=st.sampled_from([1 / 1000, 1 / 9.8, 1.0, 1.0, 9.8, 57.3]),
    seed=st.integers(0, 100),
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=8),
)
def test_any_split_of_the_samples_is_compared_alike(scale: float, seed: int, sizes: list[int]) -> None:
    rows = (wrist(45, seed=seed) * np.float32(scale)).astype(np.float32)
    references = measured(WATCH, wrist(60))
    assert spans(WATCH, references, rows, sizes) == spans(WATCH, references, rows)


@settings(max_examples=30)
@given(scale=st.floats(1 / ANCHORED * 1.3, ANCHORED / 1.3), seed=st.integers(0, 100))
def test_a_gain_within_reach_is_no_unit(scale: float, seed: int) -> None:
    """Gains and offsets of a few percent, or another person: nothing that a size could tell."""
    rows = (wrist(12, seed=seed) * np.float32(scale)).astype(np.float32)
    assert all(misfits == () for _, misfits in spans(WATCH, measured(WATCH, wrist(60)), rows))
