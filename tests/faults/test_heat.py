"""R13: the board becomes hot while readings stream in, and cools down again.

Live, with the files of a Raspberry Pi under a folder; and on a simulated clock, where the work itself heats the board.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.base.hardware import Evidence, Gauge, Profile
from edge_runtime.base.hardware.readings import Board
from edge_runtime.operate.governor.actuators import RateActuator
from edge_runtime.operate.governor.governor import Governor
from edge_runtime.signal.windowing.recorded import cut_recording
from edge_runtime.tools.demo.broker.broker import Broker
from edge_runtime.types import Prediction
from tests.edge_runtime.operate.governor.simulated_app import CONFIG, Bench
from tests.faults.conftest import Note
from tests.integration.running import (
    Message,
    Publisher,
    Running,
    cut,
    ids,
    listening,
    load_model,
    predictions,
    running,
    streams,
    until,
)
from tests.models import tiny_bundle, usable

pytestmark = pytest.mark.skipif(not usable("onnxruntime"), reason="onnxruntime is not installed")

TREE = Path(__file__).resolve().parents[1] / "data" / "devices" / "raspberry-pi-4.json"
KEYS = 4
SAMPLES = 4000
APP = """
[model]
bundle = "watch.edge"
unsigned = "allow"
variant = "onnx-int8"
fallbacks = ["onnx-fp32"]
latency_budget_ms = 1.0
[broker.local]
url = "mqtt://127.0.0.1:{port}"
status_topic = "status"
[[source]]
type = "mqtt"
broker = "local"
topics = ["watch/+/imu"]
qos = 1
[source.codec]
type = "json"
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[governor]
root = "board"
order = ["rate", "variant"]
max_hop_multiple = 2
period_s = 0.1
settle_s = 0.2
hold_s = 1.0
"""


@pytest.fixture
def board(tmp_path: Path) -> Path:
    """A Raspberry Pi 4 that is well."""
    root = tmp_path / "board"
    for name, content in json.loads(TREE.read_text("utf-8"))["files"].items():
        place = root / name.lstrip("/")
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(bytes.fromhex(content["hex"]) if isinstance(content, dict) else content.encode())
    set_temperature(root, 45.0)
    (root / "sys/devices/platform/soc/soc:firmware/get_throttled").write_text("0\n")
    return root


def set_temperature(root: Path, degrees: float) -> None:
    """As a whole: a half-written number is a test of its own."""
    for place in ("sys/class/thermal/thermal_zone0/temp", "sys/class/hwmon/hwmon0/temp1_input"):
        new = root / f"{place}.new"
        new.write_text(f"{round(degrees * 1000)}\n")
        new.replace(root / place)


class Feed:
    """Streams that are sent a little at a time, as long as the test wants them."""

    def __init__(self, publisher: Publisher, app: Running) -> None:
        self._publisher = publisher
        self._app = app
        self.streams = streams(KEYS, SAMPLES)
        parts = [cut(one, lambda: 8) for one in self.streams]
        self._left: Iterator[Message] = itertools.chain.from_iterable(zip(*parts, strict=True))
        self.sent = 0

    def some(self) -> None:
        """One message of each key, and its consequences."""
        messages = list(itertools.islice(self._left, KEYS))
        assert len(messages) == KEYS, "the test is too slow for its streams"
        self._publisher.send(messages)
        self.sent += len(messages)
        self._app.until(lambda: self._app.counts["samples_total"] >= 8 * self.sent)

    def until(self, condition: object) -> None:
        """Go on sending, thirty times a second at most, until something has come about."""
        assert callable(condition)

        def look() -> bool:
            if self.sent < KEYS * SAMPLES // 8 - KEYS:
                self.some()
            return bool(condition())

        until(look, self._app.state)

    def rest(self) -> None:
        """All that is left."""
        messages = list(self._left)
        self._publisher.send(messages)
        self.sent += len(messages)
        self._app.until(lambda: self._app.counts["samples_total"] >= 8 * self.sent)


def test_a_hot_board_does_less_and_a_cool_one_everything_again(tmp_path: Path, board: Path, note: Note) -> None:
    """Steps down, answers with the lighter variant, returns; each window is answered once or counted, none is lost.

    Broken three times: with a governor that is not opened (no step), with skipped windows that are not counted (the
    balance), and with readings whose windows are skipped not acknowledged (the broker's queue).
    """
    bundle = tiny_bundle(tmp_path / "watch.edge", hop=8, variants=("onnx-int8", "onnx-fp32"))
    model = load_model(bundle, "onnx-int8")  # of two so small, the float one is the lighter
    contract = model.manifest.input
    with (
        Broker() as broker,
        Publisher(broker.port) as publisher,
        listening(broker.port, "status") as told,
        running(APP.format(port=broker.port), tmp_path, model) as app,
    ):
        publisher.reach(app)
        feed = Feed(publisher, app)

        def level() -> float | None:
            return app.app.metrics.gauges.get("governor_level")

        feed.until(lambda: app.counts["predictions_total"] > 8 and level() == 0.0)
        assert app.dropped["rate_reduced"] == 0

        set_temperature(board, 76.0)
        feed.until(lambda: level() == 2.0)
        feed.until(lambda: app.dropped["rate_reduced"] > 8)
        feed.until(lambda: app.app.fallback_chain is not None and app.app.fallback_chain.variant.name == "onnx-fp32")
        lighter = app.counts["predictions_total"]
        feed.until(lambda: app.counts["predictions_total"] > lighter + 8)

        shutil.rmtree(board / "sys/class/thermal/thermal_zone0")  # and while it is hot, its files vanish
        failures = app.counts["sensor_failures_total"]
        feed.until(lambda: app.counts["sensor_failures_total"] > failures)
        (board / "sys/class/thermal/thermal_zone0").mkdir()

        set_temperature(board, 50.0)
        feed.until(lambda: level() == 0.0)
        feed.until(lambda: app.app.fallback_chain is not None and app.app.fallback_chain.variant.name == "onnx-int8")
        feed.rest()
        publisher.flush()
        app.until(lambda: app.app.pipeline.idle)
        heard = [one["governor"] for one in told if "governor" in one]
        assert app.stop()
        counts, dropped = app.counts, app.dropped

    expected = {window.id for one in feed.streams for window in cut_recording(contract, one.key, one.t, one.values)}
    found = predictions(tmp_path / "answers.jsonl")
    answered = ids(found)
    assert len(answered) == len(set(answered))
    assert set(answered) <= expected
    assert len(expected) == counts["windows_total"] == counts["predictions_total"] + dropped["rate_reduced"]
    assert len(answered) == counts["predictions_total"]
    assert counts["samples_total"] == KEYS * SAMPLES
    # Besides: the publisher's greetings, and the status "offline", which nobody waits for without an MQTT sink.
    assert set(dropped) <= {"rate_reduced", "empty", "publish_not_sent"}
    variants = [key for key, _ in itertools.groupby(answer["variant"] for answer in found)]
    assert variants == ["onnx-int8", "onnx-fp32", "onnx-int8"]
    levels = [key for key, _ in itertools.groupby(one["level"] for one in heard)]
    assert levels == [0, 1, 2, 1, 0]
    assert "76 degrees of 80" in next(one["reason"] for one in heard if one["level"] == 2)
    assert counts["governor_steps_down_total"] == counts["governor_steps_up_total"] == 2
    note(
        "R13",
        f"hot, its files gone, then cool, while {feed.sent:,} readings stream in: 2 steps down and 2 up, "
        f"{len(expected):,} windows = {len(answered):,} answered + {dropped['rate_reduced']:,} counted, 0 lost",
    )


# -- in simulated time, on a board that its own work heats up ----------------------------------------------------------

BUDGET_S = 0.5
"""What an answer may take: it is there when the next samples come."""


class Oven:
    """A board whose processor heats it, and whose firmware makes it four times as slow from 80 degrees on.

    Newton's law of cooling with a time constant of 40 s; a busy core is worth 70 degrees.
    """

    def __init__(self, bench: Bench, root: Path) -> None:
        self.temperature = self.ambient = 35.0
        self._bench = bench
        self._file = (root / "t").open("wb", buffering=0)
        self._busy = self._at = 0.0
        self.throttled_s = 0.0
        self.update()

    def close(self) -> None:
        self._file.close()

    def update(self) -> None:
        now, busy = self._bench.clock.monotonic(), self._bench.model.busy_s
        wall = now - self._at
        if wall > 0:
            load = min(1.0, (busy - self._busy) / wall)
            target = self.ambient + 70.0 * load
            self.temperature += (target - self.temperature) * (1 - math.exp(-wall / 40.0))
            self.throttled_s += wall * (self.temperature >= 80.0)
        self._busy, self._at = busy, now
        self._bench.model.cost_s = 0.14 * (4 if self.temperature >= 80.0 else 1)
        self._file.seek(0)
        self._file.write(f"{round(self.temperature * 1000):8d}\n".encode())  # in place: the disk has other things to do


def stream(tmp_path: Path, governed: bool) -> tuple[Bench, Oven, Governor, list[int]]:
    """Twenty minutes at 70 % load; the second ten in a cold room."""
    bench = Bench(keys=1)
    oven = Oven(bench, tmp_path)
    gauge = Gauge(name="cpu", unit="degC", paths=("/t",), scale=0.001, limit=80.0)
    profile = Profile(
        family="x", model="a board", evidence=Evidence(tier="simulated", detail="t"), temperatures=(gauge,)
    )
    board = Board(profile, bench.clock, tmp_path)
    made = Governor(
        CONFIG, board, [RateActuator(bench.pipeline, 4)], metrics=bench.metrics, clock=bench.clock
    )  # fmt: skip
    levels, looked = [], 0.0
    for i in range(2400):
        at = 0.5 * i
        if bench.clock.monotonic() < at:
            bench.clock.advance(at - bench.clock.monotonic())
        oven.ambient = 35.0 if i < 1200 else 15.0
        bench.arrive(at)
        oven.update()
        if governed and bench.clock.monotonic() - looked >= CONFIG.period_s:
            looked = bench.clock.monotonic()
            made.consider(board.read())
        levels.append(made.level)
    oven.close()
    bench.balance()
    return bench, oven, made, levels


def p99_ms(bench: Bench) -> float:
    latencies = [answer.latency_ms for answer in bench.sink.answers if isinstance(answer, Prediction)]
    return float(np.quantile(latencies, 0.99))


def test_latency_is_kept_where_a_board_left_alone_throttles(tmp_path: Path, note: Note) -> None:
    """R13 in simulated time: the same stream on the same board, with and without.

    Broken once by taking the actuator's effect away (`answer_every` without effect): the governed board throttled too.
    """
    (tmp_path / "alone").mkdir()
    (tmp_path / "governed").mkdir()
    alone, hot_board, _, _ = stream(tmp_path / "alone", governed=False)
    governed, board, made, levels = stream(tmp_path / "governed", governed=True)
    assert hot_board.throttled_s > 60
    assert p99_ms(alone) > 10 * BUDGET_S * 1e3
    assert board.throttled_s == 0.0
    assert p99_ms(governed) <= BUDGET_S * 1e3
    assert max(levels) >= 1
    assert made.level == 0  # in the cold room everything is answered again
    changes = [i for i in range(1, len(levels)) if levels[i] != levels[i - 1]]
    ups = [i for i in changes if levels[i] < levels[i - 1]]
    assert all((i - j) * 0.5 >= CONFIG.hold_s - 1 for i in ups for j in changes if j < i)
    note(
        "R13",
        f"20 min (simulated) on a board that heats up: left alone, {hot_board.throttled_s:,.0f} s throttled and "
        f"p99 {p99_ms(alone) / 1e3:,.0f} s; governed, {board.throttled_s:.0f} s and {p99_ms(governed) / 1e3:.2f} s",
    )
