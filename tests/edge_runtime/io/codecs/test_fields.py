"""Documents read value by value: some of the channels, lists of several sensors, texts, blocks, bare numbers."""

from __future__ import annotations

import base64
import itertools
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.cells import BlockConfig
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.document import DocumentReader
from edge_runtime.io.codecs.fields import FieldReader
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading

NOW = 1_700_000_000.0
CLIMATE = ("temperature:Cel", "humidity:%RH")
MOTION = ("ax:g", "ay:g", "az:g")

Sample = tuple[str, float, dict[int, float]]


def codec(*channels: str, notices: list[str] | None = None, **config: Any) -> Codec:
    made = [Channel(name=one.split(":")[0], unit=[*one.split(":"), "1"][1]) for one in channels]
    notice = None if notices is None else lambda name, _: notices.append(name)
    return load_codec(JsonConfig(**config), made, rate_hz=50.0, notice=notice)


def samples(readings: list[Reading], n_channels: int) -> list[Sample]:
    """Every sample of readings: key, stamp, number by channel."""
    found: list[Sample] = []
    for reading in readings:
        columns = range(n_channels) if reading.channels is None else reading.channels
        for i, row in enumerate(reading.values.tolist()):
            t = reading.t + i * 0.02 if isinstance(reading.t, float) else float(reading.t[i])
            found.append((reading.key, t, dict(zip(columns, row, strict=True))))
    return found


def decode(document: Any, *channels: str, key: str = "k", **config: Any) -> list[Sample]:
    payload = document if isinstance(document, bytes) else orjson.dumps(document)
    return samples(codec(*channels, **config).decode(key, payload, NOW), len(channels))


def refusal(document: Any, *channels: str, **config: Any) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        decode(document, *channels, **config)
    assert "\n" not in str(caught.value)
    return caught.value.reason, str(caught.value)


# -- some of the channels ---------------------------------------------------------------------------------------------


def test_a_partial_message_brings_what_it_has() -> None:
    assert decode({"t": 5, "humidity": 40, "battery": 3}, *CLIMATE, partial=True) == [("k", 5, {1: 40})]
    (reading,) = codec(*CLIMATE, partial=True).decode("k", b'{"t":5,"humidity":40}', NOW)
    assert reading.channels == (1,)
    assert reading.values.shape == (1, 1)


def test_a_partial_codec_s_whole_message_is_a_whole_reading() -> None:
    (reading,) = codec(*CLIMATE, partial=True).decode("k", b'{"t":5,"humidity":40,"temperature":20}', NOW)
    assert reading.channels is None
    assert reading.values.tolist() == [[20, 40]]


def test_without_partial_a_lacking_channel_is_named_with_the_way_out() -> None:
    names = {"temperature": "temperature", "humidity": "rh"}
    reason, text = refusal({"t": 5, "temperature": 20}, *CLIMATE, channels=names)
    assert reason == "wrong_channels"
    assert "humidity (field 'rh')" in text
    assert "partial = true" in text


def test_a_message_with_none_of_the_fields_says_what_it_has() -> None:
    reason, text = refusal({"t": 5, "temp": 20}, *CLIMATE, partial=True)
    assert reason == "wrong_channels"
    assert "'temperature', 'humidity' are missing; the message has 't', 'temp'" in text


def test_what_a_message_has_is_named_as_channels_takes_it_and_bounded() -> None:
    """The names of the message can be copied into `channels`, and then the same message is read."""
    message = {
        "Time": "2026",
        "MPU6050": {"AccelXAxis": 0.5, "AccelYAxis": 0.25},
        "list": [{"v": 1}],
        "n": [1, 2],
        "o": {},
    }
    _, text = refusal(message, "ax", "ay", partial=True, time="")
    assert text.endswith("has 'Time', 'MPU6050.AccelXAxis', 'MPU6050.AccelYAxis', 'list.0.v', 'n', 'o'")
    channels = {"ax": "MPU6050.AccelXAxis", "ay": "list.0.v"}
    assert decode(message, "ax", "ay", channels=channels, time="") == [("k", NOW, {0: 0.5, 1: 1})]
    _, text = refusal({"a": {"b" * 99: {str(i): i for i in range(99)}}}, "ax", partial=True)
    assert text.count("bbb'") == 8
    assert len(text) < 500


