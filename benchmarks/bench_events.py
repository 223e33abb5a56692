"""Event rules on real recordings: misses against false alarms per hour, on recordings that no rule was chosen on.

::

    python -m benchmarks events
    python -m benchmarks.bench_events --shared FOLDER --out FOLDER

Three detectors are built or packed, and `edge-runtime events tune` is run on each:

- ``ecg``: premature ventricular beats in electrocardiograms of 30 minutes; each recording in turn is reported on;
  and, of the same people, the second half of each, chosen on the first.
- ``sounds``: ESC-10 clips of folds that the model was not trained on, in random order with 2 s of faint noise between
  them; chosen on fold 3, reported on fold 4. With one pass no clip comes twice.
- ``words``: the keyword network of MLPerf Tiny on the features of spoken words, chosen on one half of the speakers,
  reported on the other half, and on the wake-word recordings. It was trained on a later version of these words.

Building needs the export environment, and decoding ESC-10 the package soundfile; what lacks something is left out, and
said so. Clips are repeated with other gains, neighbours and places on the grid: hours of ``sounds`` and ``words`` are
worth less than as many hours of new clips.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import io
import json
import platform
import sys
import wave
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.report import Cell, Goal, Report
from edge_runtime.answer.events.operating_point import FEW
from edge_runtime.tools.cli import main as edge_runtime

ROOT = Path(__file__).resolve().parents[1]
HERE = Path(__file__).with_name("events")
Sound = npt.NDArray[np.float32]

ECG_HZ = 360.0
SOUND_HZ = 16_000
GAP_S = 2.0
PASSES = 7
"""Streams of each fold; each holds all of its clips once."""
NOISE = 1e-3
WITHIN = 1.30
"""Most false alarms on other recordings, as a share of those stated, where at least `FEW` are expected."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One event of a detector."""

    name: str
    bundle: Path
    labels: Path
    label: str
    rate: float
    choose: Sequence[Path]
    report: Sequence[Path] = ()
    """Empty: each recording in turn."""


@dataclass
class Stretches:
    """Labels of recordings that are being made."""

    rows: list[tuple[str, float, float, str]] = field(default_factory=list)

    def write(self, path: Path) -> Path:
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("file", "start", "end", "label"), *self.rows])
        return path


class LeftOutError(Exception):
    """Something that a detector needs is not there."""


def build(recipe: Path, data: str, out: Path) -> Path:
    """Build a recipe, once; its bundle for this machine."""
    bundle = out / f"{recipe.stem}.edge"
    if not bundle.exists():
        if importlib.util.find_spec("torch") is None:
            raise LeftOutError("building its detector needs torch: run it by the Python of make test-export")
        from edge_export.cli import main as edge_export  # noqa: PLC0415 - needs torch

        with contextlib.redirect_stdout(sys.stderr):
            if edge_export(["build", str(recipe), "--data", data, "-o", str(out / recipe.stem)]) != 0:
                raise LeftOutError("its build failed")
        (made,) = (out / recipe.stem).glob(f"*-{platform.machine()}.edge")
        bundle.write_bytes(made.read_bytes())
    return bundle


# -- electrocardiograms ------------------------------------------------------------------------------------------------


def ecg(shared: Path, out: Path) -> Iterator[Case]:
    folder = shared / "data" / "ecg-mitbih"
    bundle = build(HERE / "heartbeat.toml", f"ecg={folder}", out)
    labels = Stretches()
    whole: list[Path] = []
    halves: tuple[list[Path], list[Path]] = ([], [])
    for name in ("100", "105", "119", "123"):  # that the detector was not trained on
        data = np.load(folder / f"{name}.npz")
        values = (data["adc"] / float(data["gain"])).astype(np.float32)[:, np.newaxis]
        times = np.arange(len(values)) / ECG_HZ
        middle = len(values) // 2
        parts = (("", slice(None), whole), ("-1", slice(middle), halves[0]), ("-2", slice(middle, None), halves[1]))
        for suffix, part, files in parts:
            files.append(out / f"ecg-{name}{suffix}.npz")
            np.savez(files[-1], t=times[part], x=values[part])
            labels.rows += [(files[-1].name, at / ECG_HZ - 0.1, at / ECG_HZ + 0.1, "ventricular") for at in data["pvc"]]
    table = labels.write(out / "ecg.csv")
    for rate in (20.0, 60.0):
        yield Case(name="ecg", bundle=bundle, labels=table, label="ventricular", rate=rate, choose=whole)
    for rate in (40.0, 60.0):
        yield Case(
            name="ecg, same people", bundle=bundle, labels=table, label="ventricular", rate=rate,
            choose=halves[0], report=halves[1],
        )  # fmt: skip


