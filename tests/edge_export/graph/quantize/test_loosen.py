"""Layers back in float: what is loosened answers as what is written without them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.model import from_proto
from edge_export.graph.onnx_graph.run import answers
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.loosen import loosened
from edge_export.graph.quantize.mixed import sqnr_db
from edge_export.graph.quantize.ranges import calibrate
from edge_export.graph.quantize.select import quantised
from edge_export.graph.quantize.write import prepare, write

from tests.edge_export.graphs import GraphBuilder, device_net, onnx_answers, windows

SCHEME = Scheme(activations="uint8", weight_bits=8)


def ends_in_integers() -> onnx.ModelProto:
    """The answer is an addition of two layers; both layers and the addition can be integers."""
    b = GraphBuilder(3, 40)
    t = b.node("Relu", b.conv("window", 3, 8, 5, pads=[2, 2]))
    return b.model(b.node("Add", b.conv(t, 8, 8, 1), b.node("Relu", b.conv(t, 8, 8, 3, pads=[1, 1]))))


def rounded_tensors(model: onnx.ModelProto) -> set[str]:
    return {node.input[0].split("_Quantize")[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}


@pytest.mark.parametrize("make", [device_net, ends_in_integers])
def test_each_layer_loosened_answers_as_the_graph_written_without_it(
    make: Callable[[], onnx.ModelProto],
) -> None:
    model, x = prepare(make()), windows(24, 3, 40)
    ranges = calibrate(model, x)
    every = write(model, ranges, SCHEME, keep_activations=True)
    whole = quantised(from_proto(model).graph)
    names = [node.name for node in model.graph.node if node.name in whole]
    assert len(names) > 3
    for exclude in [*((name,) for name in names), tuple(names[1:]), tuple(names[:2])]:
        scheme = replace(SCHEME, exclude=exclude)
        given = loosened(every, model, quantised(from_proto(model).graph, exclude))
        wanted = write(model, ranges, scheme, keep_activations=True)
        assert rounded_tensors(given) == rounded_tensors(wanted), exclude
        # A value that lies between two integers may be rounded to either.
        assert sqnr_db(answers(wanted, x), answers(given, x)) > 30, exclude


def test_all_layers_loosened_answer_as_the_float_model() -> None:
    model, x = prepare(ends_in_integers()), windows(24, 3, 40)
    free = loosened(write(model, calibrate(model, x), SCHEME, keep_activations=True), model, ())
    assert not [node for node in free.graph.node if "Linear" in node.op_type]
    np.testing.assert_array_equal(onnx_answers(free, x, optimize=False), onnx_answers(model, x, optimize=False))
