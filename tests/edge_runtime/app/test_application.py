"""Building, running, draining and closing an application."""

from __future__ import annotations

import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import orjson
import pytest

from edge_runtime.answer.gate.budget import Budget
from edge_runtime.app.application import App
from edge_runtime.app.config import AppConfig, parse
from edge_runtime.base.system.signals import stopped_by_signals
from edge_runtime.clock import Clock, SimulatedClock
from edge_runtime.cloud import committer, outbox_writer, saved_budget
from edge_runtime.errors import ConfigError, StoreError, StoreUnusable
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.manifest import Manifest
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.adopting import AdoptingOutbox
from edge_runtime.store.durable.outbox.schema import connect_sqlite
from edge_runtime.store.durable.sqlite_errors import Code
from tests.edge_runtime.store.durable.outbox.outboxes import Failing
from tests.integration.running import PATIENCE_S, answers, streams, write_recording
from tests.integration.running import load_model as loaded
from tests.models import tiny_bundle

APP = """
drain_timeout_s = {drain}
[model]
bundle = "watch.edge"
unsigned = "allow"
[[source]]
type = "recording"
files = ["recording.jsonl"]
speed = {speed}
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[gate]
threshold = {threshold}
"""
CLOUD = """
max_calls_per_day = 10000
[cloud]
url = "{url}"
model = "teacher"
timeout_s = 100.0
[outbox]
path = "outbox.db"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "watch.edge", hop=8).read_bytes()


@pytest.fixture
def folder(tmp_path: Path, made: bytes) -> Path:
    (tmp_path / "watch.edge").write_bytes(made)
    write_recording(tmp_path / "recording.jsonl", streams(2, 200))
    return tmp_path


def spent(budget: Budget) -> int:
    """Calls that count against the day's allowance."""
    return int(sum(budget.state()["hours"]["calls"].values()))


ENDLESS = 1e-3
"""The recording's speed at which it outlasts any test."""


def config(folder: Path, *, cloud: str = "", drain: float = 10.0, speed: float = 0.0) -> AppConfig:
    text = APP.format(threshold=2.0 if cloud else 0.0, drain=drain, speed=speed) + (
        CLOUD.format(url=cloud) if cloud else ""
    )
    return parse(text, folder / "app.toml")


