"""The batch that costs the least each, found by doubling up, and what is made of it at load."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.app.python_api import single_variant
from edge_runtime.errors import EngineError
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.engines.base import Array
from edge_runtime.model.serving.loading import load_model
from edge_runtime.model.tuning import batches
from edge_runtime.model.tuning.batches import cheapest
from edge_runtime.model.tuning.results import file_for, load_tuning
from edge_runtime.model.tuning.timing import TimedModel, Timing, TimingPlan
from tests import models
from tests.edge_runtime.model.tuning.measuring import saved_figure

CANDIDATE = TimedModel(name="a", engine="null", model=b"", inputs=(np.zeros((4, 2), np.float32),))


def timing(name: str, us: float) -> Timing:
    return Timing(
        name=name, engine="e", threads=1, p50_us=us, p95_us=us, min_us=us, cpu_us=us, ratio=1, ratio_low=1,
        ratio_high=1, rounds=9, calls=27,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("calls_us", "most"),
    [
        ({1: 10, 8: 40, 32: 100}, 32),  # cheaper and cheaper
        ({1: 10, 8: 80, 32: 320}, 32),  # all the same: fewer calls
        ({1: 10, 8: 83, 32: 320}, 32),  # within the noise
        ({1: 10, 8: 40, 32: 200}, 8),
        ({1: 10, 8: 100}, 1),  # 32 is not even tried
    ],
)
def test_the_batch_that_costs_the_least_each_is_taken(calls_us: dict[int, float], most: int) -> None:
    tried = []

    def timed(some: Sequence[TimedModel], _plan: TimingPlan) -> list[Timing]:
        tried.append([one.batch for one in some])
        return [timing(one.name, calls_us[one.batch]) for one in some]

    assert cheapest(CANDIDATE, timed) == most
    assert tried == [[1, 8], [8, 32]][: len(calls_us) - 1]


def test_one_that_cannot_be_timed_is_left_as_configured(caplog: pytest.LogCaptureFixture) -> None:
    def timed(_some: Sequence[TimedModel], _plan: TimingPlan) -> list[Timing]:
        raise EngineError("no memory", how="raised")

    assert cheapest(CANDIDATE, timed) == 0
    assert "could not be timed: no memory" in caplog.text


@pytest.mark.slow
@pytest.mark.skipif(not models.usable("onnxruntime"), reason="onnxruntime is not installed")
def test_tune_measures_it_and_the_model_is_then_given_no_more_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edge_runtime.tools.cli import main  # noqa: PLC0415

    bundle = models.tiny_bundle(tmp_path / "watch.edge", variants=("onnx-fp32",))
    monkeypatch.setattr(batches, "PLAN", TimingPlan(rounds=3, block_s=0.001))
    assert main(["tune", str(bundle), "--threads", "1"]) == 0
    with open_bundle(bundle) as opened:
        found = load_tuning(opened, file_for(bundle))
    assert found is not None
    assert {figure.batch for figure in found.figures} <= {1, 8, 32}
    saved_figure(bundle, batch=1)
    with load_model(single_variant(bundle)) as model:
        windows = np.zeros((5, *model.engine.inputs[0].shape[1:]), np.float32)
        given: list[int] = []
        inner = model.engine._engine  # type: ignore[attr-defined]
        run = inner.run

        def counted(*arrays: Array) -> tuple[Array, ...]:
            given.append(len(arrays[0]))
            answers: tuple[Array, ...] = run(*arrays)
            return answers

        monkeypatch.setattr(inner, "run", counted)
        assert len(model.engine.run(windows)[0]) == 5
    assert given == [1] * 5
