"""A gate that keeps its share for every key: the application as a process, its sensors behind a broker."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.clock import SystemClock
from edge_runtime.manifest import Surround
from edge_runtime.manifest.surround import SurroundGate
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from tests.integration.running import Process, Publisher, Stream, cut, interleave, predictions, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

APP = """
[model]
unsigned = "allow"
bundle = "{bundle}"
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
[outbox]
path = "outbox.db"
"""
SHARE = 0.1
WINDOWS = 1200
WINDOW = 16
LEVELS = {"calm": 0.3, "usual": 1.0, "lively": 3.0}
"""Of the signal; the network is sure where it is high."""


def recorded(key: str, level: float, first: int, last: int) -> Stream:
    rng = np.random.default_rng((7, first, *key.encode()))
    values = (level * rng.standard_normal(((last - first) * WINDOW, 3))).astype(np.float32)
    return Stream(key, 1_700_000_000.0 + np.arange(first * WINDOW, last * WINDOW) / 50.0, values)


@pytest.mark.slow
def test_keys_of_different_difficulty_have_the_share_each_and_go_on_over_a_restart(tmp_path: Path) -> None:
    surround = Surround(gate=SurroundGate(threshold=0.5, share=SHARE))
    bundle = tiny_bundle(tmp_path / "tiny.edge", surround=surround)
    out, app = tmp_path / "answers.jsonl", tmp_path / "app.toml"
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:
        app.write_text(APP.format(bundle=bundle, broker=broker.url))
        for first, last in ((0, WINDOWS // 2), (WINDOWS // 2, WINDOWS)):
            with Process(tmp_path, "run", app, name=f"run-{first}") as process:
                process.subscribed(broker)
                parts = [cut(recorded(key, level, first, last), lambda: 320) for key, level in LEVELS.items()]
                publisher.send(interleave(np.random.default_rng(1), parts))
                until(lambda n=last: len(predictions(out)) >= n * len(LEVELS), lambda: process.err)  # type: ignore[misc]
                process.send(signal.SIGTERM)
                assert process.wait() == 0, process.err
    thresholds = []
    for key in LEVELS:
        of = [answer for answer in predictions(out) if answer["key"] == key]
        hard = np.array([answer["hard"] for answer in of])
        assert len({answer["id"] for answer in of}) == len(of) == WINDOWS
        assert hard.mean() == pytest.approx(SHARE, rel=0.1), key
        second = hard[WINDOWS // 2 : WINDOWS // 2 + 100]
        assert second.mean() < 2.5 * SHARE, "the second run begins where the first one ended"
        thresholds.append(np.quantile([answer["confidence"] for answer in of], SHARE))
    assert max(thresholds) - min(thresholds) > 0.1, "one threshold for all of them would not do"


DAILY = 240
BUDGET = """
[gate]
threshold = 2.0
max_calls_per_day = 240
[cloud]
url = "http://127.0.0.1:9"
model = "teacher"
"""


@pytest.mark.slow
def test_a_day_s_calls_may_all_be_spent_at_once_and_a_kill_gives_none_back(tmp_path: Path) -> None:
    bundle, app = tiny_bundle(tmp_path / "tiny.edge"), tmp_path / "app.toml"
    waiting = OutboxConfig(path=tmp_path / "outbox.db")
    with Mosquitto("max_queued_messages 100000") as broker, Publisher(broker.port) as publisher:
        app.write_text(APP.format(bundle=bundle, broker=broker.url) + BUDGET)
        accepted = []
        for first, last in ((0, 120), (120, 240), (240, 600)):  # what a run spent is in no save when it is killed
            with Process(tmp_path, "run", app, name=f"run-{first}") as process:
                process.subscribed(broker)
                publisher.send(cut(recorded("usual", 1.0, first, last), lambda: 320))
                until(lambda n=last: len(predictions(tmp_path / "answers.jsonl")) >= n, lambda: process.err)  # type: ignore[misc]
                if last > DAILY:
                    process.says("240 of 240 were used within 24 hours, and there is room again in 2")
                process.kill()
            with Outbox(waiting, SystemClock()) as outbox:
                accepted.append(outbox.counts().accepted)
    assert accepted[0] == DAILY // 2
    assert accepted[-1] <= DAILY
    assert accepted[-1] > DAILY - 40, "a message that comes again after a kill is paid for again"
