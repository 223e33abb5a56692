"""The picture of misses against false alarms."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.answer.events.curve import Mark, draw
from edge_runtime.answer.events.trial import Outcome

OUTCOMES = st.builds(Outcome, st.just(50), st.integers(0, 50), st.integers(0, 10_000), st.floats(0.01, 1000))


@given(st.lists(OUTCOMES, max_size=8), st.lists(OUTCOMES, min_size=1, max_size=2), st.floats(0.001, 1000))
def test_every_mark_lies_within_the_axes(front: list[Outcome], marked: list[Outcome], rate: float) -> None:
    picture = ET.fromstring(draw("a < b & c", front, [Mark(one, "<here>", "#123456") for one in marked], rate))
    circles = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == 2 * len(marked)  # one of each explains the colour
    for circle, outcome in zip(circles[::2], marked, strict=True):
        assert 64 <= float(circle.attrib["cx"]) <= 616
        assert abs(float(circle.attrib["cy"]) - (344 - 296 * outcome.miss_share)) < 0.1
