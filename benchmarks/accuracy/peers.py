"""Peers: what a user could have in an afternoon, trained and asked fold by fold as the networks were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
import onnxruntime
from edge_export.data.dataset import Float32, Int64, Windows, spread
from scipy.signal import resample_poly
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from benchmarks.accuracy.rocket import MiniRocketRidge
from benchmarks.accuracy.speech import BANDS, FULL_SCALE, MEL_FILE, NET_FILE, PIECE, PIECE_HOP, RATE_HZ

MOST_WINDOWS = 4000
"""Training windows of a peer, evenly spread."""
LONG = 2000
"""Samples of a window beyond which MiniRocket takes minutes a fold; such windows are halved until they are shorter."""


class Fitted(Protocol):
    """A trained peer."""

    @property
    def size(self) -> int:
        """Bytes of what it has learnt, and of what it needs."""
        ...

    def answer(self, x: Float32) -> Int64:
        """(n, channels, samples) to (n,) class indices."""
        ...


class Peer(Protocol):
    """A way to train one."""

    def __call__(self, x: Float32, y: Int64, *, seed: int) -> Fitted:
        """Train on some windows."""
        ...


def fold_by_fold(
    windows: Windows, fold: npt.NDArray[np.int64], peer: Peer, *, seed: int, judged: Sequence[int]
) -> Int64:
    """Answer folds by a peer that was trained on the others: (n,) class indices, -1 where a fold is not judged."""
    answers = np.full(len(windows), -1, np.int64)
    for number in judged:
        left = fold == number
        answers[left] = fit_without(windows, left, peer, seed=seed).answer(windows.x[left])
    return answers


def fit_without(windows: Windows, left: npt.NDArray[np.bool_], peer: Peer, *, seed: int) -> Fitted:
    """Train a peer on all windows but some, at most `MOST_WINDOWS` of them."""
    seen = np.flatnonzero(~left)
    seen = seen[spread(len(seen), MOST_WINDOWS)]
    return peer(windows.x[seen], windows.y[seen], seed=seed)


class Rocket:
    """MiniRocket and ridge regression; long windows are halved first."""

    def __init__(self, x: Float32, y: Int64, *, seed: int) -> None:
        self._fitted = MiniRocketRidge(_halved(x), y, seed=seed)

    @property
    def size(self) -> int:
        """See `Fitted.size`."""
        return self._fitted.size

    def answer(self, x: Float32) -> Int64:
        """See `Fitted.answer`."""
        return self._fitted.answer(_halved(x))


def _halved(x: Float32) -> Float32:
    while x.shape[2] > LONG:
        x = x[:, :, : x.shape[2] // 2 * 2].reshape(*x.shape[:2], -1, 2).mean(3)
    return np.ascontiguousarray(x)


@dataclass(frozen=True)
class _Head:
    """Logistic regression on an embedding."""

    embedding: SpeechEmbedding
    scale: StandardScaler
    head: LogisticRegression

    @property
    def size(self) -> int:
        return self.embedding.size + 4 * int(self.head.coef_.size + self.head.intercept_.size)

    def answer(self, x: Float32) -> Int64:
        answers: Int64 = self.head.predict(self.scale.transform(self.embedding.features(x))).astype(np.int64)
        return answers


class SpeechEmbedding:
    """Google's speech embedding, as openWakeWord has it, and logistic regression on its mean and maximum over time.

    Args:
        folder: with ``melspectrogram.onnx`` and ``embedding_model.onnx``.
        rate_hz: of the windows.
    """

    def __init__(self, folder: Path, rate_hz: float) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._mel, self._net = (onnxruntime.InferenceSession(folder / name, options) for name in (MEL_FILE, NET_FILE))
        self._rate_hz = round(rate_hz)
        self._known: dict[bytes, Float32] = {}
        self.size = sum((folder / name).stat().st_size for name in (MEL_FILE, NET_FILE))

    def __call__(self, x: Float32, y: Int64, *, seed: int) -> Fitted:
        """Train a head on some windows."""
        scale = StandardScaler()
        head = LogisticRegression(C=0.1, max_iter=500, random_state=seed).fit(scale.fit_transform(self.features(x)), y)
        return _Head(self, scale, head)

    def features(self, x: Float32) -> Float32:
        """(n, 1, samples) to (n, features)."""
        return np.stack([self._feature(window[0]) for window in x])

    def _feature(self, window: Float32) -> Float32:
        name = window.tobytes()
        if name not in self._known:
            sound = resample_poly(window, RATE_HZ, self._rate_hz).astype(np.float32) * FULL_SCALE
            (mel,) = self._mel.run(None, {self._mel.get_inputs()[0].name: sound[None]})
            frames = mel.reshape(-1, BANDS) / 10 + 2
            frames = np.pad(frames, ((max(0, PIECE - len(frames)), 0), (0, 0)), mode="edge")
            cut = np.stack([frames[at : at + PIECE] for at in range(0, len(frames) - PIECE + 1, PIECE_HOP)])
            (rows,) = self._net.run(None, {self._net.get_inputs()[0].name: cut[..., None]})
            rows = rows.reshape(len(cut), -1)
            self._known[name] = np.concatenate([rows.mean(axis=0), rows.max(axis=0)])
        return self._known[name]
