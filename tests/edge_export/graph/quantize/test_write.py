"""One calibration, every scheme: types, exclusions, limits, and what other tools make of the file."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.model import from_proto, name_of
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.run import answers
from edge_export.graph.quantize import Method, Scheme
from edge_export.graph.quantize.layers import layers
from edge_export.graph.quantize.mixed import sqnr_db
from edge_export.graph.quantize.ranges import calibrate, choose, collect
from edge_export.graph.quantize.write import prepare, write
from edge_export.graph.tflite.convert import convert
from onnx import numpy_helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import GraphBuilder, device_net, onnx_answers, tflite_answers, windows

U8 = Scheme(activations="uint8", weight_bits=8)
S8 = Scheme(activations="int8", weight_bits=8)


@pytest.fixture(scope="module")
def net() -> onnx.ModelProto:
    return prepare(canonicalise(device_net()))


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    return windows(200, 3, 40)


def arrays(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_preparing_twice_changes_nothing(net: onnx.ModelProto) -> None:
    again = prepare(net)
    assert [n.name for n in again.graph.node] == [n.name for n in net.graph.node]
    assert [tuple(n.output) for n in again.graph.node] == [tuple(n.output) for n in net.graph.node]


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("activations", ["uint8", "int8"])
def test_every_scheme_answers_like_the_float_model(
    net: onnx.ModelProto, x: np.ndarray, per_channel: bool, symmetric: bool, form: str, activations: str
) -> None:
    scheme = Scheme(activations=activations, per_channel=per_channel, symmetric=symmetric, form=form)  # type: ignore[arg-type]
    written = write(net, calibrate(net, x), scheme)
    unseen = windows(100, 3, 40, seed=3)
    assert sqnr_db(answers(net, unseen), onnx_answers(written, unseen)) > 30
    kinds = {node.op_type for node in written.graph.node}
    assert ("QLinearConv" in kinds) == (form == "qoperator")


@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
def test_ranges_of_every_method_serve(net: onnx.ModelProto, x: np.ndarray, method: Method) -> None:
    ranges = choose(collect(net, x), method)
    assert sqnr_db(answers(net, x), answers(write(net, ranges, U8), x)) > 35


def test_both_signs_come_from_one_calibration(net: onnx.ModelProto, x: np.ndarray) -> None:
    ranges = calibrate(net, x)
    unsigned, signed = write(net, ranges, U8), write(net, ranges, S8)
    np.testing.assert_array_equal(answers(unsigned, x), answers(signed, x))


def test_excluded_nodes_compute_in_floats(net: onnx.ModelProto, x: np.ndarray) -> None:
    ranges = calibrate(net, x)
    written = write(net, ranges, replace(U8, exclude=("Conv_3",)))
    producers = {name: node.op_type for node in written.graph.node for name in node.output}
    conv = next(node for node in written.graph.node if node.name == "Conv_3")
    assert conv.input[1] not in producers  # the weights themselves
    assert next(node for node in written.graph.node if node.name == "Conv_5").input[1] in producers
    with pytest.raises(ConfigError, match="no such node"):
        write(net, ranges, replace(U8, exclude=("Conv_99",)))


def test_one_step_for_all_channels_is_a_scalar(net: onnx.ModelProto, x: np.ndarray) -> None:
    written = write(net, calibrate(net, x), replace(U8, per_channel=False))
    scales = [array for name, array in arrays(written).items() if name.endswith("_scale")]
    assert all(array.size == 1 for array in scales)


def test_symmetric_activations_have_their_zero_in_the_middle_and_keep_every_relu(
    net: onnx.ModelProto, x: np.ndarray
) -> None:
    written = write(net, calibrate(net, x), replace(S8, symmetric=True))
    zeros = [array for name, array in arrays(written).items() if name.endswith("_zero_point")]
    assert not any(array.any() for array in zeros)
    assert [n.op_type for n in written.graph.node].count("Relu") == 3


def test_a_relu_stays_where_the_integers_would_not_clip(x: np.ndarray) -> None:
    """The trap: onnxruntime's writer drops a Relu and trusts the zero point, whatever range it was handed."""
    b = GraphBuilder(3, 40)
    model = prepare(b.model(b.node("Relu", b.conv("window", 3, 4, 3))))
    ranges = calibrate(model, x)
    (result,) = [info.name for info in model.graph.output]
    wide = MappingProxyType({**ranges, result: (-ranges[result][1], ranges[result][1])})
    for given, relus in ((ranges, 0), (wide, 1)):
        written = write(model, given, S8)
        assert [n.op_type for n in written.graph.node].count("Relu") == relus
        assert answers(written, x).min() >= 0


def test_a_clip_stays_where_its_range_is_wider_than_its_limits(x: np.ndarray) -> None:
    b = GraphBuilder(3, 40)
    limits = (b.constant(np.float32(0)), b.constant(np.float32(0.5)))
    model = prepare(b.model(b.node("Clip", b.conv("window", 3, 4, 3), *limits)))
    ranges = calibrate(model, x)
    (result,) = [info.name for info in model.graph.output]
    assert not any(n.op_type == "Clip" for n in write(model, ranges, U8).graph.node)
    wide = write(model, MappingProxyType({**ranges, result: (0.0, 3.0)}), U8)
    assert answers(wide, x).max() <= 0.51


def test_weight_steps_are_taken_as_given(net: onnx.ModelProto, x: np.ndarray) -> None:
    first = layers(from_proto(net).graph)[0]
    steps = np.linspace(0.01, 0.02, 8).astype(np.float32)
    for form in ("qdq", "qoperator"):
        written = write(net, calibrate(net, x), replace(U8, form=form), steps={name_of(first.weight): steps})
        np.testing.assert_allclose(arrays(written)[f"{first.weight.name}_scale"], steps, rtol=1e-6)


def test_the_int8_form_converts_to_tflite_bit_by_bit(net: onnx.ModelProto, x: np.ndarray) -> None:
    ranges = choose(collect(net, x), "mse")
    written = canonicalise(write(net, ranges, Scheme(activations="int8")))
    unseen = windows(32, 3, 40, seed=4)
    difference = np.abs(tflite_answers(convert(written), unseen) - onnx_answers(written, unseen))
    assert difference.max() < 0.02
    assert np.median(difference) < 1e-6


def test_the_same_input_gives_the_same_bytes(net: onnx.ModelProto, x: np.ndarray) -> None:
    ranges = choose(collect(net, x), "entropy")
    one, two = (write(net, ranges, U8).SerializeToString(deterministic=True) for _ in range(2))
    assert one == two


def test_a_percentile_outside_its_bounds_is_refused() -> None:
    with pytest.raises(ConfigError, match="percentile"):
        Scheme(activations="int8", percentile=30)
