"""An explanation names the part of a window that moved the answer, as `edge_runtime.model.serving.explain` has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError, EngineError
from edge_runtime.manifest import REFERENCE_LEVELS, Manifest, Reference
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.engines.base import TensorSpec
from edge_runtime.model.serving.explain import Explainer, explain
from edge_runtime.model.serving.loading import Answers
from edge_runtime.model.serving.states import StateStore
from edge_runtime.signal.windowing.window import Window
from edge_runtime.tools.cli import main
from edge_runtime.types import Float32
from tests.edge_runtime.manifests import manifest
from tests.models import tiny_bundle
from tests.stateful import stateful_bundle, stream


class One:
    """P(high) is the mean of one channel over some samples, whatever else the window holds."""

    def __init__(self, m: Manifest, channel: int = 1, rows: slice = slice(2, 3)) -> None:
        self.manifest, self.variant, self.max_batch = m, m.variants[0], 5
        self.channel, self.rows = channel, rows
        self.states: StateStore | None = None
        self.asked: list[int] = []

    def predict(self, windows: Sequence[Window]) -> Answers:
        assert len({window.key for window in windows}) == len(windows) <= self.max_batch
        self.asked.append(len(windows))
        high = np.array([window.samples[self.rows, self.channel].mean() for window in windows], np.float32)
        return Answers(np.stack([1 - high, high], axis=1), windows)


def window(samples: Float32) -> Window:
    return Window("k", 7, 0.7, samples, samples, 0.0)


def with_median(m: Manifest, median: float) -> Manifest:
    quantiles = tuple(np.linspace(median - 1, median + 1, len(REFERENCE_LEVELS)))
    quantiles = tuple(sorted({*quantiles[:4], median, *quantiles[5:]}))
    found = tuple(Reference(channels=(one.name,), quantiles=quantiles, span_s=1.0) for one in m.input.channels)
    return replace(m, schema_version=2, references=found)


def test_a_model_that_uses_one_span_of_one_channel_is_explained_by_it() -> None:
    m = with_median(manifest(), 0.25)
    samples = np.random.default_rng(0).uniform(0.6, 0.9, (4, 2)).astype("f4")
    model = One(m)
    found = explain(m, model.predict, window(samples), spans=4, max_batch=model.max_batch)
    effect = samples[2, 1] - 0.25
    assert found.label == m.output.labels[1]
    assert found.score == pytest.approx(samples[2, 1])
    expected = np.zeros((2, 4))
    expected[1, 2] = effect
    assert found.cells == pytest.approx(expected, abs=1e-6)
    assert found.channels == pytest.approx([0, effect], abs=1e-6)
    assert found.spans == pytest.approx([0, 0, effect, 0], abs=1e-6)
    assert sum(model.asked) == 1 + 2 * 4 + 2 + 4


def test_without_a_stated_median_a_channel_is_replaced_by_its_mean() -> None:
    m = manifest()
    samples = np.array([[0, 0.6], [0, 0.6], [0, 0.9], [0, 0.5]], "f4")
    found = explain(m, One(m).predict, window(samples), spans=4, max_batch=5)
    assert found.cells[1, 2] == pytest.approx(0.9 - samples[:, 1].mean())
    assert explain(m, One(m, rows=slice(0, 4)).predict, window(samples), max_batch=5).channels == pytest.approx([0, 0])


def test_a_window_is_left_as_it_was_and_has_no_more_spans_than_samples() -> None:
    m = manifest()
    samples = np.random.default_rng(0).uniform(0, 1, (4, 2)).astype("f4")
    before = samples.copy()
    found = explain(m, One(m).predict, window(samples), spans=50, max_batch=5)
    assert (samples == before).all()
    assert found.bounds == (0, 1, 2, 3, 4)


def test_an_answer_that_another_window_moved_has_no_explanation() -> None:
    m = manifest()
    with pytest.raises(EngineError, match="depends on earlier windows"):
        explain(m, One(m).predict, window(still(0.5)), max_batch=5, given=np.array([0.9, 0.1], "f4"))


def still(level: float) -> Float32:
    return np.full((4, 2), level, np.float32)


def test_the_picture_has_a_line_for_each_channel() -> None:
    m = with_median(manifest(), 0.25)
    found = explain(m, One(m).predict, window(still(0.9)), spans=4, max_batch=5)
    lines = found.text(10.0).splitlines()
    assert lines[0].split() == ["effect", "0", "s", "0.4", "s"]
    assert lines[1].split() == ["a", "+0.00"]
    assert lines[2].endswith("+0.65      ██")
    assert lines[3].startswith("all")


def test_hard_cases_are_explained_within_a_share_of_the_time() -> None:
    m = with_median(manifest(), 0.25)
    clock, metrics = SimulatedClock(), Metrics()

    class Slow(One):
        def predict(self, windows: Sequence[Window]) -> Answers:
            clock.advance(0.1)
            return super().predict(windows)

    explainer = Explainer(0.1, Slow(m), clock, metrics)
    model = Slow(m)
    asked = 0
    for _ in range(100):
        clock.advance(1.0)
        asked += explainer.explain(model, window(still(0.9))) is not None
    assert metrics.counts["explanations_total"] == asked
    assert metrics.counts["explanations_skipped_total"] == 100 - asked
    assert 0.05 <= asked * 0.1 * len(model.asked) / asked / 100 <= 0.15


def test_a_model_with_states_has_no_explained_cases() -> None:
    model = One(manifest())
    model.states = StateStore([TensorSpec("step", np.dtype(np.int32), (-1,))], 1)
    with pytest.raises(ConfigError, match="leave explain out"):
        Explainer(0.1, model, SimulatedClock(), Metrics())


def recording(path: Path, samples: Float32, names: Sequence[str], rate_hz: float) -> Path:
    rows = [",".join(("t", *names))]
    rows += [",".join(map(str, (k / rate_hz, *row))) for k, row in enumerate(samples.tolist())]
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


@pytest.mark.slow
def test_the_command_explains_the_windows_that_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "tiny.edge"
    tiny_bundle(bundle)
    with open_bundle(bundle) as opened:
        m = opened.manifest
    names = [channel.name for channel in m.input.channels]
    samples = np.random.default_rng(0).standard_normal((6 * m.input.window, len(names))).astype("f4")
    played = recording(tmp_path / "day.csv", samples, names, m.input.rate_hz)
    slot = m.input.hop * 2
    assert main(["explain", str(bundle), str(played), "--window", f"day@{slot}", "--spans", "4", "--json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert found["id"] == f"day@{slot}"
    assert list(found["channels"]) == names
    assert len(found["cells"][names[0]]) == 4
    assert main(["explain", str(bundle), str(played), "--worst", "2"]) == 0
    assert capsys.readouterr().out.count("effect") == 2
    assert main(["explain", str(bundle), str(played), "--window", "day@1"]) == 2
    assert "have no window day@1" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_refuses_a_model_that_remembers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = stateful_bundle(tmp_path / "leaky.edge", rate_hz=50.0)
    played = recording(tmp_path / "day.csv", stream(20), ("c0", "c1"), 50.0)
    assert main(["explain", str(bundle), str(played)]) == 1
    assert "no explanation" in capsys.readouterr().err
