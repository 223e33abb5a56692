"""The capture of messages is bounded, whatever comes."""

from __future__ import annotations

import math
import sys

import pytest

from edge_runtime.io.codecs.numbers import MAX_BYTES as MAX_PAYLOAD
from edge_runtime.io.recordings.capture import Captured
from edge_runtime.tools.listen import capture as bounds
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.propose import observations_of
from edge_runtime.tools.listen.report import describe


def test_a_million_topics_cost_little_and_are_counted() -> None:
    """Mutation that this finds: topics beyond the first are kept, or not counted."""
    heard = Capture()
    for i in range(200_000):
        heard.add(Captured(f"t/{i}/x", b"1.5", float(i), False))
    assert len(heard.topics) == bounds.MAX_TOPICS
    assert heard.more_topics == pytest.approx(200_000 - bounds.MAX_TOPICS, rel=0.01)
    assert heard.count == 200_000
    assert sum(map(sys.getsizeof, heard.topics)) < 100_000
    text = "\n".join(describe(heard, observations_of(heard)))
    assert "more topics; name fewer topics" in text


def test_of_a_lively_topic_the_first_messages_are_kept_and_all_are_counted() -> None:
    heard = Capture(Captured("t", b"x" * 100, i / 100, False) for i in range(5000))
    (topic,) = heard.topics.values()
    assert (topic.count, len(topic.kept)) == (5000, bounds.PER_TOPIC)
    assert topic.rate_hz == pytest.approx(100.0)


def test_large_messages_are_kept_within_the_bytes_of_a_topic() -> None:
    heard = Capture(Captured("t", bytes(200_000), i / 100, False) for i in range(100))
    (topic,) = heard.topics.values()
    assert topic.count == 100
    assert topic.kept_bytes <= bounds.TOPIC_BYTES
    (start,) = Capture([Captured("t", bytes(10**6), 0.0, False)]).topics["t"].kept
    assert len(start.payload) == MAX_PAYLOAD + 1


def test_retained_messages_are_no_samples_of_now() -> None:
    heard = Capture([Captured("t", b"1", 1.0, True), Captured("t", b"2", 2.0, False), Captured("u", b"3", 1.0, True)])
    assert (heard.topics["t"].count, heard.topics["t"].retained) == (1, 1)
    assert [message.payload for message in heard.topics["t"].live] == [b"2"]
    assert [message.payload for message in heard.topics["u"].live] == [b"3"]
    assert math.isnan(heard.topics["t"].rate_hz)
