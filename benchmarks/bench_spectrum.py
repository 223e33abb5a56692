"""Sound that was converted from a lower rate: how soon it is noticed, and how often nothing is wrong.

::

    python -m benchmarks spectrum        # needs the recordings that lie beside a development checkout (EDGE_SHARED)

The clips of a speaker, or of a kind of sound, are one stream in random order; its reference is measured on all others.
Beside the check stands a twin that fires at random, `GOAL` times in 1,000 spans. Sounds of the surroundings are Ogg
files: they are left out where the package soundfile is not installed.
"""

from __future__ import annotations

import importlib
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.intake_data import DATA, Float32
from benchmarks.report import Goal, Report
from edge_runtime.base.media.resample import Resampler
from edge_runtime.io.recordings.wav import read_sound
from edge_runtime.manifest import REFERENCE_LEVELS, Channel, InputContract, Reference
from edge_runtime.signal.intake.spectrum import FRAMES, KeySpectrum, SpectrumCheck, measure_tops
from edge_runtime.signal.windowing.recorded import cut_recording
from edge_runtime.signal.windowing.window import Window

WITHIN_S: Final = 30.0
GOAL: Final = 5
"""False alarms in 1,000 clean windows, at most."""
BETTER: Final = 40
"""Points by which more of the streams are noticed than by the twin."""
CLEAN_S: Final = 60
STREAMS: Final = 3
"""Clean streams of each key."""

Clips = Sequence[Float32]


class Sounds(NamedTuple):
    """Recordings of one kind, by key; the part of a key before ``|`` is held out together."""

    name: str
    rate_hz: int
    keys: Mapping[str, Clips]


def words() -> Sounds:
    """Words of 28 speakers."""
    keys: dict[str, list[Float32]] = {}
    for path in sorted((DATA / "speech-commands-mini").glob("*/*.wav")):
        keys.setdefault(path.name.partition("_")[0], []).append(np.concatenate(list(read_sound(path, 16000)))[:, 0])
    return Sounds("words", 16000, keys)


def sentences() -> Sounds:
    """Wake words and speech of six sources."""
    keys: dict[str, list[Float32]] = {}
    for path in sorted((DATA / "wake-word-wavs").glob("*/*.wav")):
        keys.setdefault(path.parent.name, []).append(np.concatenate(list(read_sound(path, 16000)))[:, 0])
    return Sounds("wake words, speech", 16000, keys)


def digits() -> Sounds:
    """Digits of four speakers, each with a microphone of their own."""
    keys = {}
    for path in sorted((DATA / "spoken-digits-fsdd").glob("*.npz")):
        with np.load(path) as stored:
            parts = np.split(stored["pcm"].astype(np.float32) / 32768, stored["offset"][1:])
        keys[path.stem] = [part for part in parts if len(part)]
    return Sounds("digits", 8000, keys)


def surroundings(soundfile: Any) -> Sounds:
    """Ten kinds of sounds; a fold is held out as a whole."""
    keys: dict[str, list[Float32]] = {}
    for path in sorted((DATA / "env-sounds-esc10").glob("*/*/*.ogg")):
        clip, _ = soundfile.read(path, dtype="float32")
        keys.setdefault(f"{path.parts[-3]}|{path.parts[-2]}", []).append(clip)
    return Sounds("surroundings", 16000, keys)


# -- faults ------------------------------------------------------------------------------------------------------------


def pcm(sound: Float32) -> Float32:
    """As a sender writes it: 16-bit numbers."""
    return np.asarray(np.round(np.clip(sound, -1, 1) * 32767) / 32768, np.float32)


def resampled(sound: Float32, rate_hz: float, to_hz: float) -> Float32:
    made = Resampler(rate_hz, to_hz)
    return np.concatenate([made.push(sound[:, None]), made.finish()])[:, 0]


def converted(sound: Float32, rate_hz: int, low_hz: int) -> Float32:
    """A microphone of a lower rate, converted by a filter."""
    return pcm(resampled(pcm(resampled(sound, rate_hz, low_hz)), low_hz, rate_hz))


