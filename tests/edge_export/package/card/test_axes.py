"""Models whose axes mean other things than a batch of windows, packed, and compared with onnxruntime fed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from edge_export.cli import main
from onnx import numpy_helper

from edge_runtime.model.bundle.bundle import open_bundle
from tests.edge_export.package.card.lookalikes import CARD, CASES, EVENED, ROWS, F, lstm, made, node

pytestmark = pytest.mark.usefixtures("models_in_this_process")


def pack(folder: Path, model: onnx.ModelProto, inputs: str, channels: int = F, *more: str) -> int:
    named = ", ".join(f'{{ name = "c{k}", low = -2, high = {k + 2} }}' for k in range(channels))
    card = CARD.replace("CHANNELS", named).replace("INPUTS", f"inputs = [{{ {inputs} }}]")
    (folder / "card.toml").write_text(card)
    onnx.save(model, str(folder / "net.onnx"))
    return main(
        ["pack", str(folder / "net.onnx"), "--card", str(folder / "card.toml"), "-o", str(folder / "o.edge"), *more]
    )


@pytest.mark.parametrize("name", CASES)
def test_a_packed_model_answers_as_onnxruntime_does_when_it_is_fed_by_hand(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = CASES[name]
    if "CumSum" in {one.op_type for one in case.model.graph.node}:
        case.model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "zero"))
    assert pack(tmp_path, case.model, case.inputs, case.channels) == 0, capsys.readouterr().err
    session = onnxruntime.InferenceSession(str(tmp_path / "net.onnx"), providers=["CPUExecutionProvider"])
    gain = {"gain": np.array([0.5, 1, 2, 4], np.float32)} if "gain" in case.inputs else {}
    with open_bundle(tmp_path / "o.edge") as bundle:
        inputs, answers = bundle.golden("onnx-fp32")
    for window, answer in zip(inputs, answers, strict=True):
        (wanted,) = session.run(["y"], {"x": np.ascontiguousarray(case.tensor(window.T)), **gain})
        wanted = wanted[:1] if name == "[8, 10, 4]" else wanted
        np.testing.assert_allclose(answer.ravel(), wanted.ravel(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("model", "inputs", "message"),
    [
        (CASES["[1, T, F, 1]"].model, "rows = 10", 'write layout = "samples-first" or "channels-first" at the input'),
        (made(["n", F], node("MatMul", "x dense", "y"), outputs=2), ROWS, "write rows = 1, or batch = -1"),
        (made(["t", 3, F], *lstm(), outputs=2), "rows = 3", "write batch = -1 at the input"),
        (CASES["[T, B, F] of an LSTM"].model, "rows = 1", "write batch = -1 at the input"),
        (EVENED, ROWS, "write batch = 0 at the input if the first axis is the batch, or batch = -1 if there is none"),
    ],
)
def test_axes_that_nothing_tells_are_asked_for_by_the_line_to_write(
    model: onnx.ModelProto, inputs: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack(tmp_path, model, inputs) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "o.edge").exists()
