"""No file and no socket that it was not told to open: the whole program, every system call of it watched."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edge_runtime.tools.demo.broker.broker import Broker
from tests.integration.running import (
    PATIENCE_S,
    Publisher,
    answers,
    cut,
    environment,
    listening,
    streams,
    subscribed,
    until,
    write_recording,
)
from tests.models import tiny_bundle, usable

FILES = (
    "open", "openat", "openat2", "creat", "mkdir", "mkdirat", "mknod", "mknodat", "rename", "renameat", "renameat2",
    "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "truncate",
)  # fmt: skip
SYSCALLS = "trace=network," + ",".join(f"?{name}" for name in FILES)  # ?: not every processor has all of them
DEVICES = ("/dev/null", "/dev/tty", "/dev/urandom")


@pytest.fixture(autouse=True)
def _strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (Debian: apt-get install strace)")
    if subprocess.run(["strace", "-qq", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny.edge", hop=8, variants=("onnx-fp32", "tflite-int8"))


class Trace:
    """What a program and its children do; complete when it has ended.

    Args:
        folder: where it runs, with a home of its own.
        program: arguments of the interpreter.
    """

    def __init__(self, folder: Path, *program: str | Path) -> None:
        self._home, self._file, self._said = folder / "home", folder / "trace", folder / "said"
        self._home.mkdir()
        command = ["strace", "-f", "-qq", "-s", "4096", "-o", str(self._file), "-e", SYSCALLS]
        with self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [*command, sys.executable, *map(str, program)],
                env=environment(HOME=str(self._home)), cwd=folder, stdout=said, stderr=said,
            )  # fmt: skip

    @property
    def said(self) -> str:
        return self._said.read_text("utf-8", "replace")

    def until(self, condition: Callable[[], object]) -> None:
        until(lambda: condition() or self._process.poll() is not None, lambda: self.said)

    def terminate(self) -> None:
        """As an operator does; strace itself passes nothing on."""
        for child in self._children():
            os.kill(child, signal.SIGTERM)

    def ended(self) -> Trace:
        """Wait for the end, which must be a good one."""
        assert self._process.wait(2 * PATIENCE_S) == 0, self.said
        return self

    def _children(self) -> list[int]:
        pid = self._process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            for child in self._children():
                os.kill(child, signal.SIGKILL)
            self._process.kill()
            self._process.wait(PATIENCE_S)

    @property
    def text(self) -> str:
        return self._file.read_text("utf-8", "replace")

    @property
    def calls(self) -> list[str]:
        """Each as ``name(arguments...``, without the second half of those that were interrupted by another thread."""
        lines = [line.split(maxsplit=1)[1] for line in self.text.splitlines()]
        return [line for line in lines if re.match(r"\w+\(", line)]

    @property
    def sockets(self) -> list[str]:
        """Those that lead out of the program; the loop wakes itself through a pair."""
        return [call for call in self.calls if call.startswith("socket(")]

    @property
    def listening(self) -> list[str]:
        return [call for call in self.calls if re.match(r"(bind|listen|accept4?)\(", call)]

    @property
    def reached(self) -> set[tuple[str, str]]:
        """Where something was sent to: addresses and ports, and sockets in the file system."""
        found: set[tuple[str, str]] = set()
        for call in self.calls:
            if re.match(r"(connect|sendto|sendmsg)\(", call) and "sa_family" in call:
                address = re.search(r'sin6?_port=htons\((\d+)\).*?"([^"]*)"', call)
                found.add((address[2], address[1]) if address else ("elsewhere", call))
        return found

    @property
    def written(self) -> set[str]:
        """Paths that were made, removed, or opened for writing; standing in the home as well."""
        paths: set[str] = set()
        for call in self.calls:
            name = call.split("(", 1)[0]
            if name.startswith("open") and not re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TMPFILE", call):
                continue
            if re.match(r"(open|creat|mkdir|mknod|rename|link|symlink|unlink|truncate)", name):
                found = re.findall(r'"([^"]*)"', call)
                paths.update(path for path in found if path not in DEVICES and not path.startswith("/proc/self/"))
        return paths | {str(path) for path in self._home.rglob("*")}


def traced(folder: Path, *program: str | Path) -> Trace:
    """Run to the end."""
    with Trace(folder, *program) as trace:
        return trace.ended()


def command(*arguments: str | Path) -> list[str | Path]:
    return ["-m", "edge_runtime", *arguments]


def test_the_trace_sees_what_it_is_to_see(tmp_path: Path) -> None:
    program = """
import os, socket, subprocess, sys
s = socket.socket()
s.bind(("127.0.0.1", 0))
s.listen()
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9))
open("written", "w").close()
os.mkdir("made")
subprocess.run([sys.executable, "-c", "open('written by a child', 'w').close()"], check=True)
open(os.path.expanduser("~/at home"), "w").close()
"""
    trace = traced(tmp_path, "-c", program)
    assert len(trace.sockets) == 2
    assert len(trace.listening) == 2
    assert trace.reached == {("127.0.0.1", "9")}
    assert trace.written == {"written", "made", "written by a child", str(tmp_path / "home" / "at home")}


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "variant"), [("onnxruntime", "onnx-fp32"), ("litert", "tflite-int8")])
def test_a_replay_opens_no_socket_and_writes_its_output_alone(
    bundle: Path, tmp_path: Path, engine: str, variant: str
) -> None:
    if not usable(engine):
        pytest.skip(f"{engine} is not installed")
    recording = write_recording(tmp_path / "recording.jsonl", streams(2, 200))
    out = tmp_path / "out" / "predictions.jsonl"
    out.parent.mkdir()
    trace = traced(tmp_path, *command("replay", bundle, recording, "--variant", variant, "--out", out))
    assert answers(out)
    assert {"onnxruntime": "onnxruntime", "litert": "ai_edge_litert"}[engine] in trace.text, "the engine was not traced"
    assert trace.sockets == []
    assert trace.written == {str(out)}


STATE = {
    "": set(),
    '[reading_log]\npath = "windows.db"\n': {
        "windows.db", "windows.counters", "windows.sock", "windows.names", "windows.state.db",
    },
    '[outbox]\npath = "outbox.db"\n': {
        "outbox.windows.db", "outbox.counters", "outbox.sock", "outbox.names", "outbox.state.db",
    },
}  # fmt: skip
"""What is named for state, and the files that this means; SQLite's own and a lock lie beside the first."""