class SilentCloud:
    """Takes connections, and says nothing on them."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.asked = threading.Event()
        self._callers: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, name="silent-cloud")
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._listener.accept()
            except OSError:
                return
            self._callers.append(caller)
            with suppress(ConnectionError):
                caller.recv(1)
                self.asked.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)
        for sock in (self._listener, *self._callers):
            sock.close()


@pytest.fixture
def silent_cloud() -> Iterator[SilentCloud]:
    cloud = SilentCloud()
    yield cloud
    cloud.close()


def test_it_ends_by_itself_when_every_source_has_finished(folder: Path) -> None:
    app = App(config(folder), model=loaded(folder / "watch.edge", "onnx-fp32"))
    assert app.run() is True
    assert len(answers(folder / "answers.jsonl")) == app.metrics.counts["predictions_total"] > 0


def test_a_stop_that_comes_before_running_is_not_forgotten(folder: Path) -> None:
    """A signal may come at any moment. What lies in the file has been promised to nobody."""
    app = App(config(folder, speed=ENDLESS), model=loaded(folder / "watch.edge", "onnx-fp32"))
    app.stop()
    assert app.run() is True


def test_it_can_be_stopped_from_another_thread(folder: Path) -> None:
    """While it runs and has nothing to do for a long time."""
    app = App(config(folder, speed=ENDLESS), model=loaded(folder / "watch.edge", "onnx-fp32"))
    app.loop.call_soon(threading.Timer(0.2, app.stop).start)
    assert app.run() is True


def test_what_a_sink_never_takes_is_waited_for_as_long_as_stated_and_no_longer(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = MemorySink(hold=True)
    app = App(config(folder, drain=0.5), model=loaded(folder / "watch.edge", "onnx-fp32"), sinks=[sink])
    began = time.monotonic()
    assert app.run() is False
    assert 0.5 <= time.monotonic() - began < PATIENCE_S
    assert "drain_timeout_s" in caplog.text
    assert sink.closed


def test_a_cloud_that_keeps_silent_does_not_hold_up_the_end(folder: Path, silent_cloud: SilentCloud) -> None:
    """Its cases are safe in the outbox; draining takes the stated time at most, and is complete."""
    first = App(config(folder, cloud=silent_cloud.url, drain=1.0), model=loaded(folder / "watch.edge", "onnx-fp32"))
    assert first.run() is True
    silent_cloud.asked.clear()
    settings = config(folder, cloud=silent_cloud.url, drain=1.0, speed=ENDLESS)
    app = App(settings, model=loaded(folder / "watch.edge", "onnx-fp32"))
    stopped: list[float] = []

    def stop_when_asked() -> None:
        silent_cloud.asked.wait(PATIENCE_S)
        stopped.append(time.monotonic())
        app.stop()

    threading.Thread(target=stop_when_asked).start()
    assert app.run() is True
    assert silent_cloud.asked.is_set()
    assert time.monotonic() - stopped[0] < 20  # of the 100 that the client waits for an answer
    with Outbox(OutboxConfig(path=folder / "outbox.db"), SimulatedClock()) as outbox:
        counts = outbox.counts()
    assert counts.queued == counts.accepted == first.metrics.counts["predictions_total"] > 0


def test_the_outbox_is_opened_when_it_runs_and_not_before(folder: Path, silent_cloud: SilentCloud) -> None:
    settings = config(folder, cloud=silent_cloud.url)
    App(settings, model=loaded(folder / "watch.edge", "onnx-fp32")).close()
    assert not (folder / "outbox.db").exists()
    with Outbox(OutboxConfig(path=folder / "outbox.db"), SimulatedClock()):
        App(settings, model=loaded(folder / "watch.edge", "onnx-fp32")).close()  # while another one runs
        with pytest.raises(StoreError, match="in use"):
            App(settings, model=loaded(folder / "watch.edge", "onnx-fp32")).run()


class Disk:
    """Of the outboxes that applications make: fails as long as it is told to, and is tried again soon."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.faults: dict[str, int] = {"": Code.FULL}
        monkeypatch.setattr("edge_runtime.store.durable.outbox.adopting.AdoptingOutbox", self._make)
        monkeypatch.setattr(committer, "AGAIN_S", (0.01, 0.05))
        monkeypatch.setattr(outbox_writer, "LOOK_AGAIN_S", 0.02)

    def _make(self, config: OutboxConfig, clock: Clock) -> AdoptingOutbox:
        return AdoptingOutbox(config, clock, connect=lambda path: Failing(connect_sqlite(path), self.faults))


