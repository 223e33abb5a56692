"""A picture of an application, as its screens are drawn from it."""

from __future__ import annotations

import copy
from typing import Any

KEY: dict[str, Any] = {
    "key": "kitchen", "id": "kitchen@7", "label": "walking", "confidence": 0.91, "number": None, "hard": False,
    "route": "local", "corrected": "", "suspect": "", "end": 7.0, "age_s": 0.4, "latency_ms": 1.0, "windows": 3,
    "windows_per_s": 1.0, "history": [["walking", 0.2, False, ""], ["walking", 0.91, False, ""]],
}  # fmt: skip
REPORT: dict[str, Any] = {
    "at": 8.0,
    "app": {"model": "activity/1", "uptime_s": 3700.0, "name": "app"},
    "backend": {"backend": "int8 on onnx"},
    "rates": {"messages_per_s": 100, "predictions_per_s": 2, "hard_share": 0.1, "cloud_share": 0.05},
    "latency_ms": {"engine": {"p50": 0.02}, "total": {"p99": 1.5}},
    "sinks": [],
    "brokers": {"home": True},
    "keys": [KEY],
    "keys_found": 1,
    "events": [],
    "cloud": {"url": "", "reachable": None, "corrections": 0},
    "outbox": None,
    "governor": None,
    "alarms": [],
    "board": {},
    "process": {"resident_bytes": 60 * 2**20},
    "drops": [],
}
DETAIL: dict[str, Any] = KEY | {
    "labels": ["walking", "sitting"], "scores": [0.91, 0.09],
    "steps": [[7.0, "walking", 0.91, False, "", None]],
    "window": {
        "id": "kitchen@7", "start": 5.0, "rate_hz": 50.0, "length": 100, "channels": [{"name": "x", "unit": "g"}],
        "values": [[0.0, 1.0, 0.5]],
    },
    "why": {"label": "walking", "channels": {"x": 0.4}, "cells": {"x": [0.1, -0.3]}},
}  # fmt: skip


def report(**more: Any) -> dict[str, Any]:
    return copy.deepcopy(REPORT) | more
