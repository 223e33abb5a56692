"""Rows that the libraries compute of one made sound: ``python make.py librosa|psf|tensorflow|torchaudio``.

Each writes ``LIBRARY.npz`` beside this file: ``sound`` (4,000 samples of 16 bits at 16 kHz), ``versions``, and an array
for each case of tests/edge_runtime/signal/frontends/test_references.py. Run it in a throw-away environment with

    librosa 0.11.0 (scipy 1.17.1) | python_speech_features 0.6 | tensorflow-cpu 2.21.0
    torch 2.13.0 and torchaudio 2.11.0

Only torchaudio's Python code is used: where its compiled extension does not load, delete the extension.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np


def made_sound() -> np.ndarray:
    """A rising tone with a quiet beginning, a click, noise and an offset: (4000,) int16."""
    rng = np.random.default_rng(20)
    t = np.arange(4000) / 16000
    loud = np.clip(t / 0.1, 0.001, 1)
    sound = loud * (0.4 * np.sin(2 * np.pi * (200 * t + 6000 * t**2)) + 0.05 * rng.normal(size=4000)) + 0.01
    sound[2500] = 0.9
    return np.round(sound * 32767).astype(np.int16)


def of_librosa(x: np.ndarray) -> dict[str, np.ndarray]:
    """Librosa takes float64 and keeps it, but for its filter bank."""
    import librosa  # noqa: PLC0415 - only one of these libraries is there
    import scipy.stats  # noqa: PLC0415

    y = x.astype(np.float64)

    def mel(**settings: object) -> np.ndarray:
        return np.asarray(librosa.feature.melspectrogram(y=y, sr=16000, **settings))

    miniresnet = mel(n_fft=1024, hop_length=320, n_mels=64, fmin=20, fmax=7500)
    yamnet = mel(
        n_fft=512, win_length=400, hop_length=160, n_mels=64, fmin=125, fmax=7500, htk=True, norm=None, power=1,
        center=False,
    )  # fmt: skip
    toycar = mel(n_fft=1024, hop_length=512, n_mels=128, pad_mode="reflect")
    energies = mel(n_fft=512, hop_length=160, n_mels=40, power=1)
    channels = y[:3999].reshape(1333, 3)
    return {
        "defaults": librosa.power_to_db(mel()).T,
        "energies": mel(n_fft=400, hop_length=200, n_mels=32, window="hamming").T,
        "miniresnet": librosa.power_to_db(miniresnet, ref=np.max).T,
        "yamnet": np.log(np.maximum(yamnet, 1e-3)).T,
        "toycar": 10 * np.log10(toycar.T + sys.float_info.epsilon),
        "magnitudes": librosa.amplitude_to_db(energies).T,
        "mfcc": librosa.feature.mfcc(y=y, sr=16000, n_mfcc=13, n_fft=512, hop_length=160).T,
        "pcen": librosa.pcen(energies * 2**31, sr=16000, hop_length=160).T,
        "complex": librosa.stft(y, n_fft=512, hop_length=128, window="boxcar", center=False).T[::9],
        "mad": scipy.stats.median_abs_deviation(channels),
        "kurtosis": scipy.stats.kurtosis(channels),
        "envelope": np.abs(scipy.signal.hilbert(y))[::20],
    }


def of_tensorflow(x: np.ndarray) -> dict[str, np.ndarray]:
    """TensorFlow computes in float32, here as MLPerf Tiny's training code calls it."""
    import tensorflow as tf  # noqa: PLC0415

    def keyword(y: tf.Tensor) -> tf.Tensor:
        magnitudes = tf.abs(tf.signal.stft(y, 480, 320))
        bank = tf.signal.linear_to_mel_weight_matrix(40, 257, 16000, 20.0, 4000.0)
        logs = tf.math.log(tf.tensordot(magnitudes, bank, 1) + 1e-6)
        return tf.signal.mfccs_from_log_mel_spectrograms(logs)[..., :10]

    def wake_word(y: tf.Tensor) -> tf.Tensor:
        y = tf.pad(y, [[1, 0]])
        y = y[1:] - (1 - 2**-5) * y[:-1]

        def symmetric(length: int, dtype: tf.DType) -> tf.Tensor:
            return tf.signal.hamming_window(length, periodic=False, dtype=dtype)

        magnitudes = tf.abs(tf.signal.stft(y, 1024, 512, window_fn=symmetric))
        powers = tf.maximum(tf.square(magnitudes) / 1024, 1e-30)
        bank = tf.signal.linear_to_mel_weight_matrix(40, 513, 16000, 0.0, 8000.0)
        decibels = 10 * tf.math.log(tf.tensordot(powers, bank, 1)) / tf.math.log(10.0)
        return tf.clip_by_value((decibels + 52) / 64, 0, 1)

    bank = tf.signal.linear_to_mel_weight_matrix(num_spectrogram_bins=257, sample_rate=16000)
    magnitudes = tf.abs(tf.signal.stft(x, 512, 160))
    return {
        "defaults": tf.math.log(tf.tensordot(magnitudes, bank, 1) + 1e-6).numpy(),
        "keyword": keyword(x / tf.reduce_max(x)).numpy(),
        "wake_word": wake_word(x).numpy(),
        "magnitude": tf.abs(tf.signal.stft(x, 255, 128)).numpy()[::9],
    }


