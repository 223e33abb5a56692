"""The flywheel once round: an application keeps cases, people label them on its page, a build learns from these."""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import orjson
import pytest

pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")
pytest.importorskip("sklearn", reason="the export toolchain's baseline needs scikit-learn (edge-export[train])")

from edge_export.cli import main

from edge_runtime.manifest import Channel
from edge_runtime.model.bundle.bundle import open_bundle
from tests.edge_runtime.operate.observe.looking import get, post
from tests.integration.running import (
    Process,
    Publisher,
    Stream,
    command,
    cut,
    environment,
    predictions,
    until,
)
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, needs_mosquitto

LABELS = ("slow", "fast", "flat")
WINDOW, HOP, RATE_HZ = 40, 20, 50.0
BEGIN = 1_700_000_000.0
KEPT = 60
"""Windows of each of two keys."""

APP = """
[model]
bundle = "waves-1.edge"
unsigned = "allow"
[broker.b]
url = "{broker}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[observe]
listen = "127.0.0.1:0"
[cases]
path = "cases.db"
random_share = 1.0
max_per_minute = 6000
"""

RECIPE = """
name = "waves"
version = 2
created = "2026-01-02"
classes = ["slow", "fast", "flat"]
targets = ["any"]

[[data]]
type = "npz"
key = "home"
label = "y"
boundaries = "bounds"
origin = { name = "made up", source = "this test", licence = "CC0" }

[[data]]
type = "table"
key = "reviewed"
origin = { name = "reviewed windows", source = "our own devices", licence = "ours" }
time = "time"
label_column = "label"
group_column = "person"
share = 0.5

[window]
rate_hz = 50
samples = 40
hop = 20
channels = [{ name = "ax", unit = "g" }, { name = "ay", unit = "g" }]

[split]
train = ["home/p0", "home/p1"]
validation = ["home/p2"]
test = ["home/p3"]
train_only = ["reviewed/*"]
folds = 3

[teacher]
training = { steps = 40, batch = 16 }
candidates = [{ type = "resnet-1d", width = 0.125, depth = 2 }]

[student]
network = { type = "separable-cnn-1d", width = 0.5, depth = 2, kernel = 5 }
training = { steps = 100, batch = 16, learning_rate = 0.01 }
pool = 256

[quantise]
calibration_windows = 64

[gate]
max_forwarded = 0.2
"""


def waves(seed: int, samples: int, *, gain: float) -> tuple[np.ndarray, np.ndarray]:
    """Labels and values of a person who waves slowly, fast and not at all, for 6 s each."""
    random = np.random.default_rng(seed)
    y = np.arange(samples) // 300 % 3
    phase = np.cumsum(2 * np.pi * np.array([0.7, 3.0, 0.0])[y] / RATE_HZ)
    x = gain * np.stack([np.sin(phase), np.cos(phase)], 1) + 0.1 * random.standard_normal((samples, 2))
    return y, x.astype(np.float32)


def listed(connection: http.client.HTTPConnection, token: dict[str, str]) -> list[str]:
    return [one["id"] for one in orjson.loads(get(connection, "/api/cases?limit=200", **token)[1])["cases"]]


@pytest.fixture
def export(tmp_path: Path) -> bytes:
    """What the page exports once a person has labelled all windows but those on a border."""
    tiny_bundle(
        tmp_path / "waves-1.edge", channels=2, window=WINDOW, hop=HOP, labels=LABELS, name="waves",
        sensor=[Channel(name="ax", unit="g"), Channel(name="ay", unit="g")],
    )  # fmt: skip
    y, _ = waves(0, HOP * (KEPT + 1), gain=1.0)
    t = BEGIN + np.arange(len(y)) / RATE_HZ
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        (tmp_path / "app.toml").write_text(APP.format(broker=broker.url))
        with Process(tmp_path, "run", tmp_path / "app.toml") as process:
            process.says("observe: listening")
            process.says("connected to")
            until(lambda: broker.log().count("Sending SUBACK") == 1, broker.log)
            for seed, key in enumerate(("kitchen", "hall")):
                publisher.send(cut(Stream(key, t, waves(seed, len(t), gain=1.4)[1]), lambda: 50))
            publisher.flush()
            port = int(re.findall(r"url=http://127\.0\.0\.1:(\d+)/", process.err)[0])
            token = {"Authorization": "Bearer " + re.findall(r"#token=(\S+)", process.err)[0]}
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
                until(lambda: len(listed(connection, token)) == 2 * KEPT, lambda: process.err)
                for case in listed(connection, token):
                    one = orjson.loads(get(connection, f"/api/cases/one?id={case}", **token)[1])
                    begin = round((one["start"] - BEGIN) * 50)
                    inside = set(y[begin : begin + WINDOW].tolist())
                    label = LABELS[inside.pop()] if len(inside) == 1 else "skip"
                    assert post(connection, "/api/cases/label", {"id": case, "label": label}, **token)[0] == 200
                status, csv = get(connection, "/api/cases/export", **token)
                assert status == 200
    assert {answer["key"] for answer in predictions(tmp_path / "answers.jsonl")} == {"kitchen", "hall"}
    return csv


