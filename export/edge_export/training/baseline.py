"""A plain baseline, the result of a competent afternoon: a random forest on summary statistics of each window.

No network is worth its bytes that does not beat this on people neither has seen.
"""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import RandomForestClassifier

from edge_export.data.dataset import Float32, Int64


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


def random_forest(x: Float32, y: Int64, unseen: Float32, *, seed: int) -> Int64:
    """Train on some windows, answer others.

    Args:
        x: (n, n_channels, samples) to train on.
        y: (n,) class indices.
        unseen: (m, n_channels, samples) to answer.
        seed: of the forest.

    Returns:
        (m,) class indices.
    """
    forest = RandomForestClassifier(n_estimators=300, random_state=seed, n_jobs=1).fit(features(x), y)
    answers: Int64 = forest.predict(features(unseen)).astype(np.int64)
    return answers
