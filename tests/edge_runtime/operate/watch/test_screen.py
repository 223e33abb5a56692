"""Screens of ``edge-runtime watch``, without a terminal."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.operate.watch.screen import Painter, ViewState, clean, columns_of, curve, draw, duration, sparkline
from tests.edge_runtime.operate.watch.pictured import DETAIL, KEY, report

PLAIN = Painter(colours=False)


def columns(line: str) -> int:
    return sum(map(columns_of, line))


hostile = st.text(max_size=30) | st.sampled_from(
    ["\x1b[2J", "a\r\nb", "\u202eevil", "日本語のキー", "e\u0301" * 9, "\x9b31m"]
)


@given(
    key=hostile,
    label=hostile,
    width=st.integers(40, 130),
    height=st.integers(10, 50),
    page=st.sampled_from(["keys", "key", "drops"]),
)
@settings(deadline=None)
def test_whatever_a_key_is_called_a_screen_fits_and_moves_no_cursor(
    key: str, label: str, width: int, height: int, page: str
) -> None:
    one = KEY | {"key": key, "label": label}
    drops = [{"count": 3, "reason": label, "what": "samples", "advice": "look " * 30, "example": key, "component": "x"}]
    detail = DETAIL | {"key": key, "label": label, "labels": [label, key]}
    view = ViewState(page=page, key=key, filter=label)
    lines = draw(report(keys=[one] * 9, keys_found=900, drops=drops), detail, view, width, height, PLAIN)
    assert len(lines) == height
    for line in lines:
        assert columns(line) <= width
        assert not any(unicodedata.category(char) in {"Cc", "Cf", "Zl", "Zp"} for char in line)


@given(text=hostile, width=st.integers(0, 40))
def test_a_cleaned_text_has_exactly_its_width(text: str, width: int) -> None:
    assert columns(clean(text, width)) == width


def test_a_key_shows_its_label_its_certainty_and_its_past() -> None:
    lines = draw(report(), None, ViewState(), 80, 24, PLAIN)
    row = next(line for line in lines if line.startswith("kitchen"))
    assert re.search(r"walking +91% +▂█ +0\.4 s", row)
    assert "activity/1  int8 on onnx  up 1 h 1 m" in lines[0]
    assert "nothing dropped" in lines[2]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"hard": True}, "unsure"),
        ({"hard": True, "corrected": "sitting"}, "→ sitting"),
        ({"suspect": "stuck"}, "stuck"),
        ({"number": 3.14159}, "3.14"),
    ],
)
def test_what_is_special_about_an_answer_is_said(change: dict[str, Any], says: str) -> None:
    assert any(says in line for line in draw(report(keys=[KEY | change]), None, ViewState(), 80, 24, PLAIN))


def test_trouble_stands_at_the_top() -> None:
    found = report(
        brokers={"home": False},
        backend={"backend": "int8", "failed": {"npu": "no driver"}},
        governor={"level": 2, "reason": "cpu at 84 degrees"},
        outbox={"queued": 5, "oldest_age_s": 90.0, "dead": 2},
        alarms=[{"key": "kitchen", "cause": "unit", "message": "looks like m/s2 in place of g"}],
        cloud={"url": "http://cloud", "reachable": 0.0, "corrections": 7},
    )
    text = "\n".join(draw(found, None, ViewState(), 80, 24, PLAIN))
    for says in (
        "home is not connected",
        "npu: no driver",
        "stepped down 2 times",
        "outbox 5 (1 m 30 s) dead 2",
        "UNREACHABLE",
        "kitchen: looks like m/s2",
    ):
        assert says in text


def test_drops_come_with_what_to_do() -> None:
    drops = [
        {
            "count": 12,
            "reason": "late",
            "what": "samples",
            "advice": "state the rate",
            "example": "w1 7",
            "component": "window",
        }
    ]
    text = "\n".join(draw(report(drops=drops), None, ViewState(page="drops"), 80, 24, PLAIN))
    assert "12 samples: late" in text
    assert "state the rate" in text
    assert "the last one: w1 7" in text


def test_the_chosen_key_stays_on_the_screen() -> None:
    keys = [KEY | {"key": f"key{place:03}"} for place in range(100)]
    view = ViewState(chosen=90)
    lines = draw(report(keys=keys, keys_found=100), None, view, 80, 24, PLAIN)
    assert any(line.startswith("key090") for line in lines)
    assert any("and 82 more keys" in line for line in lines)


def test_a_window_is_drawn_with_what_moved_its_answer() -> None:
    text = "\n".join(draw(report(), DETAIL, ViewState(page="key", key="kitchen"), 80, 24, PLAIN))
    assert "last window, 2 s" in text
    assert "▁█▅" in text
    assert "+0.400" in text


def test_colours_are_left_out_where_they_are_not_wanted() -> None:
    assert "\x1b" not in "".join(draw(report(), None, ViewState(), 80, 24, PLAIN))
    assert "\x1b" in "".join(draw(report(), None, ViewState(), 80, 24, Painter(colours=True)))


@pytest.mark.parametrize(
    ("seconds", "says"),
    [(0.42, "0.4 s"), (42, "42 s"), (60, "1 m"), (90, "1 m 30 s"), (3600, "1 h"), (5400, "1 h 30 m"),
     (100_000, "1 d 3 h")],
)  # fmt: skip
def test_a_time_is_written_in_two_units_at_most(seconds: float, says: str) -> None:
    assert duration(seconds) == says


def test_bars_keep_their_width() -> None:
    assert sparkline([0, 1, 2, -1], 6) == "  ▁██▁"
    assert curve([1.0, 1.0], 4) == "▁▁  "
    assert len(curve(list(range(1000)), 20)) == 20