def test_missing_values_are_no_samples_and_no_fault() -> None:
    assert decode({"t": 5, "temperature": "unavailable", "humidity": 40}, *CLIMATE, partial=True) == [("k", 5, {1: 40})]
    assert decode({"t": 5, "temperature": None, "humidity": "nan"}, *CLIMATE, partial=True) == []
    assert (
        refusal(
            {"t": 5, "temperature": None, "humidity": 40},
            *CLIMATE,
            channels={n: n for n in ("temperature", "humidity")},
        )[0]
        == "wrong_channels"
    )


def test_lists_of_some_channels_are_columns() -> None:
    found = decode({"t": [1, 2], "ax": [1, 3], "az": [2, 4]}, *MOTION, partial=True)
    assert found == [("k", 1, {0: 1, 2: 2}), ("k", 2, {0: 3, 2: 4})]


ROWS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.integers(0, 5), st.dictionaries(st.integers(0, 2), st.integers(-99, 99), min_size=1)
    ),
    max_size=12,
    unique_by=lambda row: (row[0], row[1]),
)


@pytest.mark.slow
@given(rows=ROWS, cuts=st.lists(st.integers(0, 40), max_size=6), seed=st.randoms(use_true_random=False))
def test_any_split_of_channels_over_messages_and_elements_gives_the_same_samples(
    rows: list[tuple[str, int, dict[int, int]]], cuts: list[int], seed: Any
) -> None:
    """Mutations that this finds: a value that goes to another stamp, key or channel, is lost, or comes twice."""
    values = [(key, t, channel, value) for key, t, row in rows for channel, value in row.items()]
    seed.shuffle(values)
    expected = {(key, float(t), channel): float(value) for key, t, channel, value in values}
    names = ("ax", "ay", "az")
    config: dict[str, Any] = {"partial": True, "samples": ".", "channels": {name: f"[c={name}].v" for name in names}}
    single = codec(*MOTION, **config)
    bounds = sorted({0, len(values), *(cut for cut in cuts if cut < len(values))})
    found: list[tuple[tuple[str, float, int], float]] = []
    for begin, end in itertools.pairwise(bounds):
        part = [{"key": key, "t": t, "c": names[c], "v": v} for key, t, c, v in values[begin:end]]
        for key, t, row in samples(single.decode("", orjson.dumps(part), NOW), 3):
            found += [((key, t, channel), value) for channel, value in row.items()]
    assert dict(found) == expected
    assert len(found) == len(values)


def test_values_of_one_stamp_become_one_sample_also_where_all_channels_are_needed() -> None:
    pairs = [{"n": "h", "v": 55, "t": 5}, {"n": "t", "v": 21, "t": 5}, {"n": "noise", "v": 1, "t": 5}]
    mapping = {"temperature": "[n=t].v", "humidity": "[n=h].v"}
    assert decode(pairs, *CLIMATE, samples=".", channels=mapping) == [("k", 5, {0: 21, 1: 55})]
    assert refusal(pairs[:1], *CLIMATE, samples=".", channels=mapping)[0] == "wrong_channels"


def test_values_without_stamps_are_counted_into_samples() -> None:
    pairs = [{"n": name, "v": i} for name in "th" for i in range(3)]
    mapping = {"temperature": "[n=t].v", "humidity": "[n=h].v"}
    found = decode(pairs, *CLIMATE, samples=".", time="", channels=mapping)
    assert [row for _, _, row in found] == [{0: i, 1: i} for i in range(3)]
    assert found[-1][1] == pytest.approx(NOW)


def test_a_second_value_at_a_stamp_is_another_sample() -> None:
    pairs = [{"n": "t", "v": 1, "t": 5}, {"n": "t", "v": 2, "t": 5}]
    found = decode(pairs, *CLIMATE, samples=".", partial=True, channels={"temperature": "[n=t].v"})
    assert found == [("k", 5, {0: 1}), ("k", 5, {0: 2})]


def test_samples_with_and_without_a_stamp_do_not_mix() -> None:
    pairs = [{"v": 1, "t": 5}, {"v": 2}]
    notices: list[str] = []
    with pytest.raises(InputError, match="some samples of the message have a stamp"):
        codec("a:1", "b:1", samples=".", partial=True, channels={"a": "v"}, notices=notices).decode(
            "k", orjson.dumps(pairs), NOW
        )


# -- which messages and elements --------------------------------------------------------------------------------------

