"""A plain baseline, the result of a competent afternoon: a random forest on summary statistics of each window.

No network is worth its bytes that does not beat this on people neither has seen.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from edge_export.data.dataset import Float32, Int64

NODE_BYTES = 16
"""Of a node as a runtime would hold it: two branches, a feature and a threshold of 4 bytes each."""


def features(x: Float32) -> Float32:
    """Seven statistics per channel.

    Args:
        x: (n, n_channels, samples).

    Returns:
        (n, 7 * n_channels): mean, standard deviation, least, largest, median, root mean square, mean absolute change.
    """
    statistics = [
        x.mean(axis=2),
        x.std(axis=2),
        x.min(axis=2),
        x.max(axis=2),
        np.median(x, axis=2),
        np.sqrt((x**2).mean(axis=2)),
        np.abs(np.diff(x, axis=2)).mean(axis=2),
    ]
    return np.concatenate(statistics, axis=1).astype(np.float32)


class RandomForest:
    """The forest, trained.

    Args:
        x: (n, n_channels, samples) to train on.
        y: (n,) class indices.
        seed: the forest's seed.
    """

    def __init__(self, x: Float32, y: Int64, *, seed: int) -> None:
        self._forest = RandomForestClassifier(n_estimators=300, random_state=seed, n_jobs=1).fit(features(x), y)

    def answer(self, x: Float32) -> Int64:
        """(m, n_channels, samples) to (m,) class indices."""
        answers: Int64 = self._forest.predict(features(x)).astype(np.int64)
        return answers

    @property
    def size(self) -> int:
        """Bytes of its trees: each node's two branches, feature, threshold, and shares of the classes."""
        shares = 4 * len(self._forest.classes_)
        return sum(tree.tree_.node_count * (NODE_BYTES + shares) for tree in self._forest.estimators_)
