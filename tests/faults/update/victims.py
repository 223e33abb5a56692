"""Devices that kill themselves in the middle of an update: at the K-th thing that they do to the disk or to the stream.

A fork server has everything imported. Each device is the real application with a sensor on its own loop; what it did
before it died is in its journal: every answer, and every point at which it could have been killed.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from tests.integration.running import PATIENCE_S, ROOT, environment


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a device is to do."""

    folder: str
    kill_at: int = 0
    """Point, counted from 1; 0: never."""
    announce: str = ""
    """An announcement that it finds on its topic."""
    dies_of: int = 0
    """A version whose answers, once it leads, kill the process, as a native crash does."""
    dies_in_shadow: bool = False
    """The same, but when it is first asked at all."""
    minimum: int = 20
    """Answers that it gives at least before it ends."""


@dataclass(frozen=True)
class Life:
    """What became of it."""

    code: int
    answers: list[tuple[int, str]]
    """Slot and model, in order."""
    points: list[str]
    errors: str

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    @property
    def models(self) -> list[str]:
        """Each once, in order of appearance."""
        return list(dict.fromkeys(model for _, model in self.answers))


class Victims:
    """The fork server."""

    def __enter__(self) -> Victims:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.update.victims"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment(PYTHONUNBUFFERED="1"),
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate(timeout=PATIENCE_S)

    def live(self, folder: Path, **order: Any) -> Life:
        """Run a device to its end."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        for name in ("journal", "errors"):
            (folder / name).unlink(missing_ok=True)
        self._server.stdin.write(json.dumps(asdict(Order(folder=str(folder), **order))).encode() + b"\n")
        self._server.stdin.flush()
        code = int(self._server.stdout.readline())
        lines = [line.split(" ", 1) for line in (folder / "journal").read_text().splitlines()]
        answers = [(int(rest.split()[0]), rest.split()[1]) for what, rest in lines if what == "answer"]
        return Life(code, answers, [rest for what, rest in lines if what == "point"], (folder / "errors").read_text())


# -- the other side ----------------------------------------------------------------------------------------------------


class Journal:
    """Lines that survive the process, written past everything that is counted."""

    def __init__(self, path: Path) -> None:
        self._write = os.write
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def __call__(self, line: str) -> None:
        self._write(self._fd, line.encode() + b"\n")


class Points:
    """Counts what is done, on whatever thread, and kills the process instead of doing the K-th."""

    def __init__(self, kill_at: int, journal: Journal) -> None:
        self._kill_at = kill_at
        self._journal = journal
        self._lock = threading.Lock()
        self._count = 0

    def reach(self, what: str) -> None:
        with self._lock:
            self._count += 1
            self._journal(f"point {what}")
            if self._count == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def watch(self, place: Any, name: str, told: Callable[..., str | None], *, after: bool = False) -> None:
        """Count the calls of a function for which `told` gives a name; `after` counts the end of it too."""
        function = getattr(place, name)

        def counted(*args: Any, **more: Any) -> Any:
            what = told(*args)
            if what is not None:
                self.reach(f"{name} {what}")
            result = function(*args, **more)
            if what is not None and after:
                self.reach(f"after {name} {what}")
            return result

        setattr(place, name, counted)


def _watch_all(points: Points, folder: Path) -> None:
    from edge_runtime.answer.pipeline import Pipeline  # noqa: PLC0415
    from edge_runtime.model.serving.host import Host  # noqa: PLC0415

    updates = str(folder / "updates")

    def path(path: Any, *_: Any) -> str | None:
        return str(path).removeprefix(updates) if str(path).startswith((updates, str(folder / "drop"))) else None

    def opened(place: Any, flags: int, *_: Any) -> str | None:
        return path(place) if flags & os.O_CREAT else None

    points.watch(os, "open", opened)
    points.watch(os, "write", lambda fd, data, *_: f"{len(data)} bytes")
    points.watch(os, "fsync", lambda *_: "")
    points.watch(os, "replace", path)
    points.watch(os, "unlink", path)
    points.watch(Host, "load", lambda *_: "candidate", after=True)
    points.watch(Host, "start", lambda *_: "running", after=True)
    points.watch(Pipeline, "replace", lambda *_: "", after=True)


def _die(order: Order) -> None:
    from edge_runtime.model.serving.loading import LoadedVariant  # noqa: PLC0415
    from edge_runtime.operate.update.shadow import Pair  # noqa: PLC0415

    answer = LoadedVariant.predict
    leading = [order.dies_in_shadow]
    attempt = Pair._try

    def predict(self: LoadedVariant, windows: Sequence[Any]) -> Any:
        if self.manifest.version == order.dies_of and leading[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer(self, windows)

    def leads(self: Pair, windows: Sequence[Any]) -> Any:
        leading[0] = True
        return attempt(self, windows)

    LoadedVariant.predict = predict  # type: ignore[method-assign]
    Pair._try = leads  # type: ignore[method-assign]


def live(order: Order) -> NoReturn:
    """A device's life."""
    code = 1
    try:
        folder = Path(order.folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        errors = os.open(folder / "errors", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
        journal = Journal(folder / "journal")
        signal.alarm(int(PATIENCE_S))  # one that never settles is a failure, not a test without an end
        _run(order, folder, journal)
        code = 0
    except BaseException:
        logging.getLogger("device").exception("it failed")
    finally:
        os._exit(code)


def _run(order: Order, folder: Path, journal: Journal) -> None:
    from edge_runtime.app.application import App  # noqa: PLC0415
    from edge_runtime.base.system.retry import Retry  # noqa: PLC0415
    from edge_runtime.model.bundle.sandbox import ProbeReport  # noqa: PLC0415
    from edge_runtime.model.serving import loading as model  # noqa: PLC0415
    from edge_runtime.operate.update import acquisition, rollout  # noqa: PLC0415
    from tests.edge_runtime.operate.update.devices import Answers, Ticker, configured  # noqa: PLC0415

    def unprobed(_bundle: Any, variant: str, *_: Any, **__: Any) -> ProbeReport:
        return ProbeReport(variant=variant, outcome="ok")

    setattr(model, "probe", unprobed)  # noqa: B010 - the child process that tries a model has tests of its own
    rollout.LOOK_S = 0.01
    acquisition.RETRY = Retry(base_s=0.01, cap_s=0.05)
    if order.dies_of:
        _die(order)
    _watch_all(Points(order.kill_at, journal), folder)

    class Kept(Answers):
        def send(self, answers: Sequence[Any], done: Any) -> None:
            for answer in answers:
                journal(f"answer {answer.id.rpartition('@')[2]} {answer.model}")
            super().send(answers, done)

    told = json.loads((folder / "update.json").read_text())
    kept = Kept()
    app = App(configured(folder, poll_s=0.01, **told), sinks=[kept])
    assert app.updates is not None
    source = Ticker(0.001)
    app.sources = [source]
    if order.announce:
        app.loop.call_later(0.0, lambda: app.updates._acquisition.submit(order.announce.encode()))  # type: ignore[union-attr]

    def finished() -> bool:
        state = app.updates.store.state  # type: ignore[union-attr]
        settled = state.running is not None or bool(state.held)
        return settled and not app.updates.busy and len(kept.all) >= order.minimum  # type: ignore[union-attr]

    def look() -> None:
        if finished():
            app.stop()
        else:
            app.loop.call_later(0.01, look)

    app.loop.call_later(0.0, look)
    app.run()


def serve() -> None:
    """The fork server's side: an order a line, an exit code as answer."""
    import onnxruntime  # noqa: F401, PLC0415 - once, for all devices
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: F401, PLC0415

    from edge_runtime.app import application  # noqa: F401, PLC0415
    from edge_runtime.io.sinks import jsonl  # noqa: F401, PLC0415
    from edge_runtime.io.sources import recording  # noqa: F401, PLC0415
    from edge_runtime.model.engines import onnx  # noqa: F401, PLC0415
    from edge_runtime.operate.update import updates  # noqa: F401, PLC0415
    from tests.edge_runtime.operate.update import devices  # noqa: F401, PLC0415

    for line in open(0, "rb", buffering=0, closefd=False):  # noqa: SIM115 - a child must not read ahead
        pid = os.fork()
        if not pid:
            live(Order(**json.loads(line)))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
