"""The protocol of sd_notify(3), on real sockets."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.app.application import App, ProcessRole
from edge_runtime.app.config import parse
from edge_runtime.base.system.sd_notify import SystemdNotifier
from edge_runtime.tools.cli import main
from tests.integration.running import PATIENCE_S, load_model, streams, until, write_recording
from tests.models import tiny_bundle


class Manager:
    """The service manager's end."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)

    def heard(self) -> list[list[str]]:
        """The lines of each datagram so far."""
        found = []
        while True:
            try:
                found.append(self.socket.recv(4096).decode().split("\n"))
            except BlockingIOError:
                return found


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify") if request.param == "path" else f"@edge-{uuid.uuid4()}")
    yield made
    made.socket.close()


def test_each_message_is_one_datagram_of_assignments(manager: Manager) -> None:
    notifier = SystemdNotifier(manager.address)
    notifier.ready("4 sources,\n 1 sink")
    notifier.alive()
    notifier.status("  ")
    notifier.status("hot")
    notifier.stopping()
    assert manager.heard() == [["READY=1", "STATUS=4 sources, 1 sink"], ["WATCHDOG=1"], ["STATUS=hot"], ["STOPPING=1"]]
    notifier.close()
    notifier.close()
    notifier.alive()
    assert manager.heard() == []


def test_the_environment_says_who_listens_and_for_how_long(manager: Manager) -> None:
    told = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "30000000"}
    for extra, expected in (({}, 30.0), ({"WATCHDOG_PID": "77"}, 30.0), ({"WATCHDOG_PID": "78"}, 0.0)):
        notifier = SystemdNotifier.from_environment(told | extra, pid=77)
        assert notifier.connected
        assert (notifier.watchdog_s, notifier.interval_s) == (expected, expected / 2)
        notifier.close()


@pytest.mark.parametrize("usec", ["", "soon", "-5", "+5", "1_000", "٣", "9" * 40])
def test_a_watchdog_that_makes_no_sense_is_none(manager: Manager, usec: str) -> None:
    notifier = SystemdNotifier.from_environment({"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": usec})
    assert notifier.watchdog_s == 0.0
    notifier.close()


def test_without_a_manager_nothing_happens() -> None:
    notifier = SystemdNotifier.from_environment({"WATCHDOG_USEC": "1000"})
    assert not notifier.connected
    assert notifier.watchdog_s == 0.0
    notifier.ready()
    notifier.alive()


@pytest.mark.parametrize("address", ["vsock:2:1", "relative", "@", "/nowhere/notify", "/with\0nul", "/" + "x" * 200])
def test_an_address_of_nobody_is_said_and_is_no_failure(address: str, caplog: pytest.LogCaptureFixture) -> None:
    notifier = SystemdNotifier(address, 30.0)
    assert not notifier.connected
    assert notifier.watchdog_s == 0.0
    notifier.ready()
    assert caplog.text.count("NOTIFY_SOCKET") == 1


def test_a_manager_that_goes_is_said_once_and_found_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Broken once by leaving out the second connect: the new manager heard nothing."""
    path = tmp_path / "notify"
    first = Manager(str(path))
    notifier = SystemdNotifier(first.address)
    first.socket.close()
    notifier.alive()
    notifier.alive()
    assert caplog.text.count("could not notify") == 1
    path.unlink()
    second = Manager(str(path))
    notifier.alive()  # finds out that the old end is gone
    notifier.alive()
    assert second.heard() == [["WATCHDOG=1"]]
    notifier.close()
    second.socket.close()


def test_a_manager_that_does_not_read_does_not_hold_us_up(manager: Manager, caplog: pytest.LogCaptureFixture) -> None:
    """Broken once with a blocking socket: this test hung."""
    notifier = SystemdNotifier(manager.address)
    for _ in range(5_000):
        notifier.alive()
    assert caplog.text.count("could not notify") == 1
    assert manager.heard()
    notifier.alive()
    assert manager.heard() == [["WATCHDOG=1"]]
    notifier.close()


@given(st.text())
def test_no_status_can_pass_for_another_message(text: str) -> None:
    address = f"@edge-{uuid.uuid4()}"
    manager = Manager(address)
    try:
        notifier = SystemdNotifier(address)
        notifier.status(text)
        notifier.close()
        for lines in manager.heard():
            (line,) = lines
            assert line.startswith("STATUS=")
            assert len(line) <= 210
    finally:
        manager.socket.close()


# -- the application -------------------------------------------------------------------------------------------------

APP = """
[model]
bundle = "watch.edge"
unsigned = "allow"
variant = "onnx-fp32"
failover = "off"
[[source]]
type = "recording"
files = ["recording.jsonl"]
speed = {speed}
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""
WATCHDOG_S = 0.05


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_bundle(tmp_path / "watch.edge", hop=8)
    write_recording(tmp_path / "recording.jsonl", streams(1, 200))
    return tmp_path


def test_an_application_says_that_it_is_ready_and_alive_and_stops(folder: Path, manager: Manager) -> None:
    notifier = SystemdNotifier(manager.address, WATCHDOG_S)
    config = parse(APP.format(speed=1e-3), folder / "app.toml")
    app = App(config, model=load_model(folder / "watch.edge", "onnx-fp32"), role=ProcessRole(notifier=notifier))
    heard: list[str] = []

    def enough() -> bool:
        heard.extend(line for lines in manager.heard() for line in lines)
        return heard.count("WATCHDOG=1") > 3

    thread = threading.Thread(target=app.run)
    thread.start()
    until(enough, heard)
    app.stop()
    thread.join(PATIENCE_S)
    enough()
    assert heard[0] == "READY=1"
    assert heard[1].startswith("STATUS=tiny/1: onnx-fp32 on onnxruntime")
    assert "STOPPING=1" in heard


def test_a_loop_that_hangs_shows_no_sign_of_life(
    folder: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken once by sending from a thread: the signs went on while the loop hung."""
    hangs, goes_on = threading.Event(), threading.Event()
    model = load_model(folder / "watch.edge", "onnx-fp32")
    answer = model.predict

    def hang(windows: Any) -> Any:
        hangs.set()
        assert goes_on.wait(PATIENCE_S)
        return answer(windows)

    monkeypatch.setattr(model, "predict", hang)
    notifier = SystemdNotifier(manager.address, WATCHDOG_S)
    app = App(parse(APP.format(speed=0.0), folder / "app.toml"), model=model, role=ProcessRole(notifier=notifier))
    thread = threading.Thread(target=app.run)
    thread.start()
    try:
        assert hangs.wait(PATIENCE_S)
        manager.heard()
        time.sleep(5 * WATCHDOG_S)
        assert manager.heard() == []
    finally:
        goes_on.set()
        thread.join(PATIENCE_S)
    assert ["STOPPING=1"] in manager.heard()


@pytest.mark.slow
def test_the_command_listens_to_its_environment(
    folder: Path, manager: Manager, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    (folder / "app.toml").write_text(APP.format(speed=0.0))
    assert main(["run", "--check", str(folder / "app.toml")]) == 0
    assert manager.heard() == []
    assert main(["run", str(folder / "app.toml")]) == 0
    assert [lines[0] for lines in manager.heard()] == ["READY=1", "STOPPING=1"]
    assert "fine" in capsys.readouterr().out
