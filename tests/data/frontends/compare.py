"""Rows of mel stages with random settings beside a library's: ``python compare.py librosa|psf|tensorflow|torchaudio``.

Prints the number of settings, and the largest difference as a share of the largest value of its rows. Run it at the
root of the repository with ``PYTHONPATH=.``, in the environments that ``make.py`` names.
"""

from __future__ import annotations

import functools
import random
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from edge_runtime.manifest.mel import Mel
from edge_runtime.signal.frontends.build import build

NOISE = (np.random.default_rng(1).normal(size=9000) * np.linspace(0.001, 0.3, 9000)).astype(np.float32)
Pair = tuple[str, dict[str, Any], Any]


def with_librosa(rng: random.Random) -> Iterator[Pair]:
    """400 settings: scale, norm, padding, window, logarithm, MFCC."""
    import librosa  # noqa: PLC0415 - only one of these libraries is there
    import scipy.fft  # noqa: PLC0415

    for _ in range(400):
        fft, rate = rng.choice([128, 255, 400, 441, 512, 1000, 1024, 2048]), rng.choice([8000, 16000, 22050, 44100])
        log = rng.choice(["db", "none", "ln", "log10"])
        spec: dict[str, Any] = {
            "rate_hz": rate, "fft": fft, "frame": rng.randint(fft // 3, fft), "hop": rng.randint(10, 700),
            "bands": rng.choice([8, 40, 64, 128]), "low_hz": rng.choice([0, 20, 125.5]),
            "high_hz": rng.choice([rate / 2, rate / 2.2, 3000]), "mel": rng.choice(["htk", "slaney"]),
            "norm": rng.choice(["none", "slaney"]), "power": rng.choice([1, 2]), "log": log, "floor": 1e-8,
            "centred": rng.random() < 0.6, "padding": rng.choice(["constant", "reflect"]),
            "window": rng.choice(["hann", "hamming"]), "preemphasis": rng.choice([0, 0.97]),
            "top_db": rng.choice([0, 30, 80]) if log == "db" else 0,
            "reference": rng.choice(["1", "max"]) if log == "db" else "1",
            "coefficients": rng.choice([0, 8]) if log != "none" else 0,
        }  # fmt: skip
        y = librosa.effects.preemphasis(NOISE.astype(np.float64), coef=spec["preemphasis"], zi=[0.0])
        rows = librosa.feature.melspectrogram(
            y=y, sr=rate, n_fft=fft, win_length=spec["frame"], hop_length=spec["hop"], n_mels=spec["bands"],
            fmin=spec["low_hz"], fmax=spec["high_hz"], htk=spec["mel"] == "htk", power=spec["power"],
            norm="slaney" if spec["norm"] == "slaney" else None, center=spec["centred"], pad_mode=spec["padding"],
            window=spec["window"],
        )  # fmt: skip
        if log == "db":
            to_db = librosa.power_to_db if spec["power"] == 2 else librosa.amplitude_to_db
            rows = to_db(
                rows, ref=np.max if spec["reference"] == "max" else 1.0, amin=1e-8, top_db=spec["top_db"] or None
            )
        elif log != "none":
            rows = {"ln": np.log, "log10": np.log10}[log](np.maximum(rows, 1e-8))
        if spec["coefficients"]:
            rows = scipy.fft.dct(rows, axis=-2, norm="ortho")[: spec["coefficients"]]
        yield "librosa", spec, rows.T


def with_psf(rng: random.Random) -> Iterator[Pair]:
    """200 settings of python_speech_features."""
    import python_speech_features as psf  # noqa: PLC0415

    for _ in range(200):
        rate, fft, coefficients = rng.choice([8000, 16000, 22050]), rng.choice([1024, 2048]), rng.choice([0, 13])
        spec: dict[str, Any] = {
            "definition": "python_speech_features", "rate_hz": rate, "frame": rng.randint(100, 1000), "fft": fft,
            "hop": rng.randint(50, 600), "bands": rng.choice([13, 26, 40, 80]), "low_hz": rng.choice([0, 50, 300]),
            "preemphasis": rng.choice([0, 0.97]), "coefficients": coefficients, "scale": 100,
        }  # fmt: skip
        settings = {
            "samplerate": rate, "winlen": spec["frame"] / rate, "winstep": spec["hop"] / rate, "nfilt": spec["bands"],
            "nfft": fft, "lowfreq": spec["low_hz"], "preemph": spec["preemphasis"],
        }  # fmt: skip
        y = NOISE.astype(np.float64) * 100
        if not coefficients:
            yield "python_speech_features", spec, psf.logfbank(y, **settings)
            continue
        spec |= {"lifter": rng.choice([0, 22]), "energy": rng.random() < 0.5}
        rows = psf.mfcc(y, numcep=coefficients, ceplifter=spec["lifter"], appendEnergy=spec["energy"], **settings)
        yield "python_speech_features", spec, rows


def with_tensorflow(rng: random.Random) -> Iterator[Pair]:
    """120 settings, in float64."""
    import tensorflow as tf  # noqa: PLC0415

    for _ in range(120):
        rate, window, periodic = rng.choice([8000, 16000, 22050]), rng.choice(["hann", "hamming"]), rng.random() < 0.7
        spec: dict[str, Any] = {
            "definition": "tensorflow", "rate_hz": rate, "frame": rng.randint(100, 1200), "hop": rng.randint(50, 600),
            "fft": rng.choice([0, 2048]), "bands": rng.choice([8, 20, 40, 80]), "power": rng.choice([1, 2]),
            "coefficients": rng.choice([0, 7]), "window": window if periodic else f"{window}-symmetric", "low_hz": 60,
            "high_hz": rate / 2.2,
        }  # fmt: skip
        taper = functools.partial(getattr(tf.signal, f"{window}_window"), periodic=periodic)
        spectra = tf.signal.stft(
            NOISE.astype(np.float64), spec["frame"], spec["hop"], spec["fft"] or None, window_fn=taper
        )
        bins = tf.abs(spectra) ** spec["power"]
        bank = tf.signal.linear_to_mel_weight_matrix(
            spec["bands"], bins.shape[-1], rate, 60.0, rate / 2.2, dtype=tf.float64
        )
        rows = tf.math.log(bins @ bank + 1e-6)
        if spec["coefficients"]:
            rows = tf.signal.mfccs_from_log_mel_spectrograms(rows)[..., : spec["coefficients"]]
        yield "tensorflow", spec, rows.numpy()


def with_torchaudio(rng: random.Random) -> Iterator[Pair]:
    """150 settings of its transforms, and as many of its Kaldi functions."""
    import torch  # noqa: PLC0415, TID251 - an oracle, not the product
    import torchaudio  # noqa: PLC0415

    for _ in range(150):
        rate, fft = rng.choice([8000, 16000, 22050]), rng.choice([256, 400, 512, 1024])
        spec: dict[str, Any] = {
            "definition": "torchaudio", "rate_hz": rate, "fft": fft, "frame": rng.randint(fft // 2, fft),
            "hop": rng.randint(50, 400), "bands": rng.choice([8, 40, 80]), "mel": rng.choice(["htk", "slaney"]),
            "norm": rng.choice(["none", "slaney"]), "power": rng.choice([1, 2]), "centred": rng.random() < 0.6,
            "low_hz": 20, "high_hz": rate / 2.1, "log": "ln", "floor": 1e-6, "floor_by": "add",
        }  # fmt: skip
        mel = torchaudio.transforms.MelSpectrogram(
            rate, n_fft=fft, win_length=spec["frame"], hop_length=spec["hop"], n_mels=spec["bands"],
            mel_scale=spec["mel"], norm="slaney" if spec["norm"] == "slaney" else None, power=float(spec["power"]),
            center=spec["centred"], f_min=20.0, f_max=rate / 2.1,
        ).double()  # fmt: skip
        yield "torchaudio", spec, torch.log(mel(torch.from_numpy(NOISE.astype(np.float64))) + 1e-6).T.numpy()
        window = rng.choice([("povey", "povey"), ("hanning", "hann-symmetric"), ("rectangular", "none")])
        frame_ms, bands, power = rng.choice([20.0, 25.0, 32.0]), rng.choice([8, 40, 80]), rng.choice([1, 2])
        kaldi: dict[str, Any] = {
            "definition": "kaldi", "rate_hz": rate, "frame": int(frame_ms * rate * 0.001), "bands": bands,
            "window": window[1], "power": power, "scale": 32768,
        }  # fmt: skip
        rows = torchaudio.compliance.kaldi.fbank(
            torch.from_numpy(NOISE * 32768)[None], sample_frequency=rate, frame_length=frame_ms, num_mel_bins=bands,
            window_type=window[0], use_power=power == 2,
        )  # fmt: skip
        yield "kaldi", kaldi, rows.numpy()


def main() -> None:
    warnings.simplefilter("ignore")
    libraries = {"librosa": with_librosa, "psf": with_psf, "tensorflow": with_tensorflow, "torchaudio": with_torchaudio}
    pairs = libraries[sys.argv[1]]
    found: dict[str, list[float]] = {}
    for name, spec, expected in pairs(random.Random(5)):
        rows, _ = build(Mel(**spec), (len(NOISE), 1))(NOISE[None, None, :, None], [])
        assert rows[0].shape == expected.shape, spec
        found.setdefault(name, []).append(float(np.abs(rows[0] - expected).max() / np.abs(expected).max()))
    for name, shares in found.items():
        print(f"{name}: {len(shares)} settings, largest difference {max(shares):.1e}")


if __name__ == "__main__":
    main()
