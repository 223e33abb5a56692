"""What is printed of a task is what its report says."""

from __future__ import annotations

import platform
from typing import Any

import pytest

from benchmarks.tasks import TASKS, summary


def judged(accuracy: float) -> dict[str, float]:
    return {"accuracy": accuracy, "low": accuracy - 0.02, "high": accuracy + 0.02, "macro_f1": accuracy - 0.01}


@pytest.fixture
def report() -> dict[str, Any]:
    """Of a made-up build."""
    return {
        "recipe": "waves",
        "metric": "macro_f1",
        "groups": {"test": ["ann", "ben"]},
        "windows": {"test": 400},
        "candidates": [
            {"name": "tflite-int8", "format": "tflite", "size": 8_000, "zlib_size": 6_000},
            {"name": "tflite-fp32", "format": "tflite", "size": 20_000, "zlib_size": 18_000},
            {"name": "onnx-int8-u8s8", "format": "onnx", "size": 9_000, "zlib_size": 7_000},
        ],
        "teacher": {"bytes": 1_000_000, "zlib_bytes": 900_000},
        "against_teacher": {
            "teacher": {"p50_us": 900.0, "times_faster": 1.0},
            "tflite-int8": {"p50_us": 30.0, "times_faster": 30.0},
        },
        "bundles": {
            "waves-teacher.edge": {"bytes": 1_000_000, "zlib_bytes": 900_000},
            f"waves-{platform.machine()}.edge": {"bytes": 20_000, "zlib_bytes": 15_000},
        },
        "test": {
            "device": "tflite-int8",
            "judged": {
                "teacher": judged(0.96),
                "random-forest": judged(0.90),
                "tflite-int8": judged(0.94),
                "tflite-fp32": judged(0.945),
            },
            "gate": {"forwarded": 0.08, "combined_accuracy": 0.957},
            "curve": [
                {"forwarded": 0.05, "combined_accuracy": 0.95},
                {"forwarded": 0.09, "combined_accuracy": 0.955},
                {"forwarded": 0.2, "combined_accuracy": 0.96},
            ],
        },
        "streaming": {"overlap": 0.75, "times_less": 6.0, "max_abs_diff": 2e-5},
        "student": {"parameters": 5_000, "macs": 120_000},
        "quantisation": {"ranges": "mse", "kept_in_float": [{"layer": "first"}]},
        "gate": {"score": "margin", "threshold": 0.71},
        "choice": {"x86_64": {"shipped": ["tflite-int8"]}},
    }


def measured(report: dict[str, Any], counted: float = 0.94) -> dict[str, float]:
    return {goal.text: goal.measured for goal in summary(TASKS[0], report, 300.0, counted).goals}


def test_goals_are_worked_out_from_the_report(report: dict[str, Any]) -> None:
    goals = measured(report)
    assert goals["times smaller than the teacher, bundles on disk"] == 50
    assert goals["times smaller, bundles after zlib"] == 60
    assert goals["times faster than the teacher, one core"] == 30
    assert goals["share of the teacher's macro_f1 kept, %"] == pytest.approx(100 * 0.93 / 0.95)
    assert goals["points of macro_f1 above the plain baseline"] == pytest.approx(4)
    most = "points of accuracy with the cloud taking at most 10 %, against the teacher"
    assert goals[most] == pytest.approx(-0.5)
    assert goals["tflite-int8: % smaller than fp32"] == pytest.approx(60)
    assert goals["tflite-int8: points of macro_f1 lost against fp32"] == pytest.approx(0.5)
    assert goals["streaming at 75 % overlap: times less CPU"] == 6
    assert goals["minutes to build"] == 5


def test_a_bundle_that_answers_otherwise_than_the_report_says_misses_its_goal(report: dict[str, Any]) -> None:
    text = "points between the report and the replayed bundle"
    assert measured(report)[text] == 0
    (goal,) = (one for one in summary(TASKS[0], report, 300.0, 0.93).goals if one.text == text)
    assert goal.measured == pytest.approx(1)
    assert not goal.met


def test_what_was_not_judged_or_not_made_is_left_out(report: dict[str, Any]) -> None:
    report["streaming"] = None
    table = summary(TASKS[0], report, 300.0, 0.94)
    assert [row[0] for row in table.rows] == ["random-forest", "teacher", "tflite-int8 (ships)", "tflite-fp32"]
    assert not any("onnx-int8-u8s8" in goal.text or "streaming" in goal.text for goal in table.goals)
    assert table.rows[0][4:] == (None, None, None, None)
    assert table.rows[2][4:] == (8_000, 6_000, 30.0, 30.0)


def test_notes_name_layers_left_in_float(report: dict[str, Any]) -> None:
    notes = summary(TASKS[0], report, 300.0, 0.94).notes
    assert notes[0].endswith("quantised by mse; in float: first")
    report["quantisation"]["kept_in_float"] = []
    assert summary(TASKS[0], report, 300.0, 0.94).notes[0].endswith("quantised by mse")
    assert notes[1:] == [
        "gate: margin below 0.7100; with the cloud 95.70 % right, 8.00 % forwarded",
        "x86_64 ships tflite-int8",
    ]
