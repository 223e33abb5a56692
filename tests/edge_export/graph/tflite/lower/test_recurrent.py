"""GRU, LSTM and plain recurrent layers, written out step by step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from edge_export.graph.tflite.convert import convert
from edge_export.graph.tflite.errors import UnsupportedNodeError

from tests.edge_export.graph.tflite.compare import Net, operators, same
from tests.edge_export.graph.tflite.lower.recurrent_layers import GATES, layer


def net(kind: str, direction: str = "forward", *, steps: int = 6, **settings: object) -> Net:
    b = Net(4, steps)
    t = b.node("Transpose", "window", perm=[2, 0, 1])
    b.results = layer(b, kind, t, inputs=4, hidden=5, direction=direction, **settings)  # type: ignore[arg-type, attr-defined]
    return b


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_recurrent_layer(kind: str, direction: str, bias: bool) -> None:
    b = net(kind, direction, bias=bias)
    same(b.finish(*b.results))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", GATES)
def test_one_step(kind: str) -> None:
    b = net(kind, steps=1)
    same(b.finish(*b.results))  # type: ignore[attr-defined]


def test_reset_before_the_product() -> None:
    b = net("GRU", "bidirectional", linear_before_reset=0)
    same(b.finish(*b.results))  # type: ignore[attr-defined]


def test_other_activations() -> None:
    b = net("RNN", activations=["Relu"])
    same(b.finish(*b.results))  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", GATES)
def test_states_as_inputs_and_outputs(kind: str) -> None:
    """A streaming graph: what a step leaves is given back with the next one."""
    b = Net(4, 2)
    states = tuple(b.input(name, [1, "batch", 5]) for name in (("h", "c") if kind == "LSTM" else ("h",)))
    t = b.node("Transpose", "window", perm=[2, 0, 1])
    results = layer(b, kind, t, inputs=4, hidden=5, direction="forward", states=states)
    same(b.finish(b.node("Relu", results[-1]), *results[1:]))


def test_more_steps_cost_operators_and_no_weights() -> None:
    sizes = []
    for steps in (4, 12):
        b = Net(8, steps)
        t = b.node("Transpose", "window", perm=[2, 0, 1])
        t = b.node("Squeeze", layer(b, "GRU", t, inputs=8, hidden=32, direction="forward")[0], b.ints(1))
        last = layer(b, "GRU", t, inputs=32, hidden=32, direction="forward")[1]
        sizes.append(len(same(b.finish(last))))
    assert sizes[1] - sizes[0] < 16 * 1500


def test_zero_states_cost_nothing() -> None:
    b = Net(4, 3)
    t = b.node("Transpose", "window", perm=[2, 0, 1])
    zeros = b.constant(np.zeros((1, 1, 5), np.float32))
    shape = b.node("Shape", "window", start=0, end=1)
    zeros = b.node("Expand", zeros, b.node("Concat", b.ints(1), shape, b.ints(5), axis=0))
    written = same(b.finish(layer(b, "GRU", t, inputs=4, hidden=5, direction="forward", states=(zeros,))[1]))
    assert operators(written).count("FULLY_CONNECTED") == 2 + 2 * 2


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("GRU", {"clip": 1.0}, "clipping"),
        ("GRU", {"activations": ["HardSigmoid", "Tanh"]}, "activations must be sigmoid, tanh"),
        ("LSTM", {"input_forget": 1}, "coupled"),
    ],
)
def test_what_has_no_form_is_refused(kind: str, settings: dict[str, Any], why: str) -> None:
    b = net(kind, **settings)
    with pytest.raises(UnsupportedNodeError, match=why):
        convert(b.finish(*b.results))  # type: ignore[attr-defined]
