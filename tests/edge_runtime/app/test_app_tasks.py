"""Whole applications with other tasks than classification: answers, cloud, corrections, events, replay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from edge_export.package.sign import SigningKey, new_key, sign_bundle

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.app.python_api import open_model
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources import Deliver
from edge_runtime.manifest.outputs import AnomalyOutput
from edge_runtime.metrics import Metrics
from edge_runtime.operate.server.bundle_model import served_model
from edge_runtime.operate.server.server import ServeConfig, Server
from edge_runtime.signal.drift.config import DriftConfig
from edge_runtime.signal.drift.monitor import Drift
from edge_runtime.store.durable.state_file import read_part
from edge_runtime.tools.cli import main
from edge_runtime.types import Correction, Event, Prediction
from tests.edge_runtime.app.task_apps import APP, CLOUD, Fed, N, Until
from tests.edge_runtime.batches import marks_after
from tests.edge_runtime.signal.drift.sensors import described, reference, streamed
from tests.edge_runtime.signal.drift.sensors import windows as sensor_windows
from tests.task_bundles import CHANNELS, FILES, OUTPUTS, RATE_HZ, expected, samples, task_bundle


class Silent(Fed):
    """A source that gives nothing."""

    def open(self, loop: Loop, deliver: Deliver) -> None:
        pass


def run(folder: Path, sink: Until, more: str = "", start: float = 1000.0) -> App:
    app = App(parse(APP + more, folder / "app.toml"), sources=[Fed(start)], sinks=[sink])
    sink.app = app
    assert app.run()
    return app


def bundle(folder: Path, kind: str, **more: Any) -> Path:
    return task_bundle(folder / "task.edge", OUTPUTS[kind], files=FILES.get(kind), **more)


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(OUTPUTS))
def test_an_application_publishes_answers_of_the_task(tmp_path: Path, kind: str) -> None:
    path = bundle(tmp_path, kind)
    sink = Until(Prediction, N)
    app = run(tmp_path, sink)
    made = sink.of(Prediction)
    with open_model(path) as model:
        decision = model.task().decide(expected(samples(N), OUTPUTS[kind].shape))
    assert [one.task for one in made] == [kind] * N
    assert [one.label for one in made] == [found.label for found in decision.best]
    for one, found in zip(made, decision.best, strict=True):  # of a text, as many scores as it has characters
        np.testing.assert_allclose(one.scores, found.scores, atol=1e-5)
    assert app.metrics.counts["hard_total"] == N
    for one in made:
        assert orjson.loads(one.to_json())["task"] == kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(OUTPUTS.keys() - {"vector"}))
def test_a_bundle_is_the_cloud_of_another_of_its_kind(tmp_path: Path, kind: str) -> None:
    path = bundle(tmp_path, kind)
    sink = Until(Correction, N)
    with (
        open_model(path) as model,
        Server({"linear": served_model(model, 8)}, ServeConfig(port=0, drain_s=0.5)) as server,
    ):
        app = run(tmp_path, sink, CLOUD.format(url=server.url))
    told = {one.id: one for one in sink.of(Prediction)}
    assert app.metrics.counts["corrections_total"] == N
    for one in sink.of(Correction):
        assert one.task == kind
        assert one.upheld, "the same model cannot be of another opinion"
        assert one.supersedes == told[one.id].label == one.label
        if kind not in ("embedding", "text"):  # whose cloud answers with a label alone
            assert one.scores == pytest.approx(told[one.id].scores, abs=1e-5)


def test_vectors_are_not_asked_about_which_is_said_before_anything_starts(tmp_path: Path) -> None:
    bundle(tmp_path, "vector")
    config = parse(APP + CLOUD.format(url="http://127.0.0.1:1"), tmp_path / "app.toml")
    with pytest.raises(ConfigError, match=r"the cloud cannot be asked about answers of kind 'vector'; take \[cloud\]"):
        App(config, sources=[Fed()], sinks=[MemorySink()])


@pytest.mark.parametrize(("kind", "label"), [("anomaly", "anomalous"), ("multi-label", "rain")])
def test_events_follow_a_label_of_the_task(tmp_path: Path, kind: str, label: str) -> None:
    bundle(tmp_path, kind)
    sink = Until(Prediction, N)
    run(tmp_path, sink, f'[[events]]\nname = "seen"\nlabel = "{label}"\non = 0.5\n')
    columns = {"anomaly": 0, "multi-label": 1}
    high = [one.scores[columns[kind]] >= 0.5 for one in sink.of(Prediction)]
    begins = sum(now and not before for before, now in zip([False, *high], high, strict=False))
    assert sum(event.kind == "start" for event in sink.of(Event)) == begins > 0


def test_an_event_of_values_is_refused_in_one_line(tmp_path: Path) -> None:
    bundle(tmp_path, "regression")
    config = parse(APP + '[[events]]\nname = "hot"\nlabel = "t"\n', tmp_path / "app.toml")
    with pytest.raises(ConfigError, match="event 'hot': the model's answers have no labels; take the event out"):
        App(config, sources=[Fed()], sinks=[MemorySink()])


def test_numbers_that_a_task_needs_are_checked_when_the_application_is_built(tmp_path: Path) -> None:
    task_bundle(tmp_path / "task.edge", OUTPUTS["anomaly"], files={"normal.npy": np.ones((2, 2), np.float32)})
    config = parse(APP, tmp_path / "app.toml")
    with pytest.raises(Exception, match=r"normal.npy: has the shape \(2, 2\), the manifest's output calls for \(-1,\)"):
        App(config, sources=[Fed()], sinks=[MemorySink()])


@pytest.mark.slow
def test_thresholds_of_keys_outlive_the_application(tmp_path: Path) -> None:
    output = AnomalyOutput(normal="normal.npy", false_alarm_rate=0.1, adapt="quantile")
    task_bundle(tmp_path / "task.edge", output, files=FILES["anomaly"])
    more = '[reading_log]\npath = "log.db"\n'
    first = run(tmp_path, Until(Prediction, N), more)
    assert read_part(tmp_path / "log.state.db", "thresholds") == first.thresholds.save()
    second = run(tmp_path, Until(Prediction, N), more, start=1008.0)
    assert b'"k":[12,' in first.thresholds.save()
    assert b'"k":[24,' in second.thresholds.save()


def replayed(folder: Path, kind: str) -> tuple[int, Path]:
    path, recording = bundle(folder, kind), folder / "day.csv"
    rows = samples(N).transpose(0, 2, 1).reshape(-1, CHANNELS)
    high = np.repeat(expected(samples(N), (1,))[:, 0] > 0.8, len(rows) // N)
    lines = [
        f"{1000 + i / RATE_HZ},{','.join(map(str, row))},{int(label)}"
        for i, (row, label) in enumerate(zip(rows, high, strict=True))
    ]
    recording.write_text("\n".join(["t,c0,c1,c2,fault", *lines]) + "\n")
    out = folder / "out.jsonl"
    return main(["replay", str(path), str(recording), "--labels", "fault", "--json", "--out", str(out)]), out


def test_a_replay_scores_anomalies_against_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = replayed(tmp_path, "anomaly")
    score = orjson.loads(capsys.readouterr().out.splitlines()[-1])["score"]
    assert code == 0
    assert len(out.read_text().splitlines()) == N
    assert score["labels"] == ["normal", "anomalous"]
    assert (score["windows"], score["accuracy"]) == (N, 1.0), "the labels are the model's own answers"


def test_a_replay_refuses_labels_of_answers_that_it_cannot_score(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _ = replayed(tmp_path, "regression")
    assert code == 2
    assert "--labels: answers of kind 'regression' have no score here; leave it out" in capsys.readouterr().err


def test_what_an_update_first_brings_to_learn_outlives_the_application(tmp_path: Path) -> None:
    """The bundle that it starts with knows nothing of sensors; the one that is swapped in does."""
    task_bundle(tmp_path / "task.edge", OUTPUTS["anomaly"], files=FILES["anomaly"])
    new_key(tmp_path / "release.pem")
    sign_bundle(tmp_path / "task.edge", SigningKey(tmp_path / "release.pem"))
    text = APP.replace('unsigned = "allow"', 'trusted_keys = ["release.pub.pem"]')
    text += '[reading_log]\npath = "log.db"\n[update]\nfolder = "updates"\ndrop = "drop"\n'
    (tmp_path / "drop").mkdir()
    app = App(parse(text, tmp_path / "app.toml"), sources=[Silent()], sinks=[MemorySink()])
    assert not app.drift.active
    app.drift.use(described(reference()))
    marks_after(app.drift, streamed(sensor_windows(15)))
    app.stop()
    assert app.run()
    again = Drift(DriftConfig(), 10, Metrics(), SystemClock())
    again.use(described(reference()))
    saved = read_part(tmp_path / "log.state.db", "drift")
    assert saved is not None
    assert again.restore(saved)
    assert again.save() == app.drift.save()
    assert b'"looks":15' in again.save()
