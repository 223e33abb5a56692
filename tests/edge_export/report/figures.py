"""Figures as a build writes them, with everything that a report can show."""

from __future__ import annotations

import math
from typing import Any

CANDIDATES = ("onnx-fp32", "onnx-int8-u8s8", "tflite-int8")


def judged(name: str, accuracy: float, *, drop: float = 0.0) -> dict[str, Any]:
    return {
        "name": name,
        "windows": 400,
        "groups": 4,
        "accuracy": accuracy,
        "low": accuracy - 0.02,
        "high": accuracy + 0.015,
        "macro_f1": accuracy - 0.05,
        "f1_low": accuracy - 0.1,
        "f1_high": accuracy,
        "drop": drop,
        "drop_low": drop - 0.001,
        "drop_high": drop + 0.001,
        "f1_drop": drop,
        "flips": abs(drop),
    }


def timing(name: str, threads: int, p50_us: float) -> dict[str, Any]:
    return {
        "name": name,
        "engine": "LiteRT 2.3.0" if name.startswith("tflite") else "onnxruntime 1.31.1",
        "threads": threads,
        "p50_us": p50_us,
        "p95_us": 2 * p50_us,
        "min_us": p50_us,
        "cpu_us": p50_us,
        "ratio": p50_us / 48,
        "ratio_low": p50_us / 50,
        "ratio_high": p50_us / 46,
        "rounds": 15,
        "calls": 1000,
    }


def small() -> dict[str, Any]:
    """What the first version wrote."""
    scores = {
        "onnx-fp32": judged("onnx-fp32", 0.90),
        "onnx-int8-u8s8": judged("onnx-int8-u8s8", 0.897, drop=0.003),
        "tflite-int8": judged("tflite-int8", 0.8975, drop=0.0025),
    }
    point = {"local_accuracy": 0.95, "device_accuracy": 0.9, "combined_accuracy": 0.93, "cloud_accuracy": 0.94}
    return {
        "recipe": "waves",
        "classes": ["slow", "fast", "flat"],
        "metric": "accuracy",
        "groups": {"train": ["p0", "p1"], "validation": ["p3"], "test": ["p4", "p5"]},
        "windows": {"train": 800, "validation": 400, "test": 1400},
        "teacher": {"tried": [0.91, 0.93], "members": 2, "bytes": 4_656_332, "zlib_bytes": 4_303_005},
        "student": {"parameters": 4869, "macs": 80_688, "int8_bytes": 11_460},
        "temperature": 0.758,
        "gate": {"score": "margin", "threshold": 0.398, "promise": {"validation": {**point, "forwarded": 0.1}}},
        "validation": scores,
        "choice": {
            "x86_64": {
                "shipped": ["onnx-int8-u8s8", "onnx-fp32"],
                "lost": {"tflite-int8": "it loses 3.00 points & more"},
            }
        },
        "timings": [timing(name, threads, 12.5 * (i + 1)) for i, name in enumerate(CANDIDATES) for threads in (1, 2)],
        "test": {
            "device": "onnx-int8-u8s8",
            "peers": {"random-forest": {"bytes": 2_100_000}},
            "judged": {**scores, "teacher": judged("teacher", 0.94), "random-forest": judged("random-forest", 0.85)},
            "gate": {**point, "forwarded": 0.13, "threshold": 0.398},
            "curve": [{**point, "forwarded": share, "threshold": share} for share in (0.0, 0.1, 0.4)],
            "confusion": [[480, 20, 0], [37, 463, 0], [0, 3, 397]],
        },
        "versions": {"numpy": "2.4.6", "onnx": "1.23.2"},
    }


