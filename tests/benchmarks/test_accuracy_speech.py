"""The speech embedding as one file: it computes what the peer of the accuracy benchmark does window by window."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

pytest.importorskip("torch", reason="the benchmark's other modules train networks (edge-export[train])")
signal = pytest.importorskip("scipy.signal", reason="compared with scipy's resampling (edge-export[train])")

from benchmarks.accuracy.peers import SpeechEmbedding  # noqa: E402
from benchmarks.accuracy.speech import RATE_HZ, join, resampling  # noqa: E402
from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is


@pytest.mark.parametrize("rate_hz", [8000, 11025, 44100, 48000])
def test_resampling_is_scipy_s(rate_hz: int) -> None:
    x = np.random.default_rng(0).normal(size=1000)
    filters, left, down = resampling(rate_hz, RATE_HZ)
    expected = signal.resample_poly(x, RATE_HZ, rate_hz)
    padded = np.concatenate([np.zeros(left), x, np.zeros(filters.shape[1])])
    starts = np.arange(0, len(x), down)
    found = np.stack([filters @ padded[start : start + filters.shape[1]] for start in starts]).ravel()
    np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-5)


@pytest.mark.parametrize(("rate_hz", "samples"), [(8000, 8000), (16000, 16000), (16000, 6000)])
def test_the_joined_file_gives_the_features_of_both(shared: Path, rate_hz: int, samples: int) -> None:
    folder = shared / "models" / "openwakeword-frontend"
    random = np.random.default_rng(0)
    # Loud beside quiet: each window has a floor of its own.
    x = (
        random.normal(size=(3, 1, samples))
        * np.linspace(0, 1, samples) ** 3
        * np.array([0.3, 0.001, 0.03])[:, None, None]
    )
    x = x.astype(np.float32)
    session = onnxruntime.InferenceSession(join(folder, rate_hz=rate_hz, samples=samples).SerializeToString())
    (pieces,) = session.run(None, {"window": x})
    found = np.concatenate([pieces.mean(axis=1), pieces.max(axis=1)], axis=1)
    expected = SpeechEmbedding(folder, rate_hz).features(x)
    np.testing.assert_allclose(found, expected, atol=1e-3 * np.abs(expected).max(), rtol=0)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"melspectrogram.onnx is missing; FOLDER needs"):
        join(tmp_path, rate_hz=8000, samples=8000)