# -- sounds of the surroundings ----------------------------------------------------------------------------------------


def sounds(shared: Path, out: Path) -> Iterator[Case]:
    if importlib.util.find_spec("soundfile") is None:
        raise LeftOutError("decoding ESC-10 needs: pip install soundfile")
    import soundfile  # noqa: PLC0415 - no dependency of ours

    clips: dict[str, list[tuple[str, Sound]]] = {}
    wavs = out / "esc10"
    for path in sorted((shared / "data" / "env-sounds-esc10").glob("fold*/*/*.ogg")):
        sound, rate = soundfile.read(path, dtype="float32")
        assert rate == SOUND_HZ
        fold, label = path.parts[-3:-1]
        clips.setdefault(fold, []).append((label, heard(sound)))
    if not clips:
        raise LeftOutError("there is no data/env-sounds-esc10")
    for fold, some in clips.items():
        rng = np.random.default_rng(zlib.crc32(fold.encode()))
        quiet = [("quiet", np.zeros(5 * SOUND_HZ, np.float32)) for _ in range(8)]
        for i, (label, sound) in enumerate([*some, *quiet]):  # noise: windows without any sound would be all alike
            noisy = sound + rng.normal(0, NOISE * rng.uniform(0.3, 3), len(sound)).astype(np.float32)
            write_wav(wavs / fold / label / f"{i}.wav", noisy)
    bundle = build(HERE / "sounds.toml", f"esc10={wavs}", out)
    labels, files = Stretches(), {}
    for fold in ("fold3", "fold4"):
        files[fold] = [out / f"sounds-{fold}-{i}.wav" for i in range(PASSES)]
        for i, path in enumerate(files[fold]):
            write_wav(path, strung(clips[fold], zlib.crc32(fold.encode()) + i, path.name, labels, GAP_S))
    table = labels.write(out / "sounds.csv")
    for passes, rate in ((1, 300.0), (PASSES, 60.0)):
        for label in ("baby-cry", "dog-bark", "rooster"):
            yield Case(
                name="sounds" if passes > 1 else "sounds, one pass", bundle=bundle, labels=table, label=label,
                rate=rate, choose=files["fold3"][:passes], report=files["fold4"][:passes],
            )  # fmt: skip


def heard(sound: Sound) -> Sound:
    """Leave out the silence at both ends that fills many clips up to 5 s; at least 1 s is left."""
    loud = np.flatnonzero(np.abs(sound) > 0.02 * np.abs(sound).max())
    begin = max(0, min(int(loud[0]), len(sound) - SOUND_HZ))
    return sound[begin : max(int(loud[-1]), begin + SOUND_HZ)]


def strung(
    clips: Sequence[tuple[str, Sound]], seed: int, name: str, labels: Stretches, gap_s: float, *, loudest: bool = False
) -> Sound:
    """String clips together in random order, with faint noise between them; `loudest` makes each as loud as can be."""
    rng = np.random.default_rng(seed)
    parts: list[Sound] = []
    at = 0
    for i in rng.permutation(len(clips)):
        label, sound = clips[i]
        gap = rng.normal(0, NOISE, int((gap_s + rng.uniform(0, 1)) * SOUND_HZ)).astype(np.float32)
        gain = 1 / max(1e-6, float(sound.max())) if loudest else float(rng.uniform(0.3, 1.0))
        parts += [gap, sound * np.float32(gain)]
        at += len(gap)
        labels.rows.append((name, at / SOUND_HZ, (at + len(sound)) / SOUND_HZ, label))
        at += len(sound)
    return np.concatenate(parts)


def write_wav(path: Path, sound: Sound) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(SOUND_HZ)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").tobytes())


