"""The report's sections: their order, and what they say of figures that are there, missing, or of an earlier one."""

from __future__ import annotations

import pytest
from edge_export.report import page
from edge_export.report.learning import learning_said

from tests.edge_export.report import figures
from tests.edge_export.report.reader import Reader


def test_the_verdict_comes_first_and_wrong_windows_come_before_the_details() -> None:
    text = Reader(page(figures.full())).text
    order = ["Too few test groups", "The data", "Who and what is confused", "Wrong windows by group", "Learning curves",
             "Size and speed beside", "What to type next", "How often it is right"]  # fmt: skip
    body = text[text.index("Which of three waves.") :].replace("Data Confused Wrong windows Learning", "")
    assert [body.index(title) for title in order] == sorted(body.index(title) for title in order)


def test_without_channels_wrong_windows_are_counted_and_not_drawn() -> None:
    whole = figures.full()
    del whole["overview"]
    text = Reader(page(whole)).text
    assert "By group: group p4, 36 of 700 wrong; group p5, 24 of 700 wrong." in text
    for group in whole["mistakes"]["groups"]:
        group |= {"wrong": 0, "shown": []}
    assert "No test window was answered wrong." in Reader(page(whole)).text


def test_pairs_of_an_earlier_report_come_from_its_matrix() -> None:
    text = Reader(page(figures.small())).text
    assert "fast taken for slow : 37 of 500 slow taken for fast : 20 of 500 flat taken for fast : 3 of 400" in text


def test_a_sensor_of_many_channels_says_which_are_drawn() -> None:
    whole = figures.full()
    whole["overview"]["channels"] += [{"name": f"c{number}", "unit": "V"} for number in range(3)]
    assert "The first 3 channels are drawn." in Reader(page(whole)).text
    assert "channels are drawn" not in Reader(page(figures.full())).text


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        ((0.5, 0.9, 0.9, 0.91, 0.9), "Settled"),
        (
            (0.5, 0.6, 0.7, 0.8, 0.9),
            "Still rising in the last quarter, from 80.0 % to 90.0 %: more steps may do better.",
        ),
        (
            (0.5, 0.95, 0.9, 0.9, 0.9),
            "Best after 2.00 epochs, 95.0 %: fewer steps",
        ),
    ],
)
def test_a_learning_curve_says_what_it_shows(scores: tuple[float, ...], said: str) -> None:
    points = [{"step": n, "epoch": float(n), "loss": 1 / n, "score": score} for n, score in enumerate(scores, 1)]
    assert learning_said({"name": "a", "points": points}).replace("\u202f", " ").startswith(said)
