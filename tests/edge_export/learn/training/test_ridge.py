"""MiniRocket as a teacher: its transform, written from the paper, and its closed-form last layer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")

import onnxruntime  # noqa: E402
from edge_export.graph.onnx_graph.from_torch import to_onnx  # noqa: E402
from edge_export.learn.networks import Calibrated, build_network  # noqa: E402
from edge_export.learn.networks.rocket import BIASES, RocketBody  # noqa: E402
from edge_export.learn.training.loop import answer  # noqa: E402
from edge_export.learn.training.ridge import STRENGTHS, _ridge, fit_rocket  # noqa: E402
from edge_export.recipe.feature_spec import Raw  # noqa: E402
from edge_export.recipe.network_spec import Rocket  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is


def _rhythms(count: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    y = random.integers(0, 3, count)
    phase = random.uniform(0, 6, (count, 1))
    waves = np.sin(2 * np.pi * np.arange(100) / np.array([9.0, 13.0, 19.0])[y][:, None] + phase)
    x = np.stack([waves, waves[:, ::-1]], axis=1) + random.normal(0, 0.7, (count, 2, 100))
    return x.astype(np.float32), y


def test_a_rocket_tells_rhythms_apart_in_noise_and_its_onnx_file_answers_the_same() -> None:
    x, y = _rhythms(160)
    network = build_network(Rocket(width=0.1), Raw(), channels=2, samples=100, classes=3)
    fit_rocket(network, x[:120], y[:120], seed=1)
    probabilities = answer(Calibrated([network]), x[120:])
    assert (probabilities.argmax(axis=1) == y[120:]).mean() > 0.85
    # Soft labels are probabilities that mean something: better than those of a classifier that knows nothing.
    assert -np.log(probabilities[np.arange(40), y[120:]]).mean() < 0.8
    file = to_onnx(Calibrated([network]), channels=2, samples=100).SerializeToString()
    session = onnxruntime.InferenceSession(file)
    (found,) = session.run(None, {session.get_inputs()[0].name: x[120:]})
    # A share changes by one frame where a convolution rounds otherwise beside a bias.
    np.testing.assert_allclose(found, probabilities, atol=0.02)


@settings(max_examples=10, deadline=None)
@given(st.integers(9, 300))
def test_a_rocket_makes_all_its_features_of_any_length(frames: int) -> None:
    x = np.random.default_rng(frames).normal(size=(4, 1, frames)).astype(np.float32)
    body = RocketBody(1, frames, 24)
    body.take_biases(x, 0)
    shares = answer(body, x)
    assert shares.shape == (4, 84 * 24)
    assert ((shares >= 0) & (shares <= 1)).all()


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("frames", [30, 97])
def test_the_shares_are_those_of_the_paper(rows: int, frames: int) -> None:
    """Written from section 3 of the paper: sums over taps, one window, kernel and bias at a time."""
    x = np.random.default_rng(frames).normal(size=(3, rows, frames)).astype(np.float32)
    body = RocketBody(rows, frames, 8)
    body.take_biases(x, 0)
    triples = list(itertools.combinations(range(9), 3))
    wanted: list[list[float]] = [[] for _ in x]
    for number, part in enumerate(body.parts):
        reach = 4 * part.dilation
        for half in (0, 1):
            for at in range(part.biases.shape[1]):
                for kernel in range(half, 84, 2):
                    taps = np.full(9, -1.0)
                    taps[list(triples[kernel])] = 2.0
                    for window, shares in zip(x, wanted, strict=True):
                        seen = np.pad(part.channels[kernel].numpy() @ window, reach)
                        outputs = sum(tap * seen[i * part.dilation :][:frames] for i, tap in enumerate(taps))
                        if (number + half) % 2 and frames > 2 * reach:
                            outputs = outputs[reach:-reach]
                        shares.append(float(np.mean(outputs > part.biases[kernel, at].item())))
    np.testing.assert_allclose(
        answer(body, x), wanted, atol=1.5 / (frames - 2 * reach if frames > 2 * reach else frames)
    )


def test_probabilities_teach_a_rocket_as_labels_do() -> None:
    x, y = _rhythms(160)
    weights = []
    for wanted in (y[:120], np.eye(3, dtype=np.float32)[y[:120]], np.full((120, 3), 1 / 3, np.float32)):
        network = build_network(Rocket(width=0.05), Raw(), channels=2, samples=100, classes=3)
        weights.append(fit_rocket(network, x[:120], wanted, seed=1).head.weight)
    torch.testing.assert_close(weights[0], weights[1])
    assert weights[2].abs().max() < 1e-6, "a teacher that knows nothing teaches nothing"


def test_width_one_is_the_paper_s_9996_features() -> None:
    assert RocketBody(1, 256, BIASES).width == 9996


def test_the_same_seed_makes_the_same_rocket() -> None:
    x, y = _rhythms(60)
    weights = []
    for _ in range(2):
        network = build_network(Rocket(width=0.02), Raw(), channels=2, samples=100, classes=3)
        weights.append(fit_rocket(network, x, y, seed=3).state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_window_of_eight_samples_is_too_short_for_a_rocket() -> None:
    with pytest.raises(ConfigError, match="9 frames"):
        build_network(Rocket(), Raw(), channels=1, samples=8, classes=2)


def test_strength_and_weights_are_those_of_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model", reason="compared with scikit-learn")
    random = np.random.default_rng(5)
    y = random.integers(0, 3, 50)
    x = random.normal(size=(50, 80)) + y[:, None] * random.normal(size=80)
    x -= x.mean(axis=0)
    theirs = linear_model.RidgeCV(alphas=STRENGTHS).fit(x, 2.0 * np.eye(3)[y] - 1)
    weights, level, sharpness = _ridge(torch.from_numpy(x), torch.from_numpy(np.eye(3)[y]))
    np.testing.assert_allclose(weights.T.numpy(), theirs.coef_, atol=1e-8)
    np.testing.assert_allclose(level.numpy(), theirs.intercept_, atol=1e-8)
    assert sharpness > 0
