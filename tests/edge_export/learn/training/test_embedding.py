"""A given network's features as a teacher: its head, its graph, and files that are of no use."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")

import onnxruntime  # noqa: E402
from edge_export.data.dataset import Windows  # noqa: E402
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise  # noqa: E402
from edge_export.graph.onnx_graph.passes.conv2d import as_conv2d  # noqa: E402
from edge_export.learn.networks import Calibrated, Classifier, build_network  # noqa: E402
from edge_export.learn.training.embedding import (  # noqa: E402
    ALONE,
    FOLDS,
    STRENGTHS,
    _choose,
    _deal,
    _regress,
    check_embedding,
    embedding_to_onnx,
    fit_embedding,
)
from edge_export.learn.training.loop import answer, start  # noqa: E402
from edge_export.recipe.feature_spec import Raw  # noqa: E402
from edge_export.recipe.network_spec import Embedding  # noqa: E402
from edge_export.step_cache import digest  # noqa: E402

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is
from tests.edge_export.graphs import GraphBuilder  # noqa: E402

CHANNELS, SAMPLES = 2, 100


def embedding(path: Path, *, frames: bool = True) -> Path:
    """Write a tiny embedding: random filters, rectified; frame by frame, or their mean."""
    b = GraphBuilder(CHANNELS, SAMPLES, seed=4)
    t = b.node("Relu", b.conv("window", CHANNELS, 24, 25, strides=[5]))
    result = (
        b.node("Transpose", t, perm=[0, 2, 1])
        if frames
        else b.node("ReduceMean", t, b.constant(np.array([2])), keepdims=0)
    )
    onnx.save(b.model(result), path)
    return path


def rhythms(count: int, seed: int = 0) -> Windows:
    """Draw windows of three rhythms by five people."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, count)
    phase = random.uniform(0, 6, (count, 1))
    waves = np.sin(2 * np.pi * np.arange(SAMPLES) / np.array([9.0, 13.0, 19.0])[y][:, None] + phase)
    x = np.stack([waves, waves[:, ::-1]], axis=1) + random.normal(0, 0.5, (count, CHANNELS, SAMPLES))
    group = np.array([f"p{number % 5}" for number in range(count)])
    return Windows(
        contexts=x.astype(np.float32), samples=SAMPLES, y=y, group=group,
        recording=np.arange(count) // 10, start=np.zeros(count, np.int64),
    )  # fmt: skip


def built(file: Path) -> Classifier:
    start(0)
    return build_network(Embedding(file=file), Raw(), channels=CHANNELS, samples=SAMPLES, classes=3)


@pytest.mark.slow
@pytest.mark.parametrize("frames", [True, False])
def test_features_tell_rhythms_apart_and_the_onnx_file_answers_the_same(tmp_path: Path, *, frames: bool) -> None:
    network = built(embedding(tmp_path / "e.onnx", frames=frames))
    assert network.head.in_features == (48 if frames else 24)
    known, unseen = rhythms(200), rhythms(60, seed=1)
    fit_embedding(network, known)
    expected = answer(Calibrated([network], 1.5), unseen.contexts)
    assert (expected.argmax(axis=1) == unseen.y).mean() > 0.85
    file = canonicalise(as_conv2d(embedding_to_onnx(network, 1.5))).SerializeToString()
    session = onnxruntime.InferenceSession(file)
    (found,) = session.run(None, {session.get_inputs()[0].name: unseen.contexts})
    np.testing.assert_allclose(found, expected, atol=1e-5)
    (alone,) = session.run(None, {session.get_inputs()[0].name: unseen.contexts[:1]})
    np.testing.assert_allclose(alone, expected[:1], atol=1e-5)


@pytest.mark.slow
def test_answers_are_as_sure_as_they_are_right(tmp_path: Path) -> None:
    network = built(embedding(tmp_path / "e.onnx"))
    known, unseen = rhythms(200), rhythms(200, seed=1)
    # Labels that are wrong now and then: being sure would be punished.
    y = np.where(np.random.default_rng(2).random(200) < 0.3, (known.y + 1) % 3, known.y)
    fit_embedding(network, replace(known, y=y))
    surest = answer(Calibrated([network]), unseen.contexts).max(axis=1)
    assert 0.5 < surest.mean() < 0.85


def test_features_that_are_people_s_own_are_trusted_less_with_people_left_out() -> None:
    random = np.random.default_rng(1)
    group = np.repeat(np.arange(10), 20)
    y = group % 2  # everybody has one label, so that what tells people apart tells labels apart
    x = torch.from_numpy(np.eye(10)[group] * 3 + random.normal(0, 0.3, (200, 10)))
    windows = replace(rhythms(200), group=group.astype(str))
    by_people, _ = _choose(x, torch.from_numpy(y), _deal([windows]), 2)
    by_windows, _ = _choose(x, torch.from_numpy(y), np.arange(200) % FOLDS, 2)
    assert by_people > by_windows