PHONE = {
    "deviceId": "p1",
    "payload": [
        {"name": "accelerometer", "time": 1_700_000_000_000_000_000, "values": {"x": 0.5, "y": 0.25, "z": 9.75}},
        {"name": "light", "time": 1_700_000_000_000_000_000, "values": {"lux": 120}},
        {"name": "accelerometer", "time": 1_700_000_000_020_000_000, "values": {"x": 1, "y": -0.5, "z": 9.5}},
        {"name": "gyroscope", "time": 1_700_000_000_010_000_000, "values": {"x": 3, "y": 4, "z": 5}},
    ],
}


def test_elements_of_one_sensor_are_selected() -> None:
    mapping = {"ax": "values.x", "ay": "values.y", "az": "values.z"}
    found = decode(
        PHONE,
        *MOTION,
        samples="payload",
        select={"name": "accelerometer"},
        channels=mapping,
        time="time",
        time_unit="ns",
        key="deviceId",
    )
    assert [row for _, _, row in found] == [{0: 0.5, 1: 0.25, 2: 9.75}, {0: 1, 1: -0.5, 2: 9.5}]
    assert [t for _, t, _ in found] == pytest.approx([NOW, NOW + 0.02])


def test_elements_of_several_sensors_go_to_channels_of_their_own() -> None:
    mapping = {"ax": "[name=accelerometer].values.x", "wx": "[name=gyroscope].values.x"}
    found = decode(PHONE, "ax", "wx", samples="payload", partial=True, channels=mapping, time="time", time_unit="ns")
    assert [row for _, _, row in found] == [{0: 0.5}, {0: 1}, {1: 3}]


def test_a_message_that_is_not_selected_is_passed_over() -> None:
    config: dict[str, Any] = {"select": {"method": "NotifyStatus"}, "partial": True}
    assert decode({"method": "Other", "t": 5, "temperature": 1}, *CLIMATE, **config) == []
    assert decode({"method": "NotifyStatus", "t": 5, "temperature": 1}, *CLIMATE, **config) == [("k", 5, {0: 1})]


BY_DEVICE = {
    "Device A": [{"ts": 1, "values": {"temperature": 20}}, {"ts": 2, "values": {"temperature": 21}}],
    "Device B": {"ts": 1, "values": {"temperature": 22}},
}


@pytest.mark.parametrize(("samples_", "document"), [("*", BY_DEVICE), ("all.here.*", {"all": {"here": BY_DEVICE}})])
def test_fields_may_be_keys(samples_: str, document: Any) -> None:
    config: dict[str, Any] = {"samples": samples_, "time": "ts", "channels": {"t": "values.temperature"}}
    expected = [("Device A", 1, {0: 20}), ("Device A", 2, {0: 21}), ("Device B", 1, {0: 22})]
    assert decode(document, "t", key="", **config) == expected
    assert {key for key, _, _ in decode(document, "t", key="topic", **config)} == {"topic"}


