"""AdaRound and bias correction: never worse by their own measure, and much better with four bits."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.model import change, from_proto, name_of, to_proto
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.run import answers, observe
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.adaround import Rounding, adaround
from edge_export.graph.quantize.bias import correct
from edge_export.graph.quantize.layers import layers
from edge_export.graph.quantize.mixed import sqnr_db
from edge_export.graph.quantize.ranges import calibrate
from edge_export.graph.quantize.write import prepare, write
from onnx import numpy_helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import GraphBuilder, device_net, windows

U8 = Scheme(activations="uint8", weight_bits=8)


@pytest.fixture(scope="module", params=[0, 1])
def net(request: pytest.FixtureRequest) -> onnx.ModelProto:
    return prepare(canonicalise(device_net(seed=request.param)))


def nearest(model: onnx.ModelProto, largest: int) -> onnx.ModelProto:
    rounded = from_proto(model)
    for layer in layers(rounded.graph):
        step = layer.per_output(np.abs(layer.matrix()).max(axis=2).reshape(-1) / largest)
        change(layer.weight, np.rint(layer.weights / step) * step)
    return to_proto(rounded)


@pytest.mark.parametrize("bits", [4, 8])
def test_no_layer_is_worse_than_rounded_to_nearest(net: onnx.ModelProto, bits: int) -> None:
    rounded = adaround(net, U8, windows(96, 3, 40), Rounding(bits=bits, descents=100))
    assert len(rounded.errors) == 4
    for error in rounded.errors:
        assert error.rounded <= error.nearest
    assert sum(e.rounded for e in rounded.errors) < 0.95 * sum(e.nearest for e in rounded.errors)


def test_four_bits_lose_much_less_than_rounded_to_nearest(net: onnx.ModelProto) -> None:
    x, unseen = windows(128, 3, 40), windows(128, 3, 40, seed=9)
    rounded = adaround(net, U8, x, Rounding(bits=4))
    expected = answers(net, unseen)
    plain, ours = (sqnr_db(expected, answers(m, unseen)) for m in (nearest(net, 7), rounded.model))
    assert ours > plain + 4


def test_eight_bits_do_not_get_worse(net: onnx.ModelProto) -> None:
    x, unseen = windows(128, 3, 40), windows(128, 3, 40, seed=9)
    ranges, expected = calibrate(net, x), answers(net, unseen)
    rounded = adaround(net, U8, x, Rounding(descents=100))
    written = write(rounded.model, ranges, U8, steps=rounded.steps)
    assert sqnr_db(expected, answers(written, unseen)) > sqnr_db(expected, answers(write(net, ranges, U8), unseen)) - 1


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("more", [True, False])
def test_what_a_rounding_with_other_layers_in_float_found_is_taken_without_a_difference(
    net: onnx.ModelProto, place: int, more: bool
) -> None:
    x, rounding = windows(48, 3, 40), Rounding(descents=0, positions=500)
    names = [layer.name for layer in layers(from_proto(net).graph)]
    without = replace(U8, exclude=(names[place],))
    first, second = (without, U8) if more else (U8, without)
    known = adaround(net, first, x, rounding)
    begun: list[int] = []
    shared = adaround(net, second, x, rounding, known=known, proceed=lambda: begun.append(1))
    fresh = adaround(net, second, x, rounding)
    assert len(begun) == len(names) - place - (0 if more else 1)
    assert shared.errors == fresh.errors
    assert shared.model.SerializeToString(deterministic=True) == fresh.model.SerializeToString(deterministic=True)
    assert shared.steps.keys() == fresh.steps.keys()
    assert all(np.array_equal(step, fresh.steps[name]) for name, step in shared.steps.items())


def test_layers_that_are_seen_in_one_run_or_in_several_are_rounded_alike(
    net: onnx.ModelProto, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = windows(96, 3, 40)
    one = adaround(net, U8, x, Rounding(descents=0))
    monkeypatch.setattr("edge_export.graph.quantize.adaround._HELD", 1)
    several = adaround(net, U8, x, Rounding(descents=0))
    assert one.errors == several.errors
    assert one.model.SerializeToString(deterministic=True) == several.model.SerializeToString(deterministic=True)


def test_rounding_and_correcting_biases_end_when_they_are_told_to(net: onnx.ModelProto) -> None:
    x, calls = windows(48, 3, 40), itertools.count()

    def proceed() -> None:
        if next(calls) % 3 == 2:
            raise ConfigError("enough")

    with pytest.raises(ConfigError, match="enough"):
        adaround(net, U8, x, Rounding(descents=0), proceed=proceed)
    with pytest.raises(ConfigError, match="enough"):
        correct(net, calibrate(net, x), U8, x, proceed=proceed)
    assert next(calls) == 6


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize(("bits", "weight_bits", "largest"), [(4, 8, 7), (None, 8, 127), (None, 7, 64), (8, 7, 64)])
def test_the_written_integers_are_those_that_were_chosen(
    net: onnx.ModelProto, per_channel: bool, bits: int | None, weight_bits: int, largest: int
) -> None:
    x = windows(48, 3, 40)
    scheme = replace(U8, per_channel=per_channel, weight_bits=weight_bits)  # type: ignore[arg-type]
    rounded = adaround(net, scheme, x, Rounding(bits=bits, descents=0))
    written = write(rounded.model, calibrate(net, x), scheme, steps=rounded.steps)
    stored = {t.name: numpy_helper.to_array(t) for t in written.graph.initializer}
    for layer in layers(from_proto(rounded.model).graph):
        integers = stored[f"{layer.weight.name}_quantized"]
        assert np.abs(integers).max() <= largest
        step = np.asarray(rounded.steps[name_of(layer.weight)])
        assert step.ndim == int(per_channel)
        spread = layer.per_output(step) if per_channel else step
        np.testing.assert_array_equal(np.rint(layer.weights / spread), integers)


def test_a_small_layer_is_rounded_as_well_as_by_trying_everything() -> None:
    """Three inputs, two outputs: every rounding up or down can be tried."""
    b = GraphBuilder(1, 3, seed=4)
    model = prepare(b.model(b.dense(b.node("Flatten", "window"), 3, 2)))
    x = windows(200, 1, 3) @ np.array([[1, 0.9, 0.2], [0, 0.3, 0.5], [0, 0, 0.3]], np.float32)
    rounded = adaround(model, U8, x, Rounding(bits=3, search_steps=False))
    (layer,) = layers(from_proto(model).graph)
    rows, columns = layer.matrix()[0], layer.columns(x)[0]
    best = 0.0
    for row, step in zip(rows, rounded.steps[name_of(layer.weight)], strict=True):
        floor = np.floor(row / step)
        tries = [np.clip(floor + ups, -3, 3) * step for ups in itertools.product((0, 1), repeat=3)]
        best += min(float(np.square(columns @ (row - to)).sum()) for to in tries)
    assert rounded.errors[0].rounded == pytest.approx(best / float(np.square(columns @ rows.T).sum()), rel=0.02)


def test_excluded_and_kept_layers_stay_as_they_are(net: onnx.ModelProto) -> None:
    rounded = adaround(
        net, replace(U8, exclude=("Conv_1",)), windows(32, 3, 40), Rounding(descents=0, keep=("Conv_3",))
    )
    assert [error.layer for error in rounded.errors] == ["Conv_5", "Gemm_9"]
    assert len(rounded.steps) == 2


def test_it_is_the_same_every_time(net: onnx.ModelProto) -> None:
    one, two = (adaround(net, U8, windows(32, 3, 40), Rounding(bits=4, descents=50)).model for _ in range(2))
    assert one.SerializeToString(deterministic=True) == two.SerializeToString(deterministic=True)


def test_bits_out_of_bounds_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 to 8 bits, not 9"):
        Rounding(bits=9)


def shifts(model: onnx.ModelProto, written: onnx.ModelProto, x: np.ndarray) -> float:
    """How far the layers' means lie apart, relative to how far their answers spread; mean over layers and channels."""
    found = []
    for layer in layers(from_proto(model).graph):
        names = [next(n.output[0] for n in m.graph.node if n.name == layer.name) for m in (model, written)]
        one, other = (
            np.concatenate([values[name] for values in observe(m, [name], x)])
            for m, name in zip((model, written), names, strict=True)
        )
        axes = (0, *range(2, one.ndim))
        found.append(np.mean(np.abs(one.mean(axis=axes) - other.mean(axis=axes)) / (one.std(axis=axes) + 1e-9)))
    return float(np.mean(found))


