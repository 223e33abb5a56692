"""A new model proves itself in a whole application: windows over MQTT, labels at the terminal, a kill between."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from edge_runtime.operate.update.prove import looks
from edge_runtime.store.cases.store import CaseStore
from tests.edge_runtime.operate.update.devices import Factory, drop
from tests.integration.running import (
    PATIENCE_S,
    Process,
    Publisher,
    Stream,
    command,
    cut,
    environment,
    predictions,
    streams,
    until,
)
from tests.mosquitto import Mosquitto, needs_mosquitto

APP = """
[model]
bundle = "v1.edge"
trusted_keys = ["release.pub.pem"]
[broker.b]
url = "{broker}"
client_id = "under-test"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[cases]
path = "cases.db"
max_per_minute = 6000
[update]
folder = "updates"
drop = "drop"
poll_s = 0.2
shadow_s = 0.0
shadow_windows = 5
trial_s = 0.0
trial_windows = 5
compare_share = 1.0
max_slowdown = 1000.0
prove = "better"
"""

LOOK = looks(60)[0]

pytestmark = needs_mosquitto


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Factory(tmp_path).device(tmp_path / "device")


def parts(stream: Stream, samples: int) -> Iterator[Stream]:
    """A stream in pieces, one after the other."""
    for begin in range(0, len(stream.t), samples):
        yield stream._replace(t=stream.t[begin : begin + samples], values=stream.values[begin : begin + samples])


def people_say(folder: Path, app: Path, who: Literal["old", "new"]) -> str:
    """Label the windows that the command shows, as one of the two models says: the first ones in the order drawn."""
    store = CaseStore(folder / "cases.db", 2**26, 30.0)
    cases = list(store.each(one["id"] for one in store.summaries("open", LOOK)))
    store.close()
    numbers = [case.contract.labels.index(getattr(case.rival, who)) + 1 for case in cases if case.rival is not None]
    done = subprocess.run(
        [sys.executable, "-m", "edge_runtime", "review", "label", str(app), "--limit", str(LOOK)],
        input="".join(f"{number}\n" for number in numbers),
        capture_output=True, text=True, timeout=PATIENCE_S, env=environment(), check=True, cwd=folder,
    )  # fmt: skip
    return done.stdout


@pytest.mark.slow
def test_labels_given_while_it_is_dead_prove_a_model_and_others_hold_the_next_one_back(
    folder: Path, tmp_path: Path
) -> None:
    (stream,) = streams(1, 40_000)
    rng = np.random.default_rng(3)
    pieces = parts(stream, 400)
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        app = folder / "app.toml"
        app.write_text(APP.format(broker=broker.url))

        def feed() -> None:
            publisher.send(cut(next(pieces), lambda: int(rng.integers(8, 25))))
            publisher.flush()

        def waits(model: str, n: int) -> bool:
            feed()
            found = command("update", "status", app).out.partition(f"proof      {model}: 0 of 60 labels: ")[2]
            return int(found.partition("; ")[2].partition(" ")[0] or 0) >= n

        with Process(folder, "run", app, name="first") as process:
            process.subscribed(broker)
            feed()
            drop(folder, Factory(tmp_path).bundle(2, seed=5))
            process.says("stage=shadow model=watch/2")
            until(lambda: waits("watch/2", 2 * LOOK), lambda: process.err)
            process.kill()
        assert f"{LOOK} labelled" in people_say(folder, app, "new")
        assert f"{LOOK} of 60 labels: {LOOK} for it, 0 against" in command("update", "status", app).out

        def answered() -> bool:
            feed()
            people_say(folder, app, "new")  # windows that came before the sample was closed may lie in between
            return bool(predictions(folder / "answers.jsonl")[-1]["model"] == "watch/2")

        assert predictions(folder / "answers.jsonl")[-1]["model"] == "watch/1"
        with Process(folder, "run", app, name="second") as process:
            process.subscribed(broker)
            until(answered, lambda: process.err)
            process.says("installed: model=watch/2")
            drop(folder, Factory(tmp_path).bundle(3, seed=6))
            until(lambda: waits("watch/3", LOOK), lambda: process.err)
            assert f"{LOOK} labelled" in people_say(folder, app, "old")
            failed = "failed a run: stage=shadow model=watch/3 reason=labels speak against it: 0 for it, "

            def refuted() -> bool:
                feed()
                people_say(folder, app, "old")
                return failed in process.err

            until(refuted, lambda: process.err)
            assert predictions(folder / "answers.jsonl")[-1]["model"] == "watch/2"
            against = "held back  watch/3: labels speak against it: 0 for it, "
            until(lambda: against in command("update", "status", app).out, lambda: process.err)
        assert "accepted" in command("update", "status", app).out
