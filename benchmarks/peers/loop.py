"""Options of the Python programs of this folder, and the loop between a message and its answers."""

from __future__ import annotations

import argparse
import os
import signal
from pathlib import Path
from typing import Any, Final

from edge_runtime.tools.bench.handwritten import Cutting, HandWritten, onnx_call

TOPICS: Final = "sensors/+/raw"
LABELS: Final = ("rest", "press", "row", "curl", "raise", "swing")


def parser() -> argparse.ArgumentParser:
    """The options of every program."""
    made = argparse.ArgumentParser(description="Sensor windows in, answers of a model out, over MQTT.")
    made.add_argument("--port", type=int, required=True)
    made.add_argument("--model", type=Path, required=True)
    return made


def end_on_sigterm() -> None:
    """End at once: none of these programs keeps anything."""
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))


def loop(client: Any, model: Path, *, window: int = 128, channels: int = 6) -> HandWritten:
    """Windows of a model, every 64 samples; answers go to `client.publish`."""
    call = onnx_call(model.read_bytes())
    return HandWritten(client, call, labels=LABELS, cutting=Cutting(window, 64, 50.0, channels))


class Answers(list[tuple[str, bytes]]):
    """Answers of one message, for a client whose `publish` must be awaited."""

    def publish(self, topic: str, payload: bytes) -> None:
        self.append((topic, payload))

    def take(self) -> list[tuple[str, bytes]]:
        """Return and forget them."""
        taken = list(self)
        self.clear()
        return taken
