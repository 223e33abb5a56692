"""Everything at once around a device: two sources of each key, a model with states, kept cases, page, Home Assistant.

One source brings two channels of a key, the other the third, now one first and now the other. The model is a chain
with a state, and its answers are followed over time; both go on over an orderly stop, and over a kill with
``durability = "reading"``. Otherwise a key may begin again at a kill: `Steps` says what it then has to answer.
"""

from __future__ import annotations

import http.client
import shutil
import sqlite3
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from edge_export.package.pack import VariantSource

from edge_runtime.manifest.stages import ModelStage, Output, Port, State
from edge_runtime.manifest.surround import OverTime, Surround, SurroundGate
from tests.faults.overlap import (
    CHANNELS,
    FIRST,
    HOP,
    KEYS,
    LABELS,
    PART,
    RATE_HZ,
    WINDOW,
    Mode,
    Street,
    place,
    same,
    samples,
)
from tests.integration.running import PATIENCE_S, Answer, payload
from tests.mosquitto import free_port
from tests.stateful import KEEP, leaky

THRESHOLD = 0.85
"""An answer is hard below it."""
OVER_TIME = OverTime(
    transition=((0.9, 0.06, 0.04), (0.1, 0.8, 0.1), (0.05, 0.05, 0.9)), prior=(0.4, 0.3, 0.3), weight=0.7
)
ROWS = 10
"""Samples that a step of the model takes, every `HOP`: two of them were in the step before."""
WEIGHTS = np.array([[2.0, -4.0, 1.0], [6.0, 3.0, -2.0], [0.02, 0.0, -0.02]], "f4")
STAGE = ModelStage(
    inputs=(Port(name="x", of="stream", rows=ROWS, hop=HOP),),
    states=(State(input="h", output="h_next", shape=(CHANNELS,)),),
    outputs=(Output(name="y"),),
)
PARTS = {"imu": [0, 2], "baro": [1]}
"""Channels that each source brings."""
PAGE = {("metrics", 200), ("api/report", 200), ("api/cases", 401)}
"""What the page answers a caller without a token."""
TABLES = """
[window]
wait_s = 10.0
[cases]
path = "cases.db"
max_per_minute = 6000
[observe]
listen = "127.0.0.1:{port}"
[home_assistant]
broker = "b"
prefix = "ha"
device_id = "street"
"""


class Steps:
    """Answers of the model in numpy, for a device whose keys may begin again.

    1. A window that follows the key's last answer goes on from what that one left.
    2. If it does not, or its answer is not that, the key has begun again at it; `begun` counts.
    """

    def __init__(self) -> None:
        self.begun: Counter[int] = Counter()
        self._left: dict[int, tuple[int, Any, Any]] = {}

    def follow(self, answer: Answer) -> Answer:
        """The right answer in place of one that was heard."""
        key, first = place(answer["id"])
        at, state, posterior = self._left.get(key, (-1, None, None))
        if at == first:
            right = self._step(key, first, state, posterior)  # rule 1
            if same(answer, right):
                return right
        self.begun[key] += 1
        return self._step(key, first, np.zeros(CHANNELS), None)  # rule 2

    def _step(self, key: int, first: int, state: Any, before: Any) -> Answer:
        state = KEEP * state + samples(key, first + ROWS)[first:].mean(axis=0, dtype=np.float64)
        z = state @ WEIGHTS
        e = np.exp(z - z.max())
        prior = np.array(OVER_TIME.prior)
        expected = prior if before is None else before @ np.array(OVER_TIME.transition)
        scores = expected * (e / e.sum() / prior) ** OVER_TIME.weight
        scores /= scores.sum()
        self._left[key] = first + HOP, state, scores
        return {"label": LABELS[int(scores.argmax())], "hard": scores.max() < THRESHOLD, "scores": scores}


