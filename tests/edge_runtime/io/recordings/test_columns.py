"""What columns of stamps are called, and what their cells mean, is one thing for every reader of recordings."""

from __future__ import annotations

from datetime import date, datetime, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.numbers import LATEST_S, UNITS_PER_S, unit_of_date
from edge_runtime.io.recordings.columns import (
    OTHER_TIME_COLUMNS,
    TIME_COLUMNS,
    are_texts,
    is_empty,
    is_time,
    seconds_of,
    time_positions,
    unit_in_name,
    unit_of,
)

START = 1_700_000_000.25


@pytest.mark.parametrize(
    "name", ["t", "Time", "TIMESTAMP", "time_ms", "Time (s)", "time [us]", "t_ns", "ts (ms)", " date "]
)
def test_stamps_go_by_many_names(name: str) -> None:
    assert is_time(name)


@pytest.mark.parametrize(
    "name", ["x", "ax", "temperature", "lifetime", "times", "state", "ms_per_step", "tms", "weight (s)"]
)
def test_other_columns_are_no_stamps(name: str) -> None:
    assert not is_time(name)


@pytest.mark.parametrize(
    ("name", "unit"),
    [("time_ms", "ms"), ("Time (s)", "s"), ("t [us]", "us"), ("seconds_elapsed", "s"), ("ms", "ms"), ("time", None),
     ("timestamp", None), ("t_ns", "ns"), ("Elapsed_Time", None), ("time_stamp", None), ("time µs", "us")],
)  # fmt: skip
def test_a_unit_stands_in_the_name_or_nowhere(name: str, unit: str | None) -> None:
    assert unit_in_name(name) == unit


@pytest.mark.parametrize("unit", UNITS_PER_S)
def test_moments_tell_their_unit_by_their_size(unit: str) -> None:
    assert unit_of_date(START * UNITS_PER_S[unit]) == unit


def test_what_nobody_said_is_seconds_if_it_can_be() -> None:
    assert unit_of("t", 20.0) == "s"
    assert unit_of("t", START) == "s"
    assert unit_of("t", START * 1e3) == "ms"
    assert START * 1e3 > LATEST_S
    assert unit_of("t_us", START) == "us"


def test_cells_are_numbers_texts_of_numbers_dates_or_empty() -> None:
    np.testing.assert_allclose(seconds_of(["20", 40, None, "nan", ""], "ms"), [0.02, 0.04, np.nan, np.nan, np.nan])
    moment = datetime.fromtimestamp(START, timezone.utc)
    texts = ["2023-11-14T22:13:20.25Z", "2023-11-14 22:13:20.250", moment]
    np.testing.assert_allclose(seconds_of(texts, "iso8601"), START)
    assert seconds_of([date(2023, 11, 14)], "s").tolist() == [1_699_920_000.0]
    assert are_texts(["", "2023-11-14"])
    assert are_texts([moment])
    assert not are_texts([None, "12.5"])
    assert [is_empty(cell) for cell in ("", " NaN ", "n/a", None, float("nan"), "0", 0)] == [True] * 5 + [False] * 2


@pytest.mark.parametrize(("cell", "unit"), [("tomorrow", "iso8601"), ("tomorrow", "s"), ([], "s"), (5, "iso8601")])
def test_another_cell_is_refused_with_its_row(cell: object, unit: str) -> None:
    with pytest.raises(InputError, match="row 2") as refused:
        seconds_of([None, cell], unit)  # type: ignore[arg-type]
    assert refused.value.reason == "bad_time"


@given(
    st.sampled_from(TIME_COLUMNS + OTHER_TIME_COLUMNS),
    st.sampled_from(["{}", " {} ", "{}_ms", "{} (s)", "{}[us]"]),
    st.booleans(),
)
def test_every_known_name_is_known_with_a_unit_and_in_any_case(name: str, form: str, upper: bool) -> None:
    written = form.format(name)
    assert is_time(written.upper() if upper else written)


def test_stamps_come_before_what_loggers_count_beside_them() -> None:
    assert time_positions(["time", "seconds_elapsed", "z"]) == [0]
    assert time_positions(["seconds_elapsed", "z"]) == [0]
    assert time_positions(["time", "ts"]) == [0, 1]
    assert time_positions(["time", "ts"], [0]) == [1]
    assert time_positions(["x", "y"]) == []