@pytest.mark.parametrize(
    ("document", "reason"),
    [([1], "malformed"), ({}, "empty"), ({"a": []}, "empty"), ({"a\n": {"t": 1, "v": 2}}, "no_key"),
     ({"": {"t": 1, "v": 2}}, "no_key"), ({"a": 5}, "malformed")],
)  # fmt: skip
def test_fields_that_are_no_keys_are_refused(document: Any, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        decode(document, "a", key="", samples="*", channels={"a": "v"})
    assert caught.value.reason == reason


def test_rows_may_be_lists() -> None:
    config: dict[str, Any] = {"samples": "rows", "time": "0", "channels": {"temperature": "2", "humidity": "1"}}
    assert decode({"rows": [[1, 40, 20], [2, 41, "21"]]}, *CLIMATE, **config) == [
        ("k", 1, {0: 20, 1: 40}),
        ("k", 2, {0: 21, 1: 41}),
    ]


# -- texts, words, bare values ----------------------------------------------------------------------------------------


def test_numbers_as_texts_are_read_without_a_setting() -> None:
    mapping = {name.split(":")[0]: name.split(":")[0] for name in CLIMATE}
    assert decode({"t": 5, "temperature": "27.25", "humidity": 44}, *CLIMATE, channels=mapping) == [
        ("k", 5, {0: 27.25, 1: 44})
    ]
    assert refusal({"t": 5, "temperature": "27,25", "humidity": 44}, *CLIMATE, channels=mapping)[0] == "decimal_comma"


@pytest.mark.parametrize(
    "payload", [b"27.25", b' "27.25" ', b"27.25\n", b'{"values": 27.25}', b'{"values": "27.25"}', b"[27.25]"]
)
def test_one_number_may_be_the_whole_message(payload: bytes) -> None:
    config = {"values": "."} if payload.startswith(b"[") else {}
    assert decode(payload, "temperature:Cel", time="", **config) == [("k", NOW, {0: 27.25})]


@pytest.mark.parametrize("payload", [b"unavailable", b"nan", b"-", b'""', b"null", b"NaN"])
def test_a_bare_mark_for_a_missing_value_is_no_sample(payload: bytes) -> None:
    assert decode(payload, "temperature:Cel", time="") == []


@pytest.mark.parametrize("payload", [b"ON", b"27,25", b"{", b"27.25 C", b"\xff\xfe", b"one" * 40, b"<html>"])
def test_a_bare_text_that_is_no_number_is_refused(payload: bytes) -> None:
    reason = {b"{": "malformed", b"one" * 40: "malformed", b"27,25": "decimal_comma"}.get(payload, "not_a_number")
    assert refusal(payload, "temperature:Cel", time="")[0] == reason


def test_a_bare_word_or_unit_is_read_where_the_configuration_says_so() -> None:
    assert decode(b"ON", "door", time="", words={"ON": 1, "OFF": 0}) == [("k", NOW, {0: 1})]
    assert decode(b"true", "door", time="", words={"true": 1}) == [("k", NOW, {0: 1})]
    ((_, _, row),) = decode("80.6 °F".encode(), "temperature:Cel", time="", units={"temperature": "degF"})
    assert row[0] == pytest.approx(27)


def test_the_message_may_be_the_list_of_values() -> None:
    assert decode([[1, 2, 3], [4, 5, 6]], *MOTION, values=".", time="")[1] == ("k", NOW, {0: 4, 1: 5, 2: 6})


# -- order, blocks ----------------------------------------------------------------------------------------------------


def test_order_says_where_each_channel_stands() -> None:
    (reading,) = codec(*MOTION, order=("az", "-", "ax", "ay")).decode(
        "k", b'{"t":5,"values":[[3,9,1,2],[6,9,4,5]]}', NOW
    )
    assert reading.channels is None
    assert reading.values.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert reading.values.flags.c_contiguous


def test_order_may_bring_some_of_the_channels() -> None:
    (reading,) = codec(*MOTION, order=("az", "ax"), partial=True).decode("k", b'{"t":5,"values":[3,1]}', NOW)
    assert (reading.channels, reading.values.tolist()) == ((0, 2), [[1, 3]])


def test_numbers_in_base64() -> None:
    packed = base64.b64encode(np.array([1000, -2000, 3000, 0, 0, 0], ">i2").tobytes()).decode()
    block = BlockConfig(dtype="int16", byte_order="big", scale=0.001)
    found = decode({"t": 5, "values": packed}, *MOTION, block=block)
    assert [list(row.values()) for _, _, row in found] == [pytest.approx([1, -2, 3]), [0, 0, 0]]
    columns = {name: base64.b64encode(np.array([1, 2], "<f4").tobytes()).decode() for name in ("ax", "az")}
    assert decode({"t": 5} | columns, *MOTION, partial=True, block=BlockConfig())[0] == ("k", 5, {0: 1, 2: 1})


def test_a_huge_block_is_refused_before_it_is_unpacked() -> None:
    text = "A" * 4_000_000
    assert refusal({"t": 5, "values": text}, *MOTION, block=BlockConfig())[0] == "too_large"
    assert refusal({"t": 5, "values": text}, *MOTION, block=BlockConfig(), max_bytes=8_000_000)[0] == "too_large"


# -- stamps -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "stamp"),
    [("auto", NOW), ("auto", NOW * 1e3), ("auto", int(NOW * 1e6)), ("auto", int(NOW) * 10**9), ("auto", "1700000000"),
     ("auto", "2023-11-14T22:13:20Z"), ("auto", " 1700000000000 "), ("s", "1700000000.0"), ("ms", "1700000000000")],
)  # fmt: skip
def test_stamps_as_texts_and_in_a_unit_to_be_found(unit: str, stamp: Any) -> None:
    assert decode({"t": stamp, "values": [1]}, "a", time_unit=unit) == [("k", NOW, {0: 1})]
    assert decode({"t": [stamp], "values": [1]}, "a", time_unit=unit) == [("k", NOW, {0: 1})]


