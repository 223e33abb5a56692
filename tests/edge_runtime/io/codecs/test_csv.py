"""CSV text: headers, columns, units, separators, and what is refused."""

from __future__ import annotations

import csv
from io import StringIO
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime import schema
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.csv import CsvConfig
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading

CHANNELS = (Channel(name="x", unit="g"), Channel(name="y", unit="g"))
NOW = 1.7e9


def decode(text: str | bytes, topic_key: str = "k", **options: Any) -> list[Reading]:
    payload = text if isinstance(text, bytes) else text.encode()
    return load_codec(CsvConfig(**options), CHANNELS, rate_hz=10.0).decode(topic_key, payload, NOW)


def refusal(text: str | bytes, topic_key: str = "k", **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        decode(text, topic_key, **options)
    return caught.value


def seen(readings: list[Reading]) -> list[tuple[Any, Any, Any]]:
    return [(np.asarray(r.t).tolist(), r.values.tolist(), r.channels) for r in readings]


ONE = [(5.0, [[1.0, 2.0]], None)]


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("t,x,y\n5,1,2", {}),
        ("\ufefft,x,y\r\n5,1,2\r\n", {}),
        ("y,note,x,t\n2,a,1,5\n", {}),
        ('"t","x","y"\n"5", "1",2', {}),
        ("# made by hand\n\nt,x,y\n# first\n5,1,2,,\n", {}),
        ("t;x;y\n5,0;1,0;2", {"separator": ";", "decimal": ","}),
        ("t\tx\ty\n5\t1\t2", {"separator": "\t"}),
        ("  t  x y\n 5 1   2 \n", {"separator": " "}),
        ("t,x,y\n5,1,2", {"columns": ("t", "x", "y")}),
        ("5,9,1,2", {"columns": ("t", "-", "x", "y")}),
        ("5000,1,2", {"columns": ("ms", "a", "b"), "time": "ms", "time_unit": "ms", "channels": {"x": "a", "y": "b"}}),
        ("t,x,y\n1970-01-01 00:00:05,1,2", {"time_unit": "auto"}),
        ("t:5,x:1,y: 2,z:9", {"pair": ":"}),
        ("x=1 t=5 y=2", {"pair": "=", "separator": " "}),
        ("x(a)=1 t=5 y=2", {"pair": "=", "separator": " ", "channels": {"x": "x(a)"}}),
        ("t,x,y,kind\n5,1,2,imu\n6,8,9,gps", {"select": {"kind": "imu"}}),
        ("GPS,1\nIMU,5,1,2\nGPS,1,2,3,4,5", {"columns": ("kind", "t", "x", "y"), "select": {"kind": "IMU"}}),
        ("t,x,y\n5,on,2", {"words": {"ON": 1}}),
    ],
)
def test_rows_are_read(text: str, options: dict[str, Any]) -> None:
    assert seen(decode(text, **options)) == ONE


def test_several_rows_make_one_reading() -> None:
    (reading,) = decode("t,x,y\n1,2,3\n4,5,6")
    assert np.asarray(reading.t).tolist() == [1, 4]
    assert reading.values.tolist() == [[2, 3], [5, 6]]


def test_rows_without_a_time_are_dated_back_from_the_arrival() -> None:
    assert seen(decode("x,y\n1,2\n3,4", time="")) == [(NOW - 0.1, [[1, 2], [3, 4]], None)]


def test_a_missing_default_time_is_told_once_for_all_headers() -> None:
    told: list[str] = []
    codec = load_codec(CsvConfig(), CHANNELS, notice=lambda name, _: told.append(name))
    assert seen(codec.decode("k", b"x,y\n1,2", NOW)) == [(NOW, [[1, 2]], None)]
    assert told == ["undated"]
    assert refusal("x,y\n1,2").reason == "no_time"  # where nothing would be told


def test_a_unit_in_the_header_is_converted_and_a_stated_one_is_stronger() -> None:
    text = "t,x (m/s2),y [mg]\n1,9.80665,500"
    np.testing.assert_allclose(decode(text)[0].values, [[1, 0.5]], rtol=1e-6)
    np.testing.assert_allclose(decode(text, units={"x": "g", "y": "g"})[0].values, [[9.80665, 500]], rtol=1e-6)
    fixed = decode("9.80665,500", columns=("x (m/s2)", "y [mg]"), time="")
    np.testing.assert_allclose(fixed[0].values, [[1, 0.5]], rtol=1e-6)


@pytest.mark.parametrize("header", ["t,x (Cel),y (g)", "t,x (g),y"])
def test_a_unit_that_does_not_fit_is_refused_with_the_line_to_write(header: str) -> None:
    error = refusal(f"{header}\n1,2,3")
    assert error.reason == "wrong_channels"
    assert "units = {" in str(error)
    with pytest.raises(ConfigError, match=r"units = \{"):
        load_codec(CsvConfig(columns=tuple(header.split(","))), CHANNELS)