def straight(sound: Float32, rate_hz: int, low_hz: int) -> Float32:
    """A microphone of a lower rate, converted by straight lines between its samples."""
    low = pcm(resampled(sound, rate_hz, low_hz))
    at = np.arange(len(low) * rate_hz // low_hz) * low_hz / rate_hz
    return pcm(np.interp(at, np.arange(len(low)), low).astype(np.float32))


def read_as(sound: Float32, rate_hz: int, low_hz: int) -> Float32:
    """A microphone of a lower rate, read at the model's: too high and too short."""
    return pcm(resampled(sound, rate_hz, low_hz))


Fault = Callable[[Float32, int, int], Float32]
FAULTS: Final[Sequence[tuple[str, Fault, int, int]]] = (
    ("converted from 3/4 of the rate", converted, 3, 4),
    ("converted from 11/16", converted, 11, 16),
    ("converted from 1/2", converted, 1, 2),
    ("converted from 1/3", converted, 33, 100),
    ("converted from 1/2 by straight lines", straight, 1, 2),
    ("read at twice its rate", read_as, 1, 2),
)

# -- one stream --------------------------------------------------------------------------------------------------------


def contract(rate_hz: int) -> InputContract:
    return InputContract(channels=(Channel(name="sound", unit="1"),), rate_hz=rate_hz, window=rate_hz, hop=rate_hz // 2)


def stream(clips: Clips, samples: int, seed: int) -> Float32:
    """Join clips in random order until there are enough samples."""
    rng = np.random.default_rng(seed)
    parts: list[Float32] = []
    while sum(map(len, parts)) < samples:
        parts += [clips[i] for i in rng.permutation(len(clips))]
    return np.concatenate(parts)[:samples]


def windows_of(described: InputContract, sound: Float32) -> list[Window]:
    return cut_recording(described, "mic", 0.0, sound[:, None])


def check_of(described: InputContract, sounds: Sounds, held_out: str) -> SpectrumCheck:
    """The check with a reference of all keys but one."""
    others = [clips for key, clips in sounds.keys.items() if key.partition("|")[0] != held_out]
    joined = np.concatenate([clip for clips in others for clip in clips])
    tops = measure_tops(((one.slot, one.samples) for one in windows_of(described, joined)), described)
    quantiles = tuple(np.linspace(-1, 1, len(REFERENCE_LEVELS)).tolist())
    return SpectrumCheck(
        described, [Reference(channels=("sound",), quantiles=quantiles, span_s=10.0, top_hz=tops["sound"])]
    )


def play(check: SpectrumCheck, windows: Sequence[Window]) -> Iterator[bool]:
    """Say for each window whether it is marked, as the intake does."""
    key, suspect = KeySpectrum(), False
    for window in windows:
        if window.slot >= key.due:
            found = check.run(key, window)
            suspect = suspect if found is None else bool(found)
        yield suspect


# -- tables ------------------------------------------------------------------------------------------------------------


def noticed(sounds: Sounds) -> Report:
    """Right and converted streams of each key."""
    report = Report(
        f"{sounds.name}: {len(sounds.keys)} keys at {sounds.rate_hz} Hz, each against a reference of the others",
        ("sound", "streams", f"noticed in {WITHIN_S:g} s, %", "twin %", "windows", "marked of 1,000"),
    )
    described, rate = contract(sounds.rate_hz), sounds.rate_hz
    checks = {key: check_of(described, sounds, key.partition("|")[0]) for key in sounds.keys}
    twin = 100 * (1 - (1 - GOAL / 1000) ** (WITHIN_S / 10))
    marks: list[list[bool]] = []
    for key, clips in sounds.keys.items():
        for seed in range(STREAMS):
            sound = pcm(stream(clips, CLEAN_S * rate, zlib.crc32(key.encode()) + seed))
            marks.append(list(play(checks[key], windows_of(described, sound))))
    total, marked = sum(map(len, marks)), sum(map(sum, marks))
    report.rows.append(("as it was recorded", len(marks), None, twin, total, 1000 * marked / total))
    report.goals.append(Goal("false alarms in 1,000 windows", 1000 * marked / total, GOAL, at_most=True))
    for name, fault, part, whole in FAULTS:
        hits = 0
        for key, clips in sounds.keys.items():
            long = stream(clips, int((WITHIN_S + 1) * rate) * whole // (part if fault is read_as else whole), 1)
            wrong = fault(long, rate, rate * part // whole)[: int(WITHIN_S * rate)]
            hits += any(play(checks[key], windows_of(described, wrong)))
        share = 100 * hits / len(sounds.keys)
        report.rows.append((name, len(sounds.keys), share, twin, None, None))
        if fault is converted:
            report.goals.append(Goal(f"{name}: points above the twin", share - twin, BETTER))
    return report


def cost() -> Report:
    """Time of the check for each second of sound with nothing wrong, and of a window that is looked at."""
    report = Report("cost at 16 kHz", ("window", "us a frame", "frames in 60 s of a right key"))
    for window, hop in ((16000, 16000), (512, 512)):
        described = InputContract(
            channels=(Channel(name="sound", unit="1"),), rate_hz=16000, window=window, hop=hop
        )  # fmt: skip
        check = SpectrumCheck(
            described,
            [Reference(channels=("sound",), quantiles=(0.0,) * len(REFERENCE_LEVELS), span_s=10.0, top_hz=8000.0)],
        )
        noise = np.random.default_rng(0).normal(0, 0.1, 60 * 16000).astype(np.float32)
        windows = windows_of(described, noise)
        best = math.inf
        for _ in range(5):
            began = time.process_time()
            list(play(check, windows))
            best = min(best, time.process_time() - began)
        spans = 2  # of 60 s: the first 10, and those after a rest of 40
        report.rows.append((f"{window} samples", 1e6 * best / (spans * FRAMES), spans * FRAMES))
    return report


def main() -> int:
    if not DATA.is_dir():
        print(f"no recordings in {DATA}; set EDGE_SHARED to their folder")
        return 1
    sets = [words(), sentences(), digits()]
    try:
        sets.append(surroundings(importlib.import_module("soundfile")))
    except ImportError:
        print("soundfile is not installed: no sounds of the surroundings")
    for one in sets:
        print(f"\n{noticed(one).text()}", flush=True)
    print(f"\n{cost().text()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
