"""Sound that was converted from a lower rate ends below where the training data do; right sound and hum do not."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest import Channel, InputContract, Reference
from edge_runtime.signal.intake import words
from edge_runtime.signal.intake.spectrum import LOWEST_HZ, BandLimit, KeySpectrum, SpectrumCheck, TopMeter, measure_tops
from edge_runtime.signal.windowing.recorded import cut_recording
from edge_runtime.types import Float32
from tests.edge_runtime.signal.intake.microphones import (
    CONTRACT,
    RATE,
    Microphone,
    converted,
    described,
    noise,
    reference,
)


def test_converted_sound_is_said_once_marked_and_taken_back(caplog: pytest.LogCaptureFixture) -> None:
    microphone = Microphone()
    with caplog.at_level(logging.INFO):
        microphone.send(converted(25))
        assert microphone.metrics.gauges['suspect_keys{reason="spectrum"}'] == 1
        microphone.send(noise(25))
    begun, ended = caplog.records
    assert begun.getMessage() == (
        "intake: sound ends lower than in training: key=mic channel=sound ends_hz=2062 usual_hz=4000: recorded at "
        "about 4125 samples a second, and converted? Then record at the model's rate (its windows are hard until "
        "this ends)"
    )
    assert ended.getMessage() == "intake: sound reaches as far up as in training again: key=mic"
    assert set(microphone.marks.values()) == {"spectrum"}
    seconds = sorted(slot / RATE - 1000 for _, slot in microphone.marks)
    assert seconds[0] <= 10.5
    assert 25 <= seconds[-1] <= 45
    assert microphone.metrics.counts['suspect_keys_total{reason="spectrum"}'] == 1
    assert microphone.metrics.counts['suspect_windows_total{reason="spectrum"}'] == len(seconds)
    assert microphone.metrics.gauges['suspect_keys{reason="spectrum"}'] == 0


@pytest.mark.slow
def test_a_microphone_that_is_exchanged_is_noticed_within_a_minute() -> None:
    microphone = Microphone()
    microphone.send(noise(15))
    assert microphone.marks == {}
    microphone.send(converted(65))
    first = min(slot for _, slot in microphone.marks) / RATE - 1000
    assert 15 < first <= 75


def _hum(seconds: float) -> Float32:
    """A hum over the noise that each microphone has."""
    wave = 0.5 * np.sin(np.arange(round(seconds * RATE)) * 0.04)
    return np.asarray(wave + noise(seconds) / 300, np.float32)


def _fading(seconds: float) -> Float32:
    """Noise that falls by 6 dB an octave, as much sound does."""
    return np.asarray(np.cumsum(noise(seconds) - noise(seconds).mean()) / 500, np.float32)


@pytest.mark.parametrize(
    "sound",
    [noise(20), _fading(20), _hum(20), np.zeros(20 * RATE, np.float32), noise(20) * np.float32(9), converted(20, 7200)],
    ids=["noise", "fading", "hum", "silence", "loud", "nearly"],
)
def test_right_sound_is_not_spoken_of(sound: Float32) -> None:
    microphone = Microphone()
    microphone.send(sound)
    assert microphone.marks == {}


def test_silence_says_nothing() -> None:
    microphone = Microphone()
    microphone.send(converted(12))
    assert microphone.marks
    microphone.send(np.zeros(30 * RATE, np.float32))
    assert microphone.metrics.gauges['suspect_keys{reason="spectrum"}'] == 1, "still what it was"


def test_each_channel_counts_for_itself() -> None:
    contract = dataclasses.replace(CONTRACT, channels=(Channel(name="left", unit="1"), Channel(name="right", unit="1")))
    both = [dataclasses.replace(reference(), channels=(name,)) for name in ("left", "right")]
    check = SpectrumCheck(contract, both)
    stereo = np.stack([noise(11), converted(11)], axis=1)
    key, found = KeySpectrum(), list[BandLimit]()
    for window in cut_recording(contract, "mic", 1000.0, stereo):
        found += check.run(key, window) or ()
    assert [(one.channel, one.ends_hz, one.usual_hz) for one in found[:1]] == [("right", 2062.5, 4000.0)]


@pytest.mark.parametrize(
    ("contract", "references"),
    [
        (CONTRACT, [reference(None)]),
        (CONTRACT, []),
        (dataclasses.replace(CONTRACT, window=200, hop=200), [reference()]),
        (dataclasses.replace(CONTRACT, rate_hz=LOWEST_HZ / 2), [reference()]),
    ],
    ids=["unknown", "none", "short windows", "slow"],
)
def test_where_nothing_can_be_said_nothing_is_looked_at(
    contract: InputContract, references: Sequence[Reference]
) -> None:
    assert not SpectrumCheck(contract, references).works


def test_a_check_can_be_left_out() -> None:
    microphone = Microphone("rate", "stuck", "unit")
    microphone.send(converted(15))
    assert microphone.marks == {}


def test_what_training_lacked_is_not_missed() -> None:
    microphone = Microphone(model=described(CONTRACT, reference(2000.0)))
    microphone.send(converted(20))
    assert microphone.marks == {}


@functools.cache
def _converted_22_s(low_hz: int) -> Float32:
    return converted(22, low_hz)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(hop=st.integers(400, 4000), low=st.sampled_from([2000, 4000, 5000]))
def test_the_end_is_half_the_lower_rate_however_windows_are_cut(hop: int, low: int) -> None:
    contract = dataclasses.replace(CONTRACT, hop=hop)
    sound = _converted_22_s(low)[:, None]
    windows = [(one.slot, one.samples) for one in cut_recording(contract, "mic", 1000.0, sound)]
    top = measure_tops(windows, contract)["sound"]
    assert top == pytest.approx(low / 2, abs=RATE / 2 / 16)


def test_windows_shorter_than_a_frame_apart_still_make_a_span_of_ten_seconds() -> None:
    contract = dataclasses.replace(CONTRACT, window=256, hop=256)
    meter, key, spans = TopMeter(contract, [0]), KeySpectrum(), []
    for window in cut_recording(contract, "mic", 1000.0, noise(40)[:, None]):
        if window.slot >= key.due and meter.measure(key, window.slot, window.samples):
            spans.append(window.slot / RATE)
    assert np.diff(spans) == pytest.approx([10.0] * (len(spans) - 1), rel=0.05)
    assert len(spans) >= 3


def test_silence_has_no_end() -> None:
    quiet = np.zeros((30 * RATE, 1), np.float32)
    windows = [(one.slot, one.samples) for one in cut_recording(CONTRACT, "mic", 1000.0, quiet)]
    assert measure_tops(windows, CONTRACT) == {}


def test_what_is_expected_of_sound_is_said() -> None:
    assert words.references([reference()], CONTRACT)["sound"].endswith("; sound up to 4000 Hz")


@pytest.mark.parametrize("change", [{"top_hz": 0.0}, {"top_hz": float("inf")}, {"channels": ("a", "b")}])
def test_a_top_that_makes_no_sense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="top_hz must be above 0 Hz, and of one channel"):
        dataclasses.replace(reference(), **change)  # type: ignore[arg-type]