@pytest.mark.slow
def test_a_single_test_recording_is_refused_before_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for person in range(4):
        y, x = waves(person, 1800, gain=1.0)
        np.savez(tmp_path / f"p{person}.npz", x=x, y=y)
    second, window = RECIPE.index('[[data]]\ntype = "table"'), RECIPE.index("[window]")
    recipe = RECIPE[:second] + RECIPE[window:]
    recipe = (
        recipe.replace('boundaries = "bounds"\n', "")
        .replace('train_only = ["reviewed/*"]\nfolds = 3\n', "")
        .replace("home/", "")
    )
    (tmp_path / "recipe.toml").write_text(recipe)
    assert (
        main(["build", str(tmp_path / "recipe.toml"), "--data", f"home={tmp_path}", "-o", str(tmp_path / "out")]) == 2
    )
    said = capsys.readouterr()
    assert "the test groups have a single recording" in said.err
    assert "candidate" not in said.out + said.err, "nothing was trained"


@needs_mosquitto
@pytest.mark.slow
def test_a_build_with_reviewed_windows_gives_a_bundle_that_answers_them(export: bytes, tmp_path: Path) -> None:
    home, reviewed = tmp_path / "home", tmp_path / "reviewed"
    home.mkdir()
    reviewed.mkdir()
    (reviewed / "reviewed.csv").write_bytes(export)
    for person in range(4):
        y, x = waves(10 + person, 1800, gain=0.7)
        np.savez(home / f"p{person}.npz", x=x, y=y, bounds=[0, 900, 1800])
    (tmp_path / "recipe.toml").write_text(RECIPE)
    data = ("--data", f"home={home}", "--data", f"reviewed={reviewed}")
    build = [sys.executable, "-c", "import sys; from edge_export.cli import main; sys.exit(main())", "build"]
    done = subprocess.run(
        [*build, str(tmp_path / "recipe.toml"), *data, "-o", str(tmp_path / "out")],
        capture_output=True, text=True, timeout=300, env=environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (bundle,) = (path for path in (tmp_path / "out").glob("*.edge") if "teacher" not in path.name)
    report = orjson.loads((tmp_path / "out" / "report.json").read_bytes())
    assert {"reviewed/kitchen", "reviewed/hall"} <= set(report["groups"]["train"])
    assert any("reviewed/hall, reviewed/kitchen only train the networks" in note for note in report["data_notes"])
    folds = [line for line in done.stdout.splitlines() if line.startswith("fold ")]
    assert folds == [f"fold {n} of 3: without home/p{n - 1}" for n in (1, 2, 3)], done.stdout
    with open_bundle(bundle) as opened:
        assert opened.manifest.model == "waves/2"
    answers = tmp_path / "again.jsonl"
    replayed = command("replay", bundle, reviewed / "reviewed.csv", "--out", answers, "--label", "label")
    assert replayed.code == 0, replayed.err
    said = {answer["id"]: answer["label"] for answer in predictions(answers)}
    truth = {row.split(",")[1]: row.split(",")[3] for row in export.decode().splitlines()[1:]}
    right = [label == truth[id_.rsplit("@", 1)[0]] for id_, label in said.items()]
    assert len(right) == len(truth)
    assert np.mean(right) > 0.8, replayed.out
