"""The files also load in tflite-runtime 2.14, the retired package that old boards have, and answer the same there.

It needs numpy 1, so it lives in an environment of its own, which ``make tflite-runtime`` sets up; or name an
interpreter that has it in `TFLITE_RUNTIME_PYTHON`.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from edge_export.graph.tflite.convert import convert

from tests.edge_export.graph.tflite.compare import Net, on_tflite, random_inputs
from tests.edge_export.graph.tflite.int8_forms import FORMS, between
from tests.edge_export.graph.tflite.lower.recurrent_layers import layer
from tests.edge_export.graph.tflite.suite import Trial, attempt, engines
from tests.edge_export.graph.tflite.unary import UNARY
from tests.edge_export.graphs import device_net


def models() -> dict[str, onnx.ModelProto]:
    made: dict[str, onnx.ModelProto] = {"device net": device_net()}
    for name, (make, (low, high), _) in FORMS.items():
        made[f"int8 {name}"] = between(make, low=low, high=high)
    for name, unary in UNARY.items():
        b = Net(4, 10)
        made[f"float {name}"] = b.finish(unary(b, b.conv("window", 4, 4, 3)))
    b = Net(4, 10)
    turned = b.node("Transpose", "window", perm=[0, 2, 1])
    made["products"] = b.finish(
        b.node("MatMul", "window", turned),
        b.node("MatMul", b.weights(3, 4), "window"),
        b.node("MatMul", "window", b.weights(10, 3)),
    )
    made["selections"] = b.finish(
        b.node("Where", b.node("Greater", "window", b.number(0)), "window", b.number(2)),
        b.node("CumSum", "window", b.constant(np.array(2))),
        b.node("ArgMax", "window", axis=2),
        b.node("Slice", "window", b.ints(0), b.ints(10), b.ints(2), b.ints(3)),
        b.node("Softmax", b.node("LayerNormalization", "window", b.weights(10), b.weights(10)), axis=1),
        b.node("AveragePool", "window", kernel_shape=[3], pads=[2, 0]),
        *b.nodes_of("Split", "window", b.ints(1, 3), outputs=2, axis=1),
        b.node("ReduceProd", "window", b.ints(1)),
        b.node("Resize", "window", "", b.constant(np.array([1, 1, 2], np.float32)), mode="nearest"),
    )
    b = Net(6, 13, 17)
    made["groups"] = b.finish(
        b.conv("window", 6, 6, 3, 3, group=3), b.conv("window", 6, 12, 3, 3, group=6, dilations=[2, 2])
    )
    b = Net(4, 12, batch=1)
    made["transposed"] = b.finish(b.node("ConvTranspose", "window", b.weights(4, 3, 4), b.weights(3), strides=[2]))
    for name, factor in (("whole numbers", 1.0), ("halves", 0.5)):
        b = Net(1, 200)
        table = np.resize(np.arange(-127, 128) * factor, (24, 1, 16)).astype(np.float32)
        made[name] = b.finish(b.node("Conv", "window", b.constant(table), strides=[8]))
    for kind in ("GRU", "LSTM"):
        b = Net(4, 6)
        t = b.node("Transpose", "window", perm=[2, 0, 1])
        made[kind] = b.finish(layer(b, kind, t, inputs=4, hidden=5, direction="bidirectional")[0])
    return made


@pytest.mark.slow
def test_the_retired_runtime_answers_the_same() -> None:
    engine = next((each for each in engines() if each.name == "tflite-runtime"), None)
    if engine is None:
        pytest.skip("no tflite-runtime here: make tflite-runtime, or name its interpreter in TFLITE_RUNTIME_PYTHON")
    trials = []
    for name, model in models().items():
        inputs = random_inputs(model, 1)
        outputs = tuple(on_tflite(convert(model), inputs))
        size = max(float(np.abs(output, dtype=np.float64).max(initial=0)) for output in outputs)
        # One step of int8, where kernels round differently.
        near = 2e-5 if not name.startswith("int8") else 0.3 / (1 + size)
        trials.append(Trial(name=name, model=model, inputs=inputs, outputs=outputs, rtol=0, atol=near))
    found = attempt(trials, engine, write=lambda model: convert(model, compact=True))
    assert not {name: outcome for name, outcome in found.items() if outcome.word != "right"}
