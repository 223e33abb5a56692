"""Networks of other projects, with real recordings to calibrate and to measure on, as `edge-export` reads them.

Each network's recordings are written as ``.npz`` files, one per speaker, sound or picture, so that the split by file is
one by speaker, sound or picture.
"""

from __future__ import annotations

import wave
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from benchmarks.mlperf_tiny import NETWORKS, read_png, to_onnx, toycar_frames

Array = np.ndarray[Any, np.dtype[Any]]

CROPS = 24
"""Of each picture."""


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """A network and its recordings on disk.

    Attributes:
        name: short.
        what: it does, and where the recordings come from.
        model: the float file.
        data: folder of the recordings.
        constants: inputs that are one number.
    """

    name: str
    what: str
    model: Path
    data: Path
    constants: Mapping[str, float] = field(default_factory=dict)


def foreign(shared: Path, folder: Path, names: tuple[str, ...] = ()) -> Iterator[Foreign]:
    """Write the recordings of each network below a folder, and yield the networks."""
    for name, (what, file, constants, recordings) in _NETWORKS.items():
        if names and name not in names:
            continue
        data = folder / name
        data.mkdir(parents=True)
        model = shared / "models" / file
        if name == "kws":
            model = folder / "kws.onnx"
            onnx.save(to_onnx(next(each for each in NETWORKS if each.name == "kws"), shared), str(model))
        for key, arrays in recordings(shared).items():
            np.savez(data / f"{key}.npz", allow_pickle=False, **arrays)
        yield Foreign(name=name, what=what, model=model, data=data, constants=constants)