def full() -> dict[str, Any]:
    """With everything that is optional."""
    figures = small()
    figures["test"]["calibration"] = [
        {"confidence": 0.45, "accuracy": 0.4, "count": 10},
        {"confidence": 0.65, "accuracy": 0.0, "count": 0},
        {"confidence": 0.95, "accuracy": 0.97, "count": 90},
    ]
    return figures | {
        "description": "Which of three waves.",
        "limits": {"max_accuracy_drop": 0.005, "max_bytes": 30_000, "max_latency_ms": 1.5, "metric": "accuracy"},
        "data": [{"name": "made up", "source": "this test", "licence": "CC0", "cite": ""}],
        "candidates": [
            {"name": name, "format": name.split("-")[0], "size": 20_000 - 3000 * i, "zlib_size": 15_000 - 3000 * i}
            for i, name in enumerate(CANDIDATES)
        ],
        "left_out": {"onnx-int4": "no layer gains"},
        "quantisation": {
            "ranges": "mse",
            "tried": {"minmax": 0.88, "mse": 0.897},
            "float_score": 0.9,
            "score": 0.897,
            "kept_in_float": [{"layer": "/stem/Conv", "reason": "it loses 1.2 points"}],
            "operators_in_float": {"ConvTranspose": "onnxruntime has no integer kernel for it"},
        },
        "sensitivity": [
            {"layer": "/stem/Conv", "alone_db": 22.5, "drop": 0.012, "bytes": 480},
            {"layer": "/head/Gemm", "alone_db": None, "drop": -0.001, "bytes": 24},
            {"layer": "/unknown", "alone_db": 40.0, "drop": None, "bytes": 8},
        ],
        "pruning": {
            "before": {"score": 0.905, "parameters": 9000, "macs": 160_000},
            "steps": [
                prune_step(7000, 0.85, 0.904),
                prune_step(5200, 0.78, 0.902),
                prune_step(4000, 0.6, 0.88, kept=False),
            ],
        },
        "streaming": {
            "hop": 10,
            "window_us": 33.1,
            "update_us": 5.6,
            "max_abs_diff": 2.4e-7,
            "state_bytes": 1280,
            "windows_compared": {"real": 1000, "random": 200},
        },
        "against_teacher": {
            "teacher": {"p50_us": 1500.0, "times_faster": 1.0},
            "onnx-int8-u8s8": {"p50_us": 25.0, "times_faster": 60.0},
        },
        "bundles": {
            "waves-aarch64.edge": {"bytes": 60_000, "zlib_bytes": 40_000},
            "waves-teacher.edge": {"bytes": 4_700_000, "zlib_bytes": 4_300_000},
            "waves-x86_64.edge": {"bytes": 61_000, "zlib_bytes": 40_000},
            "waves-x86_64-streaming.edge": {"bytes": 62_000, "zlib_bytes": 40_000},
        },
        "overview": {
            "channels": [{"name": "ax", "unit": "g"}, {"name": "wx", "unit": "rad/s"}, {"name": "level", "unit": "1"}],
            "window_s": 2.0,
            "classes": [
                {
                    "name": name,
                    "windows": {"train": 300, "validation": 130, "test": 400 + place},
                    "groups": 6,
                    "typical": cut("p0", 1.0 + place) if name != "flat" else None,
                }
                for place, name in enumerate(("slow", "fast", "flat"))
            ],
        },
        "mistakes": {
            "pairs": [
                {"label": "fast", "answer": "slow", "count": 37, "of": 500, "by_group": {"p4": 33, "p5": 4}},
                {"label": "slow", "answer": "fast", "count": 20, "of": 500, "by_group": {"p5": 20}},
            ],
            "groups": [
                {
                    "group": "p4",
                    "windows": 700,
                    "wrong": 36,
                    "shown": [{"label": "fast", "answer": "slow", "confidence": 0.91, **cut("p4", 3.0)}],
                },
                {"group": "p5", "windows": 700, "wrong": 24, "shown": []},
            ],
        },
        "learning": [
            {
                "name": "student, SeparableCnn1d",
                "points": [
                    {"step": 100 * n, "epoch": 1.5 * n, "loss": 2.0 / n, "score": score}
                    for n, score in enumerate((0.5, 0.8, 0.93, 0.9), 1)
                ],
            }
        ],
    }


def cut(group: str, height: float) -> dict[str, Any]:
    """A window of three channels as the report keeps it."""
    values = [[height * math.sin(place / (3 + channel)) for place in range(40)] for channel in range(3)]
    return {"group": group, "recording": f"{group}.csv", "start_s": 12.5, "values": values}


def prune_step(parameters: int, before: float, score: float, *, kept: bool = True) -> dict[str, Any]:
    return {
        "ratio": 0.2,
        "parameters": parameters,
        "macs": 18 * parameters,
        "before_training": before,
        "score": score,
        "kept": kept,
    }
