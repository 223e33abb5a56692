"""SenML against the rules and the examples of RFC 8428."""

from __future__ import annotations

from typing import Any

import cbor2
import numpy as np
import orjson
import pytest

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.senml import SenmlCodec, SenmlConfig
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading

NOW = 1_700_000_000.0


def decode(pack: Any, *channels: tuple[str, str], key: str = "", **config: Any) -> list[Reading]:
    made = [Channel(name=name, unit=unit) for name, unit in channels]
    return SenmlCodec(SenmlConfig(**config), made).decode(key, orjson.dumps(pack), NOW)


def refusal(pack: Any, *channels: tuple[str, str], **config: Any) -> tuple[str, str]:
    with pytest.raises(InputError) as caught:
        decode(pack, *channels, **config)
    return caught.value.reason, str(caught.value)


def test_rfc_example_multiple_datapoints() -> None:
    pack = [
        {"bn": "urn:dev:ow:10e2073a0108006:", "bt": 1.276020076001e9, "bu": "A", "bver": 5}
        | {"n": "voltage", "u": "V", "v": 120.1},
        {"n": "current", "t": -5, "v": 1.2},
        {"n": "current", "t": -4, "v": 1.3},
        {"n": "current", "t": -3, "v": 1.4},
        {"n": "current", "t": -2, "v": 1.5},
        {"n": "current", "t": -1, "v": 1.6},
        {"n": "current", "v": 1.7},
    ]  # fmt: skip
    (reading,) = decode(pack, ("current", "A"))
    assert reading.key == "urn:dev:ow:10e2073a0108006"
    np.testing.assert_allclose(reading.t, 1.276020076001e9 + np.arange(-5, 1))
    np.testing.assert_allclose(reading.values[:, 0], [1.2, 1.3, 1.4, 1.5, 1.6, 1.7], rtol=1e-6)


def test_rfc_example_single_datapoint_is_now() -> None:
    (reading,) = decode([{"n": "urn:dev:ow:10e2073a01080063", "u": "Cel", "v": 23.1}], ("10e2073a01080063", "Cel"))
    assert reading.t == NOW
    assert reading.key == "urn:dev:ow"


def test_rfc_example_of_several_devices_shares_base_time() -> None:
    pack = [
        {"bn": "2001:db8::2/", "bt": 1.320078429e9, "n": "temperature", "u": "Cel", "v": 25.2},
        {"n": "humidity", "u": "%RH", "v": 30},
        {"bn": "2001:db8::1/", "n": "temperature", "u": "Cel", "v": 12.3},
        {"n": "humidity", "u": "%RH", "v": 67},
    ]
    first, second = decode(pack, ("temperature", "Cel"), ("humidity", "%RH"))
    assert (first.key, first.t) == ("2001:db8::2", 1.320078429e9)
    assert (second.key, second.t) == ("2001:db8::1", 1.320078429e9)
    np.testing.assert_allclose(second.values, [[12.3, 67]], rtol=1e-6)


def test_records_need_no_order() -> None:
    pack = [
        {"bn": "d:", "bt": 1e9, "n": "b", "t": 1, "v": 4},
        {"n": "a", "v": 1},
        {"n": "a", "t": 1, "v": 3},
        {"n": "b", "v": 2},
    ]
    (reading,) = decode(pack, ("a", "1"), ("b", "1"))
    assert np.asarray(reading.t).tolist() == [1e9, 1e9 + 1]
    assert reading.values.tolist() == [[1, 2], [3, 4]]


def test_base_value_is_added_and_stands_for_a_missing_value() -> None:
    pack = [
        {"bn": "d:", "bt": 1e9, "bv": 20, "n": "a", "v": 1.5},
        {"n": "a", "t": 1},
        {"bv": 30, "n": "a", "t": 2, "v": -1},
    ]
    assert decode(pack, ("a", "1"))[0].values[:, 0].tolist() == [21.5, 20.0, 29.0]


def test_times_below_two_to_the_28_are_relative() -> None:
    pack = [{"n": "d:a", "v": 1, "t": -10}, {"n": "d:a", "v": 2, "t": 2**28 - 1}, {"n": "d:a", "v": 3, "t": 2**28}]
    (reading,) = decode(pack, ("a", "1"))
    assert sorted(np.asarray(reading.t).tolist()) == [2.0**28, NOW - 10, NOW + 2**28 - 1]


