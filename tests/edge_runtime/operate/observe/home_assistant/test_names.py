"""Identifiers never collide, topics never break, texts show as text."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.io.mqtt.topics import validate_topic_name
from edge_runtime.operate.observe.home_assistant import names, units

TEXT = st.text(alphabet=st.characters(), max_size=80) | st.from_regex(r"[a-z0-9_]{1,60}", fullmatch=True)


@given(st.lists(TEXT, unique=True, max_size=30))
def test_no_two_texts_have_the_same_identifier(texts: list[str]) -> None:
    found = {names.identifier(text) for text in texts}
    assert len(found) == len(texts)
    assert all(re.fullmatch(r"[a-z0-9_]{1,60}", one) for one in found)


def test_a_plain_text_is_its_own_identifier_and_cannot_be_chosen_to_be_anothers() -> None:
    assert names.identifier("kitchen_phone") == "kitchen_phone"
    other = names.identifier("Kitchen phone")
    assert other.startswith("kitchen_phone__")
    assert names.identifier(other) != other  # two underscores: it is not plain


@given(TEXT, TEXT, TEXT, TEXT)
def test_the_devices_of_two_applications_differ_whatever_their_names(a: str, b: str, c: str, d: str) -> None:
    one, other = names.topics_of("p", "", a, b), names.topics_of("p", "", c, d)
    assert (one.device == other.device) == ((a, b) == (c, d))
    for topic in (one.discovery(names.identifier(c)), one.of(names.identifier(c), "state"), one.own("set", "x")):
        validate_topic_name(topic)


@given(TEXT, st.integers(2, 100))
def test_a_readable_text_is_one_line_that_can_be_seen_and_is_not_too_long(text: str, limit: int) -> None:
    line = names.readable(text, limit)
    assert line.isprintable()
    assert len(line) <= limit
    line.encode()


def test_units_are_spelt_as_home_assistant_does_and_go_with_their_class() -> None:
    assert [units.unit_of(one) for one in ("Cel", "1", "m/s²", "furlong", "kW")] == ["°C", "", "m/s²", "furlong", "kW"]
    assert units.class_of("temperature", "°C") == "temperature"
    assert units.class_of("temperature", "kW") == ""
    assert units.class_of("energy", "kWh") == "energy_storage"
    assert units.class_of("nonsense", "kW") == ""
