"""InfluxDB line protocol: what the syntax allows, which lines count, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.influx import InfluxConfig
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading

CHANNELS = tuple(Channel(name=name, unit="g") for name in ("x", "y"))
NOW = 1.7e9


def decode(text: str, topic_key: str = "k", **options: Any) -> list[Reading]:
    return load_codec(InfluxConfig(**options), CHANNELS).decode(topic_key, text.encode(), NOW)


def refusal(text: str, topic_key: str = "k", **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        decode(text, topic_key, **options)
    return caught.value


@pytest.mark.parametrize(
    "line",
    [
        "m x=1,y=2",
        "m  x=1,y=2",
        "m,a=b,c=d x=1i,y=2u 1700000000000000000",
        "m x=1.,y=.2e1",
        "m x=+1,y=2.0E0",
        "m x=t,y=2",
        r"weather\,\ north,place\ of\=it=the\,\ attic x=1,y=2,note=12",
        r'm note="a, b=c \" \\",x=1,y=2',
        'm note="two\nlines",x=1,y=2 1700000000000000000 \r\n',
        "\n# x=5\n  \nm x=1,y=2\n\n# end",
        "m x=1,note=f,y=2\n",
    ],
)
def test_the_syntax_is_read(line: str) -> None:
    (reading,) = decode(line)
    assert reading.t == NOW
    assert reading.values.tolist() == [[1, 2]]
    assert reading.channels is None


@pytest.mark.parametrize(
    "text",
    [
        *("m", "m ", "m x", "m x=", "m x=1,", "m x=1 y=2", "m x=1,y=2 12.5", "m x=1,y=2 now", "m,a x=1,y=2"),
        *("m,a= x=1,y=2", ",a=b x=1", " m x=1,y=2", "m =1,y=2", 'm x="1,y=2', "m x=1,,y=2", "m x=1,y=2 1 2"),
        "m x=1,y=2 \u0661",
    ],
)  # fmt: skip
def test_what_is_no_line_protocol_is_malformed(text: str) -> None:
    assert refusal(text).reason == "malformed"


@pytest.mark.parametrize("value", ['"1"', "0x1", "1_0", "\u0661", "1ii"])
def test_a_field_that_is_no_number_is_said_to_be_none(value: str) -> None:
    assert refusal(f"m x={value},y=2").reason == "not_a_number"


def test_lines_are_counted_before_they_are_understood() -> None:
    assert refusal("m z=1\n" * 9, max_samples=8).reason == "too_large"
    assert decode("m z=1\n" * 8, max_samples=8) == []


def test_lines_of_a_time_make_one_sample() -> None:
    (reading,) = decode("m y=4 20\nm x=1,y=2 10\nm x=3 20", time_unit="s")
    assert np.asarray(reading.t).tolist() == [20, 10]
    assert reading.values.tolist() == [[3, 4], [1, 2]]


@pytest.mark.parametrize(("unit", "stamp"), [("s", "1"), ("ms", "1000"), ("us", "1000000"), ("ns", "1000000000")])
def test_stamps_have_the_unit_that_is_configured(unit: str, stamp: str) -> None:
    (reading,) = decode(f"m x=1,y=2 {stamp}", time_unit=unit)
    assert reading.t == 1


def test_measurement_and_tags_say_which_lines_count() -> None:
    text = "a,s=1 x=1,y=2 1\nb,s=1 x=3,y=4 1\na,s=2 x=5,y=6 1\na x=7,y=8 1"
    (reading,) = decode(text, measurement="a", select={"s": "2"})
    assert reading.values.tolist() == [[5, 6]]
    assert decode(text, select={"s": "3"}) == []


def test_a_tag_is_the_key_where_the_topic_gives_none() -> None:
    text = r"m,host=a\ b x=1,y=2 1" + "\nm,host=c x=3,y=4 1"
    assert [reading.key for reading in decode(text, "")] == ["a b", "c"]
    assert refusal("m,node=a x=1,y=2 1", "").reason == "no_key"
    assert decode("m,node=a x=1,y=2 1", "", key="node")[0].key == "a"


def test_a_missing_channel_is_refused_with_the_setting_that_allows_it() -> None:
    error = refusal("m x=1 1")
    assert error.reason == "wrong_channels"
    assert "lacks y" in str(error)
    assert "partial = true" in str(error)


def test_partial_gives_a_reading_for_each_set_of_channels() -> None:
    readings = decode("m x=1 1\nm x=2,y=3 2\nm x=4 3\nm y=5 4", partial=True, time_unit="s")
    assert [(np.asarray(r.t).tolist(), r.values.tolist(), r.channels) for r in readings] == [
        ([1, 3], [[1], [4]], (0,)),
        (2, [[2, 3]], None),
        (4, [[5]], (1,)),
    ]


def test_lines_without_a_stamp_are_dated_back_from_the_arrival() -> None:
    codec = load_codec(InfluxConfig(), CHANNELS, rate_hz=10.0)
    (reading,) = codec.decode("k", b"m x=1,y=2\nm x=3,y=4", NOW)
    assert reading.t == NOW - 0.1
    assert reading.values.tolist() == [[1, 2], [3, 4]]


def test_units_are_converted() -> None:
    (reading,) = decode("m x=9.80665,y=2 1", units={"x": "m/s2", "y": "g"})
    np.testing.assert_allclose(reading.values, [[1, 2]], rtol=1e-6)


def test_fields_are_mapped() -> None:
    (reading,) = decode("m value\\ x=1,y=2", channels={"x": "value x"})
    assert reading.values.tolist() == [[1, 2]]


@pytest.mark.parametrize(("channels", "message"), [({"z": "a"}, "maps z"), ({"x": "y"}, "field of its own")])
def test_a_mapping_that_does_not_fit_is_refused(channels: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_codec(InfluxConfig(channels=channels), CHANNELS)


_NAMES = st.text(st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\\\n\r"), min_size=1, max_size=9)
_ESCAPES = str.maketrans({",": "\\,", "=": "\\=", " ": "\\ "})


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    measurement=_NAMES.filter(lambda name: name[0] != "#"),
    tag=_NAMES,
    host=_NAMES.filter(str.isprintable),
    text=st.text(max_size=20),
    values=st.tuples(st.floats(-1e6, 1e6), st.integers(-(2**31), 2**31)),
    ns=st.integers(0, 10**19),
)
def test_what_is_written_by_the_rules_is_read(
    measurement: str, tag: str, host: str, text: str, values: tuple[float, int], ns: int
) -> None:
    """Escapes of every kind of name, as the syntax page has them."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    tags = {"host": host} | ({} if tag == "host" else {tag: host})
    head = ",".join(
        [
            measurement.translate(_ESCAPES),
            *(f"{k.translate(_ESCAPES)}={v.translate(_ESCAPES)}" for k, v in tags.items()),
        ]
    )
    line = f'{head} note="{quoted}",x={values[0]!r},y={values[1]}i {ns}\n'
    (reading,) = load_codec(InfluxConfig(measurement=measurement, select=tags), CHANNELS).decode("", line.encode(), NOW)
    assert reading.key == host
    assert reading.t == ns / 1e9
    np.testing.assert_array_equal(reading.values, np.array([values], np.float32))