@pytest.mark.parametrize("stamp", [12345, "12345", 1e25, "soon", "nan", "1e9999", -1.7e9, "9" * 30])
def test_a_stamp_that_is_no_date_in_any_unit_is_refused(stamp: Any) -> None:
    assert refusal({"t": stamp, "values": [1]}, "a", time_unit="auto")[0] == "bad_time"


def test_a_lacking_default_stamp_is_the_arrival_and_noted() -> None:
    notices: list[str] = []
    lenient = codec("a", notices=notices)
    (reading,) = lenient.decode("k", b'{"values": [1, 2]}', NOW)
    assert reading.t == NOW - 0.02
    assert lenient.decode("k", b"7", NOW)[0].t == NOW
    assert notices == ["undated", "undated"]


def test_a_stamp_that_was_named_must_be_there() -> None:
    notices: list[str] = []
    with pytest.raises(InputError, match="field 'ts' is missing"):
        codec("a", time="ts", notices=notices).decode("k", b'{"values": [1]}', NOW)
    assert not notices
    assert refusal({"values": [1]}, "a")[0] == "no_time"  # nothing to tell


# -- units ------------------------------------------------------------------------------------------------------------


def test_values_are_converted_to_the_model_s_unit() -> None:
    stated = dict.fromkeys(("ax", "ay", "az"), "m/s2")
    ((_, _, row),) = decode({"t": 5, "values": [9.80665, -9.80665, 0]}, *MOTION, units=stated)
    assert row == {0: 1, 1: -1, 2: 0}
    ((_, _, partly),) = decode({"t": 5, "az": 9.80665}, *MOTION, units=stated, partial=True)
    assert partly == {2: 1}


def test_the_name_of_a_field_states_its_unit() -> None:
    mapping = {"ax": "x (m/s²)", "ay": "y (mg)", "az": "z (g)"}
    ((_, _, row),) = decode({"t": 5, "x (m/s²)": 9.80665, "y (mg)": 500, "z (g)": 2}, *MOTION, channels=mapping)
    assert row == {0: 1, 1: 0.5, 2: 2}


