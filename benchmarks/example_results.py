"""Results of the examples with models that people have: figures, pictures, and recordings made for them."""

from __future__ import annotations

import base64
import csv
import shlex
import shutil
import subprocess
import sys
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from benchmarks import example_pictures as pictures
from benchmarks.anomaly import auc
from edge_runtime.base.media.png import decode_png
from edge_runtime.io.recordings.wav import read_sound
from edge_runtime.types import Float32

CHECKOUT: Final = Path(__file__).resolve().parents[1]
"""The checkout whose examples are run."""

ANSWERS: Final = "answers.jsonl"
_RATE: Final = 16000
_ECG_HZ: Final = 360
_KEYWORDS: Final = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
_SHOWN_WORDS: Final = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go", "cat", "marvin")


class Result(NamedTuple):
    """Outcome of an example.

    Attributes:
        words: statements with figures, each of which stands on the example's page.
        picture: an SVG file.
    """

    words: Sequence[str]
    picture: str


def run(command: str, folder: Path) -> None:
    """Run a command line of a page in a folder, patterns of files filled in.

    Raises:
        RuntimeError: it failed; with what it wrote.
    """
    program, *words = shlex.split(command, comments=True)
    arguments = []
    for word in words:
        fit = sorted(str(path.relative_to(folder)) for path in folder.glob(word)) if "*" in word else []
        arguments += fit or [word]
    path = Path(sys.executable).with_name(program)
    done = subprocess.run([path, *arguments], cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stderr}")


def _answers(folder: Path, *, events: bool = False) -> list[dict[str, Any]]:
    lines = map(orjson.loads, (folder / ANSWERS).read_bytes().splitlines())
    return [one for one in lines if ("event" in one) == events]


def _sound(path: Path) -> Float32:
    return np.concatenate(list(read_sound(path, _RATE)))[:, 0]


# -- one function for each example -------------------------------------------------------------------------------------


def keyword(folder: Path) -> Result:
    right: list[bool] = []
    commanded: list[bool] = []
    shown: dict[str, pictures.Clip] = {}
    for answer in _answers(folder):
        word = answer["key"].split("/")[0]
        truth = word if word in _KEYWORDS else "unknown"
        right.append(answer["label"] == truth)
        if truth != "unknown":
            commanded.append(right[-1])
        if word in _SHOWN_WORDS and word not in shown:
            sound = _sound(folder / "speech_commands" / f"{answer['key']}.wav")
            shown[word] = pictures.Clip(sound, answer["label"], answer["confidence"], truth)
    return Result(
        [f"{sum(right)} of {len(right)}", f"{sum(commanded)} of {len(commanded)}"],
        pictures.clips("One second each, and the answer", [shown[word] for word in _SHOWN_WORDS], 4),
    )


def wake_word(folder: Path) -> Result:
    starts = [one for one in _answers(folder, events=True) if one["kind"] == "start"]
    heard = {one["key"] for one in starts if one["key"].startswith("alexa/")}
    others = {one["key"] for one in _answers(folder)} - {f"alexa/{i}" for i in (1, 2, 3)}
    false = [one for one in starts if one["key"] in others]
    return Result(
        [f"{len(heard)} of 3", f"{len(false)} false alarm in {len(others)} other recordings"],
        _over_time(folder, "“Alexa”, said once", "alexa/1", folder / "alexa/1.wav", 0.9, "alexa"),
    )


def voice(folder: Path) -> Result:
    answers = _answers(folder)
    share = float(np.mean([one["scores"][0] > 0.5 for one in answers]))
    starts = [one for one in _answers(folder, events=True) if one["kind"] == "start"]
    return Result(
        [f"{len(answers):,} answers", f"{100 * share:.0f} % of them", f"{len(starts)} stretches"],
        _over_time(folder, "Speech and pauses, the first 12 s", "test", folder / "test.wav", 0.5, "speech", 12.0),
    )


def _over_time(
    folder: Path, title: str, key: str, wav: Path, threshold: float, event: str, seconds: float = 1e9
) -> str:
    sound = _sound(wav)[: int(min(seconds, 1e4) * _RATE)]
    seconds = min(seconds, len(sound) / _RATE)
    mine = [one for one in _answers(folder) if one["key"] == key and one["end"] <= seconds]
    ends = [one for one in _answers(folder, events=True) if one["key"] == key and one["kind"] == "end"]
    return pictures.timeline(
        title,
        sound,
        _RATE,
        [(one["end"], one["scores"][0]) for one in mine],
        [pictures.Span(one["start"], min(one["end"], seconds)) for one in ends if one["start"] < seconds],
        threshold,
        f"event: {event}",
    )