@pytest.mark.slow
@pytest.mark.parametrize("state", STATE)
def test_an_application_talks_to_its_broker_alone(bundle: Path, tmp_path: Path, state: str) -> None:
    """Connected, answering and drained; nothing listens but a socket for this user beside the state, and nothing is
    written that is not configured.
    """
    with Broker() as broker, Publisher(broker.port) as publisher, listening(broker.port, "edge/+/prediction") as heard:
        (tmp_path / "app.toml").write_text(
            f'[model]\nbundle = "{bundle}"\nunsigned = "allow"\n[broker.b]\nurl = "{broker.url}"\n'
            '[[source]]\ntype = "mqtt"\nbroker = "b"\ntopics = ["watch/+/imu"]\n'
            f'[[sink]]\ntype = "mqtt"\nbroker = "b"\n[[sink]]\ntype = "jsonl"\npath = "answers.jsonl"\n{state}'
        )
        (stream,) = streams(1, 40)
        with Trace(tmp_path, *command("run", "app.toml")) as trace:
            trace.until(lambda: subscribed(broker, trace.said))
            publisher.send(cut(stream, lambda: 40))
            trace.until(lambda: heard)
            trace.terminate()
            trace.ended()
    assert answers(tmp_path / "answers.jsonl")
    sockets = [call for call in trace.listening if call.startswith("bind(")]
    assert len(sockets) == bool(state)
    assert all("AF_UNIX" in call and '.sock"' in call for call in sockets)
    assert len(trace.listening) == 2 * len(sockets)  # bound, and listened on
    assert trace.reached == {("127.0.0.1", str(broker.port))}
    made = {
        Path(path).name.removesuffix("-wal").removesuffix("-journal").removesuffix(".lock").removesuffix(".new")
        for path in trace.written
    }
    assert made - {tmp_path.name} == {"answers.jsonl"} | STATE[state]  # the folder itself is synced, not written to
    assert all(Path(path).parent in {Path(), tmp_path} for path in trace.written)


@pytest.mark.slow
def test_a_server_listens_where_it_was_told_to_and_nowhere_else(bundle: Path, tmp_path: Path) -> None:
    with Trace(tmp_path, *command("serve", bundle, "--allow-unsigned", "--port", "0")) as trace:
        trace.until(lambda: "serving" in trace.said)
        trace.terminate()
        trace.ended()
    binds = [call for call in trace.listening if call.startswith("bind(")]
    assert len(binds) == 1
    assert 'inet_addr("127.0.0.1")' in binds[0]
    assert trace.reached == set()
    assert trace.written == set()


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["--version", "doctor", "inspect {bundle}", "verify {bundle}"])
def test_looking_at_things_leaves_no_trace(bundle: Path, tmp_path: Path, arguments: str) -> None:
    trace = traced(tmp_path, *command(*(word.format(bundle=bundle) for word in arguments.split())))
    assert trace.sockets == []
    assert trace.written == set()


@pytest.mark.slow
def test_the_package_can_be_imported_without_a_trace(tmp_path: Path) -> None:
    trace = traced(
        tmp_path, "-c", "import edge_runtime, edge_runtime.app.application, edge_runtime.app.config; print('imported')"
    )
    assert "imported" in trace.said
    assert trace.sockets == []
    assert trace.written == set()


@pytest.mark.slow
def test_checking_an_application_touches_nothing(bundle: Path, tmp_path: Path) -> None:
    """Not even the outbox, which the running application may have open."""
    (tmp_path / "app.toml").write_text(
        f'[model]\nbundle = "{bundle}"\nunsigned = "allow"\n[broker.b]\nurl = "mqtt://broker.example"\n'
        '[[source]]\ntype = "mqtt"\nbroker = "b"\ntopics = ["watch/+/imu"]\n'
        '[[sink]]\ntype = "mqtt"\nbroker = "b"\n'
        '[cloud]\nurl = "http://cloud.example"\nmodel = "m"\n[outbox]\npath = "outbox.db"\n'
    )
    trace = traced(tmp_path, *command("run", "--check", "app.toml"))
    assert "fine" in trace.said
    assert trace.sockets == []
    assert trace.written == set()
