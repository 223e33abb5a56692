"""The files also load in tflite-runtime 2.14, the retired package that old boards have, and answer the same there.

It needs numpy 1, so it lives in an environment of its own; name its interpreter to run this test:

    python3.11 -m venv old && old/bin/pip install tflite-runtime==2.14.0 'numpy<2'
    TFLITE_RUNTIME_PYTHON=old/bin/python pytest tests/export/tflite/test_tflite_runtime.py
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest

from export.to_tflite import convert
from tests.export.graphs import device_net
from tests.export.tflite.compare import Net, on_tflite, random_inputs
from tests.export.tflite.test_int8 import FORMS, between
from tests.export.tflite.test_operators import UNARY
from tests.export.tflite.test_recurrent import layer

_PYTHON = os.environ.get("TFLITE_RUNTIME_PYTHON", "")

_RUN = """
import sys
import numpy as np
from pathlib import Path
from tflite_runtime.interpreter import Interpreter

for path in sorted(Path(sys.argv[1]).glob("*.tflite")):
    try:
        interpreter = Interpreter(model_content=path.read_bytes(), num_threads=1)
        inputs = np.load(path.with_suffix(".npz"))
        interpreter.allocate_tensors()
        for detail in interpreter.get_input_details():
            interpreter.set_tensor(detail["index"], inputs[detail["name"]])
        interpreter.invoke()
        answers = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
        np.savez(path.with_suffix(".answers.npz"), *answers)
    except (RuntimeError, ValueError) as error:
        path.with_suffix(".error").write_text(str(error))
"""


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


@pytest.mark.skipif(not _PYTHON, reason="TFLITE_RUNTIME_PYTHON names no interpreter that has tflite-runtime 2.14")
def test_the_retired_runtime_answers_the_same(tmp_path: Path) -> None:
    made = models()
    expected, files = {}, {}
    for place, (name, model) in enumerate(made.items()):
        files[name] = tmp_path / f"{place:03}.tflite"
        written, inputs = convert(model), random_inputs(model, 1)
        files[name].write_bytes(convert(model, compact=True))
        np.savez(files[name].with_suffix(".npz"), **inputs)  # type: ignore[arg-type]  # names are the keys
        expected[name] = on_tflite(written, inputs)
    subprocess.run([_PYTHON, "-c", _RUN, str(tmp_path)], check=True, timeout=120, capture_output=True)
    wrong = {}
    for name, path in files.items():
        if path.with_suffix(".error").exists():
            wrong[name] = path.with_suffix(".error").read_text()
            continue
        answers = np.load(path.with_suffix(".answers.npz"))
        for reference, answer in zip(expected[name], answers.values(), strict=True):
            # One step of int8, where kernels round differently.
            limit = 2e-5 + 2e-5 * np.abs(reference).max() if not name.startswith("int8") else 0.3
            if np.abs(reference.astype(float) - answer).max() > limit:
                wrong[name] = f"{np.abs(reference.astype(float) - answer).max()} apart"
    assert not wrong