def test_empty_cells_are_missing_values() -> None:
    text = "t,x,y\n1,2,3\n2,,4\n3,nan,\n4,5,unknown"
    assert seen(decode(text, partial=True)) == [(1, [[2, 3]], None), (2, [[4]], (1,)), (4, [[5]], (0,))]
    assert refusal(text).reason == "wrong_channels"


def test_a_column_that_is_missing_is_allowed_where_messages_bring_some_channels() -> None:
    assert seen(decode("t,x\n1,2", partial=True)) == [(1, [[2]], (0,))]
    error = refusal("t,x\n1,2")
    assert error.reason == "wrong_channels"
    assert "no column for channel y" in str(error)
    assert refusal("t,a,b\n1,2,3", partial=True).reason == "wrong_channels"
    assert len(str(refusal(f"t,{'a' * 9999}\n1,2"))) < 300


def test_a_column_is_the_key_where_the_topic_gives_none() -> None:
    text = "who,t,x,y\na,1,2,3\nb,1,4,5\na,2,6,7"
    assert [reading.key for reading in decode(text, "", key="who")] == ["a", "b"]
    assert refusal("t,x,y\n1,2,3", "").reason == "no_key"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("\n# note\n", "empty"),
        ("t,x,y\n", "empty"),
        ("1,2,3", "malformed"),
        ("t,x,y\n1,2", "malformed"),
        ("t,x,y\n1,2,3,4", "malformed"),
        ("t,x,x\n1,2,3", "malformed"),
        ('t,x,y\n1,"2"a,3', "malformed"),
        ('t,x,y\n1,"2,3', "malformed"),
        ("t,x,y\n1,0x1,3", "not_a_number"),
        ("t,x,y\n1,1_0,3", "not_a_number"),
        ("t,x,y\n1,\u0661,3", "not_a_number"),
        ("t,x,y\n1,inf,3", "not_a_number"),
        ("t,x,y\n1,1e39,3", "not_finite"),
        ("t,x,y\n,2,3", "bad_time"),
        ("t,x,y\nnoon,2,3", "bad_time"),
        (b"\xff\xfe", "malformed"),
        ("t,x,y\n" + "1,2,3\n" * 9, "too_large"),
        ("t," + ",".join(f"c{i}" for i in range(5000)) + "\n1", "malformed"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused(text: str | bytes, reason: str) -> None:
    assert refusal(text, max_samples=8).reason == reason


def test_a_row_that_repeats_the_columns_is_skipped() -> None:
    assert decode("t,x,y\n", columns=("t", "x", "y")) == []
    assert seen(decode("t,x,y\n5,1,2\nt,x,y\n", columns=("t", "x", "y"))) == ONE
    assert refusal("# x", columns=("t", "x", "y")).reason == "empty"


def test_a_cell_without_a_name_is_refused_where_cells_name_themselves() -> None:
    assert refusal("x:1,2", pair=":", time="").reason == "malformed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"separator": ""}, "one character"),
        ({"separator": '"'}, "no quote"),
        ({"pair": "::"}, "one character"),
        ({"pair": ",", "columns": ["x"]}, "use one of them"),
        ({"pair": ","}, "must differ"),
        ({"decimal": ","}, "separator = ';'"),
        ({"columns": ["x", "x"]}, "names that differ"),
        ({"max_samples": 0}, "at least 1"),
        ({"time_step_s": -1}, "time_step_s must be 0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(schema.SchemaError, match=message):
        schema.load(CsvConfig, {"type": "csv", **options})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ("t", "x")}, "no column for channel y"),
        ({"channels": {"z": "a"}}, "maps z"),
        ({"units": {"x": "furlong", "y": "g"}}, "not known"),
        ({"pair": ":", "channels": {"z": "a"}}, "maps z"),
    ],
)
def test_a_configuration_that_does_not_fit_the_model_is_refused_at_the_start(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        load_codec(CsvConfig(**options), CHANNELS)


def test_headers_are_kept_in_bounds() -> None:
    codec: Any = load_codec(CsvConfig(), CHANNELS)
    for i in range(500):
        assert codec.decode("k", f"t,x,y,c{i}\n1,2,3,4".encode(), NOW)
    assert len(codec._tables) <= 64


@pytest.mark.slow
@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 10**10),
            st.floats(-1e6, 1e6, width=32),
            st.integers(-(2**20), 2**20),
            st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=9),
        ),
        min_size=1,
        max_size=8,
        unique_by=lambda row: row[0],
    ),
    separator=st.sampled_from(",;\t|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    ending=st.sampled_from(["\n", "\r\n"]),
)
def test_what_pythons_writer_writes_is_read(
    rows: list[tuple[int, float, int, str]], separator: str, quoting: Any, ending: str
) -> None:
    out = StringIO()
    writer = csv.writer(out, delimiter=separator, quoting=quoting, lineterminator=ending)
    writer.writerow(["t", "x", "y", "note"])
    writer.writerows(rows)
    (reading,) = decode(out.getvalue(), separator=separator)
    np.testing.assert_array_equal(reading.values, np.array([row[1:3] for row in rows], np.float32))
    np.testing.assert_array_equal(np.atleast_1d(reading.t), [row[0] for row in rows])
