"""Quantisation-aware training: what was trained is what the integer file computes, and four bits hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="quantisation-aware training needs torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")

import onnx  # noqa: E402
from edge_export.graph.onnx_graph.from_torch import to_onnx  # noqa: E402
from edge_export.graph.onnx_graph.run import answers  # noqa: E402
from edge_export.graph.quantize import Scheme  # noqa: E402
from edge_export.graph.quantize.adaround import Rounding, adaround  # noqa: E402
from edge_export.graph.quantize.mixed import sqnr_db  # noqa: E402
from edge_export.graph.quantize.qat import Learned, fake_quantized, harvest, write_learned  # noqa: E402
from edge_export.graph.quantize.ranges import calibrate  # noqa: E402
from edge_export.graph.quantize.write import prepare, write  # noqa: E402
from edge_export.graph.tflite.convert import convert  # noqa: E402
from edge_export.learn.networks import Calibrated  # noqa: E402
from edge_export.learn.training.loop import answer, fit, start  # noqa: E402
from edge_export.recipe.training_spec import Training  # noqa: E402
from onnx import numpy_helper  # noqa: E402 - only where torch is
from torch import nn  # noqa: E402, TID251 - this is the export toolchain
from torch.nn import functional  # noqa: E402, TID251 - this is the export toolchain

from edge_runtime.errors import ConfigError  # noqa: E402
from tests.edge_export.graphs import onnx_answers, tflite_answers  # noqa: E402
from tests.edge_export.learn.networks.pair import ContextNet, DeviceNet  # noqa: E402

SCALE = (1.0, 0.5, 0.25)
SCHEME = Scheme(activations="uint8", weight_bits=8)


def sample(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four classes that differ in frequency and in which channel is loudest, in a lot of noise."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 4, count)
    t = np.arange(64) / 50 + random.uniform(0, 3, (count, 1))
    wave = np.sin(2 * np.pi * np.array([2.0, 3.0])[y % 2][:, None] * t)
    loud = np.where((y < 2)[:, None], [1.0, 0.4, 0.4], [0.4, 1.0, 0.4])
    x = wave[:, None] * loud[..., None] + 1.4 * random.standard_normal((count, 3, 64))
    return (x / np.array(SCALE)[:, None]).astype(np.float32), y.astype(np.int64)


def batches(seed: int):  # type: ignore[no-untyped-def]
    x, y = sample(2000, 1)
    random = np.random.default_rng(seed)

    def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
        chosen = random.integers(0, len(x), count)
        return x[chosen], y[chosen]

    return draw


@pytest.fixture(scope="module")
def trained() -> nn.Module:
    start(0)
    network = DeviceNet(scale=SCALE, classes=4, widths=(8, 12, 12), dropout=0.0)
    return fit(network, batches(0), functional.cross_entropy, Training(steps=250))


@pytest.fixture(scope="module")
def learned(trained: nn.Module) -> tuple[nn.Module, Learned]:
    start(0)
    rounding = fake_quantized(trained, sample(256, 1)[0], SCHEME, bits=3)
    rounding = fit(rounding, batches(1), functional.cross_entropy, Training(steps=150))
    return rounding, harvest(rounding)


def exported(network: nn.Module) -> onnx.ModelProto:
    return to_onnx(Calibrated([network]), channels=3, samples=64)


@pytest.fixture(scope="module")
def plain(trained: nn.Module) -> onnx.ModelProto:
    return exported(trained)


@pytest.fixture(scope="module")
def harvested(learned: tuple[nn.Module, Learned]) -> onnx.ModelProto:
    return exported(learned[1].network)


def probabilities(network: nn.Module, x: np.ndarray) -> np.ndarray:
    return answer(Calibrated([network]).eval(), x)


def test_folding_and_wrapping_with_eight_bits_changes_little(trained: nn.Module) -> None:
    x, _ = sample(300, 5)
    wrapped = fake_quantized(trained, sample(256, 1)[0], SCHEME)
    assert sqnr_db(probabilities(trained, x), probabilities(wrapped.eval(), x)) > 25


def test_three_bits_learn_what_rounding_loses(
    plain: onnx.ModelProto, harvested: onnx.ModelProto, learned: tuple[nn.Module, Learned]
) -> None:
    (x, y), cal = sample(1000, 6), sample(256, 1)[0]

    def loss(given: np.ndarray) -> float:
        return float(-np.log(np.maximum(given[np.arange(len(y)), y], 1e-6)).mean())

    model = prepare(plain)
    rounded = adaround(model, SCHEME, cal, Rounding(bits=3))
    calibrated = loss(answers(write(rounded.model, calibrate(model, cal), SCHEME, steps=rounded.steps), x))
    ours = loss(answers(write_learned(harvested, learned[1], cal, SCHEME), x))
    before = loss(answers(model, x))
    assert before < 0.7  # guessing: 1.39
    assert ours < before + 0.05
    assert ours < calibrated - 0.01


@pytest.mark.parametrize("scheme", [SCHEME, replace(SCHEME, activations="int8")], ids=lambda scheme: scheme.name)
def test_the_integer_file_is_what_was_trained(
    learned: tuple[nn.Module, Learned], harvested: onnx.ModelProto, scheme: Scheme
) -> None:
    wrapped, result = learned
    x = sample(300, 7)[0]
    written = write_learned(harvested, result, sample(256, 1)[0], scheme)
    simulated = probabilities(wrapped, x)
    given = answers(written, x)
    assert (given.argmax(axis=1) == simulated.argmax(axis=1)).mean() > 0.98
    assert sqnr_db(simulated, given) > 22
    stored = [numpy_helper.to_array(t) for t in written.graph.initializer]
    weights = [array for array in stored if array.dtype == np.int8 and array.ndim > 1]
    assert len(weights) == len(result.layers) == 6
    assert all(np.abs(array).max() <= 3 for array in weights)
    assert not any(node.op_type == "Relu" for node in written.graph.node)


def test_harvested_weights_lie_on_their_grid(learned: tuple[nn.Module, Learned]) -> None:
    for layer in learned[1].layers:
        whole = layer.weights.reshape(len(layer.steps), -1) / layer.steps[:, None]
        np.testing.assert_allclose(whole, np.rint(whole), atol=1e-4)
        assert layer.low <= 0 < layer.high
    # Behind a ReLU a range starts at zero: its zero point must clip.
    assert all(layer.low == 0 for layer in learned[1].layers[1:])


def test_the_result_converts_to_tflite(learned: tuple[nn.Module, Learned], harvested: onnx.ModelProto) -> None:
    x = sample(20, 8)[0]
    written = write_learned(harvested, learned[1], sample(256, 1)[0], replace(SCHEME, activations="int8"))
    difference = np.abs(tflite_answers(convert(written), x) - onnx_answers(written, x, optimize=False))
    assert np.median(difference) < 0.01


def test_layers_that_read_the_same_tensor_share_its_step() -> None:
    start(0)
    network = ContextNet(scale=SCALE, classes=3, widths=(8, 12)).eval()
    wrapped = fake_quantized(network, sample(64, 2)[0], SCHEME)
    found = dict(wrapped.named_modules())
    steps = {name: module for name, module in found.items() if type(module).__name__ == "_Step"}
    layers = [module for module in found.values() if type(module).__name__ == "_Rounding"]
    assert len({id(layer.source) for layer in layers}) == len(steps) <= len(layers)


def test_what_cannot_be_trained_is_refused(trained: nn.Module) -> None:
    x = sample(32, 1)[0]
    with pytest.raises(ConfigError, match="per channel"):
        fake_quantized(trained, x, replace(SCHEME, per_channel=False))
    with pytest.raises(ConfigError, match="2 to 8 bits, not 1"):
        fake_quantized(trained, x, SCHEME, bits=1)
    loose = nn.Sequential(nn.BatchNorm1d(3), nn.Conv1d(3, 2, 3))
    with pytest.raises(ConfigError, match="'0' does not follow a convolution"):
        fake_quantized(loose, x, SCHEME)
    with pytest.raises(ConfigError, match="no convolution"):
        fake_quantized(nn.Sequential(nn.Flatten()), x, SCHEME)
    with pytest.raises(ConfigError, match="train what fake_quantized gave"):
        harvest(trained)


def test_a_model_that_is_not_the_harvested_one_is_refused(
    plain: onnx.ModelProto, learned: tuple[nn.Module, Learned]
) -> None:
    with pytest.raises(ConfigError, match="no layer with the weights of"):
        write_learned(plain, learned[1], sample(32, 1)[0], SCHEME)