def test_other_records_and_unknown_fields_are_left_alone() -> None:
    pack = [
        {"bn": "d:", "n": "door", "vb": True},
        {"n": "a", "v": 1, "xyz": 3, "ut": 60},
        {"n": "alpha", "v": 7},
        {"n": "a", "s": 5},
    ]
    assert decode(pack, ("a", "1"))[0].values.tolist() == [[1]]


def test_a_channel_s_ending_is_a_whole_word_of_the_name() -> None:
    assert decode([{"n": "d.x", "v": 1}, {"n": "d.max", "v": 9}], ("x", "1"))[0].values.tolist() == [[1]]
    assert refusal([{"n": "d.max", "v": 9}], ("x", "1"))[0] == "wrong_channels"


def test_endings_can_be_mapped_and_the_longest_fits_first() -> None:
    pack = [{"bn": "d:", "n": "acc-x", "v": 1}, {"n": "x", "v": 2}]
    (reading,) = decode(pack, ("ax", "1"), ("x", "1"), channels={"ax": "acc-x"})
    assert reading.values.tolist() == [[1, 2]]


def test_units_are_checked_where_both_sides_name_one() -> None:
    assert refusal([{"n": "d:a", "u": "Cel", "v": 1}], ("a", "m/s2"))[0] == "wrong_unit"
    assert refusal([{"bn": "d:", "bu": "Cel", "n": "a", "v": 1}], ("a", "m/s2"))[0] == "wrong_unit"
    assert "'furlong' is not known" in refusal([{"n": "d:a", "u": "furlong", "v": 1}], ("a", "m/s2"))[1]
    assert decode([{"n": "d:a", "u": "Cel", "v": 1}], ("a", "m/s2"), check_units=False)[0].values.tolist() == [[1]]
    assert decode([{"n": "d:a", "v": 1}], ("a", "m/s2"))
    assert decode([{"n": "d:a", "u": "/", "v": 1}], ("a", "1"))


def test_records_are_converted_to_the_unit_of_the_model() -> None:
    pack = [{"bn": "d:", "bt": NOW, "bu": "mV", "n": "p", "u": "bar", "v": 1.5}, {"n": "v", "v": 20, "bv": 5}]
    (reading,) = decode(pack, ("p", "hPa"), ("v", "V"))
    assert reading.values.tolist() == [[pytest.approx(1500), pytest.approx(0.025)]]
    (back,) = decode([{"n": "d:t", "u": "K", "v": 300, "t": 2**28}, {"n": "d:t", "v": 5, "t": 2**28 + 1}], ("t", "Cel"))
    assert back.values.tolist() == [[pytest.approx(26.85)], [5]]


@pytest.mark.parametrize("unit", [5, None, [1], {}, "g" * 100_000, " " * 100_000])
def test_a_unit_that_is_none_is_refused_in_few_words(unit: Any) -> None:
    pack = [{"n": "d:a", "u": unit, "v": 1}]
    if unit is None:
        assert decode(pack, ("a", "g"))
        return
    reason, text = refusal(pack, ("a", "g"))
    assert reason == "wrong_unit"
    assert len(text) < 200


@pytest.mark.parametrize(
    "bad", [{"vs": "hi"}, {"v": None}, {"v": "21,5"}, {"vb": True}, {"v": 1e39}, {"v": 1, "u": "kg"}]
)
def test_a_value_that_cannot_be_read_costs_a_partial_pack_itself_alone(bad: dict[str, Any]) -> None:
    told: list[str] = []
    channels = [Channel(name=name, unit="Cel") for name in "ab"]
    codec = SenmlCodec(SenmlConfig(partial=True), channels, lambda name, _: told.append(name))
    pack = orjson.dumps([{"bn": "k:", "bt": NOW, "n": "a", **bad}, {"n": "b", "v": 2}])
    (found,) = codec.decode("", pack, NOW)
    assert (found.channels, found.values.tolist()) == ((1,), [[2.0]])
    assert told == ["values_refused"]
    (found,) = codec.decode("", pack.replace(b"2}", b'2},{"n":"a","t":1,"v":NaN}'), NOW)
    assert found.channels == (1,), "NaN is a missing value, and no refusal"
    with pytest.raises(InputError):
        codec.decode("", orjson.dumps([{"bn": "k:", "bt": NOW, "n": "a", **bad}]), NOW)


