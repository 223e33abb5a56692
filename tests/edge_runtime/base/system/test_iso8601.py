"""Dates and times in ISO 8601: the same on every Python."""

from __future__ import annotations

import sys
from datetime import date, datetime, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge_runtime.base.system.iso8601 import in_words, parse_date, parse_time, rewrite

DATES = st.one_of(
    st.dates().map(date.isoformat),
    st.dates().map(lambda day: day.isoformat().replace("-", "")),
    st.dates(min_value=date(2, 1, 1), max_value=date(9998, 1, 1)).map(
        lambda day: "{:04}-W{:02}-{}".format(*day.isocalendar())
    ),
    st.dates(min_value=date(2, 1, 1), max_value=date(9998, 1, 1)).map(
        lambda day: "{:04}W{:02}".format(*day.isocalendar())
    ),
)
TIMES = st.from_regex(
    r"\A([01]\d|2[0-3])(:[0-5]\d(:[0-5]\d([.,]\d{1,9})?)?|[0-5]\d([0-5]\d([.,]\d{1,9})?)?)?\Z", alphabet="0123456789:.,"
)
OFFSETS = st.one_of(st.sampled_from(["", "Z", "+00:00"]), st.tuples(st.sampled_from("+-"), TIMES).map("".join))
TEXTS = st.one_of(
    DATES,
    st.tuples(DATES, st.sampled_from("T t_"), TIMES, OFFSETS).map("".join),
    st.text("0123456789-:.,TWZ+ ", max_size=30),
)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-22T09:30:00.25Z",
        "2026-11-22T10:30:00.2500009+01:00",
        "2026-11-22 09:30:00,25",
        "20261122T093000.25Z",
        "2026-W47-7T04:00:00.25-0530",
    ],
)
def test_one_moment_in_many_forms(text: str) -> None:
    assert parse_time(text) == datetime(2026, 11, 22, 9, 30, 0, 250_000, timezone.utc).timestamp()


def test_a_date_is_midnight_of_greenwich() -> None:
    assert parse_time("2026-12-01") == parse_time("2026-12-01T00") == 1_796_083_200.0
    assert parse_date("2026-12-01") == parse_date("20261201") == parse_date("2026-W49-2") == date(2026, 12, 1)


@pytest.mark.parametrize(
    "text", ["", "now", "2026", "2026-11", "2026-13-01", "2026-11-22T25:00", "2026-11-22T", "T09:30"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_time(text)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="compares with what Python 3.11 reads")
@given(text=TEXTS)
@example(text="2026-11-22T09:30:00.1234567Z")
def test_what_is_rewritten_for_python_3_10_is_read_as_python_3_11_reads_the_original(text: str) -> None:
    try:
        expected = datetime.fromisoformat(text)
    except ValueError:
        with pytest.raises(ValueError):
            datetime.fromisoformat(rewrite(text))
        return
    assert datetime.fromisoformat(rewrite(text)) == expected


def test_a_moment_is_written_for_people_and_one_that_no_calendar_has_as_a_number() -> None:
    assert in_words(1_800_000_000.4) == "2027-01-15 08:00:00Z"
    assert in_words(1e30) == "1e+30"