def test_a_full_disk_at_the_start_costs_hard_cases_and_no_answers(
    folder: Path, silent_cloud: SilentCloud, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutation that this finds: `App.run` that lets every StoreError out."""
    Disk(monkeypatch)
    app = App(config(folder, cloud=silent_cloud.url), model=loaded(folder / "watch.edge", "onnx-fp32"))
    assert app.run() is True
    found = answers(folder / "answers.jsonl")
    assert len(found) == app.metrics.counts["hard_total"] == app.metrics.dropped["outbox_error"] > 0
    assert {(answer["route"], answer["hard"]) for answer in found} == {("local", True)}, "nothing promised"
    assert app.metrics.gauges["outbox_accepting"] == 0.0
    assert caplog.text.count("outbox: stopped accepting hard cases") == 1


def test_once_the_disk_is_well_it_goes_on_where_the_run_before_was(
    folder: Path, silent_cloud: SilentCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Backlog and budget both. Mutation that this finds: `SavedBudget.open` that does not load the budget."""
    first = App(config(folder, cloud=silent_cloud.url, drain=0.5), model=loaded(folder / "watch.edge", "onnx-fp32"))
    first.run()
    before = spent(first.budget)
    disk = Disk(monkeypatch)
    monkeypatch.setattr(saved_budget, "SAVE_S", 0.05)
    settings = config(folder, cloud=silent_cloud.url, drain=0.5, speed=ENDLESS)
    app = App(settings, model=loaded(folder / "watch.edge", "onnx-fp32"))
    assert before > 20
    told: list[int] = []
    silent_cloud.asked.clear()

    def watch() -> None:
        told.append(spent(app.budget))
        if len(told) == 10:
            disk.faults.clear()
        if silent_cloud.asked.is_set() and told[-1] >= before:
            app.stop()
        app.loop.call_later(0.02, watch)

    app.loop.call_soon(watch)
    in_vain = threading.Timer(PATIENCE_S, app.stop)
    in_vain.start()
    app.run()
    in_vain.cancel()
    assert silent_cloud.asked.is_set(), "the backlog goes out"
    assert max(told[:9]) < 10, "nothing is known of the run before"
    assert told[-1] >= before
    assert app.metrics.gauges["outbox_accepting"] == 1.0
    with Outbox(OutboxConfig(path=folder / "outbox.db"), SimulatedClock()) as outbox:
        saved = orjson.loads(outbox.get_state("budget") or b"")
        assert sum(saved["hours"]["calls"].values()) >= before


def test_a_path_that_no_disk_can_mend_ends_it(folder: Path, silent_cloud: SilentCloud) -> None:
    (folder / "outbox.db").mkdir()
    with pytest.raises(ConfigError, match="is a folder; name a file in it"):
        App(config(folder, cloud=silent_cloud.url), model=loaded(folder / "watch.edge", "onnx-fp32"))
    (folder / "outbox.db").rmdir()
    other = sqlite3.connect(folder / "outbox.db")
    other.execute("CREATE TABLE letters (text)")
    other.commit()
    other.close()
    app = App(config(folder, cloud=silent_cloud.url), model=loaded(folder / "watch.edge", "onnx-fp32"))
    with pytest.raises(StoreUnusable, match="another program's database"):
        app.run()


def test_what_was_spent_is_kept_over_a_restart(folder: Path, silent_cloud: SilentCloud) -> None:
    settings = config(folder, cloud=silent_cloud.url, drain=0.5)
    first = App(settings, model=loaded(folder / "watch.edge", "onnx-fp32"))
    first.run()
    before = spent(first.budget)
    assert before > 20
    (folder / "recording.jsonl").write_text("\n")
    second = App(settings, model=loaded(folder / "watch.edge", "onnx-fp32"))
    second.run()
    assert spent(second.budget) == before


def test_closing_twice_and_without_running_does_no_harm(folder: Path) -> None:
    app = App(config(folder), model=loaded(folder / "watch.edge", "onnx-fp32"))
    app.close()
    app.close()
    assert not (folder / "answers.jsonl").exists()


def test_a_source_that_cannot_be_opened_leaves_nothing_behind(folder: Path) -> None:
    (folder / "recording.jsonl").unlink()
    app = App(config(folder), model=loaded(folder / "watch.edge", "onnx-fp32"))
    threads = threading.active_count()
    with pytest.raises(ConfigError, match="no such file"):
        app.run()
    assert threading.active_count() == threads


# -- signals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_asks_to_stop_and_gives_the_rest_back(number: signal.Signals) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    stopped: list[bool] = []
    with stopped_by_signals(lambda: stopped.append(True)):
        assert signal.getsignal(number) not in before
        os.kill(os.getpid(), number)
        end = time.monotonic() + 60
        while not stopped and time.monotonic() < end:
            time.sleep(0.01)
        # A second one, of either kind, finds what was there before us.
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert stopped == [True]
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_without_a_signal_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with stopped_by_signals(lambda: None):
        pass
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_the_budget_is_written_down_while_it_runs(
    folder: Path, silent_cloud: SilentCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_budget, "SAVE_S", 0.05)
    settings = config(folder, cloud=silent_cloud.url, drain=0.5, speed=ENDLESS)
    app = App(settings, model=loaded(folder / "watch.edge", "onnx-fp32"))
    assert app.escalator is not None
    saved: list[str] = []

    def save_state(name: str, _value: bytes) -> None:
        saved.append(name)
        if len(saved) == 4:
            app.stop()

    monkeypatch.setattr(app.escalator, "save_state", save_state)
    in_vain = threading.Timer(PATIENCE_S, app.stop)
    in_vain.start()
    app.run()
    in_vain.cancel()
    assert len(saved) >= 5  # once more when it stops
    assert set(saved) == {"budget"}


def test_the_clouds_answers_are_read_by_the_bundle_that_took_over(
    folder: Path, silent_cloud: SilentCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = App(config(folder, cloud=silent_cloud.url), model=loaded(folder / "watch.edge", "onnx-fp32"))
    followed: list[Manifest] = []
    assert app.escalator is not None
    monkeypatch.setattr(app.escalator, "use", followed.append)
    with loaded(folder / "watch.edge", "onnx-fp32") as newer:
        app.host.serves(newer, None)
        assert followed == [newer.manifest]
    app.close()
