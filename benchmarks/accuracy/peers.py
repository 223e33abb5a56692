"""Peers: what a user could have in an afternoon, trained and asked fold by fold as the networks were."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime
from edge_export.data.dataset import Float32, Int64, Windows, spread
from edge_export.training.baseline import random_forest
from scipy.signal import resample_poly
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.accuracy.rocket import minirocket

MOST_WINDOWS = 4000
"""Training windows of a peer, evenly spread."""
LONG = 2000
"""Samples of a window beyond which MiniRocket takes minutes a fold; such windows are halved until they are shorter."""
EMBEDDING_HZ = 16000
FRAMES = 76
"""Frames of one embedding."""

Peer = Callable[[Float32, Int64, Float32], Int64]


def fold_by_fold(windows: Windows, fold: npt.NDArray[np.int64], peer: Peer) -> Int64:
    """Answer every fold by a peer that was trained on the others: (n,) class indices."""
    x = windows.x
    answers = np.empty(len(windows), np.int64)
    for number in np.unique(fold):
        left = fold == number
        seen = np.flatnonzero(~left)
        seen = seen[spread(len(seen), MOST_WINDOWS)]
        answers[left] = peer(x[seen], windows.y[seen], x[left])
    return answers


def forest(x: Float32, y: Int64, unseen: Float32) -> Int64:
    """Random forest on seven statistics of each channel."""
    return random_forest(x, y, unseen, seed=0)


def rocket(x: Float32, y: Int64, unseen: Float32) -> Int64:
    """MiniRocket and ridge regression."""
    while x.shape[2] > LONG:
        x, unseen = (
            each[:, :, : each.shape[2] // 2 * 2].reshape(*each.shape[:2], -1, 2).mean(3) for each in (x, unseen)
        )
    return minirocket(np.ascontiguousarray(x), y, np.ascontiguousarray(unseen), seed=0)


class SpeechEmbedding:
    """Google's speech embedding, as openWakeWord has it, and logistic regression on its mean and maximum over time.

    Args:
        folder: with ``melspectrogram.onnx`` and ``embedding_model.onnx``.
        rate_hz: of the windows.
    """

    def __init__(self, folder: Path, rate_hz: float) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._mel = onnxruntime.InferenceSession(folder / "melspectrogram.onnx", options)
        self._net = onnxruntime.InferenceSession(folder / "embedding_model.onnx", options)
        self._rate_hz = round(rate_hz)
        self._known: dict[bytes, Float32] = {}

    def __call__(self, x: Float32, y: Int64, unseen: Float32) -> Int64:
        """Train on some windows, answer others."""
        scale = StandardScaler()
        head = LogisticRegression(C=0.1, max_iter=500).fit(scale.fit_transform(self._features(x)), y)
        answers: Int64 = head.predict(scale.transform(self._features(unseen))).astype(np.int64)
        return answers

    def _features(self, x: Float32) -> Float32:
        return np.stack([self._feature(window[0]) for window in x])

    def _feature(self, window: Float32) -> Float32:
        name = window.tobytes()
        if name not in self._known:
            sound = resample_poly(window, EMBEDDING_HZ, self._rate_hz).astype(np.float32) * 32767
            (mel,) = self._mel.run(None, {self._mel.get_inputs()[0].name: sound[None]})
            frames = mel.reshape(-1, 32) / 10 + 2
            frames = np.pad(frames, ((max(0, FRAMES - len(frames)), 0), (0, 0)), mode="edge")
            cut = np.stack([frames[at : at + FRAMES] for at in range(0, len(frames) - FRAMES + 1, 8)])
            (rows,) = self._net.run(None, {self._net.get_inputs()[0].name: cut[..., None]})
            rows = rows.reshape(len(cut), -1)
            self._known[name] = np.concatenate([rows.mean(axis=0), rows.max(axis=0)])
        return self._known[name]
