"""Families of networks: what they build, in ONNX too, how large it is, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")

from edge_export.graph.onnx_graph.from_torch import to_onnx  # noqa: E402
from edge_export.learn.networks import Calibrated, build_network, count, sized_to  # noqa: E402
from edge_export.learn.training.loop import answer, start  # noqa: E402
from edge_export.recipe.feature_spec import FrontEnd, LogMelSpec, Raw, StatisticsSpec  # noqa: E402
from edge_export.recipe.network_spec import (  # noqa: E402
    Family,
    Forest,
    Gru,
    InceptionTime,
    Mlp,
    ResNet1d,
    ResNet2d,
    SeparableCnn1d,
    SeparableCnn2d,
    SizedFamily,
    Tcn,
)

from edge_runtime.errors import ConfigError  # noqa: E402 - only where torch is
from tests.edge_export.graphs import onnx_answers, windows  # noqa: E402

MEL = LogMelSpec(rate_hz=1000.0, frame_s=0.064, hop_s=0.01, bands=10, low_hz=20.0, high_hz=450.0)
NETWORKS: dict[str, tuple[Family, FrontEnd]] = {
    "separable 1d": (SeparableCnn1d(), Raw()),
    "separable 1d, same padding": (SeparableCnn1d(padding="same", pool="mean_max", reduction=8), Raw()),
    "separable 2d": (SeparableCnn2d(width=0.25, depth=2), MEL),
    "separable 2d, halved": (SeparableCnn2d(width=0.125, depth=2, kernel=(3, 3), reduction=1, halvings=1), MEL),
    "tcn": (Tcn(width=0.5, depth=3), Raw()),
    "tcn, valid": (Tcn(width=0.5, depth=3, padding="valid", pool="mean", reduction=2), Raw()),
    "gru": (Gru(width=0.5), Raw()),
    "gru, two layers, last": (Gru(width=0.5, depth=2, pool="last"), Raw()),
    "mlp": (Mlp(), StatisticsSpec()),
    "forest": (Forest(), StatisticsSpec()),
    "resnet 1d": (ResNet1d(width=0.25), Raw()),
    "inception time": (InceptionTime(width=0.25, depth=4, reduction=2), Raw()),
    "resnet 2d": (ResNet2d(width=0.5, depth=3), MEL),
}


def used(network: Any) -> Any:
    """Batch statistics as training would leave them: none at zero or one, where exporters take short cuts."""
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return network


@pytest.mark.parametrize("group", ["separable", "tcn", "gru", "teachers"])
def test_networks_answer_in_onnx_as_in_torch_with_nothing_but_known_operators(group: str) -> None:
    """A few in one file, as an ensemble: exporting one by one would take minutes."""
    start(3)
    names = {
        "separable": ("separable 1d", "separable 1d, same padding", "separable 2d", "separable 2d, halved"),
        "tcn": ("tcn", "tcn, valid", "mlp"),
        "gru": ("gru", "gru, two layers, last"),
        "teachers": ("resnet 1d", "inception time", "resnet 2d"),
    }[group]
    members = [used(build_network(*NETWORKS[name], channels=2, samples=240, classes=4)) for name in names]
    network = Calibrated(members)
    x = windows(5, 2, 240)
    model = to_onnx(network, channels=2, samples=240)
    np.testing.assert_allclose(onnx_answers(model, x), answer(network, x), atol=2e-5)
    assert {node.op_type for node in model.graph.node} <= {
        "Add", "AveragePool", "BatchNormalization", "Clip", "Concat", "Conv", "GRU", "Gemm", "GlobalAveragePool", "Log",
        "MaxPool", "Mul", "Neg", "Pad", "Relu", "Reshape", "Sigmoid", "Slice", "Softmax", "Sqrt", "Squeeze", "Sub",
        "Transpose", "Unsqueeze", "ReduceMean",
    }  # fmt: skip
    if group in ("tcn", "gru"):
        # Batch normalisation is folded in the file: it holds what `count` says, and little else.
        stored = sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer)
        counted = sum(count(member, channels=2, samples=240).parameters for member in members)
        assert 0 <= stored - counted < 30
    if group == "gru":
        assert len(model.graph.node) < 30


def test_a_forest_is_counted_as_it_is_held() -> None:
    size = count(build_network(*NETWORKS["forest"], channels=2, samples=240, classes=4), channels=2, samples=240)
    nodes, leaves = 16 * 15, 16 * 16
    assert size.parameters == 2 * nodes + (leaves + 1) * 4
    assert size.macs - size.front_macs == nodes * 16 + leaves * 4
    model = to_onnx(
        Calibrated([build_network(*NETWORKS["forest"], channels=2, samples=240, classes=4)]), channels=2, samples=240
    )
    assert {node.op_type for node in model.graph.node} >= {"Gather", "Greater", "MatMul"}


def test_multiplications_are_those_of_the_layers() -> None:
    network = build_network(SeparableCnn1d(depth=1, kernel=5, reduction=1), Raw(), channels=2, samples=24, classes=3)
    size = count(network, channels=2, samples=24)
    first, depthwise, pointwise, dense = 20 * 2 * 5 * 16, 16 * 16 * 5, 16 * 16 * 32, 32 * 3
    assert size.macs == first + depthwise + pointwise + dense
    assert size.front_macs == 0


def test_halved_bands_and_frames_leave_the_later_blocks_little_to_do() -> None:
    family = SeparableCnn2d(width=0.25, depth=2, kernel=(3, 3), reduction=1, padding="same")
    plain, halved = (
        count(build_network(of, MEL, channels=1, samples=240, classes=4), channels=1, samples=240)
        for of in (family, replace(family, halvings=1))
    )
    # 10 bands of 18 frames; the first convolution leaves 5 of 18, a halving block 2 of 9.
    first, dense = 90 * 16 * 4 * 3, 16 * 4
    assert plain.macs - plain.front_macs == first + 2 * 90 * (16 * 9 + 16 * 16) + dense
    assert halved.macs - halved.front_macs == first + 18 * (16 * 16 + 16 * 32) + 18 * (32 * 9 + 32 * 32) + 2 * dense


def test_the_front_end_s_tables_and_work_are_counted() -> None:
    fine, coarse = (
        count(
            build_network(SeparableCnn2d(depth=2), replace(MEL, coefficients=c), channels=1, samples=240, classes=4),
            channels=1,
            samples=240,
        )
        for c in ("float32", "int8")
    )
    frames, bins = 18, len(MEL.spectrogram.bins)
    assert fine.front_macs == frames * (2 * bins * 64 + bins * 10)
    assert fine.int8_bytes - coarse.int8_bytes == 3 * (2 * bins * 64 + bins * 10)


@pytest.mark.parametrize("family", [SeparableCnn1d(), Tcn(depth=2), Gru(), ResNet1d(depth=2)])
def test_a_family_is_sized_to_the_largest_width_within_a_budget(family: SizedFamily) -> None:
    budget = 60_000
    sized = sized_to(family, Raw(), channels=2, samples=240, classes=4, max_bytes=budget)

    def size(of: SizedFamily) -> int:
        return count(build_network(of, Raw(), channels=2, samples=240, classes=4), channels=2, samples=240).int8_bytes

    step = {SeparableCnn1d: 16, Tcn: 24, Gru: 32, ResNet1d: 64}[type(family)]
    assert size(sized) <= budget < size(replace(sized, width=sized.width + 4 / step))


def test_every_budget_holds_and_an_impossible_one_is_refused_with_what_it_takes() -> None:
    sized = sized_to(SeparableCnn1d(), Raw(), channels=2, samples=240, classes=4, max_bytes=10**6, max_macs=100_000)
    network = build_network(sized, Raw(), channels=2, samples=240, classes=4)
    assert count(network, channels=2, samples=240).macs <= 100_000
    with pytest.raises(ConfigError, match=r"the narrowest SeparableCnn1d takes \d+ bytes"):
        sized_to(SeparableCnn1d(), Raw(), channels=2, samples=240, classes=4, max_bytes=3000)
    with pytest.raises(ConfigError, match="no budget"):
        sized_to(SeparableCnn1d(), Raw(), channels=2, samples=240, classes=4)


def test_a_causal_network_sees_no_further_than_it_says() -> None:
    """The newest feature depends on `memory` samples and on no earlier one."""
    start(5)
    families: tuple[tuple[Family, int], ...] = (
        (Tcn(width=0.5, depth=3, reduction=2), 1),
        (SeparableCnn1d(padding="valid", pool="last"), 1),
        (SeparableCnn2d(width=0.25, depth=3, halvings=2), 8),
    )
    for family, channels in families:
        network = build_network(family, Raw(), channels=channels, samples=240, classes=3).eval()
        x = torch.from_numpy(windows(1, channels, 240)).requires_grad_()
        network.features(x)[0, ..., -1].sum().backward()
        touched = np.flatnonzero(x.grad.abs().numpy()[0, 0])
        # A stride may leave the very last samples unseen.
        assert network.memory - network.stride < 240 - touched[0] < network.memory + network.stride


@pytest.mark.parametrize(
    ("family", "samples", "message"),
    [
        (SeparableCnn1d(depth=6, kernel=15), 60, "needs more than the 60 frames"),
        (Tcn(padding="valid", depth=6), 100, "needs more than the 100 frames"),
    ],
)
def test_a_network_that_cannot_see_its_window_is_refused(family: Family, samples: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_network(family, Raw(), channels=1, samples=samples, classes=3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SeparableCnn1d(reduction=3), "power of two"),
        (lambda: SeparableCnn2d(reduction=4), "need 1 or 2"),
        (lambda: Tcn(width=0), "must be above 0"),
        (lambda: Gru(depth=4), "need 1 to 3"),
        (lambda: ResNet1d(dropout=1.0), "below 1"),
    ],
)
def test_a_family_that_makes_no_sense_is_refused(make: Callable[[], Family], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_the_same_seed_gives_the_same_weights() -> None:
    def weights(seed: int) -> np.ndarray:
        start(seed)
        network = build_network(SeparableCnn1d(), Raw(), channels=2, samples=240, classes=4)
        return np.concatenate([p.detach().numpy().ravel() for p in network.parameters()])

    np.testing.assert_array_equal(weights(1), weights(1))
    assert np.abs(weights(1) - weights(2)).max() > 0
