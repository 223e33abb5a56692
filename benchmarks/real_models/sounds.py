"""Measurements of models that hear; see `benchmarks.real_models.cases`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.example_results import ratio_db
from benchmarks.real_models.playing import Bundle, arrays
from edge_runtime.io.recordings.wav import read_sound
from edge_runtime.types import Float32

WAVS = Path("data") / "wake-word-wavs"
SPEECH = WAVS / "silero-vad-speech" / "test.wav"
_ESC10 = ("chainsaw", "clock-tick", "fire-crackling", "baby-cry", "dog-bark", "helicopter", "rain", "rooster",
          "sea-waves", "person-sneeze")  # fmt: skip
"""Folders of the recordings, in the order of the models' labels."""


def _heard(path: Path) -> Float32:
    return np.concatenate(list(read_sound(path, 16000)))[:, 0]


def silero(bundle: Bundle, shared: Path, _: Path) -> str:
    """Share of steps with speech, and the difference of the two files."""
    one, other = (bundle.rows(shared / SPEECH, variant) for variant in bundle.variants)
    share, difference = float((one > 0.5).mean()), float(np.abs(one - other).max())
    assert len(one) == 1875
    assert round(share, 2) == 0.77
    assert difference == 0
    return f"{share:.1%} of {len(one)} steps; difference {difference:g}"


def silero_half(bundle: Bundle, shared: Path, folder: Path) -> str:
    """Largest difference from the float file."""
    from benchmarks.real_models.playing import pack  # noqa: PLC0415 - this one case packs a second bundle

    path = folder / "float.edge"
    packed = pack(path, "silero-vad", [shared / "models/silero-vad/silero_vad_16k_op15.onnx"])
    whole = Bundle(path, packed)
    try:
        worst = float(np.abs(bundle.rows(shared / SPEECH) - whole.rows(shared / SPEECH)).max())
    finally:
        whole.close()
    assert 0.8 < worst < 0.9
    return f"differs by up to {worst:.2f}"


def _words(bundle: Bundle, shared: Path, folder: Path, word: str) -> tuple[list[float], list[float]]:
    """Highest scores of a word's own files, from a reset, and of the others, after a second of a quiet room.

    From a reset, a model may answer a short file that begins with speech: alexa gives 0.278 for one of hey_jarvis, as
    the file in its own interpreter on rows of pymicro-features does.
    """
    silence = _heard(shared / WAVS / "tflm-micro-speech" / "silence_1000ms.wav")
    own, others = [], []
    for path in sorted((shared / WAVS).glob("*/*.wav")):
        if path.parent.name == word:
            own.append(float(bundle.rows(path).max()))
        elif path.parent.name not in ("mlperf-streaming", "silero-vad-speech"):
            sound = np.concatenate([silence, _heard(path)])
            others.append(float(bundle.rows(arrays(folder, "word", {"word": sound}, ["sound"], 16000)).max()))
    return own, others


def wake_word(bundle: Bundle, shared: Path, folder: Path, word: str) -> str:
    """Scores of the word's own files and of the others."""
    own, others = _words(bundle, shared, folder, word)
    assert len(own) == 3
    assert min(own) >= 0.98
    assert max(others) < 0.11
    return f"own {min(own):.3f} or more, others {max(others):.3f} or less"


def wake_word_v1(bundle: Bundle, shared: Path, folder: Path, word: str) -> str:
    """Scores of the word's own files and of the others, of a model without a stated result."""
    own, others = _words(bundle, shared, folder, word)
    assert max(own) > 0.8 > max(others)
    return f"own {', '.join(f'{one:.2f}' for one in own)}, others {max(others):.2f} or less"


def micro_vad(bundle: Bundle, shared: Path, _: Path) -> str:
    """Share of steps with speech, in speech and in noise."""
    speech = float((bundle.rows(shared / SPEECH) > 0.5).mean())
    silence = float((bundle.rows(shared / WAVS / "tflm-micro-speech" / "silence_1000ms.wav") > 0.5).mean())
    assert speech > 0.5 > silence
    return f"{speech:.1%} of the steps of speech, {silence:.1%} of silence"


def _keyword_files(shared: Path) -> tuple[list[str], list[int], Float32]:
    with np.load(shared / "data/speech-commands-mini/mfcc.npz", allow_pickle=False) as file:
        return [str(name) for name in file["wav"]], file["label"].tolist(), file["mfcc"]


