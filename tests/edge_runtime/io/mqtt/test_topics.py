"""Topic names and filters, against paho's own matcher and by the tables of the specification."""

from __future__ import annotations

from functools import partial

import paho.mqtt.client as paho
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.io.mqtt.packets import (
    MalformedPacket,
    parse_shared_subscription,
    topic_matches,
    validate_topic_filter,
    validate_topic_name,
)

fuzz = partial(settings, deadline=None, derandomize=True)
levels = st.sampled_from(["", "a", "b", "$SYS", "long level"])
topics = st.lists(levels, min_size=1, max_size=4).map("/".join).filter(bool)
filters = st.builds(
    lambda parts, last: "/".join([*parts, *last]),
    st.lists(st.one_of(levels, st.just("+")), min_size=1, max_size=4),
    st.sampled_from([[], ["#"]]),
).filter(bool)


@pytest.mark.slow
@fuzz(max_examples=500)
@given(topic_filter=filters, topic=topics)
def test_matching_is_what_paho_does(topic_filter: str, topic: str) -> None:
    expected = paho.topic_matches_sub(topic_filter, topic)
    assert topic_matches(topic_filter, topic) == expected
    assert topic_matches(topic_filter.encode(), topic.encode()) == expected
    assert topic_matches(f"$share/group/{topic_filter}", topic) == expected


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [
        ("sport/tennis/player1/#", "sport/tennis/player1", True),
        ("sport/tennis/player1/#", "sport/tennis/player1/score/wimbledon", True),
        ("sport/#", "sport", True),
        ("#", "a/b", True),
        ("sport/tennis/+", "sport/tennis/player1/ranking", False),
        ("sport/+", "sport", False),
        ("sport/+", "sport/", True),
        ("+/+", "/finance", True),
        ("/+", "/finance", True),
        ("+", "/finance", False),
        ("#", "$SYS/x", False),
        ("+/monitor/Clients", "$SYS/monitor/Clients", False),
        ("$SYS/#", "$SYS/x", True),
        ("a/+/c", "a/$b/c", True),
    ],
)
def test_the_examples_of_section_4_7(topic_filter: str, topic: str, expected: bool) -> None:
    assert topic_matches(topic_filter, topic) is expected


@pytest.mark.parametrize("topic", ["", "a/+", "#", "a\0b", "x" * 65_536, b"\xff", "\ud800"])
def test_names_that_no_message_may_have(topic: str | bytes) -> None:
    with pytest.raises(MalformedPacket, match="topic"):
        validate_topic_name(topic)


@pytest.mark.parametrize(
    "topic_filter",
    [
        "", "a#", "a/#/b", "a+", "+a/b", "#/a", "\0", b"\xff", "$share/g", "$share//a", "$share/g/", "$share/+/a",
        "$share/g/a#",
    ],
)  # fmt: skip
def test_filters_that_no_subscription_may_have(topic_filter: str | bytes) -> None:
    with pytest.raises(MalformedPacket, match=r"topic filter|shared subscription"):
        validate_topic_filter(topic_filter)


def test_valid_names_and_filters_come_back_as_utf_8() -> None:
    assert validate_topic_name("größe/$x") == "größe/$x".encode()
    for topic_filter in ("#", "+", "/", "a/+/#", "$share/g/+/#", "$shared/x", "$share"):
        assert validate_topic_filter(topic_filter) == topic_filter.encode()


def test_shared_subscriptions_are_taken_apart() -> None:
    assert parse_shared_subscription("$share/workers/a/+/#") == (b"workers", b"a/+/#")
    assert parse_shared_subscription(b"$share/g//x") == (b"g", b"/x")
    assert parse_shared_subscription("a/b") is None
    with pytest.raises(MalformedPacket, match=r"GROUP/FILTER"):
        parse_shared_subscription("$share/workers")
