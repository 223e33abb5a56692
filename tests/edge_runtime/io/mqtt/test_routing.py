"""Routing: filters are checked when they are added, matching never raises, and a side channel cannot end the loop."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.system.barrier import Barrier
from edge_runtime.io.mqtt.inbound_acks import InboundAcks
from edge_runtime.io.mqtt.packets import MalformedPacket, Publish, TopicFilter
from edge_runtime.io.mqtt.routing import MAX_STRANGERS, Router, SideChannel, Subscription
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done


def publish(topic: bytes, payload: bytes = b"x", packet_id: int = 0) -> Publish:
    return topic, payload, packet_id, min(packet_id, 1), 0, None


class Got:
    """A source's receiver."""

    def __init__(self) -> None:
        self.topics: list[bytes] = []

    def __call__(self, publishes: list[Publish], _received: float, done: Done | None) -> None:
        self.topics += [one[0] for one in publishes]
        if done is not None:
            done()


@pytest.mark.parametrize("one", ["$share/+", "$share/", "$share//x/+", "a/#/b", "a+", "", "x" * 65_536, "a\0b"])
def test_a_malformed_filter_is_refused_when_it_is_added(one: str) -> None:
    """Mutation: `Subscription` keeps filters unparsed: the loop meets the malformed one at the first message."""
    with pytest.raises(MalformedPacket):
        Subscription([("good/+", 1), (one, 1)], Got())


@settings(deadline=None)
@given(st.text(min_size=1, max_size=20), st.binary(max_size=40))
def test_matching_never_raises(topic_filter: str, topic: bytes) -> None:
    try:
        parsed = TopicFilter(topic_filter)
    except MalformedPacket:
        return
    assert parsed.matches(topic) in {True, False}


def test_a_side_channel_that_fails_is_acknowledged_and_its_message_put_into_quarantine() -> None:
    metrics, inbound_acks = Metrics(), InboundAcks()
    failed: list[int] = []
    seen: list[bytes] = []

    def take(one: Publish) -> None:
        seen.append(one[1])
        if one[1] == b"bad":
            raise KeyError("nobody thought of it")

    router, source = Router(metrics), Got()
    channel = SideChannel(take, Barrier("update", metrics), metrics, lambda: failed.append(1))
    router.add(Subscription([("side/+", 1)], channel, guarded=True))
    router.add(Subscription([("watch/+", 1)], source))
    for round_ in range(3):
        batch = [publish(b"side/a", b"bad", 1), publish(b"watch/1", b"reading", 2), publish(b"side/a", b"good", 3)]
        fresh, ack_group = inbound_acks.receive(batch)
        router.deliver(fresh, 0.0, ack_group)
        acks = inbound_acks.take_acks()
        assert acks is not None
        assert acks.pubacks == [1, 2, 3], round_
    assert source.topics == [b"watch/1"] * 3
    assert seen == [b"bad", b"good", b"good", b"good"]
    assert failed == [1]
    assert metrics.counts["side_channel_errors_total"] == 1
    assert metrics.dropped["quarantined"] == 2


def test_the_quarantine_is_bounded() -> None:
    metrics = Metrics()

    def take(_: Publish) -> None:
        raise KeyError

    channel = SideChannel(take, Barrier("update", metrics), metrics)
    for i in range(3000):
        channel([publish(b"t", b"%d" % i)], 0.0, None)
    assert len(channel._quarantine) == 1024
    channel([publish(b"t", b"2999")], 0.0, None)
    assert metrics.dropped["quarantined"] == 1


def test_a_side_channel_alone_gets_no_message_that_it_did_not_ask_for() -> None:
    """Mutation: the short cut for a single subscription without `guarded`: messages of left-over filters arrive."""
    metrics = Metrics()
    strangers: list[bytes] = []
    got: list[bytes] = []
    router = Router(metrics, strangers.append)
    channel = SideChannel(lambda one: got.append(one[0]), Barrier("update", metrics), metrics)
    router.add(Subscription([("fleet/update", 1)], channel, guarded=True))
    router.deliver([publish(b"evil/t/0"), publish(b"fleet/update"), publish(b"evil/t/0")], 0.0, None)
    assert got == [b"fleet/update"]
    assert metrics.dropped["unexpected_topic"] == 2
    assert strangers == [b"evil/t/0"]
    router.deliver([publish(b"evil/%d" % i) for i in range(1000)], 0.0, None)
    assert len(strangers) == MAX_STRANGERS


def test_a_subscription_that_is_removed_gets_nothing_and_names_the_filters_that_are_free() -> None:
    metrics, first, second = Metrics(), Got(), Got()
    router = Router(metrics)
    one = Subscription([("a/+", 1), ("b/+", 1)], first)
    router.add(one)
    router.add(Subscription([("b/+", 0)], second))
    router.deliver([publish(b"a/1"), publish(b"b/1")], 0.0, None)
    assert router.remove(one) == ["a/+"]
    assert router.remove(one) == []
    router.deliver([publish(b"b/2")], 0.0, None)
    assert (first.topics, second.topics) == ([b"a/1", b"b/1"], [b"b/2"])
