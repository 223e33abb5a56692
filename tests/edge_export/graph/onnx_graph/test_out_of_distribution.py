"""Windows unlike those of training are doubted, and familiar ones are answered as before."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from edge_export.choose.evaluation.calibration import at_temperature
from edge_export.choose.selection.timing import answers
from edge_export.data.dataset import Float32, Int64, Windows
from edge_export.graph.onnx_graph.out_of_distribution import OodDetector, distance, fit_ood_detector, statistics
from edge_export.graph.onnx_graph.passes.out_of_distribution import with_ood_detector
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.tflite.convert import convert
from edge_export.package.pack import VariantSource
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import onnx_answers

CHANNELS, SAMPLES, CLASSES = 2, 48, 3


def excess(windows: Float32, detector: OodDetector) -> npt.NDArray[np.float64]:
    """(n,) distance to the nearest class, over the limit: above 1 is unfamiliar. What the graph computes."""
    return distance(statistics(windows, detector.floor), detector) / detector.limit


def waves(seed: int, count: int = 240) -> tuple[Float32, Int64]:
    """Classes differ in frequency; the first channel rides on gravity."""
    rng = np.random.default_rng(seed)
    y = np.arange(count) % CLASSES
    t = np.arange(SAMPLES) / 50
    phase = rng.uniform(0, 2 * np.pi, (count, 1))
    wave = np.sin(2 * np.pi * (1 + 2 * y[:, None]) * t + phase) * rng.uniform(0.8, 1.2, (count, 1))
    x = np.stack([9.8 + wave, 0.5 * wave], 1) + rng.normal(0, 0.05, (count, CHANNELS, SAMPLES))
    return x.astype(np.float32), y


def net() -> onnx.ModelProto:
    """A convolution, a mean over time, a dense layer: sure of everything."""
    rng = np.random.default_rng(5)
    weights = {
        "w": rng.normal(0, 0.3, (8, CHANNELS, 5)).astype(np.float32),
        "h": rng.normal(0, 4, (8, CLASSES)).astype(np.float32),
    }
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["window", "w"], ["c"], kernel_shape=[5]),
            helper.make_node("Relu", ["c"], ["r"]),
            helper.make_node("GlobalAveragePool", ["r"], ["p"]),
            helper.make_node("Flatten", ["p"], ["f"]),
            helper.make_node("MatMul", ["f", "h"], ["logits"]),
            helper.make_node("Softmax", ["logits"], ["probabilities"], axis=-1),
        ],
        "model",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, ["batch", CHANNELS, SAMPLES])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def people(seed: int, groups: int, loudness: float = 0.0) -> Windows:
    """Windows of several people; each is louder than the one before by a factor."""
    x, y = waves(seed)
    who = np.arange(len(y)) * groups // len(y)
    mean = np.array([9.8, 0.0], np.float32)[:, None]
    x = mean + (x - mean) * np.exp(loudness * who).astype(np.float32)[:, None, None]
    number = np.arange(len(y))
    group = np.array([f"{seed}-{one}" for one in who.tolist()])
    return Windows(contexts=x, samples=SAMPLES, y=y, group=group, recording=number, start=number)


FIT = fit_ood_detector(people(0, 3), people(1, 2))


@pytest.mark.slow
@settings(max_examples=50)
@given(
    seed=st.integers(0, 1000), gain=st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e3]), offset=st.sampled_from([0.0, -5.0, 1e4])
)
def test_the_graph_divides_logits_by_the_excess(seed: int, gain: float, offset: float) -> None:
    x = waves(seed, 12)[0] * np.float32(gain) + np.float32(offset)
    plain, doubted = onnx_answers(net(), x), onnx_answers(with_ood_detector(net(), FIT), x)
    divisor = np.maximum(excess(x, FIT), 1)
    expected = np.stack([at_temperature(row[None], d)[0] for row, d in zip(plain, divisor, strict=True)])
    # at_temperature starts from probabilities, of which the least are lost to float32.
    sure = plain.min(axis=1) > 1e-6
    np.testing.assert_allclose(doubted[sure], expected[sure], atol=2e-3)
    np.testing.assert_array_equal(doubted.argmax(axis=1)[sure], plain.argmax(axis=1)[sure])


def test_familiar_windows_are_answered_as_before() -> None:
    x, _ = waves(2)
    familiar = excess(x, FIT) <= 1
    assert 0.95 < familiar.mean() <= 1
    plain, doubted = onnx_answers(net(), x), onnx_answers(with_ood_detector(net(), FIT), x)
    np.testing.assert_array_equal(doubted[familiar], plain[familiar])


def test_a_new_person_who_differs_as_people_do_is_familiar() -> None:
    alike, varied = fit_ood_detector(people(0, 1), people(1, 1)), fit_ood_detector(people(0, 4, 0.2), people(1, 1))
    louder = people(2, 5, 0.2).x[-48:]
    assert (excess(louder, alike) > 1).mean() > 0.5
    assert (excess(louder, varied) > 1).mean() < 0.2


@pytest.mark.parametrize("kind", ["noise", "flat", "overload", "swapped", "shuffled"])
def test_what_no_class_looks_like_is_doubted(kind: str) -> None:
    x, _ = waves(3)
    rng = np.random.default_rng(4)
    strange = {
        "noise": x.mean(axis=2, keepdims=True) + rng.normal(0, 0.7, x.shape).astype(np.float32),
        "flat": np.repeat(x[:, :, :1], SAMPLES, axis=2),
        "overload": 4 * x,
        "swapped": x[:, ::-1],
        "shuffled": x[:, :, rng.permutation(SAMPLES)],
    }[kind]
    assert (excess(np.ascontiguousarray(strange), FIT) > 1).mean() > 0.95


@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_a_quantised_graph_and_its_tflite_file_doubt_the_same(activations: str) -> None:
    x, _ = waves(6)
    graph = with_ood_detector(quantize(net(), x, Scheme(activations=activations)), FIT)  # type: ignore[arg-type]
    onnx.checker.check_model(graph, full_check=True)
    strange = np.concatenate([x[:20], 4 * x[:20], np.repeat(x[:20, :, :1], SAMPLES, axis=2), np.zeros_like(x[:1])])
    given = answers(VariantSource(name="o", model=graph.SerializeToString(), format="onnx", precision="int8"), strange)
    sureness = given.max(axis=1)
    assert sureness[20:].mean() < 0.6 < 0.75 < sureness[:20].mean()
    if activations == "int8":
        lite = answers(VariantSource(name="t", model=convert(graph), format="tflite", precision="int8"), strange)
        np.testing.assert_allclose(lite, given, atol=0.05)


@pytest.mark.parametrize("level", [1e6, 1e12, -1e15])
def test_absurd_values_give_probabilities_still(level: float) -> None:
    x = waves(7, 4)[0]
    x[:, 0, ::2] = level
    given = onnx_answers(with_ood_detector(net(), FIT), x)
    assert np.isfinite(given).all()
    np.testing.assert_allclose(given.sum(axis=1), 1, atol=1e-5)


def test_a_class_without_windows_and_a_graph_of_other_channels_are_refused() -> None:
    whole = people(8, 2)
    kept = np.flatnonzero(whole.y != 1)
    fewer = replace(whole, contexts=whole.contexts[kept], y=whole.y[kept], group=whole.group[kept])
    with pytest.raises(ConfigError, match="class number 1 has no training window"):
        fit_ood_detector(fewer, whole)
    wider = replace(whole, contexts=np.concatenate([whole.contexts, whole.contexts[:, :1]], axis=1))
    other = fit_ood_detector(wider, wider)
    with pytest.raises(ConfigError, match="not \\(batch, 3, samples\\)"):
        with_ood_detector(net(), other)
