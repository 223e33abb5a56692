"""Answers for the tests of sinks."""

from __future__ import annotations

from typing import Any

import orjson

from edge_runtime.types import Correction, Event, Prediction


def prediction(i: int = 0, **changes: Any) -> Prediction:
    """A prediction whose id is `i`."""
    values: dict[str, Any] = {
        "id": f"k@{i}",
        "key": "k",
        "start": float(i),
        "end": i + 2.0,
        "label": "walk",
        "confidence": 0.75,
        "scores": [0.25, 0.75],
        "route": "local",
        "hard": False,
        "model": "m/1",
        "variant": "v",
        "latency_ms": 1.5,
    }
    return Prediction(**(values | changes))


def correction(i: int = 0) -> Correction:
    """The cloud's answer for the same window."""
    fields = orjson.loads(prediction(i, route="cloud").to_json())
    return Correction(**fields, supersedes="run", late=False)


def event(i: int = 0, **changes: Any) -> Event:
    """The beginning of an event with the window `i`."""
    values: dict[str, Any] = {
        "id": f"k@{i}/fall",
        "key": "k",
        "event": "fall",
        "kind": "start",
        "label": "walk",
        "start": float(i),
        "end": None,
        "peak": 0.75,
        "windows": 1,
        "evidence": [f"k@{i}"],
        "reason": "",
        "route": "local",
        "model": "m/1",
    }
    return Event(**(values | changes))


def ids(data: bytes) -> list[str]:
    """The ids in lines of JSON."""
    return [orjson.loads(line)["id"] for line in data.splitlines()]
