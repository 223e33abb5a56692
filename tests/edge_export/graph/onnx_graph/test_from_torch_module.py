"""Torch modules as ONNX files."""

from __future__ import annotations

from pathlib import Path

import edge_export
import numpy as np
import onnx
import onnxruntime
import pytest

from edge_runtime.errors import ConfigError

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")


@pytest.mark.slow
def test_several_inputs_keep_their_names_and_an_open_batch(tmp_path: Path) -> None:
    class Two(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

        def forward(self, sound: object, motion: object) -> object:
            return self.last(torch.relu(self.first(sound)) + motion)

    module = Two().train()
    given = (torch.randn(1, 8), torch.randn(1, 16))
    data = edge_export.from_torch(module, given, tmp_path / "two.onnx")
    assert module.training
    assert data == (tmp_path / "two.onnx").read_bytes() == edge_export.from_torch(module, given)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    assert [(one.name, one.shape) for one in session.get_inputs()] == [
        ("sound", ["batch", 8]),
        ("motion", ["batch", 16]),
    ]
    rows = [torch.randn(3, 8), torch.randn(3, 16)]
    (answer,) = session.run(None, {"sound": rows[0].numpy(), "motion": rows[1].numpy()})
    np.testing.assert_allclose(answer, module.eval()(*rows).detach().numpy(), atol=1e-5)


@pytest.mark.slow
def test_inputs_and_outputs_take_names() -> None:
    data = edge_export.from_torch(torch.nn.Linear(4, 2), torch.randn(1, 4), inputs=["window"], outputs=["scores"])
    graph = onnx.load_model_from_string(data).graph
    assert [info.name for info in (*graph.input, *graph.output)] == ["window", "scores"]


@pytest.mark.slow
def test_what_torch_cannot_export_is_one_line() -> None:
    class Odd(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: object) -> object:
            return x if float(x.sum()) > 0 else -x  # type: ignore[attr-defined, operator]

    with pytest.raises(ConfigError, match="torch cannot export the module"):
        edge_export.from_torch(Odd(), torch.randn(1, 4))


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'from_keras'"):
        edge_export.from_keras  # noqa: B018