class Everything(Street):
    """A street with all of it; what is beside the answers is looked at after each life."""

    hears = ("answers/#", "ha/#")
    begun = -(-(WINDOW + PART) // HOP)
    """One source may be a message behind the other."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        super().__init__(folder, mode)
        self.page: Counter[tuple[str, int]] = Counter()
        """Answers of the page by path and status."""
        self.discovery: dict[str, bytes] = {}
        """Retained messages for Home Assistant, by topic."""
        self.kept: set[str] = set()
        self._port = free_port()
        self._over = threading.Event()
        codec = 'codec = {{type = "json", partial = true, order = {}}}'
        self.codecs = {topic: codec.format([f"c{one}" for one in channels]) for topic, channels in PARTS.items()}
        model = leaky(rows=ROWS, weights=WEIGHTS)
        variant = VariantSource(name="onnx-fp32", model=model, format="onnx", precision="fp32", layout="NWC")
        surround = Surround(gate=SurroundGate(threshold=THRESHOLD), over_time=OVER_TIME)
        self.model = {"stages": (STAGE,), "variants": (variant,), "surround": surround}
        self.tables = TABLES.format(port=self._port)

    def __enter__(self) -> Everything:
        super().__enter__()
        asking = threading.Thread(target=self._ask, name="page")
        asking.start()
        self._resources.callback(asking.join)
        self._resources.callback(self._over.set)
        return self

    def send(self, number: int) -> None:
        key, first = number % KEYS, number // KEYS * PART
        at = np.arange(first, first + PART)
        values = samples(key, first + PART)[first:]
        for topic, channels in sorted(PARTS.items(), reverse=number % 2 == 0):
            part = payload((FIRST + at) / RATE_HZ, values[:, channels])
            self._publisher.publish(f"watch/watch-{key}/{topic}", part, self.mode.qos)

    def hear(self, topic: str, payload: bytes | bytearray) -> None:
        if topic.startswith("answers/"):
            super().hear(topic, payload)
        elif topic.endswith("/config"):
            self.discovery[topic] = bytes(payload)

    def settled(self) -> bool:
        return len(self.discovery) > KEYS

    def look(self, *, stopped: bool) -> None:
        """Kept cases are windows as their ids say; a kill takes none away, and an orderly stop loses none."""
        kept = self._cases()
        for id_ in kept.keys() - self.kept:
            key, first = place(id_)
            assert kept[id_] == samples(key, first + WINDOW)[first:].tobytes(), f"{id_} is another window"
        wanted = set(self.kept)
        if stopped:
            sent = [len(range(key, self.before, KEYS)) * PART for key in range(KEYS)]
            hard = [answer["id"] for answer in self.heard.firsthand() if answer["hard"]]
            wanted |= {id_ for id_ in hard if place(id_)[1] + WINDOW > sent[place(id_)[0]]}
        lost = wanted - kept.keys()
        assert not lost, f"kept before: {lost & self.kept}; of this life: {lost - self.kept}"
        self.kept = set(kept)

    def _cases(self) -> dict[str, bytes]:
        """Read the file in a copy: the next life finds what this one has left."""
        with TemporaryDirectory() as folder:
            for file in self.folder.glob("cases.db*"):
                if not file.name.endswith("-shm"):
                    shutil.copy(file, folder)
            with closing(sqlite3.connect(Path(folder) / "cases.db")) as db:
                assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
                rows = db.execute("SELECT id, samples FROM cases").fetchall()
        assert len(dict(rows)) == len(rows), "an id twice"
        return dict(rows)

    def _ask(self) -> None:
        """Look at the page without a token, as long as the street is there."""
        while not self._over.wait(0.05):
            for path in ("metrics", "api/report", "api/cases"):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/{path}", timeout=PATIENCE_S) as answer:
                        answer.read()
                        self.page[path, answer.status] += 1
                except urllib.error.HTTPError as error:
                    self.page[path, error.code] += 1
                except (OSError, http.client.HTTPException):
                    pass  # no device at this moment, or one that was killed in the middle
