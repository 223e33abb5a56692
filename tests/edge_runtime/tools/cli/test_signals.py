"""Ctrl-C and SIGTERM: what was taken is finished within the stated time, and nothing stays behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime.clock import SystemClock
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.cloud.connect import connect
from edge_runtime.tools.cli import main
from edge_runtime.tools.demo.broker.broker import Broker
from tests import models
from tests.integration.running import PATIENCE_S, Process, answers, environment, listening, until

SLACK_S = 20.0
"""On top of a stated time: the machine may be busy."""

both = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny.edge", hop=1)


def stop(process: Process, number: signal.Signals, within_s: float) -> int:
    """Send the signal, and return the exit code."""
    process.send(number)
    return process.wait(within_s + SLACK_S)


def url_of(process: Process) -> str:
    process.says("serving tiny on http://127.0.0.1:")
    return next(word for word in process.out.split() if word.startswith("http"))


@pytest.mark.slow
@both
def test_a_replay_that_is_stopped_says_so_and_leaves_whole_lines(
    bundle: Path, tmp_path: Path, number: signal.Signals
) -> None:
    """Half a result must not look like a whole one."""
    recording, out = tmp_path / "long.npz", tmp_path / "out.jsonl"
    np.savez(recording, x=np.zeros((1_000_000, 3), np.float32), rate=np.float64(50.0))
    with Process(tmp_path, "replay", bundle, recording, "--out", out) as process:
        until(lambda: answers(out), lambda: process.err)
        assert stop(process, number, 60) == 1
    assert "Traceback" not in process.err
    said = next(line for line in process.err.splitlines() if line.startswith("stopped before the end"))
    assert f" {len(answers(out))} predictions" in said
    assert out.read_bytes().endswith(b"}\n")


@pytest.mark.slow
@both
def test_serve_answers_until_a_signal_comes(bundle: Path, tmp_path: Path, number: signal.Signals) -> None:
    with Process(tmp_path, "serve", bundle, "--allow-unsigned", "--port", "0") as process:
        windows = models.windows(3, 3, 16)
        with connect(CloudConfig(url=url_of(process), model="tiny"), SystemClock()) as client:
            (probabilities,) = client.infer({"window": windows}, request_id="1").values()
            expected = models.tiny_net(3, 3, 0).probabilities(windows)
            assert np.abs(probabilities - expected).max() < 1e-5
            assert stop(process, number, 5) == 0  # a connection that is kept alive is no reason to wait
    assert "Traceback" not in process.err


@pytest.mark.slow
def test_serve_waits_for_a_request_under_way_as_long_as_stated(bundle: Path, tmp_path: Path) -> None:
    """One whose sender never ends it is cut off after 5 s."""
    with Process(tmp_path, "serve", bundle, "--allow-unsigned", "--port", "0") as process:
        port = int(url_of(process).rsplit(":", 1)[1])
        with socket.create_connection(("127.0.0.1", port)) as caller:
            caller.sendall(b"POST /v2/models/tiny/infer HTTP/1.1\r\nHost: x\r\n")
            caller.sendall(b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n")
            caller.settimeout(PATIENCE_S)
            assert caller.recv(100).startswith(b"HTTP/1.1 100 ")  # so it is under way
            began = time.monotonic()
            assert stop(process, signal.SIGTERM, 5) == 0
            assert time.monotonic() - began > 2
    assert "Traceback" not in process.err


# -- the demo, which starts processes of its own -----------------------------------------------------------------------


def offspring(pid: int) -> set[int]:
    """Child processes."""
    try:
        return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except OSError:  # it has ended
        return set()


def gone(pids: set[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.slow
def test_the_demo_ends_its_processes_and_tells_what_came_of_it(tmp_path: Path) -> None:
    """With somebody's own broker; what waits for the cloud then stays in the outbox, and in the books."""
    with Broker() as broker, listening(broker.port, "edge/+/prediction") as heard:
        arguments = ("demo", "--json", "--broker", broker.url, "--state", tmp_path / "state")
        with Process(tmp_path, *arguments) as process:
            until(lambda: len(heard) >= 40 or not process.running(), lambda: process.err)
            children = offspring(process.pid)
            assert len(children) >= 2, process.err  # the watches and the server
            assert stop(process, signal.SIGINT, 10) == 0, process.err
            until(lambda: gone(children), children)
    figures = orjson.loads(process.out)
    assert figures["stopped"] is True
    assert figures["windows"] >= 20
    assert figures["balances"] is True
    assert figures["forwarded"] == figures["accepted"] == figures["delivered"] + figures["queued"] > 0
    assert "Traceback" not in process.err