_ESC10: Final = {
    "chainsaw": "chainsaw", "clock-tick": "clock_tick", "fire-crackling": "crackling_fire", "baby-cry": "crying_baby",
    "dog-bark": "dog", "helicopter": "helicopter", "rain": "rain", "rooster": "rooster", "sea-waves": "sea_waves",
    "person-sneeze": "sneezing",
}  # fmt: skip
"""The model's labels by the folders of the recordings."""


def decode(shared: Path, folder: Path) -> None:
    """Write the clips of folds 1 and 3 as WAV: the shared ones are Ogg Vorbis."""
    import soundfile  # noqa: PLC0415 - of no locked environment

    for fold in (1, 3):
        for path in sorted((shared / "data/env-sounds-esc10" / f"fold{fold}").glob("*/*.ogg")):
            sound, rate_hz = soundfile.read(path, dtype="int16")
            target = folder / "esc10" / _ESC10[path.parent.name] / f"{path.stem}.wav"
            target.parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(target, sound, rate_hz, subtype="PCM_16")


def sound_event(folder: Path) -> Result:
    clips = {path.stem: path for path in (folder / "esc10").glob("*/*.wav")}
    right: list[bool] = []
    shown: dict[str, pictures.Clip] = {}
    for answer in sorted(_answers(folder), key=lambda one: str(one["key"])):
        path = clips[answer["key"].rsplit("/")[-1]]
        truth = path.parent.name
        right.append(answer["label"] == truth)
        shown.setdefault(truth, pictures.Clip(_sound(path), answer["label"], answer["confidence"], truth))
    return Result(
        [f"{sum(right)} of {len(right)}"],
        pictures.clips("Five seconds each, and the answer", [shown[label] for label in sorted(shown)], 4),
    )


_FAN: Final = {
    "normal": "normal_others", "low speed, coin on a blade": "low_coin", "medium speed, coin on a blade": "medium_coin",
    "switched off": "off",
}  # fmt: skip


def windows(shared: Path, folder: Path) -> None:
    """Write the fan's windows as NPZ files; every other normal one sets the threshold."""
    data = shared / "data/fan-vibration-esp32"

    def write(name: str, source: str, chosen: slice = slice(None)) -> None:
        with np.load(data / f"fan_0_{source}.npz") as file:
            windows = np.split(file["data"], file["offset"][1:-1])[chosen]
        offset = np.cumsum([0, *map(len, windows)])
        np.savez(folder / f"{name}.npz", x=np.concatenate(windows), offset=offset, rate=200)

    write("normal", "low_0_weight-moving", slice(0, None, 2))
    write("normal_others", "low_0_weight-moving", slice(1, None, 2))
    write("low_coin", "low_1_weight")
    write("medium_coin", "med_1_weight")
    write("off", "off_0_weight")


def vibration(folder: Path) -> Result:
    answers = _answers(folder)
    scores = {
        name: [one["score"] for one in answers if one["key"].rsplit("-", 1)[0] == file] for name, file in _FAN.items()
    }
    threshold = answers[0]["threshold"]
    normal, *others = scores.values()
    words = [f"{100 * np.mean(np.asarray(each) > threshold):.0f} %" for each in scores.values()]
    for each in others:
        both = np.concatenate([normal, each])
        words.append(f"{auc(both, np.arange(len(both)) >= len(normal)):.2f}")
    millionths = {name: [1e6 * one for one in each] for name, each in scores.items()}
    axis = "score: mean squared error, millionths of g²"
    return Result(words, pictures.groups("A ceiling fan, one score a second", millionths, 1e6 * threshold, axis))


def features(shared: Path, folder: Path) -> None:
    """Write the features of the one sound as a recording, and pack the model to take them; the sound is not there."""
    rows = np.fromfile(shared / "data/anomaly-scores-toycar/normal_id_01_00000000_hist_librosa.bin", "<f4")
    recording = "normal_id_01_00000000.npz"
    np.savez(folder / recording, x=rows.reshape(-1, 128), rate=31.25)
    shutil.copy(CHECKOUT / "tests/data/cards/toycar-features.toml", folder / "features.toml")
    files = f"ad01_fp32.tflite ad01_int8.tflite --recording {recording}"
    run(f"edge-export pack {files} --card features.toml -o features.edge", folder)