def keyword_clips(shared: Path, folder: Path) -> Path:
    """Write the clips, each filled up to one second."""
    names, _, _ = _keyword_files(shared)
    clips: dict[str, Float32] = {}
    for number, name in enumerate(names):
        sound = _heard(shared / "data/speech-commands-mini" / name)[:16000]
        clips[f"{number:03}"] = np.pad(sound, (0, 16000 - len(sound)))
    return arrays(folder, "clips", clips, ["sound"], 16000)


def keyword_features(shared: Path, folder: Path) -> Path:
    """Write the features that lie beside the clips."""
    names, _, features = _keyword_files(shared)
    rows = {f"{number:03}": features[number] for number in range(len(names))}
    return arrays(folder, "features", rows, [f"c{i}" for i in range(10)], 50)


def _accuracy(bundle: Bundle, shared: Path, recording: Path) -> str:
    _, labels, _ = _keyword_files(shared)
    found = []
    for variant in bundle.variants:
        answers = bundle.rows(recording, variant)
        assert len(answers) == len(labels)
        found.append(float(np.mean(answers.argmax(axis=1) == labels)))
    assert [round(one, 3) for one in found] == [0.967, 0.962]
    return f"{found[0]:.3f} int8, {found[1]:.3f} float32"


def keywords(bundle: Bundle, shared: Path, folder: Path) -> str:
    """Accuracy on clips."""
    return _accuracy(bundle, shared, keyword_clips(shared, folder))


def keywords_features(bundle: Bundle, shared: Path, folder: Path) -> str:
    """Accuracy on features."""
    return _accuracy(bundle, shared, keyword_features(shared, folder))


def marvin(bundle: Bundle, shared: Path, _: Path) -> str:
    """Times at which the word is heard in a stream."""
    contract = bundle.packed.manifest.input
    path = shared / WAVS / "mlperf-streaming" / "short_wav_easy10s.wav"
    windows = bundle.windows(path)
    scores = bundle.answers(windows)
    first = len(windows) - len(scores) + 1
    ends = (np.flatnonzero(scores[:, 0] > 0.75) + first) * contract.hop / contract.rate_hz
    heard = ends[np.diff(ends, prepend=-1) > 1]
    said = ((1.0, 1.65), (4.0, 4.76), (7.0, 7.36))
    assert len(heard) == 3
    assert all(begin < one < end + 0.1 for one, (begin, end) in zip(heard, said, strict=True))
    return f"heard at {', '.join(f'{one:.2f}' for one in heard)} s"


def _calibration(shared: Path) -> tuple[Float32, list[int]]:
    with np.load(shared / WAVS / "mlperf-streaming" / "calibration_samples.npz", allow_pickle=False) as file:
        return file["specs"].reshape(-1, 30, 40).astype(np.float32), file["labels"].tolist()


def marvin_features(shared: Path, folder: Path) -> Path:
    """Write the calibration features."""
    specs, _ = _calibration(shared)
    rows = {f"{number:03}": spec for number, spec in enumerate(specs)}
    return arrays(folder, "specs", rows, [f"c{i}" for i in range(40)], 31.25)


def marvin_calibration(bundle: Bundle, shared: Path, folder: Path) -> str:
    """Count right answers on the calibration features."""
    _, labels = _calibration(shared)
    answers = bundle.rows(marvin_features(shared, folder)).argmax(axis=1)
    right = int((answers == np.asarray(labels).reshape(len(labels), -1).max(axis=1)).sum())
    assert right == 41
    return f"{right} of {len(labels)} right"


def micro_speech(bundle: Bundle, shared: Path, _: Path) -> str:
    """Label of each of its test files."""
    labels = bundle.packed.manifest.output.labels
    said = {}
    for word in ("yes", "no", "silence", "noise"):
        answers = bundle.rows(shared / WAVS / "tflm-micro-speech" / f"{word}_1000ms.wav")
        said[word] = labels[int(answers[-1].argmax())]
    assert (said["yes"], said["no"], said["silence"]) == ("yes", "no", "silence")
    return ", ".join(f"{word}: {label}" for word, label in said.items())


def _clips(shared: Path) -> Iterator[tuple[Float32, int]]:
    import soundfile  # noqa: PLC0415 - reads Ogg; not part of the test environment

    for fold in (1, 3):
        for label, folder in enumerate(_ESC10):
            for path in sorted((shared / "data/env-sounds-esc10" / f"fold{fold}" / folder).glob("*.ogg")):
                yield soundfile.read(path, dtype="float32")[0], label


