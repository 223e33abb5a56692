"""Execution providers: what is ours of their options, and what is said of where the nodes run."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from edge_runtime.errors import EngineError
from edge_runtime.model import engines
from edge_runtime.model.engines import onnx, providers
from edge_runtime.model.engines.base import EngineOptions
from tests import models
from tests.edge_devices import fakes

ort = pytest.importorskip("onnxruntime")

OPTIONS = EngineOptions(max_batch=8)


def load(model: bytes, wanted: dict[str, Any]) -> Any:
    return engines.load("onnxruntime", model, OPTIONS, wanted)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = fakes.onnxruntime(["CUDAExecutionProvider", "TensorrtExecutionProvider"], plugins=["QNNExecutionProvider"])
    monkeypatch.setattr(onnx, "_library", lambda: made)
    monkeypatch.setattr(providers, "_registered", {})
    return made


# The Azure provider stands in every wheel and never takes a node of an ordinary model: the real thing to be loud about.


def test_a_provider_that_takes_nothing_is_an_error_with_the_real_library() -> None:
    """Six nodes; onnxruntime before 1.24 can be asked only for those that ran, which are five."""
    with pytest.raises(EngineError, match=r"AzureExecutionProvider takes no node of this model, so all [56] would run"):
        load(models.tiny_onnx_classifier(), {"AzureExecutionProvider": {}})


def test_an_onnxruntime_that_cannot_be_asked_is_profiled_instead(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(ort.InferenceSession.__mro__[1], "get_provider_graph_assignment_info", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(
        EngineError, match=r"AzureExecutionProvider takes no node of this model, so all [1-6] would run"
    ):
        load(models.tiny_onnx_classifier(), {"AzureExecutionProvider": {}})
    assert list(tmp_path.iterdir()) == []


def test_where_it_stays_unknown_that_is_said(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delattr(ort.InferenceSession.__mro__[1], "get_provider_graph_assignment_info", raising=False)

    def full(prefix: str) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.mkdtemp", full)
    with caplog.at_level(logging.WARNING):
        engine = load(models.tiny_onnx_classifier(), {"AzureExecutionProvider": {}})
    assert (
        "could not tell what an accelerator runs; compare its speed with the CPU's: providers=AzureExecutionProvider"
        in caplog.text
    )
    assert engine.name.endswith(" on AzureExecutionProvider")
    assert engine.placement is None


def test_a_library_that_fails_to_say_is_believed_no_more_than_an_old_one() -> None:
    def fail() -> Any:
        raise RuntimeError("not recorded")

    assert providers.placement(SimpleNamespace(get_provider_graph_assignment_info=fail)) is None
    assert providers.placement(SimpleNamespace(), Path("no such file")) is None


def test_shapes_are_filled_in_for_the_smallest_and_the_largest_batch(fake: Any) -> None:
    wanted = {
        "TensorrtExecutionProvider": {
            "trt_profile_min_shapes": "{min_shapes}",
            "trt_profile_max_shapes": "{max_shapes}",
        }
    }
    load(models.tiny_onnx_classifier(), wanted)
    ((_, options),) = fake.handed[0]
    assert options == {"trt_profile_min_shapes": "x:1x3x16", "trt_profile_max_shapes": "x:8x3x16"}


@pytest.mark.parametrize("rows", [1, 2, 5])
def test_a_fixed_batch_is_filled_up_and_the_answers_are_the_same(rows: int, fake: Any) -> None:
    x = models.windows(rows, 3, 16)
    plain = load(models.tiny_onnx_classifier(), {}).run(x)[0].copy()
    engine = load(models.tiny_onnx_classifier(), {"CUDAExecutionProvider": {"fixed_batch": "2", "device_id": "0"}})
    assert engine.inputs[0].shape == (-1, 3, 16)
    np.testing.assert_allclose(engine.run(x)[0], plain, atol=1e-6)
    assert fake.handed[-1] == [("CUDAExecutionProvider", {"device_id": "0"})]


def test_a_fixed_batch_that_is_no_number_is_refused() -> None:
    with pytest.raises(EngineError, match="fixed_batch must be a whole number such as 1, got 'one'"):
        load(models.tiny_onnx_classifier(), {"AzureExecutionProvider": {"fixed_batch": "one"}})


def test_a_plug_in_is_registered_once_and_gets_its_devices(fake: Any) -> None:
    wanted = {"QNNExecutionProvider": {"library": "/opt/qnn/ep.so", "backend_type": "htp"}}
    for _ in range(2):
        load(models.tiny_onnx_classifier(), wanted)
    assert fake.registered == {"QNNExecutionProvider": "/opt/qnn/ep.so"}
    assert fake.handed == [[("QNNExecutionProvider", {"backend_type": "htp"})]] * 2


def test_a_plug_in_without_a_device_says_so(fake: Any) -> None:
    with pytest.raises(EngineError, match="OtherExecutionProvider finds nothing here that it could run on"):
        load(models.tiny_onnx_classifier(), {"OtherExecutionProvider": {"library": "/opt/other.so"}})


def test_a_plug_in_that_the_real_library_cannot_open_is_an_engine_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_registered", {})
    with pytest.raises(EngineError, match="onnxruntime cannot take the plug-in OtherExecutionProvider"):
        load(models.tiny_onnx_classifier(), {"OtherExecutionProvider": {"library": "/no/such/file.so"}})


def test_a_plug_in_whose_package_is_missing_names_the_line_that_installs_it() -> None:
    with pytest.raises(EngineError, match="run: pip install no-such-package"):
        load(models.tiny_onnx_classifier(), {"QNNExecutionProvider": {"library": "package:no_such_package"}})


def test_an_onnxruntime_too_old_for_plug_ins_says_so(fake: Any) -> None:
    del fake.register_execution_provider_library
    with pytest.raises(EngineError, match="pip install --upgrade onnxruntime"):
        load(models.tiny_onnx_classifier(), {"QNNExecutionProvider": {"library": "/opt/qnn/ep.so"}})


def test_a_model_that_does_not_load_is_refused_before_its_shapes_are_asked_for() -> None:
    with pytest.raises(EngineError, match="onnxruntime refuses the model"):
        load(b"no model", {"AzureExecutionProvider": {"fixed_batch": "1"}})