def test_one_group_is_dealt_by_recordings_and_one_recording_not_at_all() -> None:
    windows = rhythms(50)
    assert len(set(zip(windows.group.tolist(), _deal([windows]).tolist(), strict=True))) == FOLDS
    one = replace(windows, group=np.full(50, "p"))
    assert len(set(zip(one.recording.tolist(), _deal([one]).tolist(), strict=True))) == FOLDS
    alone = replace(one, recording=np.zeros(50, np.int64))
    assert set(_deal([alone]).tolist()) == {0}
    assert _choose(torch.ones(50, 2), torch.from_numpy(alone.y), _deal([alone]), 3) == ALONE


def test_a_group_is_in_one_fold_whether_recorded_or_drawn() -> None:
    recorded, drawn = rhythms(40), rhythms(90, seed=1)
    group = np.concatenate([recorded.group, drawn.group])
    assert len(set(zip(group.tolist(), _deal([recorded, drawn]).tolist(), strict=True))) == FOLDS


def test_weights_are_those_of_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model", reason="compared with scikit-learn")
    random = np.random.default_rng(5)
    y = random.integers(0, 3, 80)
    x = random.normal(size=(80, 6)) + y[:, None] * random.normal(size=6)
    strength = STRENGTHS[3]
    found = _regress(torch.from_numpy(x), torch.from_numpy(y), 3, STRENGTHS[:4])[-1]
    with_level = np.concatenate([x, np.ones((80, 1))], axis=1)
    theirs = linear_model.LogisticRegression(C=1 / (80 * strength), fit_intercept=False, tol=1e-8, max_iter=5000)
    np.testing.assert_allclose(found.T.numpy(), theirs.fit(with_level, y).coef_, atol=1e-4)


def test_another_file_of_the_same_name_is_another_step(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    first = digest({"family": Embedding(file=embedding(tmp_path / "e.onnx"))})
    assert first == digest({"family": Embedding(file=embedding(tmp_path / "a" / "e.onnx"))})
    assert first != digest({"family": Embedding(file=embedding(tmp_path / "e.onnx", frames=False))})


def save(path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, list[object]], outputs: list[str]) -> Path:
    kinds = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, "g", kinds, [helper.make_empty_tensor_value_info(name) for name in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def test_a_missing_file_is_named_with_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone.onnx.*recipe's folder"):
        built(tmp_path / "gone.onnx")


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "e.onnx").write_bytes(b"no model")
    with pytest.raises(ConfigError, match=r"embedding e.onnx"):
        built(tmp_path / "e.onnx")


def test_two_inputs_are_refused_by_their_names(tmp_path: Path) -> None:
    shape: list[object] = ["n", CHANNELS, SAMPLES]
    add = helper.make_node("Add", ["left", "right"], ["sum"])
    file = save(tmp_path / "e.onnx", [add], {"left": shape, "right": shape}, ["sum"])
    with pytest.raises(ConfigError, match=r"2 inputs \(left, right\).*extract_model"):
        built(file)


def test_other_windows_are_refused_with_both_shapes(tmp_path: Path) -> None:
    file = save(tmp_path / "e.onnx", [helper.make_node("Relu", ["x"], ["y"])], {"x": ["n", 16000]}, ["y"])
    with pytest.raises(ConfigError, match=r"takes \(-1, 16000\), not windows of \(2, 2, 100\).*Reshape"):
        built(file)


def test_features_of_four_axes_are_refused(tmp_path: Path) -> None:
    split = helper.make_node("Unsqueeze", ["x", "axes"], ["y"])
    axes = helper.make_node("Constant", [], ["axes"], value_ints=[3])
    file = save(tmp_path / "e.onnx", [axes, split], {"x": ["n", CHANNELS, SAMPLES]}, ["y"])
    with pytest.raises(ConfigError, match=r"gives \(2, 2, 100, 1\) for two windows.*Reshape"):
        built(file)


def test_features_that_depend_on_the_windows_beside_are_refused(tmp_path: Path) -> None:
    most = helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0)
    nodes = [most, helper.make_node("Sub", ["x", "most"], ["y"])]
    file = save(tmp_path / "e.onnx", nodes, {"x": ["n", CHANNELS, SAMPLES]}, ["y"])
    with pytest.raises(ConfigError, match=r"embedding e.onnx: .*together differ"):
        check_embedding(built(file), rhythms(4).contexts)


def test_features_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    file = save(tmp_path / "e.onnx", [helper.make_node("Log", ["x"], ["y"])], {"x": ["n", CHANNELS, SAMPLES]}, ["y"])
    known = rhythms(20)
    with pytest.raises(ConfigError, match="not finite; check the unit"):
        fit_embedding(built(file), known)
