"""Messages of sound: values exactly, rates, channels, WAV, sequence numbers, and what is refused by name."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.pcm import KEYS, PcmConfig
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.signal.windowing.recorded import cut_recording
from edge_runtime.types import Float32, Reading
from tests.edge_runtime.base.media.sounds import resampled
from tests.edge_runtime.io.codecs.pcm_streams import NOW, RATE, SOUND, numbers, told_of, wav

STEREO = (Channel(name="left", unit="1"), Channel(name="right", unit="1"))


def codec_of(model: Sequence[Channel] = SOUND, **settings: Any) -> Codec:
    return load_codec(PcmConfig(**settings), model, rate_hz=RATE)


def decode(codec: Codec, payload: bytes, received: float = NOW) -> list[Reading]:
    return codec.decode("mic", payload, received)


def refused(codec: Codec, payload: bytes, received: float = NOW) -> InputError:
    with pytest.raises(InputError) as caught:
        decode(codec, payload, received)
    return caught.value


def joined(readings: Sequence[Reading]) -> Float32:
    return np.concatenate([reading.values for reading in readings])


@pytest.mark.parametrize("order", ["little", "big"])
def test_values_are_the_numbers_over_32768_exactly(order: str) -> None:
    every = np.arange(-32768, 32768, dtype=np.int16)[:, None]
    payload = every.astype("<i2" if order == "little" else ">i2").tobytes()
    (reading,) = decode(codec_of(byte_order=order), payload)
    assert reading.values.tolist() == (every.astype(np.float64) / 32768).tolist()


def test_the_last_sample_was_taken_on_arrival() -> None:
    (reading,) = decode(codec_of(), numbers(1600).tobytes())
    assert reading.t == pytest.approx(NOW - 1599 / RATE, abs=1e-6)


def test_sound_that_waited_in_a_queue_follows_by_count() -> None:
    """Mutation: without rule h the stamps go back by five seconds in the queue, and what follows is late."""
    codec, payload = codec_of(), numbers(1600).tobytes()
    live, away_s = [NOW + i / 10 for i in range(50)], 8.0
    queued = [live[-1] + away_s + i // 20 * 0.005 for i in range(80)]
    after = [queued[-1] + i / 10 for i in range(1, 100)]
    readings = [one for at in (*live, *queued, *after) for one in decode(codec, payload, at)]
    steps = np.diff([float(one.t) for one in readings])
    assert np.delete(steps, 49) == pytest.approx(0.1, abs=1e-6)
    assert steps[49] == pytest.approx(away_s, abs=1e-3)


def test_interleaved_channels_are_those_of_the_model_or_their_mean_or_those_taken() -> None:
    pcm = numbers(50, 2)
    exact = pcm.astype(np.float32) / np.float32(32768)
    (both,) = decode(codec_of(STEREO), pcm.tobytes())
    (mean,) = decode(codec_of(channels=2), pcm.tobytes())
    (right,) = decode(codec_of(channels=2, take=(1,)), pcm.tobytes())
    (swapped,) = decode(codec_of(STEREO, take=(1, 0)), pcm.tobytes())
    assert both.values.tolist() == exact.tolist()
    assert mean.values.tolist() == exact.mean(axis=1, keepdims=True, dtype=np.float32).tolist()
    assert right.values.tolist() == exact[:, 1:].tolist()
    assert swapped.values.tolist() == exact[:, ::-1].tolist()
    assert swapped.values.flags.c_contiguous


@pytest.mark.parametrize("size", [None, 0, 0xFFFFFFFF])
def test_a_wav_message_states_its_own_rate_and_channels(size: int | None) -> None:
    pcm = numbers(800, 2)
    readings = decode(codec_of(), wav(pcm, 8000, size=size))
    mean = (pcm.astype(np.float32) / np.float32(32768)).mean(axis=1, keepdims=True, dtype=np.float32)
    expected = resampled(mean, 8000, RATE)
    found = joined(readings)
    assert found.tobytes() == expected[: len(found)].tobytes()
    assert len(found) > 1400
    assert readings[0].t == pytest.approx(NOW - 799 / 8000, abs=1e-6)


@given(
    sizes=st.lists(st.integers(1, 900), min_size=1, max_size=15),
    late=st.lists(st.floats(0, 0.3), min_size=15, max_size=15),
    rate=st.sampled_from([8000, 16000, 48000]),
    as_wav=st.booleans(),
)
def test_windows_are_those_of_the_sound_in_one_piece(
    sizes: list[int], late: list[float], rate: int, as_wav: bool
) -> None:
    """However the network delays messages, and however long they are."""
    contract = InputContract(channels=SOUND, rate_hz=RATE, window=256, hop=128)
    pcm = numbers(sum(sizes))
    codec, windower = codec_of(rate_hz=rate), windower_of(contract)
    live, at, begin = [], 0, 0.0
    for size, delay in zip(sizes, late, strict=False):
        piece = pcm[at : at + size]
        at += size
        received = NOW + (at - 1) / rate + delay
        begin = begin or received - (at - 1) / rate
        live += windower.push(decode(codec, wav(piece, rate) if as_wav else piece.tobytes(), received))
    sound = resampled(pcm.astype(np.float32) / np.float32(32768), rate, RATE)
    whole = cut_recording(contract, "mic", begin, sound)
    assert [window.id for window in live] == [window.id for window in whole][: len(live)]
    assert len(whole) - len(live) <= 2, "the filter holds back 65 samples of the lower rate"
    for mine, theirs in zip(live, whole, strict=False):
        assert mine.samples.tobytes() == theirs.samples.tobytes()


# -- sequence numbers and stamps ---------------------------------------------------------------------------------------


def numbered(number: int, seed: int, n: int = 160) -> bytes:
    return struct.pack("<H", number % 2**16) + numbers(n, seed=seed).tobytes()


@given(
    lost=st.lists(st.integers(0, 9), min_size=1, max_size=30),
    first=st.integers(0, 2**16 - 1),
    late=st.lists(st.floats(0, 0.3), min_size=30, max_size=30),
)
def test_a_lost_message_is_a_gap_of_its_length_exactly(lost: list[int], first: int, late: list[float]) -> None:
    codec, at, stamps = codec_of(sequence="u16"), 0, []
    for i, (gap, delay) in enumerate(zip(lost, late, strict=False)):
        at += gap * (i > 0)
        (reading,) = decode(codec, numbered(first + at, i), NOW + at * 0.01 + delay)
        stamps.append((at, reading.t))
        at += 1
    begin = stamps[0][1]
    assert [t - begin for _, t in stamps] == pytest.approx([at * 0.01 for at, _ in stamps], abs=1e-6)


def test_a_repeated_message_is_refused_and_the_next_one_goes_on() -> None:
    codec = codec_of(sequence="u16")
    first, second, third = (numbered(2**16 - 1 + i, i) for i in range(3))
    (one,) = decode(codec, first)
    decode(codec, second, NOW + 0.01)
    assert refused(codec, first, NOW + 0.015).reason == "duplicate"
    assert refused(codec, second, NOW + 0.016).reason == "duplicate"
    (last,) = decode(codec, third, NOW + 0.02)
    assert float(last.t) - float(one.t) == pytest.approx(0.02, abs=1e-6)


def test_a_sender_that_begins_again_is_followed_by_its_arrival() -> None:
    codec = codec_of(sequence="u16")
    (one,) = decode(codec, numbered(30_000, 0))
    (two,) = decode(codec, numbered(0, 1), NOW + 2.0)
    assert float(two.t) - float(one.t) == pytest.approx(2.0, abs=1e-4)


def test_an_rtp_header_counts_samples() -> None:
    codec = codec_of(byte_order="big", header_bytes=12, sequence="u32", sequence_at=4, sequence_counts="samples")
    stamps = []
    for number in (2**32 - 160, 0, 480):
        packet = struct.pack(">BBHII", 0x80, 11, 7, number, 99) + numbers(160).astype(">i2").tobytes()
        (reading,) = decode(codec, packet)
        stamps.append(float(reading.t))
    assert np.diff(stamps).tolist() == pytest.approx([160 / RATE, 480 / RATE], abs=1e-6)


def stamped(ms: int, seed: int = 0, n: int = 320) -> bytes:
    return struct.pack("<Q", ms) + numbers(n, seed=seed).tobytes()


def test_stamps_in_milliseconds_do_not_jitter_and_a_gap_shows_at_once() -> None:
    codec, ms = codec_of(time="u64_ms"), 1_700_000_000_000
    times = [ms, ms + 23, ms + 38, ms + 62, ms + 180]
    stamps = [float(decode(codec, stamped(t))[0].t) for t in times]
    assert np.diff(stamps).tolist() == pytest.approx([0.02, 0.02, 0.02, 0.12], abs=1e-6)
    assert refused(codec, stamped(ms + 62)).reason == "duplicate"
    assert float(decode(codec, stamped(ms - 60_000))[0].t) == pytest.approx(stamps[0] - 60, abs=1e-3)


# -- what is refused ---------------------------------------------------------------------------------------------------

MP3_FRAME = (b"\xff\xfb\x90\x00" + bytes(413)) * 2


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"OggS" + bytes(60), "Ogg (Opus or Vorbis)"),
        (b"fLaC" + bytes(60), "FLAC"),
        (b"ID3\x04" + bytes(60), "MP3"),
        (MP3_FRAME, "MP3"),
        (wav(numbers(9), coding=0x55), "WAV: MP3"),
        (wav(numbers(9), coding=3), "WAV: floating point"),
        (wav(numbers(9), coding=7), "WAV: mu-law"),
        (wav(numbers(9), bits=24), "24 bits a sample"),
        (wav(numbers(9))[:20], "WAV: its format is cut short"),
        (wav(numbers(9))[:-3], "WAV: cut short"),
        (wav(numbers(9), 16_001), "in lowest terms"),
        (wav(numbers(9), 0), "states no rate"),
    ],
)
def test_what_is_no_pcm_is_named(payload: bytes, told: str) -> None:
    error = refused(codec_of(), payload)
    assert error.reason == "malformed"
    assert told in str(error)


def test_sound_that_only_begins_like_mp3_is_sound() -> None:
    assert decode(codec_of(), MP3_FRAME[:417] + bytes(417))


def test_half_a_sample_is_refused_with_what_to_look_at() -> None:
    error = refused(codec_of(channels=2), bytes(6))
    assert error.reason == "wrong_channels"
    assert "set channels and header_bytes under [source.codec], or is it compressed?" in str(error)


@pytest.mark.parametrize(
    ("channels", "settings", "told"),
    [
        (STEREO, {"channels": 1}, "sound of 1 channels; the model takes 2"),
        (SOUND, {"channels": 2, "take": (2,)}, "take names 1 channels up to 2"),
        (STEREO, {"channels": 4, "take": (2,)}, "the model takes 2"),
        (SOUND, {"rate_hz": 15_999.0}, "in lowest terms"),
    ],
)
def test_settings_that_do_not_fit_the_model_are_refused_at_start(
    channels: Sequence[Channel], settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        codec_of(channels, **settings)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"time": "u64_ms", "sequence": "u16", "header_bytes": 9}, "at least 10"),
        ({"time": "u64_ms", "sequence": "u16", "sequence_at": 4}, "behind the time field"),
        ({"rate_hz": -1.0}, "rate_hz must be"),
        ({"take": (-1,)}, "channels from 0 to 255"),
        ({"max_bytes": 0}, "below max_bytes"),
    ],
)
def test_layouts_that_contradict_themselves_are_refused(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        PcmConfig(**settings)


def test_a_rate_that_changes_begins_a_stream_of_its_own() -> None:
    codec = codec_of()
    decode(codec, wav(numbers(800), 8000))
    readings = decode(codec, wav(numbers(1600)), NOW + 0.1)
    assert joined(readings).tobytes() == (numbers(1600).astype(np.float32) / np.float32(32768)).tobytes()


def test_keys_are_bounded() -> None:
    codec = codec_of()
    for i in range(KEYS + 5):
        codec.decode(str(i), b"\0\0", NOW)
    assert len(codec._keys) == KEYS  # type: ignore[attr-defined]


# -- senders that are not what the settings say ------------------------------------------------------------------------


@pytest.mark.parametrize(("rate_hz", "measured"), [(44_100, "44100"), (8000, "8000")])
def test_a_sender_of_another_rate_is_told_of_with_what_to_write(rate_hz: float, measured: str) -> None:
    ((name, text),) = told_of(rate_hz)
    assert name == "sound_rate"
    assert f"key mic sends {measured} samples a second, and 16000 are stated: set rate_hz" in text


def test_senders_of_the_rate_and_those_that_pause_are_not_told_of() -> None:
    assert told_of(16_000) == []
    assert told_of(15_000) == []
    assert told_of(16_000, pause_s=1.5, seconds=30.0) == []


def test_floats_are_refused_by_name_and_loud_pcm_is_not() -> None:
    sound = np.sin(np.arange(400) / 7).astype("<f4") * np.float32(0.4)
    error = refused(codec_of(), sound.tobytes())
    assert error.reason == "malformed"
    assert 'the numbers are float32; write type = "raw"' in str(error)
    assert decode(codec_of(), (sound * 80_000).astype("<i2").tobytes())
    assert decode(codec_of(), bytes(800))


@pytest.mark.parametrize("order", ["little", "big"])
def test_floats_behind_silence_are_refused_too(order: str) -> None:
    """A sound card's first buffers are empty, and half a message may be."""
    codec = codec_of(byte_order=order)
    sound = (np.sin(np.arange(400) / 7) * 0.4).astype("<f4" if order == "little" else ">f4")
    assert decode(codec, bytes(1600))
    half = np.where(np.arange(400) < 200, np.float32(0), sound).astype(sound.dtype)
    for message in (half, sound):
        assert "the numbers are float32" in str(refused(codec, message.tobytes()))


def test_a_key_that_has_sounded_as_pcm_is_believed() -> None:
    codec = codec_of()
    assert decode(codec, numbers(400).tobytes())
    assert decode(codec, (np.sin(np.arange(400) / 7) * 0.4).astype("<f4").tobytes(), NOW + 0.025)


@given(st.integers(0, 10_000), st.integers(1, 32767))
def test_noise_is_never_taken_for_floats(seed: int, loudness: int) -> None:
    noise = np.random.default_rng(seed).integers(-loudness, loudness + 1, 320).astype("<i2")
    assert decode(codec_of(), noise.tobytes())