@pytest.mark.parametrize("bits", [4, 8])
def test_corrected_biases_bring_the_means_back(net: onnx.ModelProto, bits: int) -> None:
    x, unseen = windows(256, 3, 40), windows(256, 3, 40, seed=9)
    rounded = adaround(net, U8, x, Rounding(bits=bits, descents=0, search_steps=False)) if bits == 4 else None
    start, steps = (rounded.model, rounded.steps) if rounded else (net, None)
    ranges = calibrate(net, x)
    corrected = correct(start, ranges, U8, x, reference=net, steps=steps)
    before, after = (write(m, ranges, U8, steps=steps) for m in (start, corrected))
    assert shifts(net, after, x) < 0.4 * shifts(net, before, x)
    assert shifts(net, after, unseen) < 0.8 * shifts(net, before, unseen)
    expected = answers(net, unseen)
    assert sqnr_db(expected, answers(after, unseen)) > sqnr_db(expected, answers(before, unseen)) - 0.5


def test_a_layer_without_a_bias_gains_one() -> None:
    b = GraphBuilder(3, 40)
    t = b.node("Relu", b.node("Conv", "window", b.weights(4, 3, 5)))
    model, x = prepare(b.model(t)), windows(64, 3, 40)
    ranges = calibrate(model, x)
    corrected = correct(model, ranges, U8, x)
    assert len(next(n for n in corrected.graph.node if n.op_type == "Conv").input) == 3
    onnx.checker.check_model(corrected, full_check=True)
    assert shifts(model, write(corrected, ranges, U8), x) < shifts(model, write(model, ranges, U8), x)


def test_a_model_without_layers_stays_as_it_is() -> None:
    b = GraphBuilder(3, 40)
    model, x = prepare(b.model(b.node("Relu", "window"))), windows(64, 3, 40)
    assert (answers(correct(model, calibrate(model, x), U8, x), x) == answers(model, x)).all()


def test_moments_are_those_of_the_columns(net: onnx.ModelProto) -> None:
    """The quadratic form is the real error: what is reported for the first layer, computed from the answers."""
    x = windows(64, 3, 40)
    rounded = adaround(net, U8, x, Rounding(bits=4, descents=0))
    before, after = (layers(from_proto(model).graph)[0] for model in (net, rounded.model))
    source = name_of(before.source)
    columns = before.columns(np.concatenate([values[source] for values in observe(net, [source], x)]))
    one, other = (columns[0] @ first.matrix()[0].T for first in (before, after))
    relative = np.square(one - other).sum() / np.square(one).sum()
    assert rounded.errors[0].rounded == pytest.approx(relative, rel=1e-3)