def test_a_partial_pack_brings_what_it_has() -> None:
    pack = [
        {"bn": "d:", "bt": NOW, "n": "a", "v": 1},
        {"n": "b", "t": 1, "v": 2},
        {"n": "a", "t": 2, "v": 3},
        {"n": "b", "t": 2, "v": 4},
    ]
    found = decode(pack, ("a", "1"), ("b", "1"), partial=True)
    assert [(one.channels, one.t, one.values.tolist()) for one in found] == [
        ((0,), NOW, [[1]]),
        ((1,), NOW + 1, [[2]]),
        (None, NOW + 2, [[3, 4]]),
    ]


def test_what_must_be_understood_and_is_not_refuses_the_pack() -> None:
    assert "must be understood" in refusal([{"n": "d:a", "v": 1, "secret_": 1}], ("a", "1"))[1]
    assert "version" in refusal([{"n": "d:a", "v": 1, "bver": 11}], ("a", "1"))[1]


@pytest.mark.parametrize(
    ("pack", "reason"),
    [
        ({"n": "d:a", "v": 1}, "malformed"),
        ([5], "malformed"),
        ([{"n": "d:a", "vs": "high"}], "not_a_number"),
        ([{"n": "d:a", "vb": True}], "not_a_number"),
        ([{"n": "d:a", "v": True}], "not_a_number"),
        ([{"n": "d:a", "v": None}], "not_a_number"),
        ([{"n": "d:a", "v": "1"}], "not_a_number"),
        ([{"n": "d:a"}], "malformed"),
        ([{"n": ["d:a"], "v": 1}], "malformed"),
        ([{"bn": 5, "n": "a", "v": 1}], "malformed"),
        ([{"bv": "1", "n": "d:a", "v": 1}], "malformed"),
        ([{"n": "d:a", "v": 1}, {"n": "d:a", "v": 2}], "malformed"),
        ([{"n": "d:a", "v": 1, "t": "now"}], "bad_time"),
        ([{"bt": None, "n": "d:a", "v": 1}], "bad_time"),
        ([{"n": "d:a", "v": 1, "t": 1e12}], "bad_time"),
        ([{"n": "d:a", "v": 1e39}], "not_finite"),
        ([{"n": "a", "v": 1}], "no_key"),
        ([{"n": "d:z", "v": 1}], "wrong_channels"),
        ([], "empty"),
    ],
)
def test_packs_that_do_not_fit_are_refused(pack: Any, reason: str) -> None:
    assert refusal(pack, ("a", "1"))[0] == reason


def test_a_sample_needs_every_channel() -> None:
    reason, text = refusal([{"bn": "d:", "n": "a", "v": 1}, {"n": "b", "t": 1, "v": 2}], ("a", "1"), ("b", "1"))
    assert reason == "wrong_channels"
    assert "a sample lacks b" in text


def test_one_topic_does_not_stand_for_several_devices() -> None:
    pack = [{"n": "d:a", "v": 1}, {"n": "e:a", "v": 1}]
    with pytest.raises(InputError) as caught:
        decode(pack, ("a", "1"), key="topic")
    assert caught.value.reason == "no_key"
    assert [reading.key for reading in decode(pack, ("a", "1"))] == ["d", "e"]


def test_cbor_has_integer_labels_and_decimal_fractions() -> None:
    pack = [{-2: "d:", -3: NOW, 0: "a", 2: cbor2.CBORTag(4, [-2, 2731])}, {0: "a", 6: 1, 2: 5}]
    codec = SenmlCodec(SenmlConfig(encoding="cbor"), [Channel(name="a", unit="1")])
    (reading,) = codec.decode("", cbor2.dumps(pack), 0.0)
    np.testing.assert_allclose(reading.values, np.array([[27.31], [5]]), rtol=1e-6)


@pytest.mark.parametrize("pair", [[10**9, 1], [1], [1, 2, 3], ["1", 2], 7])
def test_decimal_fractions_stay_modest(pair: Any) -> None:
    payload = cbor2.dumps([{0: "d:a", 2: cbor2.CBORTag(4, pair)}])
    codec = SenmlCodec(SenmlConfig(encoding="cbor"), [Channel(name="a", unit="1")])
    with pytest.raises(InputError) as caught:
        codec.decode("", payload, NOW)
    assert caught.value.reason == "not_a_number"


def test_a_mapping_fits_the_model() -> None:
    with pytest.raises(ConfigError, match="maps z"):
        SenmlCodec(SenmlConfig(channels={"z": "q"}), [Channel(name="a", unit="1")])
    with pytest.raises(ConfigError, match="ending of its own"):
        SenmlCodec(SenmlConfig(channels={"a": "b"}), [Channel(name="a", unit="1"), Channel(name="b", unit="1")])
