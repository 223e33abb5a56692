"""Acknowledgements of what was received: their order, and QoS 2 messages that come twice."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.io.mqtt.inbound_acks import AckGroup, Acks, InboundAcks
from edge_runtime.io.mqtt.packets import PUBACK, PUBCOMP, PUBREC, Publish, encode_ack


def publish(packet_id: int, qos: int) -> Publish:
    return b"t", b"p", packet_id, qos, 0, None


@settings(deadline=None)
@given(st.data())
def test_acknowledgements_leave_in_the_order_of_receipt_whatever_finishes_first(data: st.DataObject) -> None:
    inbound_acks = InboundAcks()
    inbound_acks.begin(session_present=False)
    ack_groups: list[AckGroup] = []
    sent: dict[int, list[int]] = {1: [], 2: []}
    packet_id = 0
    for size in data.draw(st.lists(st.integers(1, 4), max_size=12)):
        publishes = []
        for _ in range(size):
            packet_id += 1
            qos = data.draw(st.integers(0, 2))
            publishes.append(publish(packet_id if qos else 0, qos))
            if qos:
                sent[qos].append(packet_id)
        fresh, ack_group = inbound_acks.receive(publishes)
        assert fresh == publishes
        assert (ack_group is None) == all(not one[3] for one in publishes)
        if ack_group is not None:
            ack_group.wait_for(1)
            ack_groups.append(ack_group)
    acknowledged = Acks([], [], [])
    for ack_group in data.draw(st.permutations(ack_groups)):
        ack_group.done()
        acks = inbound_acks.take_acks()
        if acks is not None:
            acknowledged.pubacks.extend(acks.pubacks)
            acknowledged.pubrecs.extend(acks.pubrecs)
        prefix = [one for one in ack_groups if one.finished]
        first_open = next((i for i, one in enumerate(ack_groups) if not one.finished), len(ack_groups))
        safe = [i for one in ack_groups[:first_open] for i in one.pubacks]
        assert acknowledged.pubacks == safe, "everything before the first open one, and nothing behind it"
        assert inbound_acks.unacked == sum(len(sent[q]) for q in (1, 2)) - len(safe) - len(acknowledged.pubrecs)
        assert prefix
    assert acknowledged.pubacks == sent[1]
    assert acknowledged.pubrecs == sent[2]
    assert inbound_acks.unacked == 0


def test_encoded_acknowledgements_are_all_kinds_in_one_piece() -> None:
    assert Acks([1, 2], [3], [4]).encode() == b"".join(
        (encode_ack(PUBACK, [1, 2]), encode_ack(PUBREC, [3]), encode_ack(PUBCOMP, [4]))
    )


def test_a_second_copy_of_qos_2_waits_for_the_first() -> None:
    inbound_acks = InboundAcks()
    inbound_acks.begin(session_present=False)
    _, first = inbound_acks.receive([publish(1, 2)])
    assert first is not None
    first.wait_for(1)
    inbound_acks.begin(session_present=True)
    fresh, second = inbound_acks.receive([publish(1, 2)])
    assert fresh == []
    assert second is not None
    second.wait_for(0)
    assert inbound_acks.take_acks() is None
    first.done()
    assert inbound_acks.take_acks() == Acks([], [1], [])
    inbound_acks.released(1)
    assert inbound_acks.take_acks() == Acks([], [], [1])
    assert inbound_acks.receive([publish(1, 2)])[0], "after PUBREL the packet id names a new message"


def test_a_copy_of_a_safe_message_is_acknowledged_at_once() -> None:
    inbound_acks = InboundAcks()
    inbound_acks.begin(session_present=False)
    _, first = inbound_acks.receive([publish(1, 2)])
    assert first is not None
    first.wait_for(1)
    first.done()
    inbound_acks.begin(session_present=True)
    _, second = inbound_acks.receive([publish(1, 2)])
    assert second is not None
    second.wait_for(0)
    assert inbound_acks.take_acks() == Acks([], [1], [])


def test_where_paho_keeps_the_ids_qos_2_is_owed_over_a_reconnection() -> None:
    inbound_acks = InboundAcks(keeps_ids=False)
    inbound_acks.begin(session_present=False)
    _, ack_group = inbound_acks.receive([publish(1, 1), publish(2, 2)])
    assert ack_group is not None
    ack_group.wait_for(1)
    inbound_acks.begin(session_present=True)
    ack_group.done()
    assert inbound_acks.take_acks() == Acks([], [2], [])
    assert inbound_acks.unacked == 0