def test_nothing_is_paid_where_units_are_the_model_s() -> None:
    assert type(codec(*CLIMATE, units={"temperature": "°C", "humidity": "%"})) is type(codec(*CLIMATE))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"units": {"ax": "degC"}},
            r"units says nothing of ay, az; .* write units = \{ax = \"degC\", ay = \"g\", az = \"g\"\}",
        ),
        (
            {"units": dict.fromkeys(("ax", "ay", "az"), "degC")},
            "'degC' is a unit of temperature, 'g' one of acceleration",
        ),
        ({"units": dict.fromkeys(("ax", "ay", "az"), "gg")}, "unit 'gg' is not known"),
        ({"units": {"bx": "g"}}, "units names bx; the channels are ax, ay, az"),
        ({"channels": {"ax": "x (m/s2)", "ay": "y", "az": "z"}}, "units says nothing of ay, az"),
        ({"channels": {"ax": "x"}}, "partial = true"),
        ({"channels": {"bx": "x"}, "partial": True}, "name each once"),
        ({"order": ("ax", "ax", "az")}, "channels maps"),
        ({"order": ("ax", "ay")}, "channels maps"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused_with_the_line_to_write(config: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        codec(*MOTION, **config)


def test_a_number_that_leaves_float32_on_conversion_is_refused() -> None:
    assert refusal({"t": 5, "values": [3e38]}, "p:Pa", units={"p": "bar"})[0] == "not_finite"


def test_units_of_channels_that_others_bring_need_not_be_stated() -> None:
    assert decode({"t": 5, "x": 500}, *MOTION, partial=True, channels={"ax": "x"}, units={"ax": "mg"}) == [
        ("k", 5, {0: 0.5})
    ]


# -- the quick way and this one ---------------------------------------------------------------------------------------

VALUES = st.floats(-1e6, 1e6, width=32)
STAMPS = st.integers(0, 10**9)


@st.composite
def plain(draw: st.DrawFn) -> tuple[dict[str, Any], Any]:
    """A configuration and a document that `edge_runtime.io.codecs.document` reads by itself."""
    names = ("ax", "ay", "az")
    rows = draw(st.lists(st.lists(VALUES, min_size=3, max_size=3), min_size=1, max_size=4))
    times = draw(st.lists(STAMPS, min_size=len(rows), max_size=len(rows)))
    shape = draw(st.sampled_from(["own", "flat", "object", "columns", "objects", "around"]))
    if shape in ("own", "flat"):
        values: Any = rows if shape == "own" else [value for row in rows for value in row]
        return {}, {"key": "d", "t": draw(st.sampled_from([times, times[0]])), "values": values}
    config: dict[str, Any] = {"channels": {name: f"v.{name}" for name in names}}
    named = [dict(zip(names, row, strict=True)) for row in rows]
    if shape == "object":
        return config, {"key": "d", "t": times[0], "v": named[0]}
    if shape == "columns":
        return config, {"key": "d", "t": times, "v": {name: [row[name] for row in named] for name in names}}
    if shape == "around":
        around = {"key": "d", "t": draw(st.sampled_from([times, times[0]])), "rows": [{"v": row} for row in named]}
        return config | {"samples": "rows"}, around
    keys = draw(st.lists(st.sampled_from("de"), min_size=len(rows), max_size=len(rows)))
    objects = [{"key": key, "t": t, "v": row} for key, t, row in zip(keys, times, named, strict=True)]
    return config | {"samples": "."}, objects


@given(plain())
def test_what_is_read_quickly_is_read_alike_value_by_value(drawn: tuple[dict[str, Any], Any]) -> None:
    """Mutations that this finds: a rule that only one of the two readers keeps."""
    config, document = JsonConfig(**drawn[0]), drawn[1]
    names = ("ax", "ay", "az")
    quick = DocumentReader(config, names, 50.0).read(document, "", NOW, scan=False)
    slow = FieldReader(config, names, 50.0).read(document, "", NOW, scan=False)
    found, expected = (sorted(samples(one, 3), key=repr) for one in (slow, quick))
    assert [(key, row) for key, _, row in found] == [(key, row) for key, _, row in expected]
    assert [t for _, t, _ in found] == pytest.approx([t for _, t, _ in expected], abs=1e-6)
    assert all(reading.channels is None for reading in slow)


# -- hostile ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_million_distinct_keys_are_refused_by_size() -> None:
    rows = b"[" + b",".join(b'{"key":%d,"t":1,"v":1}' % i for i in range(200_000)) + b"]"
    config: dict[str, Any] = {"samples": ".", "partial": True, "channels": {"ax": "v"}}
    assert refusal(rows, *MOTION, **config)[0] == "too_large"
    with pytest.raises(InputError) as caught:
        codec(*MOTION, **config, max_bytes=10_000_000).decode("", rows, NOW)
    assert caught.value.reason == "too_large"


@pytest.mark.parametrize("deep", [b'{"a":' * 5000 + b"1" + b"}" * 5000, b"[" * 5000 + b"]" * 5000])
def test_deep_nesting_is_refused(deep: bytes) -> None:
    assert refusal(deep, *MOTION, partial=True)[0] == "malformed"


SHAPES: list[dict[str, Any]] = [
    {"partial": True},
    {"samples": ".", "partial": True, "select": {"key": "a"}},
    {"samples": "rows", "channels": {"ax": "0", "ay": "[t=1].values", "az": "."}},
    {"values": ".", "order": ("az", "ay", "ax"), "time": ""},
    {"samples": "*", "partial": True, "time_unit": "auto"},
    {"block": BlockConfig(dtype="int8"), "words": {"true": 1}, "missing": ("5",), "time_unit": "auto"},
    {},
    {"time_unit": "iso8601"},
    {"time": "", "channels": {"ax": "ax", "ay": "ay", "az": "values"}},
    {"samples": ".", "channels": {"ax": "ax", "ay": "ay", "az": "values"}},
    {"samples": "rows", "channels": {"ax": "values.0", "ay": "ay.ax", "az": "ax"}},
]
FIELDS = st.sampled_from(["t", "key", "values", "ax", "ay", "rows"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(FIELDS, children),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=250)
@given(document=JSON, shape=st.sampled_from(SHAPES))
def test_any_document_gives_readings_or_a_reason(document: Any, shape: dict[str, Any]) -> None:
    try:
        readings = codec(*MOTION, **shape).decode("", orjson.dumps(document), NOW)
    except InputError as error:
        said = str(error)
    else:
        said = ""
        check(readings)
    assert "\n" not in said
    assert len(said) < 600


def check(readings: list[Reading]) -> None:
    for reading in readings:
        assert reading.values.dtype == np.float32
        assert reading.values.shape[1] == len(reading.channels or MOTION)
        assert np.isfinite(reading.values).all()
        assert reading.values.flags.c_contiguous
