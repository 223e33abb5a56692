"""A whole run: what is measured, written and refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.choose.variants import Settings, quantize_model
from edge_export.choose.variants.data import read_arrays
from edge_export.choose.variants.decide import Rule
from edge_export.choose.variants.run import scheme_for

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError
from edge_runtime.model.tuning.timing import TimingPlan
from tests.edge_export.choose.variants import models
from tests.long_tier import some

pytestmark = pytest.mark.usefixtures("models_in_this_process")

QUICK = TimingPlan(rounds=2, block_s=0.0005)


@pytest.mark.slow
def test_every_variant_is_measured_and_each_is_written_or_refused_with_a_reason(tmp_path: Path) -> None:
    source = models.classifier(tmp_path)
    found = read_arrays(models.recordings(tmp_path / "data"), source, {})
    outcome = quantize_model(source, found, tmp_path / "out", Settings(plan=QUICK))
    by_name = {each.measured.file.name: each for each in outcome.decisions}
    assert {"fp32", "int8", "int8-equalized", "int8-bias", "int8-adaround", "int8-combined"} <= by_name.keys()
    assert "int4-weights" in outcome.missing
    assert all(each.written != bool(each.reason) for each in outcome.decisions)
    assert all(each.measured.timing is not None for each in outcome.decisions)
    assert by_name["int8"].measured.db > 20
    assert by_name["fp32"].measured.db > 100
    page = outcome.report.read_text()
    assert "split by file: 4 calibrate, 2 are held out" in page
    assert all(name in page for name in (*by_name, *outcome.missing))
    written = {path.name for path in (tmp_path / "out").iterdir()} - {"quantize-report.md"}
    assert written == {path.name for path in outcome.written.values()}


@pytest.mark.slow
def test_a_loss_that_is_not_allowed_is_refused_and_nothing_worse_than_the_limit_is_written(tmp_path: Path) -> None:
    source = models.classifier(tmp_path)
    found = read_arrays(models.recordings(tmp_path / "data"), source, {})
    outcome = quantize_model(source, found, tmp_path / "out", Settings(plan=QUICK, rule=Rule(min_snr=200)))
    assert not any("int8" in name for name in outcome.written)
    assert {each.reason for each in outcome.decisions if each.measured.file.name == "int8"} != {""}


class Ticking(SimulatedClock):
    """A clock on which a second passes between any two looks at it."""

    def monotonic(self) -> float:
        self.advance(1)
        return super().monotonic()


@pytest.mark.slow
@pytest.mark.parametrize("seconds", some([1, 7, 14], [1]))
def test_a_run_out_of_time_reports_what_was_made_and_names_the_rest(tmp_path: Path, seconds: float) -> None:
    source = models.classifier(tmp_path)
    found = read_arrays(models.recordings(tmp_path / "data"), source, {})
    asked = Settings(plan=QUICK, seconds=seconds, rule=Rule(min_snr=200))
    outcome = quantize_model(source, found, tmp_path / "out", asked, Ticking())
    made = {each.measured.file.name for each in outcome.decisions}
    late = {name for name, reason in outcome.missing.items() if f"no time left of {seconds} s" in reason}
    assert "fp32" in made
    assert late
    assert not late & made
    assert {"int8", "mixed"} <= late if seconds == 1 else "int8" in made
    page = outcome.report.read_text()
    assert all(f"- {name}: no time left" in page for name in late)


@pytest.mark.slow
def test_states_are_carried_from_call_to_call_and_a_constant_stays_an_input(tmp_path: Path) -> None:
    source = models.counter(tmp_path)
    (tmp_path / "data").mkdir()
    for i in range(3):
        x = np.random.default_rng(i).standard_normal((20, 8)).astype(np.float32)
        np.savez(tmp_path / "data" / f"{i}.npz", x=x)
    constants = {"gain": 0.25}
    found = read_arrays(tmp_path / "data", source, constants)
    settings = Settings(plan=QUICK, constants=constants, rule=Rule(min_snr=5))
    outcome = quantize_model(source, found, tmp_path / "out", settings)
    page = outcome.report.read_text()
    assert "States: state;" in page
    assert "gain = 0.25" in page
    files = {each.measured.file.name: each.measured for each in outcome.decisions}
    assert files["int8"].db > 10
    model = onnx.load_model_from_string(files["int8"].file.model)
    assert [info.name for info in model.graph.input] == ["x", "state", "gain"]


@pytest.mark.slow
def test_an_onnx_model_becomes_tflite_too(tmp_path: Path) -> None:
    source = models.classifier(tmp_path)
    found = read_arrays(models.recordings(tmp_path / "data", files=3, calls=8), source, {})
    outcome = quantize_model(source, found, tmp_path / "out", Settings(plan=QUICK, formats=("onnx", "tflite")))
    files = {each.measured.file.name: each.measured for each in outcome.decisions}
    assert {"int8", "int8-tflite", "fp32-tflite"} <= files.keys()
    assert files["fp32-tflite"].db > 100
    assert files["int8-tflite"].db > 20


def test_tflite_takes_signed_integers_of_eight_bits_and_onnx_what_this_machine_adds_without_saturation() -> None:
    assert scheme_for("tflite", None).name == "s8s8"
    assert scheme_for("tflite", None).weight_bits == 8
    assert scheme_for("onnx", 7).weight_bits == 7


def test_limits_below_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match="must not be negative"):
        Rule(max_loss=-1)


def test_a_model_that_answers_with_nan_is_refused_in_one_line(tmp_path: Path) -> None:
    nodes = [onnx.helper.make_node("Log", ["x"], ["y"])]
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 8]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:])
    source = models.saved(
        onnx.helper.make_model(graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17)]), tmp_path
    )
    np.savez(tmp_path / "a.npz", x=np.full((12, 8), -1, np.float32))
    found = read_arrays(tmp_path / "a.npz", source, {})
    with pytest.raises(ConfigError, match="NaN or infinity"):
        quantize_model(source, found, tmp_path / "out", Settings(plan=QUICK))