def of_torchaudio(x: np.ndarray) -> dict[str, np.ndarray]:
    """Torchaudio's transforms take float64; its Kaldi functions compute in float32."""
    import torch  # noqa: PLC0415, TID251 - an oracle, not the product
    import torchaudio  # noqa: PLC0415

    wave = torch.from_numpy(x.astype(np.float64))
    mel = torchaudio.transforms.MelSpectrogram(16000, n_fft=512, win_length=400, hop_length=160, n_mels=40).double()
    defaults = torchaudio.transforms.MelSpectrogram(16000).double()
    logs = torchaudio.transforms.AmplitudeToDB("power")
    mfcc = torchaudio.transforms.MFCC(
        16000, n_mfcc=13, melkwargs={"n_fft": 512, "hop_length": 160, "n_mels": 40}
    ).double()
    fbank = torchaudio.compliance.kaldi.fbank
    whole = torch.from_numpy(x * 32768)[None]
    return {
        "defaults": logs(defaults(wave)).T.numpy(),
        "mel": torch.log(mel(wave) + 1e-6).T.numpy(),
        "mfcc": mfcc(wave).T.numpy(),
        "kaldi": fbank(whole).numpy(),
        "kaldi_64": fbank(whole, num_mel_bins=64, window_type="hanning", low_freq=60, high_freq=-400).numpy(),
    }


def of_psf(x: np.ndarray) -> dict[str, np.ndarray]:
    """python_speech_features, with its defaults and as a tutorial for wake words calls it."""
    import python_speech_features as psf  # noqa: PLC0415

    y = x.astype(np.float64) * 32768
    tutorial = psf.mfcc(
        y, samplerate=8000, winlen=0.1, winstep=0.05, numcep=16, nfilt=26, nfft=2048, preemph=0.0, ceplifter=0,
        appendEnergy=False, winfunc=np.hanning,
    )  # fmt: skip
    return {"defaults": psf.logfbank(y), "mfcc": psf.mfcc(y), "tutorial": tutorial}


def main() -> None:
    library = sys.argv[1]
    sound = made_sound()
    x = sound.astype(np.float32) / 32768
    rows = {"librosa": of_librosa, "psf": of_psf, "tensorflow": of_tensorflow, "torchaudio": of_torchaudio}[library](x)
    packages = {
        "librosa": ("librosa", "scipy"),
        "psf": ("python_speech_features", "scipy"),
        "tensorflow": ("tensorflow-cpu",),
        "torchaudio": ("torch", "torchaudio"),
    }
    versions = ", ".join(f"{name} {version(name)}" for name in (*packages[library], "numpy"))
    small: dict[str, Any] = {n: x.astype(np.complex64 if np.iscomplexobj(x) else np.float32) for n, x in rows.items()}
    np.savez_compressed(Path(__file__).with_name(f"{library}.npz"), sound=sound, versions=versions, **small)


if __name__ == "__main__":
    main()