def _sounds(shared: Path) -> dict[str, Array]:
    """Speech of the wake-word recordings at 16 kHz, -1 to 1, by name: 12 short ones and a minute in six parts."""
    found = {}
    for path in sorted((shared / "data" / "wake-word-wavs").rglob("*.wav")):
        with wave.open(str(path)) as file:
            samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())[:, 0]
        sound = samples.astype(np.float32) / np.float32(32768)
        parts = np.array_split(sound, max(1, len(sound) // 160_000))
        for i, part in enumerate(parts):
            if len(part) >= 24_000:
                found[f"{path.parent.name}-{path.stem}-{i}"] = part
    return found


def _keywords(shared: Path) -> dict[str, dict[str, Array]]:
    table = np.load(shared / "data" / "speech-commands-mini" / "mfcc.npz")
    speakers = np.array([Path(str(wav)).name.split("_")[0] for wav in table["wav"]])
    x, labels = table["mfcc"].astype(np.float32)[..., None], table["label"].astype(np.int64)
    return {who: {"window": x[speakers == who], "labels": labels[speakers == who]} for who in np.unique(speakers)}


def _mel_rows_tflite(shared: Path) -> dict[str, dict[str, Array]]:
    name = _only(shared, "openwakeword-frontend/embedding_model.tflite")
    return {key: {name: arrays["input_1"]} for key, arrays in _mel_rows(shared).items()}


def _mel_rows(shared: Path) -> dict[str, dict[str, Array]]:
    front = onnxruntime.InferenceSession(
        str(shared / "models" / "openwakeword-frontend" / "melspectrogram.onnx"), providers=["CPUExecutionProvider"]
    )
    found = {}
    for name, sound in _sounds(shared).items():
        (mel,) = front.run(None, {front.get_inputs()[0].name: sound[None] * np.float32(32768)})
        rows = mel.reshape(-1, 32) / 10 + 2
        starts = range(0, len(rows) - 75, 8)
        if len(starts) > 0:
            found[name] = {"input_1": np.stack([rows[i : i + 76, :, None] for i in starts]).astype(np.float32)}
    return found


def _notes(shared: Path) -> dict[str, dict[str, Array]]:
    found = {}
    for name, sound in _sounds(shared).items():
        count = int(len(sound) * 22_050 / 16_000)
        resampled = np.interp(np.arange(count) * 16_000 / 22_050, np.arange(len(sound)), sound).astype(np.float32)
        windows = [resampled[i : i + 43_844, None] for i in range(0, len(resampled) - 43_843, 43_844)]
        if windows:
            found[name] = {"serving_default_input_2_0": np.stack(windows)}
    return found


def _spectra(shared: Path) -> dict[str, dict[str, Array]]:
    found = {}
    for name, sound in _sounds(shared).items():
        frames = np.stack([sound[i : i + 512] for i in range(0, len(sound) - 511, 128)])
        found[name] = {"input_2": np.abs(np.fft.rfft(frames))[:, None].astype(np.float32)}
    return found


def _steps(shared: Path) -> dict[str, dict[str, Array]]:
    found = {}
    for name, sound in _sounds(shared).items():
        padded = np.concatenate([np.zeros(64, np.float32), sound])
        found[name] = {"input": np.stack([padded[i : i + 576] for i in range(0, len(padded) - 575, 512)])}
    return found


def _frames(shared: Path) -> dict[str, dict[str, Array]]:
    return {"toycar": {_only(shared, "mlperf-tiny/ad01_fp32.tflite"): toycar_frames(shared)}}


def _only(shared: Path, file: str) -> str:
    """Name of the one input of a TensorFlow Lite file."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - for these networks alone

    return (
        str(Interpreter(model_path=str(shared / "models" / file)).get_input_details()[0]["name"])
        .replace(":", "_")
        .replace("/", "_")
    )


def _crops(shared: Path, height: int, width: int) -> dict[str, Array]:
    """Crops of each photograph at random places and scales, 0 to 255, shrunk by averaging: (n, height, width, 3)."""
    random, found = np.random.default_rng(0), {}
    for path in sorted((shared / "data" / "images-coral").glob("*.png")):
        picture, crops = read_png(path), []
        most = max(1, min(picture.shape[0] // height, picture.shape[1] // width))
        if picture.shape[0] < height or picture.shape[1] < width:
            continue
        for _ in range(CROPS):
            factor = int(random.integers(1, most + 1))
            top, left = (int(random.integers(0, size - edge * factor + 1))
                         for size, edge in zip(picture.shape, (height, width), strict=False))  # fmt: skip
            square = picture[top : top + height * factor, left : left + width * factor].astype(np.float32)
            crops.append(square.reshape(height, factor, width, factor, 3).mean(axis=(1, 3)))
        found[path.stem] = np.stack(crops)
    return found


def _pictures(
    height: int, width: int, file: str, offset: float, scale: float
) -> Callable[[Path], dict[str, dict[str, Array]]]:
    def read(shared: Path) -> dict[str, dict[str, Array]]:
        first = file.endswith(".onnx")
        name = "input" if first else _only(shared, file)
        crops = {key: ((x - offset) * scale).astype(np.float32) for key, x in _crops(shared, height, width).items()}
        return {key: {name: x.transpose(0, 3, 1, 2) if first else x} for key, x in crops.items()}

    return read


_FACE = "ultra-light-face/version-slim-320_simplified.onnx"
_RESNET = "mlperf-tiny/pretrainedResnet.tflite"
_VWW = "mlperf-tiny/vww_96_float.tflite"

_NETWORKS: dict[str, tuple[str, str, dict[str, float], Callable[[Path], dict[str, dict[str, Array]]]]] = {
    "kws": ("DS-CNN keywords (ONNX), labels; split by speaker", "", {}, _keywords),
    "embedding": (
        "openWakeWord embedding (ONNX), by sound", "openwakeword-frontend/embedding_model.onnx", {}, _mel_rows
    ),
    "face": ("ultra-light face detector (ONNX), by photograph", _FACE, {}, _pictures(240, 320, _FACE, 127, 1 / 128)),
    "basic-pitch": ("audio to notes (ONNX), speech, by sound", "basic-pitch/nmp.onnx", {}, _notes),
    "dtln": ("noise suppression, first half (ONNX, states), by sound", "dtln/model_1.onnx", {}, _spectra),
    "silero": (
        "voice activity (ONNX, states), by sound", "silero-vad/silero_vad_16k_op15.onnx", {"sr": 16_000.0}, _steps
    ),
    "embedding-tflite": (
        "the same (TFLite), by sound", "openwakeword-frontend/embedding_model.tflite", {}, _mel_rows_tflite
    ),
    "ad": ("anomaly autoencoder (TFLite), one sound by blocks", "mlperf-tiny/ad01_fp32.tflite", {}, _frames),
    "ic": ("ResNet-8 (TFLite), crops, by photograph", _RESNET, {}, _pictures(32, 32, _RESNET, 0, 1.0)),
    "vww": ("MobileNetV1 0.25 (TFLite), crops, by photograph", _VWW, {}, _pictures(96, 96, _VWW, 0, 1 / 255)),
}  # fmt: skip