def esc10(bundle: Bundle, shared: Path, folder: Path) -> str:
    """Accuracy on the 160 clips of two folds."""
    sounds, labels = {}, []
    for number, (sound, label) in enumerate(_clips(shared)):
        sounds[f"{number:03}"] = np.pad(sound[:80000], (0, max(0, 80000 - len(sound))))
        labels.append(label)
    answers = bundle.rows(arrays(folder, "clips", sounds, ["sound"], 16000))
    accuracy = float(np.mean(answers.argmax(axis=1) == labels))
    assert len(labels) == 160
    assert accuracy >= (0.94 if "yamnet" in bundle.packed.manifest.name else 0.93)
    return f"{accuracy:.3f} of {len(labels)} clips"


def _parity(bundle: Bundle, recording: Path, variants: tuple[str, str]) -> float:
    one, other = (bundle.rows(recording, variant) for variant in variants)
    return float(np.abs(one - other).max())


def dtln(bundle: Bundle, shared: Path, _: Path) -> str:
    """Difference of the files on speech, and how much noise is taken away."""
    first, mixed, quant = bundle.variants
    difference = _parity(bundle, shared / SPEECH, (first, mixed))
    assert difference < 3e-5
    noise = shared / WAVS / "tflm-micro-speech" / "noise_1000ms.wav"
    quieter = 20 * np.log10(np.std(bundle.rows(noise)[32:]) / np.std(_heard(noise)[4096:]))
    lossy = _parity(bundle, shared / SPEECH, (first, quant))
    return f"differs by {difference:.1g}, the quantised files by {lossy:.2g}; noise alone {quieter:.0f} dB"


def dtln_int8(bundle: Bundle, shared: Path, folder: Path) -> str:
    """Difference from the published file in an interpreter of its own, and how far speech stands above noise."""
    speech = _heard(shared / SPEECH)
    expected = _masked_by_hand(shared / "models/tflm-examples/dtln_noise_suppression.tflite", speech)
    rows = bundle.rows(shared / SPEECH)
    difference = float(np.abs(rows.reshape(-1) - expected[: rows.size]).max())
    assert len(rows) == 7500
    assert difference < 1e-6
    speech = speech[16000 : 16000 * 13]
    noisy = speech + np.random.default_rng(0).normal(0, 0.02, len(speech)).astype(np.float32)
    cleaned = bundle.rows(arrays(folder, "noisy", {"noisy": noisy}, ["sound"], 16000)).reshape(-1)[384:]
    before, after = ratio_db(noisy, speech), ratio_db(cleaned, speech[: len(cleaned)])
    assert after > before + 5
    return f"differs by {difference:.1g} in {len(rows)} steps; speech in noise {before:.1f} dB, then {after:.1f} dB"


def _masked_by_hand(model: Path, sound: Float32) -> Float32:
    """Sound behind a model of masks that runs on in its own interpreter, 128 samples a step."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - not where no TensorFlow Lite file is played

    file = Interpreter(model_path=str(model), num_threads=1)
    file.allocate_tensors()
    (source,), (target,) = file.get_input_details(), file.get_output_details()
    (scale, zero), (out_scale, out_zero) = source["quantization"], target["quantization"]
    padded = np.pad(sound.astype(np.float64), (384, 0))
    heard = np.zeros(len(padded), np.float32)
    for at in range(0, len(sound) - 127, 128):
        spectrum = np.fft.rfft(padded[at : at + 512]).astype(np.complex64).astype(np.complex128)
        levels = np.rint(np.abs(spectrum).astype(np.float32) / np.float32(scale)) + zero
        file.set_tensor(source["index"], levels.clip(-128, 127).astype(np.int8)[None, None])
        file.invoke()
        mask = (file.get_tensor(target["index"])[0, 0].astype(np.float64) - out_zero) * out_scale
        heard[at : at + 512] += np.fft.irfft(spectrum * mask / 4).astype(np.float32)
    return heard


def basic_pitch(bundle: Bundle, shared: Path, _: Path) -> str:
    """Difference of the files on speech."""
    first, second = bundle.variants
    difference = _parity(bundle, shared / SPEECH, (first, second))
    assert difference < 3e-5
    return f"differs by {difference:.1g}"


def few_words(bundle: Bundle, shared: Path, _: Path) -> str:
    """Difference of the files on speech, as a share of the largest number."""
    one, other = (bundle.rows(shared / SPEECH, variant) for variant in bundle.variants)
    difference, largest = float(np.abs(one - other).max()), float(np.abs(one).max())
    assert difference < 3e-5 * largest
    return f"differs by {difference:.1g}, where numbers reach {largest:.0f}"
