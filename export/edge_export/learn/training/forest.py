"""Training of a forest: random trees on the features of a student's windows, in seconds and without gradient.

Source: Breiman 2001, "Random forests"; trees on a teacher's answers: Frosst and Hinton 2017 (arXiv:1711.09784).
"""

from __future__ import annotations

import numpy as np
import torch  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Float32, Int64
from edge_export.learn.networks.blocks import Classifier
from edge_export.learn.networks.forest import NEVER, ForestBody
from edge_export.learn.training.distill import DistillationSet
from edge_export.learn.training.loop import answer
from edge_export.recipe.network_spec import Forest


def fit_forest(
    network: Classifier, pool: DistillationSet, family: Forest, *, teacher_share: float, seed: int
) -> Classifier:
    """Grow a forest on a pool, and put it into a network, in place.

    Each tree learns a random part of the pool, and is offered a random part of the features at each node. An answer is
    the mean of the trees' log-probabilities, those of leaves that few windows reached drawn towards an even guess.

    Args:
        network: its body is a `ForestBody`.
        pool: windows with labels and the teacher's answers.
        family: how many trees, and how offered.
        teacher_share: weight of the teacher's answer against the label; without a label it has all of it.
        seed: seed of the random parts.
    """
    from sklearn.ensemble import RandomForestRegressor  # noqa: PLC0415 - a second to load

    body = network.body
    assert isinstance(body, ForestBody), "built from the family"
    network.eval()
    x = answer(network.front, pool.x).reshape(len(pool.x), -1)
    forest = RandomForestRegressor(
        n_estimators=body.trees, max_depth=body.depth, max_features=family.share, random_state=seed, n_jobs=1
    ).fit(x, pool.targets(teacher_share))
    grown = [_complete(tree.tree_, body.depth) for tree in forest.estimators_]
    body.take_trees(np.stack([one[0] for one in grown]), np.stack([one[1] for one in grown]))
    with torch.no_grad():
        network.head.weight.copy_(torch.from_numpy(np.concatenate([one[2] for one in grown]).T / body.trees))
        network.head.bias.zero_()
    return network


def _complete(tree: object, depth: int) -> tuple[Int64, Float32, Float32]:
    """Write one of scikit-learn's trees as a complete one: places, thresholds, (leaves, classes) log-probabilities."""
    left, right, count = tree.children_left, tree.children_right, tree.n_node_samples  # type: ignore[attr-defined]
    feature, threshold = tree.feature, tree.threshold  # type: ignore[attr-defined]
    shares = tree.value[:, :, 0]  # type: ignore[attr-defined]
    places = np.zeros(2**depth - 1, np.int64)
    thresholds = np.full(2**depth - 1, NEVER, np.float32)
    at = np.array([0])  # scikit-learn's node at each place of a level
    for level in range(depth):
        for place, node in enumerate(at, start=2**level - 1):
            if left[node] >= 0:
                places[place], thresholds[place] = feature[node], _below(threshold[node])
        inner = left[at] >= 0
        at = np.stack([np.where(inner, left[at], at), np.where(inner, right[at], at)], axis=1).reshape(-1)
    classes = shares.shape[1]
    smooth = (shares[at] * count[at, None] + 1 / classes) / (count[at, None] + 1)
    return places, thresholds, np.log(smooth).astype(np.float32)


def _below(threshold: float) -> np.float32:
    """Return the largest number of single precision that is not above: the same windows go to the right."""
    near = np.float32(threshold)
    return near if near <= threshold else np.nextafter(near, np.float32(-np.inf))
