"""SmoothQuant: the same function, and loud channels behind a normalisation no longer cost all others their steps."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from edge_export.onnx_graph.run import answers
from edge_export.quantize import Scheme
from edge_export.quantize.mixed import sqnr_db
from edge_export.quantize.ranges import calibrate
from edge_export.quantize.smooth import smooth
from edge_export.quantize.write import prepare, write

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import GraphBuilder, windows

WIDTH = 32


def encoder(*, loud: float = 60.0, branch: bool = False, operator: str = "MatMul") -> onnx.ModelProto:
    """A pre-norm feed-forward block over time, two channels of the normalisation much louder than the others."""
    b = GraphBuilder(20, WIDTH)
    gamma = np.ones(WIDTH, np.float32)
    gamma[[3, 17]] = loud
    source = (
        "window"
        if operator == "MatMul"
        else b.node("Flatten", b.node("GlobalAveragePool", b.node("Transpose", "window", perm=[0, 2, 1])))
    )
    t = b.node("LayerNormalization", source, b.constant(gamma), b.weights(WIDTH), axis=-1)
    quiet = (b.random.standard_normal((WIDTH, 24)) / 6).astype(np.float32)
    quiet[[3, 17]] /= loud
    one = b.node("Relu", b.node(operator, t, b.constant(quiet)))
    two = b.node(operator, t, b.constant((quiet + 0.01).astype(np.float32)))
    result = b.node("Add", one, two)
    if branch:
        return prepare(b.model(b.node("Concat", result, t, axis=-1)))
    return prepare(b.model(b.node(operator, result, b.weights(24, 5))))


@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
def test_the_function_stays_and_eight_bits_hold_it_better(operator: str) -> None:
    model, x = encoder(operator=operator), windows(96, 20, WIDTH)
    smoothed = smooth(model, x)
    assert [len(products) for _, products in smoothed.normalisations] == [2]
    np.testing.assert_allclose(answers(smoothed.model, x), answers(model, x), atol=1e-4)
    scheme = Scheme(activations="uint8", weight_bits=8)
    unseen = windows(64, 20, WIDTH, seed=5)
    expected = answers(model, unseen)
    before, after = (
        sqnr_db(expected, answers(write(m, calibrate(m, x), scheme), unseen)) for m in (model, smoothed.model)
    )
    assert after > before + 6


def written_out() -> onnx.ModelProto:
    """The same block as operator sets below 17 write a normalisation: mean, variance, scale, offset."""
    b = GraphBuilder(20, WIDTH)
    gamma = np.ones(WIDTH, np.float32)
    gamma[[3, 17]] = 60
    centred = b.node("Sub", "window", b.node("ReduceMean", "window", b.constant(np.array([-1]))))
    variance = b.node("ReduceMean", b.node("Mul", centred, centred), b.constant(np.array([-1])))
    t = b.node("Div", centred, b.node("Sqrt", b.node("Add", variance, b.constant(np.float32(1e-5)))))
    t = b.node("Add", b.constant(np.linspace(-1, 1, WIDTH, dtype=np.float32)), b.node("Mul", t, b.constant(gamma)))
    quiet = (b.random.standard_normal((WIDTH, 24)) / 6).astype(np.float32)
    quiet[[3, 17]] /= 60
    return prepare(b.model(b.node("MatMul", t, b.constant(quiet))))


def test_a_normalisation_that_is_written_out_is_smoothed_too() -> None:
    model, x = written_out(), windows(96, 20, WIDTH)
    smoothed = smooth(model, x)
    assert len(smoothed.normalisations) == 1
    np.testing.assert_allclose(answers(smoothed.model, x), answers(model, x), atol=1e-4)
    scheme = Scheme(activations="uint8", weight_bits=8)
    before, after = (
        sqnr_db(answers(model, x), answers(write(m, calibrate(m, x), scheme), x)) for m in (model, smoothed.model)
    )
    assert after > before + 6


def test_alpha_decides_how_much_moves() -> None:
    model, x = encoder(), windows(64, 20, WIDTH)
    (name,) = [node.output[0] for node in model.graph.node if node.op_type == "LayerNormalization"]
    ranges = [calibrate(smooth(model, x, alpha=alpha).model, x)[name] for alpha in (0.2, 0.5, 1.0)]
    # Divided by all of its own peak, every channel peaks at 1.
    np.testing.assert_allclose(max(-ranges[2][0], ranges[2][1]), 1, rtol=1e-3)
    with pytest.raises(ConfigError, match="within 0 and 1"):
        smooth(model, x, alpha=1.2)


def test_a_normalisation_that_something_else_reads_is_left_alone() -> None:
    model, x = encoder(branch=True), windows(8, 20, WIDTH)
    smoothed = smooth(model, x)
    assert smoothed.normalisations == ()
    assert smoothed.model.SerializeToString() == model.SerializeToString()
