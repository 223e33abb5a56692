"""Run an application on a sensor that this program reads, with answers that this program takes."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edge_runtime import Answer, App, AppConfig, Deliver, Loop, ModelConfig, Prediction, Reading

RATE_HZ = 50.0
BLOCK = 5  # samples that the sensor collects before it is read


class Wrist:
    """A source: an accelerometer and gyroscope that is read every 0.1 s. Put your driver's call into `_read`."""

    name = "wrist"

    def __init__(self, seconds: float) -> None:
        self.finished = False  # True ends the application, once every source says so
        self._left = round(seconds * RATE_HZ / BLOCK)
        self._t = time.time()

    def open(self, loop: Loop, deliver: Deliver) -> None:
        self._deliver = deliver
        loop.call_every(BLOCK / RATE_HZ, self._read)

    def _read(self) -> None:
        if self.finished:
            return
        t = self._t + np.arange(BLOCK) / RATE_HZ
        values = np.tile([0.0, 0.0, 1.0, 0.0, 0.0, 0.0], (BLOCK, 1)).astype(np.float32)  # ax ay az wx wy wz
        values[:, 0] += np.sin(2 * math.pi * t).astype(np.float32)
        self._deliver([Reading("left-arm", t, values)], time.monotonic(), None)
        self._t += BLOCK / RATE_HZ
        self._left -= 1
        self.finished = not self._left

    def pause(self) -> None:
        self.finished = True

    def close(self) -> None:
        self.finished = True


class Display:
    """A sink: prints answers. Put your display, database or relay here."""

    name = "display"

    def open(self, loop: Loop) -> None:
        pass

    def send(self, answers: Sequence[Answer], done: Callable[[], None] | None) -> None:
        for answer in answers:
            if isinstance(answer, Prediction):
                print(f"{answer.key}: {answer.label} ({answer.confidence:.2f})", flush=True)
        if done is not None:
            done()  # these answers are safe

    def close(self, timeout_s: float) -> None:
        pass


# The bundle of the example is not signed. For your own, give trusted_keys instead of unsigned (docs/signing.md).
config = AppConfig(model=ModelConfig(bundle=Path("watch.edge"), unsigned="allow"))
app = App(config, sources=[Wrist(seconds=4)], sinks=[Display()])
signal.signal(signal.SIGTERM, lambda *_: app.stop())
app.run()
