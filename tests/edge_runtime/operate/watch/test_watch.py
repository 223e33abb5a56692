"""``edge-runtime watch`` and ``status`` beside a running application: over its socket, in a terminal of their own."""

from __future__ import annotations

import json
import os
import pty
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError, ConnectionFailed, InputError
from edge_runtime.operate.observe.asking import Asker
from edge_runtime.operate.watch.screen import Painter
from edge_runtime.operate.watch.terminal import Watcher
from edge_runtime.tools.cli import main
from tests.edge_runtime.operate.observe.looking import running

OBSERVE = '[observe]\nsocket = "app.sock"'
PATIENCE_S = 30.0


def config(folder: Path) -> Path:
    path = folder / "app.toml"
    path.write_text(f'[model]\nbundle = "tiny.edge"\nunsigned = "allow"\n{OBSERVE}\n')
    return path


def test_an_application_that_is_not_there_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed, match="start it: edge-runtime run"):
        Asker(tmp_path / "app.sock", SystemClock()).report()
    with pytest.raises(ConfigError, match=r"add \[observe\] with socket"):
        Asker(None, SystemClock())


def test_status_prints_keys_and_drops_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(tmp_path, OBSERVE) as (_, source):
        assert main(["status", str(config(tmp_path))]) == 0  # the first caller has answers kept from now on
        source.give("kitchen\x1b[2J", 2)
        source.give("kitchen\x1b[2J", 1)  # the same stamps again
        capsys.readouterr()
        assert main(["status", str(config(tmp_path))]) == 0
        text = capsys.readouterr().out
        assert main(["status", str(config(tmp_path)), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
    assert "kitchen·[2J" in text
    assert "\x1b" not in text
    assert "duplicate" in text
    assert report["keys"][0]["windows"] == 2
    assert {one["reason"] for one in report["drops"]} == {"duplicate"}
    assert main(["status", str(config(tmp_path))]) == 1


def test_an_application_is_asked_by_its_folder_and_by_the_url_of_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("secret-of-the-page\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        host, port = free.getsockname()
    url = f"http://{host}:{port}"
    with running(tmp_path, f'{OBSERVE}\nlisten = "{host}:{port}"\ntoken_file = "token"'):
        config(tmp_path)
        assert main(["status", str(tmp_path), "--json"]) == 0
        assert main(["status", url, "--token-file", str(tmp_path / "token"), "--json"]) == 0
        assert main(["status", url]) == 1
    said = capsys.readouterr()
    assert [json.loads(line)["keys"] for line in said.out.splitlines()] == [[], []]
    assert "token" in said.err
    assert main(["status", url, "--json"]) == 1
    assert f"no application runs at {url}" in capsys.readouterr().err


def test_keys_choose_filter_pause_and_explain(tmp_path: Path) -> None:
    with running(tmp_path, OBSERVE) as (_, source):
        asker = Asker(tmp_path / "app.sock", SystemClock())
        watcher = Watcher(asker, SystemClock(), Painter(colours=False))
        watcher.ask()
        for key in ("cellar", "kitchen"):
            source.give(key, 1)
        watcher.ask()
        assert watcher.press("\x1b[B")
        assert watcher.press("\r")
        assert watcher.press("w")
        text = "\n".join(watcher.lines(80, 24))
        assert "key kitchen" in text
        assert "ask again after its next answer" in text
        source.give("kitchen", 3, seed=2)
        assert watcher.press("w")
        watcher.ask()
        text = "\n".join(watcher.lines(80, 24))
        assert "last window" in text
        assert "what moved it" in text
        assert watcher.press("q")  # back to the keys
        for key in "/cell\r":
            assert watcher.press(key)
        watcher.ask()
        text = "\n".join(watcher.lines(80, 24))
        assert "cellar" in text
        assert "kitchen" not in text
        assert watcher.press("p")
        assert "PAUSED" in "\n".join(watcher.lines(80, 24))
        assert "make the terminal" in "\n".join(watcher.lines(30, 24))
        assert not watcher.press("q")
        with pytest.raises(InputError, match="no key"):
            asker.key("nothing")


@pytest.mark.slow
def test_a_real_terminal_is_taken_over_and_given_back(tmp_path: Path) -> None:
    with running(tmp_path, OBSERVE) as (_, source):
        keeper, end = pty.openpty()
        command = [sys.executable, "-m", "edge_runtime", "watch", str(config(tmp_path))]
        process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env=os.environ | {"TERM": "xterm"})
        os.close(end)
        seen = _read_until(keeper, b"q quit")
        source.give("kitchen", 2)
        seen += _read_until(keeper, b"kitchen")
        os.write(keeper, b"q")
        seen += _read_until(keeper, b"\x1b[?1049l")
        assert process.wait(PATIENCE_S) == 0
        os.close(keeper)
    assert seen.startswith(b"\x1b[?1049h")


def _read_until(fd: int, text: bytes) -> bytes:
    seen = b""
    until = time.monotonic() + PATIENCE_S
    while text not in seen:
        assert time.monotonic() < until, seen
        if select.select([fd], [], [], 1.0)[0]:
            seen += os.read(fd, 65536)
    return seen