def read_wav(path: Path) -> Sound:
    with wave.open(str(path), "rb") as file:
        assert (file.getframerate(), file.getsampwidth()) == (SOUND_HZ, 2)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())
    return (samples[:, 0] / 32768).astype(np.float32)


# -- words -------------------------------------------------------------------------------------------------------------

WORDS = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes", "silence", "unknown")
CARD = """
name = "kws"
version = 1
origin = {{ name = "MLPerf Tiny keyword spotting", source = "mlcommons/tiny on GitHub", licence = "Apache-2.0" }}
signal = {{ rate_hz = 50, channels = [{channels}] }}
window = 49
hop = 10
[[stages]]
inputs = [{{ rows = 49, layout = "samples-first" }}]
[task]
type = "classification"
labels = {labels}
"""


def words(shared: Path, out: Path) -> Iterator[Case]:
    folder = shared / "data" / "speech-commands-mini"
    table = np.load(folder / "mfcc.npz")
    bundle = out / "words.edge"
    _pack_words(shared, out, bundle, table["mfcc"])
    halves: tuple[list[tuple[str, Sound]], list[tuple[str, Sound]]] = ([], [])
    worst = 0.0
    for wav, known in zip(table["wav"], table["mfcc"], strict=True):
        path = folder / str(wav)
        sound = np.zeros(SOUND_HZ, np.float32)
        read = read_wav(path)[:SOUND_HZ]
        sound[: len(read)] = read
        worst = max(worst, float(np.abs(mfcc(sound / max(1e-6, float(sound.max()))) - known).max()))
        halves[zlib.crc32(path.name.split("_")[0].encode()) % 2].append((path.parent.name, sound))
    print(f"words: features differ from the shared ones by at most {worst:.2g}", file=sys.stderr)
    labels = Stretches()
    files: tuple[list[Path], list[Path]] = ([], [])
    for half, clips in enumerate(halves):
        for i in range(12):
            path = out / f"words-{half}-{i}.npz"
            _write_features(path, strung(clips, 100 * half + i, path.name, labels, 0.5, loudest=True))
            files[half].append(path)
    wakes = []
    for wav in sorted((shared / "data" / "wake-word-wavs").glob("*/*.wav")):
        path = out / f"wake-{wav.parent.name}-{wav.stem}.npz"
        sound = read_wav(wav)
        if len(sound) < 2 * SOUND_HZ:  # shorter than it takes to be sure
            sound = np.pad(sound, (SOUND_HZ // 2, SOUND_HZ))
        _write_features(path, sound / max(1e-6, float(sound.max())))
        if wav.stem == "yes_1000ms":
            labels.rows.append((path.name, 0.5, 1.5, "yes"))
        wakes.append(path)
    stretches = labels.write(out / "words.csv")
    for label, rate in (("yes", 60.0), ("stop", 60.0), ("go", 60.0)):
        yield Case(
            name="words", bundle=bundle, labels=stretches, label=label, rate=rate, choose=files[0], report=files[1]
        )
    yield Case(
        name="wake-word-wavs", bundle=bundle, labels=stretches, label="yes", rate=1.0,
        choose=[*files[0], *files[1]], report=wakes,
    )  # fmt: skip


def _pack_words(shared: Path, out: Path, bundle: Path, features: npt.NDArray[Any]) -> None:
    from edge_export.cli import main as edge_export  # noqa: PLC0415 - the other detectors need none of it

    channels = ", ".join(f'{{ name = "mfcc{i}", unit = "1" }}' for i in range(10))
    (out / "words.toml").write_text(CARD.format(channels=channels, labels=list(WORDS)), "utf-8")
    rows = features[:24].reshape(-1, 10).astype(np.float32)
    np.savez(out / "golden.npz", t=np.arange(len(rows)) / 50.0, x=rows)
    arguments = ["pack", str(shared / "models" / "mlperf-tiny" / "kws_ref_model_float32.tflite")]
    arguments += ["--card", str(out / "words.toml"), "--recording", str(out / "golden.npz"), "-o", str(bundle)]
    with contextlib.redirect_stdout(sys.stderr):
        if edge_export(arguments) != 0:
            raise LeftOutError("its model cannot be packed")


def _write_features(path: Path, sound: Sound) -> None:
    features = mfcc(sound)
    np.savez(path, t=np.arange(len(features)) / 50.0, x=features)


def mfcc(sound: Sound) -> npt.NDArray[np.float32]:
    """Compute the features of MLPerf Tiny's keyword network, one row each 20 ms: (n, 10).

    Frames of 480 samples each 320, Hann window, magnitudes of 512 points, 40 mel bands of 20 to 4,000 Hz, natural
    logarithm, the first ten of an orthogonal cosine transform (as TensorFlow's ``mfccs_from_log_mel_spectrograms``).
    """
    frames = np.lib.stride_tricks.sliding_window_view(sound, 480)[::320]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(480) / 480)
    magnitudes = np.abs(np.fft.rfft(frames * window, 512))
    log_mel = np.log(magnitudes @ _mel_weights() + 1e-6)
    k, n = np.arange(10)[:, np.newaxis], np.arange(40)[np.newaxis]
    basis = np.cos(np.pi * k * (2 * n + 1) / 80) * 2 / np.sqrt(80)
    return np.asarray(log_mel @ basis.T, np.float32)


def _mel_weights() -> npt.NDArray[np.float64]:
    def mel(hz: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return np.asarray(1127.0 * np.log1p(np.asarray(hz, np.float64) / 700.0))

    edges = np.linspace(mel(20.0), mel(4000.0), 42)
    bins = mel(np.linspace(0, 8000, 257))[:, np.newaxis]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0.0, np.minimum(rising, falling))
    weights[0] = 0.0  # TensorFlow leaves the constant out
    return np.asarray(weights)


# -- figures -----------------------------------------------------------------------------------------------------------


def tuned(case: Case, out: Path) -> dict[str, Any]:
    """Run ``edge-runtime events tune`` and return its figures."""
    plot = out / f"{case.name.replace(', ', '-').replace(' ', '-')}-{case.label}-{case.rate:g}.svg"
    arguments = ["events", "tune", str(case.bundle), *map(str, case.choose), "--labels", str(case.labels)]
    arguments += ["--event", case.label, "--rate", str(case.rate), "--plot", str(plot), "--json"]
    arguments += ["--report", *map(str, case.report)] if case.report else []
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        code = edge_runtime(arguments)
    if code != 0:
        raise LeftOutError(f"events tune ended with {code}")
    found: dict[str, Any] = json.loads(told.getvalue())
    return found


COLUMNS = (
    "event", "asked /h", "chosen on: h", "false /h", "missed", "others: h", "expected", "false", "false /h", "missed",
    "at most /h (95 %)",
)  # fmt: skip


def row(case: Case, found: dict[str, Any]) -> tuple[Cell, ...]:
    here, other = found["chosen_on"], found["not_chosen_on"]
    expected = case.rate * other["hours"]
    return (
        f"{case.name} {case.label}",
        case.rate,
        here["hours"],
        here["false"] / here["hours"],
        f"{here['missed']} of {here['happened']}",
        other["hours"],
        expected,
        other["false"],
        other["false"] / other["hours"],
        f"{other['missed']} of {other['happened']}",
        found["upper_per_hour"] if expected < FEW else None,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Misses and false alarms per hour of tuned event rules.")
    parser.add_argument("--shared", type=Path, default=ROOT.parent / "shared", help="folder of models and data")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "events", help="folder for what is made")
    parser.add_argument("--only", choices=("ecg", "sounds", "words"), help="one of them")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[Path, Path], Iterator[Case]]] = {"ecg": ecg, "sounds": sounds, "words": words}
    report = Report("event rules, chosen and reported on different recordings", COLUMNS)
    for name, make in makers.items():
        if options.only in (None, name):
            try:
                for case in make(options.shared, options.out):
                    found = tuned(case, options.out)
                    report.rows.append(row(case, found))
                    other = found["not_chosen_on"]
                    if (expected := case.rate * other["hours"]) >= FEW:
                        text = f"{case.name} {case.label}, {case.rate:g} per hour: false alarms over those stated"
                        report.goals.append(Goal(text, other["false"] / expected, WITHIN, at_most=True))
            except (LeftOutError, FileNotFoundError) as error:
                report.notes.append(f"left out: {name}: {error}")
    print(report.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
