"""JSON: our own shape, mapped shapes, and what a JSON document may try."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.json import JsonCodec, JsonConfig, parse_json
from edge_runtime.types import Reading

NAMES = ("ax", "ay")
NOW = 1_700_000_000.0


def decode(payload: bytes | Any, key: str = "", rate_hz: float = 50.0, **config: Any) -> list[Reading]:
    data = payload if isinstance(payload, bytes) else orjson.dumps(payload)
    return JsonCodec(JsonConfig(**config), NAMES, rate_hz).decode(key, data, NOW)


def refusal(payload: bytes | Any, **config: Any) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        decode(payload, **config)
    return caught.value.reason, str(caught.value)


def test_a_list_per_sample() -> None:
    (reading,) = decode({"key": "w", "t": 5, "values": [[1, 2], [3, 4], [5, 6.5]]})
    assert reading.key == "w"
    assert reading.t == 5.0
    assert isinstance(reading.t, float)
    assert reading.values.tolist() == [[1, 2], [3, 4], [5, 6.5]]
    assert reading.period_s == 0.0


def test_flat_values_are_interleaved_sample_by_sample() -> None:
    (reading,) = decode({"key": "w", "t": 5, "values": [1, 2, 3, 4]})
    assert reading.values.tolist() == [[1, 2], [3, 4]]


def test_a_stamp_per_sample() -> None:
    (reading,) = decode({"key": "w", "t": [5, 5.5], "values": [[1, 2], [3, 4]]})
    assert np.asarray(reading.t).tolist() == [5.0, 5.5]


def test_other_fields_are_left_alone() -> None:
    assert decode({"key": "w", "t": 5, "values": [[1, 2]], "battery": True, "note": "false alarm"})


def test_a_number_as_key_is_taken_as_written() -> None:
    assert decode({"key": 17, "t": 5, "values": [[1, 2]]})[0].key == "17"


def test_stated_rate_travels_with_the_reading() -> None:
    assert decode({"key": "w", "t": 5, "values": [[1, 2]]}, rate_hz=100.0)[0].period_s == 0.0
    assert JsonCodec(JsonConfig(rate_hz=100), NAMES).decode("k", b'{"t":5,"values":[[1,2]]}', NOW)[0].period_s == 0.01


def test_without_stamps_the_last_sample_was_taken_on_arrival() -> None:
    (reading,) = decode({"values": [[1, 2], [3, 4], [5, 6]]}, key="k", time="")
    assert reading.t == pytest.approx(NOW - 2 / 50)


def test_a_missing_stamp_is_not_made_up() -> None:
    reason, text = refusal({"key": "k", "values": [[1, 2]]})
    assert reason == "no_time"
    assert "time = ''" in text


@pytest.mark.parametrize(
    ("unit", "stamp"),
    [
        ("s", NOW),
        ("ms", NOW * 1e3),
        ("us", int(NOW * 1e6)),
        ("ns", int(NOW) * 10**9),
        ("iso8601", "2023-11-14T22:13:20Z"),
        ("iso8601", "2023-11-14 22:13:20"),
        ("iso8601", "2023-11-15T00:13:20+02:00"),
    ],
)
def test_stamps_in_any_unit_are_seconds_in_the_end(unit: str, stamp: Any) -> None:
    assert decode({"key": "k", "t": stamp, "values": [[1, 2]]}, time_unit=unit)[0].t == NOW
    (reading,) = decode({"key": "k", "t": [stamp, stamp], "values": [[1, 2], [3, 4]]}, time_unit=unit)
    assert np.asarray(reading.t).tolist() == [NOW, NOW]


@pytest.mark.parametrize("bad", [None, True, False, "1.5", [], {}, [1]])
@pytest.mark.parametrize("nested", [True, False])
def test_only_numbers_are_values(bad: Any, nested: bool) -> None:
    row = [1.5, bad]
    reason, text = refusal({"key": "k", "t": 5, "values": [row] if nested else row})
    assert reason == "not_a_number"
    assert "numbers" in text or "values" in text


@pytest.mark.parametrize("bad", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"1" * 400, b"nan", b"-nan(ind)", b"ovf"])
def test_numbers_that_json_does_not_have_are_not_finite(bad: bytes) -> None:
    assert refusal(b'{"key":"k","t":5,"values":[[1,' + bad + b"]]}")[0] == "not_finite"


@pytest.mark.parametrize("huge", [b"1e39", b"-3.5e38", b"1" * 300])
def test_numbers_beyond_float32_are_refused_by_place(huge: bytes) -> None:
    reason, text = refusal(b'{"key":"k","t":5,"values":[[1,2],[3,' + huge + b"]]}")
    assert reason == "not_finite"
    assert "sample 1, channel 1" in text


def test_large_but_honest_numbers_are_kept() -> None:
    assert decode({"key": "k", "t": 5, "values": [[1e30, -3e38]]})[0].values.tolist() == [
        [float(np.float32(1e30)), float(np.float32(-3e38))]
    ]


@pytest.mark.parametrize("values", [[[1, 2], [3]], [[1, 2], [3, 4, 5]], [[1], [2]], [1, 2, 3], [[1, 2, 3]]])
def test_ragged_or_wrong_widths_are_refused(values: Any) -> None:
    assert refusal({"key": "k", "t": 5, "values": values})[0] == "wrong_channels"


@pytest.mark.parametrize(
    "values", [None, "abcd", 5, True, {"0": 1}, [[1, 2], 3], [1, [2]], [[1, 2], "ab"], [[1, 2], {"a": 1, "b": 2}]]
)
def test_what_is_no_list_of_samples_is_refused(values: Any) -> None:
    assert refusal({"key": "k", "t": 5, "values": values})[0] in ("malformed", "not_a_number")


@pytest.mark.parametrize("t", [True, "now", None, {}, [], [5], [5, None], [5, "6"], [1e300, 5], "2023-11-14T22:13:20Z"])
def test_what_is_no_stamp_is_refused(t: Any) -> None:
    assert refusal({"key": "k", "t": t, "values": [[1, 2], [3, 4]]})[0] == ("no_time" if t is None else "bad_time")


@pytest.mark.parametrize("document", [b"[]", b"7", b'"x"', b"null", b"[[1,2]]", b"\xff\xfe", b"{", b"{} {}"])
def test_what_is_no_object_is_refused(document: bytes) -> None:
    assert refusal(document)[0] == "malformed"


def test_a_stamp_in_the_wrong_unit_is_told_so() -> None:
    reason, text = refusal({"key": "k", "t": 1_700_000_000_123, "values": [[1, 2]]})
    assert reason == "bad_time"
    assert "unit" in text


# -- mapped -----------------------------------------------------------------------------------------------------------

MAP = {"ax": "ax", "ay": "ay"}


@pytest.mark.parametrize(
    ("document", "config", "t", "values"),
    [
        ({"ts": 5000, "ax": 1, "ay": 2}, {"channels": MAP, "time": "ts", "time_unit": "ms"}, 5, [[1, 2]]),
        ({"t": 5, "imu": [1, 2]}, {"channels": {"ay": "imu.1", "ax": "imu.0"}}, 5, [[1, 2]]),
        (
            {"meta": {"at": 5}, "data": {"acc": {"x": 1, "y": 2}}},
            {"channels": {"ax": "data.acc.x", "ay": "data.acc.y"}, "time": "meta.at"},
            5,
            [[1, 2]],
        ),
        (
            {"t": 5, "acc.x": 1, "acc.y": 2, "acc": {"x": 8, "y": 9}},
            {"channels": {"ax": "acc.x", "ay": "acc.y"}},
            5,
            [[1, 2]],
        ),
        ({"t": [5, 6], "ax": [1, 3], "ay": [2, 4]}, {"channels": MAP}, [5, 6], [[1, 2], [3, 4]]),
    ],
    ids=["one object", "the model's order", "paths", "a field with dots in its name first", "a list per channel"],
)
def test_a_mapping_finds_the_channels(document: Any, config: dict[str, Any], t: Any, values: Any) -> None:
    (reading,) = decode(document, key="k", **config)
    assert reading.values.tolist() == values
    assert np.asarray(reading.t).tolist() == t


def test_a_list_of_objects_of_several_devices() -> None:
    objects = [
        {"id": "a", "t": 1, "ax": 1, "ay": 2},
        {"id": "b", "t": 1, "ax": 5, "ay": 6},
        {"id": "a", "t": 2, "ax": 3, "ay": 4},
    ]
    codec = JsonCodec(JsonConfig(channels=MAP, samples=".", key="id"), NAMES)
    first, second = codec.decode("", orjson.dumps(objects), NOW)
    assert (first.key, np.asarray(first.t).tolist(), first.values.tolist()) == ("a", [1, 2], [[1, 2], [3, 4]])
    assert (second.key, second.t, second.values.tolist()) == ("b", 1.0, [[5, 6]])


def test_stamp_and_key_may_stand_around_the_samples() -> None:
    document = {"dev": "d", "at": 5, "rows": [{"ax": 1, "ay": 2}, {"ax": 3, "ay": 4}]}
    codec = JsonCodec(JsonConfig(channels=MAP, samples="rows", key="dev", time="at"), NAMES)
    (reading,) = codec.decode("", orjson.dumps(document), NOW)
    assert (reading.key, reading.t, reading.values.tolist()) == ("d", 5.0, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ({"t": 5, "ax": 1}, "wrong_channels"),
        ({"t": 5, "ax": 1, "ay": None}, "wrong_channels"),
        ({"t": 5, "ax": [1], "ay": [1, 2]}, "wrong_channels"),
        ({"t": 5, "ax": [1], "ay": 2}, "wrong_channels"),
        ({"t": 5, "ax": [], "ay": []}, "empty"),
        ({"t": 5, "ax": True, "ay": 2}, "not_a_number"),
        ({"t": 5, "ax": "one", "ay": 2}, "not_a_number"),
        ({"ax": 1, "ay": 2}, "no_time"),
        ([1], "malformed"),
    ],
)
def test_mapped_objects_that_do_not_fit_are_refused(document: Any, reason: str) -> None:
    codec = JsonCodec(JsonConfig(channels=MAP), NAMES)
    with pytest.raises(InputError) as caught:
        codec.decode("k", orjson.dumps(document), NOW)
    assert caught.value.reason == reason


@pytest.mark.parametrize("document", [{}, {"rows": 5}, {"rows": [5]}, {"rows": [[1, 2]]}, [], 5])
def test_what_is_no_list_of_objects_is_refused(document: Any) -> None:
    codec = JsonCodec(JsonConfig(channels=MAP, samples="rows"), NAMES)
    with pytest.raises(InputError, match=r"missing|not an object"):
        codec.decode("k", orjson.dumps(document), NOW)


def test_a_mapping_names_exactly_the_model_s_channels() -> None:
    with pytest.raises(ConfigError, match="ax, ay"):
        JsonCodec(JsonConfig(channels={"ax": "x"}), NAMES)
    with pytest.raises(ConfigError, match="map each of them"):
        JsonCodec(JsonConfig(channels={"ax": "x", "ay": "y", "az": "z"}), NAMES)


@pytest.mark.parametrize(
    "settings_",
    [{"samples": "rows"}, {"rate_hz": -1}, {"max_bytes": 0}, {"max_samples": 0}, {"values": ""}, {"time": "."}],
)
def test_settings_that_make_no_sense_are_refused(settings_: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        JsonConfig(**settings_)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_a_byte_order_mark_is_left_out(encoding: str) -> None:
    document = '{"t": 1, "key": "k", "values": [[1, 2]]}'.encode(encoding)
    assert parse_json(document) == {"t": 1, "key": "k", "values": [[1, 2]]}
