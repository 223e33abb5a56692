"""Our own messages from the queue to their acknowledgement, without sockets."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.io.mqtt.outbound_queue import (
    FIRST_PACKET_ID,
    STRIKES,
    STRIKES_OF_A_KIND,
    BrokerLimits,
    Message,
    OutboundQueue,
)
from edge_runtime.io.mqtt.packets import DUP, PUBACK, PUBCOMP, PUBREC, PUBREL, V5, V311, PacketParser

MIB = 2**20


def limits(window: int = 20, version: int = V311, **changes: Any) -> BrokerLimits:
    return BrokerLimits(version, window, MIB, 2, retain=True)._replace(**changes)


class Sender:
    """An `OutboundQueue` with what it sent, parsed again."""

    def __init__(
        self,
        *,
        messages: int = 1000,
        size: int = MIB,
        drop_oldest: bool = True,
        seed: int = 0,
        max_inflight: int = 1000,
        publishes_qos_2: bool = False,
    ) -> None:
        self.dropped: Counter[str] = Counter()
        self.outbound_queue = OutboundQueue(
            messages,
            size,
            drop_oldest=drop_oldest,
            dropped=self.dropped,
            rng=random.Random(seed),
            max_inflight=max_inflight,
        )
        self.publishes_qos_2 = publishes_qos_2
        self.finished: list[int] = []
        self.offered = 0
        self.version = V311

    def enqueue(self, *payloads: bytes, qos: int = 1, name: int = 0) -> None:
        self.outbound_queue.enqueue(
            [Message(b"t", one, b"", qos) for one in payloads], lambda: self.finished.append(name)
        )

    def begin(self, of: BrokerLimits, *, session_present: bool = False, suspicious: bool = False) -> None:
        self.offered = 0
        self.version = of.version
        self.outbound_queue.begin(
            of, session_present=session_present, suspicious=suspicious, publishes_qos_2=self.publishes_qos_2
        )

    def pump(self, room: int = MIB) -> list[Any]:
        parts = self.outbound_queue.pump(self.offered, room)
        self.offered += sum(map(len, parts))
        return PacketParser(self.version).feed(b"".join(parts))

    def settle(self) -> list[int]:
        for done in self.outbound_queue.take_finished():
            done()
        finished, self.finished = self.finished, []
        return finished


def test_qos_0_is_handed_over_when_its_last_byte_is_written() -> None:
    sender = Sender()
    sender.begin(limits())
    sender.enqueue(b"one", b"two", qos=0)
    assert len(sender.pump()) == 2
    sender.outbound_queue.written(sender.offered - 1)
    assert sender.settle() == []
    sender.outbound_queue.written(sender.offered)
    assert sender.settle() == [0]


def test_nothing_to_hand_over_is_handed_over() -> None:
    sender = Sender()
    sender.enqueue(name=3)
    assert sender.settle() == [3]


@pytest.mark.slow
def test_packet_ids_wrap_around_and_skip_those_in_flight() -> None:
    sender = Sender(messages=10**6, size=10**9, max_inflight=60_000)
    sender.begin(limits(window=60_000))
    sender.enqueue(b"stays")
    stays = sender.pump()[0][2]
    seen = Counter[int]()
    for _ in range(3):
        sender.enqueue(*[b"x"] * 30_000)
        ids = [one[2] for one in sender.pump()]
        seen.update(ids)
        assert stays not in ids
        assert min(ids) >= FIRST_PACKET_ID
        for packet_id in ids:
            sender.outbound_queue.acknowledged(PUBACK, packet_id, 0)
    assert len(seen) == 65_536 - FIRST_PACKET_ID - 1
    assert sender.outbound_queue.inflight == 1


def test_packet_ids_begin_elsewhere_in_each_run() -> None:
    first = set()
    for seed in range(20):
        sender = Sender(seed=seed)
        sender.begin(limits())
        sender.enqueue(b"x")
        first.add(sender.pump()[0][2])
    assert len(first) > 10


@pytest.mark.parametrize("drop_oldest", [True, False])
def test_a_full_queue_drops_by_policy_and_counts(drop_oldest: bool) -> None:
    sender = Sender(messages=3, drop_oldest=drop_oldest)
    for i in range(5):
        sender.enqueue(b"%d" % i, name=i)
    assert sender.dropped == {"publish_queue_full": 2}
    assert sender.settle() == ([0, 1] if drop_oldest else [3, 4])
    sender.begin(limits())
    assert [one[1] for one in sender.pump()] == ([b"2", b"3", b"4"] if drop_oldest else [b"0", b"1", b"2"])


def test_the_queue_is_bounded_in_bytes_too() -> None:
    sender = Sender(size=1000)
    sender.enqueue(*[bytes(300)] * 10)
    assert sender.outbound_queue.queued == 3
    assert sender.dropped == {"publish_queue_full": 7}
    sender.enqueue(bytes(5000), name=1)
    assert sender.outbound_queue.queued == 0, "one that never fits pushes out the others, and goes too"
    assert sorted(sender.settle()) == [0, 1]


def test_a_connection_that_goes_takes_unwritten_qos_0_with_it() -> None:
    sender = Sender()
    sender.begin(limits())
    sender.enqueue(b"one", b"two", qos=0)
    sender.pump()
    sender.outbound_queue.end()
    assert sender.dropped == {"publish_connection_lost": 2}
    assert sender.settle() == [0]
    assert sender.pump() == []


def test_a_smaller_window_after_a_reconnection_is_kept() -> None:
    sender = Sender()
    sender.begin(limits(window=10))
    sender.enqueue(*[b"%d" % i for i in range(12)])
    assert len(sender.pump()) == 10
    sender.outbound_queue.end()
    sender.begin(limits(window=4), session_present=True)
    again = sender.pump()
    assert [one[1] for one in again] == [b"0", b"1", b"2", b"3"]
    assert {one[4] for one in again} == {DUP}
    assert sender.pump() == []
    sender.outbound_queue.acknowledged(PUBACK, again[0][2], 0)
    assert [one[1] for one in sender.pump()] == [b"4"]


def test_unknown_acknowledgements_are_ignored() -> None:
    sender = Sender()
    sender.begin(limits())
    sender.outbound_queue.acknowledged(PUBACK, 7, 0)
    sender.outbound_queue.acknowledged(PUBCOMP, 7, 0)
    assert sender.pump() == []
    sender.outbound_queue.acknowledged(PUBREC, 7, 0)
    assert sender.pump() == [(PUBREL, b"\x00\x07")], "so that the broker can forget it"


@pytest.mark.parametrize("session_present", [True, False])
def test_a_resumed_qos_2_exchange_goes_on_where_it_was_and_a_new_session_begins_it_again(session_present: bool) -> None:
    sender = Sender()
    sender.begin(limits(version=V5))
    sender.enqueue(*[b"%d" % i for i in range(4)], qos=2)
    ids = [one[2] for one in sender.pump()]
    for packet_id in ids[:2]:
        sender.outbound_queue.acknowledged(PUBREC, packet_id, 0)
    sender.outbound_queue.end()  # before the PUBRELs were sent, or their PUBCOMPs came
    sender.begin(limits(version=V5), session_present=session_present)
    again = sender.pump()
    if session_present:
        assert again[:2] == [(PUBREL, packet_id.to_bytes(2, "big")) for packet_id in ids[:2]]
        assert [(one[1], one[2], one[4]) for one in again[2:]] == [(b"2", ids[2], DUP), (b"3", ids[3], DUP)]
    else:
        assert [(one[1], one[4]) for one in again] == [(b"%d" % i, 0) for i in range(4)]
        assert not {one[2] for one in again} & set(ids), "nothing in them says that they repeat others"


def test_a_pubrel_that_the_broker_had_already_is_no_refusal() -> None:
    sender = Sender()
    sender.begin(limits(version=V5))
    sender.enqueue(b"one", qos=2)
    packet_id = sender.pump()[0][2]
    sender.outbound_queue.acknowledged(PUBREC, packet_id, 0)
    sender.outbound_queue.end()
    sender.begin(limits(version=V5), session_present=True)
    sender.outbound_queue.acknowledged(PUBCOMP, packet_id, 0x92)
    assert sender.settle() == [0]
    assert not sender.dropped


def released(items: list[Any]) -> list[int]:
    return [int.from_bytes(item[1], "big") for item in items if item[0] == PUBREL]


def test_what_an_earlier_run_left_half_sent_is_released_before_anything_else() -> None:
    sender = Sender(publishes_qos_2=True)
    sender.enqueue(b"one", b"two", qos=2)
    sender.begin(limits(), session_present=True)
    *releases, one, two = sender.pump()
    every = list(range(FIRST_PACKET_ID, FIRST_PACKET_ID + 2048))
    assert released(releases) == every
    sender.outbound_queue.acknowledged(PUBCOMP, one[2], 0x92)
    assert sender.settle() == [], "it is not the end of the new message"
    sender.outbound_queue.end()
    sender.begin(limits(), session_present=True)
    *releases, again, also = sender.pump()
    assert released(releases) == [each for each in every if each not in {one[2], two[2]}], "ours are not to be released"
    assert (again[4], also[4]) == (DUP, DUP)
    sender.outbound_queue.acknowledged(PUBREC, one[2], 0)
    assert released(sender.pump()) == [one[2]]
    sender.outbound_queue.end()
    sender.begin(limits(), session_present=True)
    assert released(sender.pump()) == [one[2]], "the broker had them before the message that it acknowledged"


def test_a_broker_that_closes_when_it_is_told_to_release_gets_the_messages_all_the_same() -> None:
    sender = Sender(publishes_qos_2=True)
    sender.enqueue(b"one", qos=2)
    sender.begin(limits(), session_present=True, suspicious=True)
    assert [len(item) for item in sender.pump()] == [6]


@pytest.mark.parametrize("seed", range(8))
def test_ids_of_messages_on_the_way_rise_in_the_order_of_sending(seed: int) -> None:
    """So that a run after this one can release what this one leaves in that order. QoS 1 waits for nothing."""
    rng = random.Random(seed)
    sender = Sender(messages=10**6, size=10**9, seed=seed, max_inflight=30)
    sender.begin(limits(window=30))
    sent: list[int] = []
    completed: Counter[int] = Counter()
    while len(completed) < 2048 or min(completed.values()) < 2:
        for _ in range(rng.randrange(1, 40)):
            sender.enqueue(b"x", qos=rng.choice([1, 2, 2]))
        sent += [item[2] for item in sender.pump() if len(item) == 6 and item[3] == 2]
        assert sent == sorted(sent), "of QoS 2, and of those on the way at the same time"
        for packet_id in rng.sample(list(sender.outbound_queue._inflight), sender.outbound_queue.inflight):
            for kind in (PUBACK,) if packet_id not in sent else (PUBREC, PUBCOMP):
                sender.outbound_queue.acknowledged(kind, packet_id, 0)
            completed[packet_id] += 1
        sender.pump()
        sent = [one for one in sent if one in sender.outbound_queue._inflight]


@pytest.mark.parametrize("change", [{"session_present": False}, {"publishes_qos_2": False}, {"max_qos": 1}])
def test_nothing_is_released_beforehand_where_nothing_can_be_left(change: dict[str, Any]) -> None:
    sender = Sender(publishes_qos_2=change.get("publishes_qos_2", True))
    sender.begin(limits(max_qos=change.get("max_qos", 2)), session_present=change.get("session_present", True))
    sender.enqueue(b"one", qos=2)
    assert [len(item) for item in sender.pump()] == [6]


def test_room_is_a_bound_on_what_the_connection_buffers() -> None:
    sender = Sender()
    sender.begin(limits(window=100))
    sender.enqueue(*[bytes(1000)] * 10, qos=0)
    assert len(sender.pump(room=2500)) == 3
    assert sender.pump(room=0) == []
    assert sender.outbound_queue.queued == 7


@pytest.mark.parametrize("session_present", [False, True])
def test_a_message_that_ends_every_connection_is_found_and_dropped_and_the_rest_arrives(session_present: bool) -> None:
    """A broker that closes on what is too large for it and acknowledges everything else. Mutation: without `_strike`,
    the large ones come for ever, and nothing behind them.
    """
    sender = Sender()
    sender.enqueue(b"one", b"too large", b"two", b"too large, too", b"three", name=1)
    arrived: list[bytes] = []
    connections = 0
    while not sender.finished and connections < 40:
        sender.begin(
            limits(version=V311), session_present=session_present and connections > 0, suspicious=connections >= 3
        )
        connections += 1
        alive = True
        while alive and (packets := sender.pump()):
            if connections > 3:
                assert len(packets) == 1, "one at a time, or nobody knows which one it was"
            for packet in packets:
                if packet[1].startswith(b"too large"):
                    alive = False
                    break
                arrived.append(packet[1])
                sender.outbound_queue.acknowledged(PUBACK, packet[2], 0)
        if not alive:
            sender.outbound_queue.end()
        for done in sender.outbound_queue.take_finished():
            done()
    assert sender.finished == [1]
    assert connections == 3 + STRIKES + STRIKES_OF_A_KIND + 1, "unsuspected, ten strikes, three strikes, and well"
    assert set(arrived) == {b"one", b"two", b"three"}
    assert sender.dropped == {"publish_closes_connection": 2}


def test_connections_that_end_for_another_reason_cost_no_message() -> None:
    """Another client takes the session over, again and again: acknowledged or not, nothing is dropped."""
    sender = Sender()
    sender.enqueue(*(b"%d" % i for i in range(40)), name=1)
    arrived: set[bytes] = set()
    for turn in range(60):
        sender.begin(limits(), session_present=turn > 0, suspicious=turn >= 3)
        for packet in sender.pump():
            arrived.add(packet[1])
            sender.outbound_queue.acknowledged(PUBACK, packet[2], 0)
        sender.pump()  # the next one is on its way when the connection ends
        sender.outbound_queue.end()
    assert len(arrived) == 40
    assert not sender.dropped


@pytest.mark.parametrize(("version", "taken"), [(V311, b"as long as the others"), (V5, b"")])
def test_a_message_that_cannot_be_over_the_limit_is_never_dropped(version: int, taken: bytes) -> None:
    """A network that flaps ends connections, too: a larger one got through, or the broker has stated its limit."""
    sender = Sender()
    if taken:
        sender.begin(limits(version=version))
        sender.enqueue(taken)
        for packet in sender.pump():
            sender.outbound_queue.acknowledged(PUBACK, packet[2], 0)
        sender.outbound_queue.end()
    sender.enqueue(b"no longer than it")
    for _ in range(5 * STRIKES):
        sender.begin(limits(version=version), session_present=True, suspicious=True)
        assert len(sender.pump()) == 1
        sender.outbound_queue.end()
    assert not sender.dropped


def test_a_connection_that_lives_is_trusted_with_the_whole_window() -> None:
    sender = Sender()
    sender.enqueue(*(b"%d" % i for i in range(40)))
    sender.begin(limits(), suspicious=True)
    assert len(sender.pump()) == 1
    sender.outbound_queue.trust()
    assert len(sender.pump()) == 19


def test_abandoning_calls_no_callback() -> None:
    sender = Sender()
    sender.begin(limits(window=1))
    sender.enqueue(b"one", b"two")
    sender.pump()
    assert sender.outbound_queue.abandon() == 2
    assert sender.settle() == []


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_every_message_is_completed_once_and_in_order_whatever_happens(data: st.DataObject) -> None:
    """A broker that may lose the connection, its session, or acknowledgements sees each message at least once."""
    sender = Sender(seed=data.draw(st.integers(0, 3)))
    count = data.draw(st.integers(1, 25))
    qos = data.draw(st.sampled_from([1, 2]))
    version = data.draw(st.sampled_from([V311, V5]))
    for i in range(count):
        sender.enqueue(b"%d" % i, qos=qos, name=i)
    seen: list[int] = []
    finished: list[int] = []
    open_ids: dict[int, str] = {}
    sender.begin(limits(data.draw(st.integers(1, 5)), version))
    for step in range(200):
        # The last steps have no faults, so that it must come to its end.
        fault = data.draw(st.integers(0, 9)) if step < 40 else 9
        if fault == 0:
            sender.outbound_queue.end()
            keeps = data.draw(st.booleans())
            if not keeps:
                open_ids.clear()
            sender.begin(limits(data.draw(st.integers(1, 5)), version), session_present=keeps)
        for item in sender.pump():
            if len(item) == 6:
                seen.append(int(item[1]))
                open_ids[item[2]] = "published"
            else:
                open_ids[int.from_bytes(item[1], "big")] = "released"
        for packet_id, state in list(open_ids.items()):
            if fault > 2:
                kind = PUBACK if qos == 1 else PUBREC if state == "published" else PUBCOMP
                if kind != PUBREC:
                    del open_ids[packet_id]
                sender.outbound_queue.acknowledged(kind, packet_id, 0)
        finished += sender.settle()
        if len(finished) == count and not sender.outbound_queue.waiting:
            break
    assert sorted(finished) == list(range(count))
    assert set(seen) == set(range(count))
    firsts = list(dict.fromkeys(seen))
    assert firsts == sorted(firsts), "the first copies are in order"
    assert not sender.dropped
