"""The fair queue of a backlog: nothing is lost, topics keep their order, and nobody waits for another's flood."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.io.mqtt.fair_queue import NEW_EVERY, FairQueue, weight
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.io.mqtt.topics import TopicFilter

PREFIX = TopicFilter("+/+/imu").prefix_of


def place(topic: bytes) -> tuple[bytes, bytes]:
    return PREFIX(topic), topic


def message(topic: str, number: int = 0, size: int = 8) -> Publish:
    return topic.encode(), b"%0*d" % (size, number), 0, 0, 0, None


def queue(max_bytes: int = 10**9, known: tuple[str, ...] = ()) -> FairQueue:
    """An empty queue that remembers topics."""
    made = FairQueue(place, max_bytes)
    made.put([message(topic) for topic in known], 0.0)
    made.pop(len(known))
    return made


topics = st.sampled_from([f"{prefix}/{key}/imu" for prefix in "abc" for key in range(4)])
steps = st.lists(st.one_of(st.lists(topics, min_size=1, max_size=20), st.integers(1, 20)), max_size=30)


@given(steps, st.sampled_from([0, 2000, 10**9]))
def test_what_is_not_refused_comes_out_once_and_each_topic_in_order(
    steps: list[list[str] | int], max_bytes: int
) -> None:
    fair, number = FairQueue(place, max_bytes), 0
    accepted: dict[bytes, list[bytes]] = defaultdict(list)
    taken: dict[bytes, list[bytes]] = defaultdict(list)

    def take(most: int) -> None:
        for publish in fair.pop(most)[0]:
            taken[publish[0]].append(publish[1])

    for step in steps:
        if isinstance(step, int):
            take(step)
            continue
        publishes = [message(topic, number + at) for at, topic in enumerate(step)]
        number += len(step)
        refused = {one[1] for one in fair.put(publishes, float(number))}
        for publish in publishes:
            if publish[1] not in refused:
                accepted[publish[0]].append(publish[1])
        assert fair.waiting == sum(map(len, accepted.values())) - sum(map(len, taken.values()))
    take(fair.waiting)
    assert taken == accepted
    assert fair.waiting == 0


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 100), st.booleans())
def test_new_topics_get_every_fourth_place_while_known_ones_wait(
    known: int, new: int, most: int, known_first: bool
) -> None:
    fair = queue(known=("a/0/imu", "a/1/imu"))
    old = [message(f"a/{at % 2}/imu", at) for at in range(known)]
    strange = [message(f"bad/{at}/imu") for at in range(new)]
    for part in (old, strange) if known_first else (strange, old):
        fair.put(part, 0.0)
    waiting = known
    while fair.waiting:
        got = [publish[0].startswith(b"bad/") for publish in fair.pop(most)[0]]
        if waiting > len(got):  # known ones waited all the time
            assert sum(got) <= -(-len(got) // NEW_EVERY)
        waiting -= got.count(False)


def test_a_new_key_of_a_quiet_prefix_does_not_wait_for_the_flood_of_another() -> None:
    fair = queue()
    fair.put([message(f"bad/{at}/imu") for at in range(5000)], 0.0)
    fair.put([message("watch/7/imu")], 0.0)
    assert b"watch/7/imu" in [publish[0] for publish in fair.pop(2)[0]]


def test_a_known_key_does_not_wait_for_one_that_sends_without_end() -> None:
    fair = queue(known=("watch/1/imu", "watch/2/imu"))
    fair.put([message("watch/1/imu", at) for at in range(5000)], 0.0)
    fair.put([message("watch/2/imu")], 0.0)
    assert b"watch/2/imu" in [publish[0] for publish in fair.pop(2)[0]]


def test_new_topics_fill_half_of_the_room_and_known_ones_are_never_refused() -> None:
    one = message("bad/0/imu", size=1000)
    fair = queue(max_bytes=100 * weight([one]), known=("watch/1/imu",))
    assert fair.put([message("watch/1/imu", size=1000)], 0.0) == []
    refused = fair.put([message(f"bad/{at}/imu", size=1000) for at in range(1000)], 0.0)
    assert len(refused) == 1000 - 51, "the last one that finds room may fill more than the rest of it"
    assert fair.put([message("watch/1/imu", at, 1000) for at in range(1000)], 0.0) == []
    fair.pop(fair.waiting)
    assert fair.put([message("bad/1001/imu")], 0.0) == [], "there is room again"


def test_a_fleet_that_begins_is_not_refused_while_it_has_nobody_to_give_way_to() -> None:
    fair = queue(max_bytes=1000)
    assert fair.put([message(f"watch/{at}/imu") for at in range(1000)], 0.0) == []


def test_the_oldest_arrival_is_told() -> None:
    fair = queue()
    fair.put([message("a/1/imu")], 5.0)
    fair.put([message("a/2/imu"), message("a/3/imu")], 6.0)
    assert fair.pop(2)[1] == 5.0
    assert fair.pop(2)[1] == 6.0
