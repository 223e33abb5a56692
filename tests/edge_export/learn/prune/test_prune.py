"""Pruning: the right channels go, widths come out round, answers survive, and nothing is skipped without a word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("torch_pruning", reason="pruning needs torch-pruning (edge-export[train])")

from edge_export.graph.onnx_graph.from_torch import to_onnx  # noqa: E402
from edge_export.learn.networks import Calibrated, build_network, count  # noqa: E402
from edge_export.learn.prune import Criterion, Pruning, ScoringWindows, parameter_scores, prune, zero_smallest  # noqa: E402
from edge_export.learn.training.loop import answer, fit_labels, start  # noqa: E402
from edge_export.recipe.feature_spec import FrontEnd, LogMelSpec, Raw, StatisticsSpec  # noqa: E402
from edge_export.recipe.network_spec import (  # noqa: E402
    Family,
    Gru,
    InceptionTime,
    Mlp,
    ResNet1d,
    ResNet2d,
    SeparableCnn1d,
    SeparableCnn2d,
    Tcn,
)
from edge_export.recipe.training_spec import Training  # noqa: E402

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is
from tests.edge_export.graphs import onnx_answers, windows  # noqa: E402
from tests.edge_export.learn.training.tones import ArraySampler, tones  # noqa: E402

MEL = LogMelSpec(rate_hz=1000.0, frame_s=0.064, hop_s=0.01, bands=10, low_hz=20.0, high_hz=450.0)
FAMILIES: dict[str, tuple[Family, FrontEnd]] = {
    "separable 1d": (SeparableCnn1d(pool="mean_max"), Raw()),
    "separable 2d": (SeparableCnn2d(width=0.5, depth=2), MEL),
    "tcn": (Tcn(width=1, depth=3), Raw()),
    "tcn, valid": (Tcn(width=1, depth=3, padding="valid", pool="mean"), Raw()),
    "gru": (Gru(), Raw()),
    "mlp": (Mlp(), StatisticsSpec()),
    "resnet 1d": (ResNet1d(width=0.5, depth=2), Raw()),
    "inception time": (InceptionTime(width=0.5, depth=3, reduction=2), Raw()),
    "resnet 2d": (ResNet2d(width=0.5, depth=3), MEL),
}


def build(name: str) -> Any:
    start(3)
    return build_network(*FAMILIES[name], channels=2, samples=240, classes=4).eval()


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_becomes_smaller_with_round_widths_and_the_same_front_end_and_head(name: str, scope: str) -> None:
    network = build(name)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    pruned = prune(network, Pruning(ratio=0.5, steps=2, scope=scope), channels=2, samples=240)  # type: ignore[arg-type]
    assert pruned.original == count(network, channels=2, samples=240)
    (one, two) = pruned.steps
    assert pruned.original.parameters > one.size.parameters > two.size.parameters
    assert two.size.parameters < 0.5 * pruned.original.parameters
    assert two.size.front_macs == pruned.original.front_macs
    assert all(width % 4 == 0 for width in two.widths.values())
    if scope == "layer" and name != "inception time":  # whose branches share one width
        for layer, width in two.widths.items():
            whole = dict(network.named_modules())[layer]
            outputs = getattr(whole, "out_channels", None) or getattr(whole, "out_features", None) or whole.hidden_size
            assert width == max(4, 4 * int(outputs / 8 + 0.5)), layer
    assert answer(pruned.network, windows(3, 2, 240)).shape == (3, 4)
    assert count(pruned.network, channels=2, samples=240) == two.size
    for key, value in network.state_dict().items():
        assert torch.equal(value, before[key]), "the network given must stay as it is"


@pytest.mark.parametrize("criterion", ["magnitude_l2", "fisher"])
@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "tcn"])
def test_channels_that_do_nothing_go_first_and_the_answers_stay(name: str, criterion: Criterion) -> None:
    """Every second channel of every layer is silenced; pruning must find exactly those, wherever they are read."""
    network = silenced(build(name))
    x = windows(8, 2, 240)
    evidence = ScoringWindows(x=x, y=np.arange(8) % 4)
    pruning = Pruning(ratio=0.5, steps=1, criterion=criterion)
    pruned = prune(network, pruning, channels=2, samples=240, evidence=evidence)
    assert pruned.steps[0].size.parameters < 0.6 * pruned.original.parameters
    # In double precision, so that nothing but the channels can make a difference.
    wide = torch.from_numpy(x).double()
    with torch.no_grad():
        expected, answers = network.double()(wide), pruned.network.double()(wide)
    np.testing.assert_allclose(answers, expected, atol=1e-9)


def silenced(network: Any) -> Any:
    """Zero all that leads to every second channel and reads it: coupled channels have the same places here."""
    with torch.no_grad():
        for module in network.modules():
            if module is network.head:
                continue
            if isinstance(module, torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Linear) and len(module.weight) >= 8:
                module.weight[1::2] = 0
                if module.weight.shape[1] >= 8:
                    module.weight[:, 1::2] = 0
                if module.bias is not None:
                    module.bias[1::2] = 0
            elif isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
                module.weight[1::2] = 0
                module.bias[1::2] = 0
            elif isinstance(module, torch.nn.GRU):
                dead = (torch.arange(module.hidden_size) % 2 == 1).repeat(3)
                for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"):
                    getattr(module, name)[dead] = 0
    return network


def test_ratios_of_single_layers_hold_and_kept_layers_stay() -> None:
    network = build("separable 1d")
    pruned = prune(
        network,
        Pruning(ratio=0.5, steps=1, ratios={"body.0.0": 0.0, "body.4.0": 0.75}),
        channels=2,
        samples=240,
        keep=("body.6.0",),
    )
    widths = pruned.steps[-1].widths
    assert widths["body.0.0"] == 16
    assert widths["body.2.0"] == 16
    assert widths["body.4.0"] == 8
    assert "body.6.0" not in widths
    assert dict(pruned.network.named_modules())["body.6.0"].out_channels == 48


@pytest.mark.parametrize("round_to", [4, 8, 16])
def test_widths_are_multiples_that_kernels_like(round_to: int) -> None:
    network = build("resnet 1d")
    pruned = prune(network, Pruning(ratio=0.4, steps=1, round_to=round_to), channels=2, samples=240)  # type: ignore[arg-type]
    layers = dict(network.named_modules())
    for name, width in pruned.steps[-1].widths.items():
        assert width % round_to == 0 or width == layers[name].out_channels < round_to, name


def test_fisher_is_the_mean_square_of_single_gradients_and_taylor_the_first_order() -> None:
    start(0)
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3, bias=False))
    x = windows(5, 2, 3)
    y = np.array([0, 1, 2, 0, 1])
    weight = network[1].weight.detach().numpy()
    flat = x.reshape(5, 6)
    logits = flat @ weight.T
    shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    single = (shares - np.eye(3)[y])[:, :, None] * flat[:, None, :]
    evidence = ScoringWindows(x=x, y=y)
    fisher = parameter_scores(network, "fisher", evidence)[network[1].weight]
    np.testing.assert_allclose(fisher, (single**2).sum(axis=0) * weight**2, rtol=1e-4, atol=1e-7)
    taylor = parameter_scores(network, "taylor", evidence)[network[1].weight]
    np.testing.assert_allclose(taylor, np.abs(single.mean(axis=0) * weight), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("criterion", ["magnitude_l1", "taylor", "fisher"])
def test_training_between_steps_keeps_the_accuracy(criterion: Criterion) -> None:
    start(0)
    network = build_network(
        SeparableCnn1d(width=1, depth=1, kernel=5, reduction=2), Raw(), channels=2, samples=48, classes=3
    )
    x, y = tones(600, 1)
    unseen, truth = tones(400, 9)
    fit_labels(network, ArraySampler(x, y, seed=2), Training(steps=100, batch=32, learning_rate=0.02))

    def accuracy(of: Any) -> float:
        return float((answer(of, unseen).argmax(axis=1) == truth).mean())

    pruned = prune(
        network,
        Pruning(ratio=0.5, steps=2, criterion=criterion),
        channels=2,
        samples=48,
        evidence=ScoringWindows(x=x[:100], y=y[:100]),
        tune=lambda of: fit_labels(of, ArraySampler(x, y, seed=3), Training(steps=40, batch=32, learning_rate=0.01)),
        evaluate=accuracy,
    )
    assert pruned.score == accuracy(network)
    last = pruned.steps[-1]
    assert last.before is not None
    assert last.after is not None
    assert last.after == accuracy(pruned.network)
    assert last.after > accuracy(network) - 0.08
    assert last.size.macs < 0.6 * pruned.original.macs


def test_a_step_that_loses_too_much_is_taken_back() -> None:
    network = build("separable 1d")
    scores = iter([0.9, 0.9, 0.89, 0.9, 0.7])  # given; then before and after training, twice
    pruned = prune(
        network,
        Pruning(ratio=0.5, steps=2),
        channels=2,
        samples=240,
        evaluate=lambda _: next(scores),
        max_drop=0.05,
    )
    assert len(pruned.steps) == 1
    assert pruned.refused is not None
    assert pruned.refused.after == 0.7
    assert count(pruned.network, channels=2, samples=240) == pruned.steps[0].size


def test_a_pruned_network_exports_and_answers_the_same() -> None:
    members = [
        prune(build(name), Pruning(ratio=0.5, steps=1), channels=2, samples=240).network
        for name in ("separable 1d", "gru", "tcn")
    ]
    network = Calibrated(members)
    x = windows(4, 2, 240)
    np.testing.assert_allclose(
        onnx_answers(to_onnx(network, channels=2, samples=240), x), answer(network, x), atol=1e-5
    )


def test_what_would_silently_do_nothing_is_refused() -> None:
    start(0)
    two = build_network(Gru(depth=2), Raw(), channels=2, samples=240, classes=4)
    with pytest.raises(ConfigError, match=r"layer 'body.1.gru' \(GRU\) cannot be pruned here"):
        prune(two, Pruning(ratio=0.5), channels=2, samples=240)
    narrow = build_network(SeparableCnn1d(width=0.25), Raw(), channels=2, samples=240, classes=4)
    with pytest.raises(ConfigError, match="pruning took nothing out"):
        prune(narrow, Pruning(ratio=0.2, round_to=16), channels=2, samples=240)
    grouped = torch.nn.Sequential(torch.nn.Conv1d(4, 8, 3, groups=2), torch.nn.Flatten(), torch.nn.Linear(80, 3))
    with pytest.raises(ConfigError, match="layer '0' has 2 groups"):
        prune(grouped, Pruning(ratio=0.5), channels=4, samples=12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pruning": Pruning(ratio=0.5, criterion="taylor")}, "pruning by taylor needs labelled windows"),
        ({"pruning": Pruning(ratio=0.5, ratios={"body.99": 0.5})}, "no layer 'body.99'"),
        ({"pruning": Pruning(ratio=0.5), "keep": ("neck",)}, "no layer 'neck'"),
        ({"pruning": Pruning(ratio=0.5), "max_drop": 0.01}, "needs someone who evaluates"),
    ],
)
def test_pruning_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        prune(build("mlp"), channels=2, samples=240, **settings)
    with pytest.raises(ConfigError, match="below 1"):
        Pruning(ratio=1.0)


def test_zeros_are_reported_as_compressed_bytes_and_nothing_else() -> None:
    network = build("separable 1d")
    zeroed = zero_smallest(network, 0.7)
    assert zeroed.zeros == pytest.approx(0.7, abs=0.01)
    assert zeroed.compressed_after < 0.5 * zeroed.compressed_before
    assert zeroed.compressed_before <= zeroed.raw_bytes
    assert count(zeroed.network, channels=2, samples=240) == count(network, channels=2, samples=240)
    before, after = (of.body[2][0].weight.detach().abs().max() for of in (network, zeroed.network))
    assert float(after) == float(before)
    with pytest.raises(ConfigError, match="less than 1"):
        zero_smallest(network, 1.0)