@pytest.mark.slow
@both
def test_the_demo_leaves_nobody_behind_when_it_is_stopped_while_starting(
    tmp_path: Path, number: signal.Signals
) -> None:
    with Process(tmp_path, "demo", "--state", tmp_path / "state") as process:
        process.says("embedded broker on")
        children = offspring(process.pid)
        assert stop(process, number, 10) == 130
        assert children
        until(lambda: gone(children), children)
    assert process.err == ""


@pytest.mark.slow
def test_the_demo_that_is_killed_leaves_nobody_behind_and_the_next_one_balances_its_books(tmp_path: Path) -> None:
    with Broker() as broker, listening(broker.port, "edge/+/prediction") as heard:
        arguments = ("demo", "--json", "--broker", broker.url, "--state", tmp_path / "state")
        with Process(tmp_path, *arguments) as killed:
            until(lambda: len(heard) >= 100 or not killed.running(), lambda: killed.err)
            children = offspring(killed.pid)
            assert len(children) >= 2, killed.err
            killed.kill()
            until(lambda: gone(children), children)
        before = len(heard)
        with Process(tmp_path, *arguments, name="again") as process:
            until(lambda: len(heard) >= before + 40 or not process.running(), lambda: process.err)
            assert stop(process, signal.SIGINT, 10) == 0, process.err
    figures = orjson.loads(process.out)
    assert figures["balances"] is True
    assert figures["accepted"] > figures["forwarded"] > 0, "the books go on with what the killed one had accepted"


# -- before there is anything to drain ---------------------------------------------------------------------------------


def test_ctrl_c_while_a_model_is_tried_ends_quietly(bundle: Path, tmp_path: Path) -> None:
    """The child that tries it has been given all of it, never comes to an end here, and ends with its parent."""
    tried = tmp_path / "tried"
    (tmp_path / "sitecustomize.py").write_text(
        "import pathlib, sys, time\n"
        "if 'sandbox import child' in sys.orig_argv[-1]:\n"
        "    sys.stdin.buffer.read()\n"
        f"    pathlib.Path({str(tried)!r}).touch()\n"
        "    time.sleep(120)\n"
    )
    variables = environment()
    variables["PYTHONPATH"] = os.pathsep.join((str(tmp_path), variables["PYTHONPATH"]))
    command = [sys.executable, "-m", "edge_runtime", "verify", str(bundle)]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            until(lambda: tried.exists() or process.poll() is not None, "no child")
            children = offspring(process.pid)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, b"", b"")
    assert children
    until(lambda: gone(children), children)


def test_ctrl_c_during_an_import_waits_for_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library that is interrupted while it is loaded may take the process with it."""
    (tmp_path / "interrupted_while_loaded.py").write_text(
        "import signal, time\nsignal.raise_signal(signal.SIGINT)\ntime.sleep(0.3)\nwhole = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    before = signal.getsignal(signal.SIGINT)

    def run(_options: object) -> int:
        import interrupted_while_loaded  # type: ignore[import-not-found] # noqa: PLC0415 - the thing under test

        assert interrupted_while_loaded.whole
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            time.sleep(0.01)
        return 0

    monkeypatch.setattr("edge_runtime.tools.cli.doctor.examine", run)
    assert main(["doctor"]) == 130
    assert capsys.readouterr() == ("", "")
    assert sys.modules.pop("interrupted_while_loaded").whole
    assert signal.getsignal(signal.SIGINT) is before
