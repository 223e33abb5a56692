"""A forest as a student: grown by scikit-learn, and answered the same by a network of ordinary operators."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
ensemble = pytest.importorskip("sklearn.ensemble", reason="grown by scikit-learn")

import onnxruntime  # noqa: E402
from edge_export.data.dataset import UNLABELLED  # noqa: E402
from edge_export.graph.onnx_graph.from_torch import to_onnx  # noqa: E402
from edge_export.learn.networks import Calibrated, build_network  # noqa: E402
from edge_export.learn.networks.blocks import Classifier  # noqa: E402
from edge_export.learn.networks.forest import ForestBody, paths_of  # noqa: E402
from edge_export.learn.training.distill import DistillationSet  # noqa: E402
from edge_export.learn.training.forest import fit_forest  # noqa: E402
from edge_export.learn.training.loop import answer  # noqa: E402
from edge_export.recipe.feature_spec import StatisticsSpec  # noqa: E402
from edge_export.recipe.network_spec import Forest  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is


def _corners(count: int, seed: int = 0) -> DistillationSet:
    """Four classes by whether the first channel is loud and the second one high: no single level tells them apart."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 4, count)
    x = random.normal(size=(count, 2, 40))
    x[:, 0] *= 1 + 2 * (y % 2)[:, None]
    x[:, 1] += 3 * (y // 2)[:, None]
    taught = np.full((count, 4), 0.02)
    taught[np.arange(count), y] = 0.94
    return DistillationSet(x=x.astype(np.float32), y=y, teacher=np.log(taught).astype(np.float32))


def _network(family: Forest, classes: int = 4) -> Classifier:
    return build_network(family, StatisticsSpec(), channels=2, samples=40, classes=classes)


def test_a_forest_learns_what_no_level_of_one_channel_says_and_its_file_answers_the_same() -> None:
    family = Forest(trees=12, depth=4)
    network = fit_forest(_network(family), _corners(300), family, teacher_share=0.5, seed=1)
    new = _corners(200, seed=9)
    probabilities = answer(Calibrated([network]), new.x)
    assert (probabilities.argmax(axis=1) == new.y).mean() > 0.95
    assert -np.log(probabilities[np.arange(200), new.y]).mean() < 0.5, "better than a guess among four by far"
    model = to_onnx(Calibrated([network]), channels=2, samples=40)
    assert {node.op_type for node in model.graph.node} >= {"Gather", "Greater", "Relu"}
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, {session.get_inputs()[0].name: new.x})
    np.testing.assert_allclose(found, probabilities, atol=1e-5)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.integers(1, 6), st.integers(0, 2**31 - 1))
def test_a_window_reaches_the_leaves_that_scikit_learn_says(trees: int, depth: int, seed: int) -> None:
    """One leaf of each tree; what the leaves say is the mean of the trees' log-probabilities, as computed by hand."""
    pool = _corners(120, seed)
    family = Forest(trees=trees, depth=depth, share=0.7)
    network = fit_forest(_network(family), pool, family, teacher_share=0.3, seed=seed)
    reached = answer(network.features, pool.x).reshape(120, trees, -1)
    assert np.isin(reached, (0, 1)).all()
    assert (reached.sum(axis=2) == 1).all()
    x = answer(network.front, pool.x).reshape(120, -1)
    targets = np.float64(0.3) * np.exp(pool.teacher).astype(np.float64) + 0.7 * np.eye(4)[pool.y]
    theirs = ensemble.RandomForestRegressor(trees, max_depth=depth, max_features=0.7, random_state=seed)
    theirs.fit(x, targets.astype(np.float32))
    wanted = np.zeros((120, 4))
    for tree in theirs.estimators_:
        leaf = tree.apply(x)
        count = tree.tree_.n_node_samples[leaf][:, None]
        wanted += np.log((tree.tree_.value[leaf][:, :, 0] * count + 0.25) / (count + 1)) / trees
    np.testing.assert_allclose(answer(network, pool.x), wanted, atol=1e-4)


def test_without_a_label_the_teacher_teaches_alone() -> None:
    pool = _corners(300)
    blind = DistillationSet(x=pool.x, y=np.full(300, UNLABELLED), teacher=pool.teacher)
    family = Forest(trees=8, depth=4)
    network = fit_forest(_network(family), blind, family, teacher_share=0.0, seed=1)
    new = _corners(200, seed=9)
    assert (answer(network, new.x).argmax(axis=1) == new.y).mean() > 0.9


def test_paths_of_a_tree_of_two_levels() -> None:
    assert paths_of(2).tolist() == [[-1, -1, 1, 1], [-1, 1, 0, 0], [0, 0, -1, 1]]


def test_nothing_learnt_is_the_leftmost_leaf() -> None:
    body = ForestBody(trees=2, depth=3)
    assert body(torch.full((1, 1, 1), 1e30)).tolist() == [[1] + [0] * 7 + [1] + [0] * 7]


@pytest.mark.parametrize("wrong", [{"trees": 0}, {"depth": 11}, {"share": 0.0}])
def test_a_forest_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="need 1 to 500"):
        Forest(**wrong)  # type: ignore[arg-type]
