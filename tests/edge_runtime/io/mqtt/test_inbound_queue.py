"""Messages between a connection and those who asked for them, without a connection."""

from __future__ import annotations

from typing import Any

import pytest

from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.fair_queue import weight
from edge_runtime.io.mqtt.inbound_queue import AT_ONCE, InboundQueue
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.io.mqtt.routing import Router, Subscription
from edge_runtime.metrics import Metrics
from tests.edge_runtime.io.mqtt.clients import Inbox


def burst(first: int, count: int, qos: int = 1, payload: bytes = b"p") -> list[Publish]:
    return [(b"t", payload, packet_id, qos, 0, None) for packet_id in range(first, first + count)]


class Received:
    """A reception, who takes its messages, and what was counted."""

    def __init__(self, *, linger_s: float = 0.0, **config: Any) -> None:
        self.metrics = Metrics()
        self.inbox = Inbox(ack=False)
        router = Router(self.metrics)
        router.add(Subscription([("t", 2)], self.inbox))
        settings = BrokerConfig(url="mqtt://127.0.0.1", **config)
        self.inbound_queue = InboundQueue(settings, "b", router, self.metrics)
        self.inbound_queue.begin(session_present=False, linger_s=linger_s)

    def ids(self) -> list[int]:
        return [publish[2] for publish in self.inbox.got]


def test_no_more_than_the_receive_maximum_is_out_and_the_rest_follows_in_order() -> None:
    one = Received(receive_maximum=10)
    for first in (1, 7, 13, 19):
        one.inbound_queue.put(burst(first, 6))
    assert one.ids() == list(range(1, 13)), "the second burst began below the bound"
    assert (one.inbound_queue.held_bytes > 0, one.inbound_queue.can_release) == (True, False)
    one.inbox.ack_all()
    assert (one.inbound_queue.held_bytes > 0, one.inbound_queue.can_release) == (True, True)
    one.inbound_queue.release()
    assert one.ids() == list(range(1, 25))
    assert one.inbound_queue.held_bytes == 0


def test_what_is_held_is_weighed_until_it_is_handed_over() -> None:
    one = Received(receive_maximum=10)
    one.inbound_queue.put(burst(1, 10))
    weights = []
    for packet_id in (11, 12):
        one.inbound_queue.put(burst(packet_id, 1, payload=bytes(2000)))
        weights.append(one.inbound_queue.held_bytes)
    assert 2000 < weights[0] < 3000
    assert weights[1] == 2 * weights[0]
    one.inbox.ack_all()
    one.inbound_queue.release()
    assert one.inbound_queue.held_bytes == 0


@pytest.mark.parametrize("reason", ["paused", "connection_lost"])
def test_of_what_is_forgotten_only_qos_0_is_counted(reason: str) -> None:
    one = Received(receive_maximum=10)
    one.inbound_queue.put(burst(1, 10))
    one.inbound_queue.put([*burst(11, 3), *burst(0, 2, qos=0)])
    one.inbound_queue.forget(reason)
    assert one.metrics.dropped == {reason: 2}
    assert one.inbound_queue.held_bytes == 0
    one.inbox.ack_all()
    one.inbound_queue.release()
    assert len(one.inbox.got) == 10


def test_nothing_is_handed_over_once_it_is_paused() -> None:
    one = Received(receive_maximum=10)
    one.inbound_queue.pause()
    one.inbound_queue.put([*burst(1, 3), *burst(0, 1, qos=0)])
    assert one.ids() == []
    assert one.inbound_queue.inbound_acks.unacked == 0
    assert one.metrics.dropped == {"paused": 1}


def test_a_message_over_the_limit_is_counted_and_acknowledged() -> None:
    one = Received(max_packet_bytes=1000)
    one.inbound_queue.skip(burst(5, 1)[0])
    assert one.metrics.dropped == {"too_large": 1}
    assert "over max_packet_bytes (1000)" in one.metrics.examples["too_large"]
    acks = one.inbound_queue.inbound_acks.take_acks()
    assert acks is not None
    assert acks.pubacks == [5]


def test_a_window_that_is_full_is_not_lingered_over() -> None:
    one = Received(linger_s=1.0, receive_maximum=20)
    assert one.inbound_queue.put(burst(1, 20))
    waits = one.inbound_queue.broker_waits
    one.inbox.ack_all()
    assert (waits, one.inbound_queue.broker_waits) == (True, False)
    assert not Received(linger_s=0.0, receive_maximum=20).inbound_queue.put(burst(1, 20))


def test_a_backlog_without_acknowledgements_is_handed_over_in_parts() -> None:
    one = Received()
    flood = [(b"t/%d" % at, b"p", 0, 0, 0, None) for at in range(1000)]
    one.inbound_queue.put([*flood, (b"t", b"quiet", 0, 0, 0, None)])
    assert one.inbox.got == [], "nothing is handed over where it would be too much at once"
    assert one.inbound_queue.held_bytes == weight(flood) + weight([(b"t", b"quiet", 0, 0, 0, None)])
    one.inbound_queue.put(burst(5, 1))
    assert one.ids() == [0, 5], "a message of QoS 1 does not join the queue, and overtakes none of its own key"
    while one.inbound_queue.can_release:
        before = len(one.inbox.got)
        one.inbound_queue.release()
        assert len(one.inbox.got) - before <= AT_ONCE
    assert len(one.inbox.got) == 1002
    assert one.inbound_queue.held_bytes == 0


def test_a_backlog_without_acknowledgements_outlives_its_connection_and_is_handed_over_before_a_pause() -> None:
    one = Received()
    one.inbound_queue.put(burst(0, 500, qos=0))
    one.inbound_queue.release()
    one.inbound_queue.forget("connection_lost")
    one.inbound_queue.release()
    assert one.ids() == list(range(2 * AT_ONCE))
    one.inbound_queue.pause()
    assert one.ids() == list(range(500))
    assert not one.metrics.dropped["connection_lost"]
    assert (one.inbound_queue.held_bytes, one.inbound_queue.can_release) == (0, False)


def test_refused_new_topics_are_counted_with_an_example() -> None:
    one = Received(max_held_bytes=10_000)
    one.inbound_queue.put(burst(0, 2 * AT_ONCE, qos=0))
    one.inbound_queue.put(burst(0, 1, qos=0))
    while one.inbound_queue.can_release:
        one.inbound_queue.release()
    one.inbound_queue.put([*burst(0, 1, qos=0), *[(b"t/%d" % at, bytes(800), 0, 0, 0, None) for at in range(100)]])
    assert one.metrics.dropped["new_topic"] == 94
    assert "t/99" in one.metrics.examples["new_topic"]


@pytest.mark.parametrize(("us", "part"), [(1000, AT_ONCE), (40, 200), (1, 1024)])
def test_a_part_of_a_backlog_is_as_large_as_takes_eight_milliseconds(us: int, part: int) -> None:
    one = Received()
    queue = one.inbound_queue
    queue.put(burst(0, 20_000, qos=0))
    for _ in range(4):  # a read in each iteration, and then a part
        before = len(one.inbox.got)
        queue.release()
        got = len(one.inbox.got) - before
        queue.received_at += got * us * 1e-6
    assert got == pytest.approx(part, abs=1)
