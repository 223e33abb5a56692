"""An application that runs in this process with a source of the test's own, and callers that look into it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources import Deliver
from edge_runtime.types import Reading
from tests.models import tiny_bundle

ROWS = 16
"""Samples of a window."""


class Hand:
    """A source that delivers what a test hands it."""

    name = "hand"
    finished = False

    def open(self, loop: Loop, deliver: Deliver) -> None:
        self.loop, self.deliver = loop, deliver

    def pause(self) -> None: ...

    def close(self) -> None: ...

    def give(self, key: str, windows: int, seed: int = 0) -> None:
        """Deliver so many windows of a key, and wait until they are answered."""
        values = np.random.default_rng(seed).normal(size=(ROWS * windows, 3)).astype(np.float32)
        done = threading.Event()

        def on_loop() -> None:
            self.deliver([Reading(key, 1e9, values)], self.loop.clock.monotonic(), done.set)

        self.loop.call_soon_threadsafe(on_loop)
        assert done.wait(20)


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=20)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(20)
        self.sock.connect(str(self._path))


@contextmanager
def running(folder: Path, observe: str) -> Iterator[tuple[App, Hand]]:
    tiny_bundle(folder / "tiny.edge")
    text = f'[model]\nbundle = "tiny.edge"\nunsigned = "allow"\nfailover = "off"\n{observe}\n'
    source = Hand()
    app = App(parse(text, folder / "app.toml"), sources=[source], sinks=[MemorySink()])
    ready = threading.Event()
    app.loop.call_soon(ready.set)
    thread = threading.Thread(target=app.run)
    thread.start()
    try:
        assert ready.wait(20)
        yield app, source
    finally:
        app.stop()
        thread.join(20)
        assert not thread.is_alive()


def get(connection: http.client.HTTPConnection, path: str, **headers: str) -> tuple[int, bytes]:
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    return answer.status, answer.read()


def post(connection: http.client.HTTPConnection, path: str, document: object, **headers: str) -> tuple[int, Any]:
    connection.request("POST", path, json.dumps(document), {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


def bearer(app: App) -> dict[str, str]:
    """The header that the holder of the page's link can send."""
    assert app.observation is not None
    return {"Authorization": f"Bearer {app.observation.link.partition('#token=')[2]}"}


@contextmanager
def tcp(app: App) -> Iterator[http.client.HTTPConnection]:
    assert app.observation is not None
    host, port = app.observation.address
    with closing(http.client.HTTPConnection(host, port, timeout=20)) as connection:
        yield connection


@contextmanager
def unix(path: Path) -> Iterator[http.client.HTTPConnection]:
    with closing(UnixConnection(path)) as connection:
        yield connection