def anomaly(folder: Path) -> Result:
    (answer,) = _answers(folder)
    with (folder / "scores.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["is_anomaly"] == "1", float(row["score_fp32"])) for row in csv.DictReader(file)]
    scores = {
        "normal sounds": [score for bad, score in rows if not bad],
        "sounds with a fault": [score for bad, score in rows if bad],
    }
    words = [f"{answer['score']:.2f}"]
    words += [f"{100 * np.mean(np.asarray(each) > answer['threshold']):.0f} %" for each in scores.values()]
    words.append(f"{auc(np.asarray([score for _, score in rows]), np.asarray([bad for bad, _ in rows])):.3f}")
    title = "Toy car 1, one score for each sound of 10 s"
    return Result(words, pictures.groups(title, scores, answer["threshold"], "score: mean squared error"))


def detection(folder: Path) -> Result:
    (answer,) = _answers(folder)
    picture = decode_png((folder / "grace_hopper.png").read_bytes())
    height, width = picture.shape[:2]
    words, found = [f"{len(answer['boxes'])} face"], []
    for one in answer["boxes"]:
        left, top, right, bottom = one["box"]
        said = f"{one['label']} {100 * one['score']:.0f} %"
        words.append(", ".join(f"{edge:.2f}" for edge in one["box"]))
        sides = (right - left) * width, (bottom - top) * height
        found.append(pictures.Box(left * width, top * height, *sides, said))
    grey = picture.astype(np.float32).mean(axis=2)
    return Result(words, pictures.boxes("A portrait, of which only edges are shown", grey, found))


def noise(shared: Path, folder: Path) -> None:
    """Write 12 s of speech, and the same with pink noise 5 dB below it."""
    speech = _sound(shared / "data/wake-word-wavs/silero-vad-speech/test.wav")[: 12 * _RATE]
    spectrum = np.fft.rfft(np.random.default_rng(0).standard_normal(len(speech)))
    noise = np.fft.irfft(spectrum / np.sqrt(np.maximum(np.arange(len(spectrum)), 1)), len(speech))
    noise *= np.sqrt(np.mean(speech**2) / np.mean(noise**2)) / 10 ** (5 / 20)
    for name, sound in (("clean", speech), ("noisy", speech + noise)):
        with wave.open(str(folder / f"{name}.wav"), "wb") as file:
            file.setparams((1, 2, _RATE, 0, "NONE", ""))
            file.writeframes(np.round(np.clip(32768 * sound, -32768, 32767)).astype("<i2").tobytes())


def noise_suppression(folder: Path) -> Result:
    rows = b"".join(base64.b64decode(answer["rows"]) for answer in _answers(folder))
    after = np.asarray(np.frombuffer(rows, "<i2") / 32768, np.float32)
    noisy, clean = _sound(folder / "noisy.wav"), _sound(folder / "clean.wav")
    late = int(np.argmax([after[delay:] @ clean[: len(clean) - delay] for delay in range(1000)]))
    before = ratio_db(noisy, clean)
    then = ratio_db(after[late:], clean[: len(clean) - late])
    panels: dict[str, Float32] = {
        f"with noise: {before:.1f} dB": noisy,
        f"after the models: {then:.1f} dB": after[late:],
        "without noise": clean,
    }
    words = [f"{before:.1f} dB above", f"{then:.1f} dB after", f"{1000 * late / _RATE:.0f} ms later"]
    return Result(words, pictures.waves("Speech, 12 s", panels))


def ratio_db(sound: Float32, reference: Float32) -> float:
    """Return the scale-invariant ratio of signal to distortion (Le Roux et al. 2019)."""
    target = (sound @ reference) / (reference @ reference) * reference
    return float(10 * np.log10(np.sum(target**2) / np.sum((sound - target) ** 2)))


def heartbeat(folder: Path) -> Result:
    answers = _answers(folder)
    found: list[bool] = []
    false, shown = 0, ""
    for key, record in (("test-0", "119"), ("test-1", "123")):
        mine = [one for one in answers if one["key"] == key]
        middles = np.asarray([(one["start"] + one["end"]) / 2 for one in mine])
        scores = np.asarray([one["scores"][1] for one in mine])
        with np.load(folder / "ecg" / f"{record}.npz") as file:
            beats, ectopic = file["beat"] / _ECG_HZ, file["pvc"] / _ECG_HZ
            trace = (file["adc"] / file["gain"]).astype(np.float32)
        beats = beats[(beats > middles[0]) & (beats < middles[-1])]
        said = scores[np.abs(middles - beats[:, np.newaxis]).argmin(axis=1)] > 0.5
        truth = np.isin(beats, ectopic)
        found += said[truth].tolist()
        false += int(np.sum(said & ~truth))
        shown = shown or pictures.timeline(
            "Twelve seconds of record 119",
            trace[: 12 * _ECG_HZ] - np.median(trace),
            _ECG_HZ,
            [(float(at), float(score)) for at, score in zip(middles, scores, strict=True) if at < 12],
            [pictures.Span(at - 0.15, at + 0.15) for at in ectopic.tolist() if at < 11.85],
            0.5,
            "experts' marks",
        )
    return Result([f"{sum(found)} of {len(found)}", f"{false} other"], shown)
