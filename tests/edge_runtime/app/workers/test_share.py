"""Which process a key belongs to, and what becomes of messages of other keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.app.workers.share import FOREIGN, OwnTopics, Share, own_readings, parse_machine, part_of
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.io.mqtt.routing import Receive
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading

KEYS = [f"watch-{i}" for i in range(2000)]


def test_a_key_is_where_it_was_in_earlier_versions() -> None:
    """A change of these numbers would move keys, and begun windows with them, on every update."""
    assert [part_of(key, 7, b"key/worker") for key in ("watch-0", "kitchen", "a/b", "", "ü")] == PINNED


PINNED = [5, 2, 5, 1, 1]


@given(st.text(), st.integers(1, 64))
def test_each_key_belongs_to_exactly_one(key: str, workers: int) -> None:
    owners = [worker for worker in range(1, workers + 1) if Share(worker, workers).owns(key)]
    assert len(owners) == 1


def test_parts_are_about_equal() -> None:
    counts = Counter(part_of(key, 4, b"key/worker") for key in KEYS)
    assert all(400 < counts[part] < 600 for part in range(4)), counts


def test_one_more_worker_takes_its_part_and_moves_no_other_key() -> None:
    before = {key: part_of(key, 3, b"key/worker") for key in KEYS}
    after = {key: part_of(key, 4, b"key/worker") for key in KEYS}
    moved = [key for key in KEYS if before[key] != after[key]]
    assert {after[key] for key in moved} == {3}
    assert 350 < len(moved) < 650


def test_workers_of_one_machine_share_its_keys_evenly() -> None:
    """The same hash on both levels would leave workers of a machine without keys."""
    own = [key for key in KEYS if part_of(key, 2, b"key/machine") == 0]
    counts = Counter(part_of(key, 2, b"key/worker") for key in own)
    assert all(count > 400 for count in counts.values()), counts
    assert len(counts) == 2


def test_machines_with_different_numbers_of_workers_cover_every_key_once() -> None:
    shares = [Share(1, 2, 1, 2), Share(2, 2, 1, 2), *(Share(worker, 3, 2, 2) for worker in (1, 2, 3))]
    assert all(sum(share.owns(key) for share in shares) == 1 for key in KEYS)


@pytest.mark.parametrize("text", ["0/3", "4/3", "2", "2/3/4", "a/b", "1/257", "-1/2", "²/3"])
def test_what_names_no_machine_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="second of three machines"):
        parse_machine(text)


def test_a_machine_is_the_ith_of_n() -> None:
    assert (parse_machine("2/3"), parse_machine("")) == ((2, 3), (1, 1))


# -- messages ----------------------------------------------------------------------------------------------------------


class FakeBroker:
    """Keeps what was subscribed."""

    receive: Receive

    def subscribe(self, filters: Sequence[tuple[str, int]], receive: Receive, _key_of: object = None) -> object:
        self.receive = receive
        return None

    def open(self, loop: Loop) -> None: ...

    def pause(self) -> None: ...

    def close(self, timeout_s: float) -> None: ...


def publish(key: str, topic: str = "watch/{}/imu") -> Publish:
    return topic.format(key).encode(), b"payload", 1, 1, 0, None


def shared(metrics: Metrics, **settings: Any) -> tuple[FakeBroker, list[Any]]:
    broker, heard = FakeBroker(), []
    config = MqttSourceConfig(broker="b", **({"topics": ("watch/+/imu",)} | settings))
    own = OwnTopics(broker, config, Share(1, 2), metrics)
    own.subscribe(config.filters(), lambda *arrived: heard.append(arrived))
    return broker, heard


def test_messages_of_own_keys_are_handed_over_together_with_what_acknowledges_all() -> None:
    metrics, done = Metrics(), lambda: None
    broker, heard = shared(metrics)
    broker.receive([publish(key) for key in KEYS[:100]], 5.0, done)
    ((kept, received, when_done),) = heard
    assert [one[0].split(b"/")[1].decode() for one in kept] == [key for key in KEYS[:100] if Share(1, 2).owns(key)]
    assert (received, when_done) == (5.0, done)
    assert metrics.counts[FOREIGN] == 100 - len(kept)


def test_messages_of_others_alone_are_acknowledged_at_once() -> None:
    acked: list[int] = []
    broker, heard = shared(Metrics())
    foreign = [key for key in KEYS if not Share(1, 2).owns(key)][:10]
    broker.receive([publish(key) for key in foreign], 5.0, lambda: acked.append(1))
    broker.receive([publish(foreign[0])], 5.0, None)
    assert (acked, heard) == ([1], [])


def test_topics_of_channels_meet_at_the_owner_of_their_key() -> None:
    metrics = Metrics()
    broker, heard = shared(metrics, topics=(), channels={"ax": "+/ax", "ay": "+/ay"})
    own = next(key for key in KEYS if Share(1, 2).owns(key))
    broker.receive([publish(own, "{}/ax"), publish(own, "{}/ay")], 5.0, None)
    assert len(heard[0][0]) == 2


def test_a_topic_without_a_key_is_refused_by_one_worker_only() -> None:
    config = MqttSourceConfig(broker="b", topics=("#",), key="{3}")
    counted = 0
    for worker in (1, 2, 3):
        broker = FakeBroker()
        own = OwnTopics(broker, config, Share(worker, 3), Metrics())
        heard: list[Any] = []
        own.subscribe(config.filters(), lambda *arrived, heard=heard: heard.append(arrived))
        broker.receive([(b"too/short", b"", 0, 0, 0, None)], 5.0, None)
        counted += len(heard)
    assert counted == 1


# -- readings, where the message names the key -------------------------------------------------------------------------


def reading(key: str) -> Reading:
    return Reading(key, 1.0, np.zeros((1, 1), np.float32))


def test_readings_of_others_are_left_out_after_decoding_and_acknowledged() -> None:
    delivered: list[str] = []
    acked: list[int] = []
    metrics = Metrics()

    def deliver(readings: Sequence[Reading], received: float, done: Done | None) -> None:
        delivered.extend(one.key for one in readings)
        if done is not None:
            done()

    config = MqttSourceConfig(broker="b", topics=("all",), key="payload")
    take = own_readings(deliver, config, Share(2, 2), metrics)
    take([reading(key) for key in KEYS[:50]], 5.0, lambda: acked.append(1))
    assert delivered == [key for key in KEYS[:50] if Share(2, 2).owns(key)]
    assert metrics.counts[FOREIGN] == 50 - len(delivered)
    foreign = next(key for key in KEYS if not Share(2, 2).owns(key))
    take([reading(foreign)], 5.0, lambda: acked.append(1))
    assert acked == [1, 1]


def test_a_single_process_and_keys_of_topics_are_not_looked_at_twice() -> None:
    def deliver(readings: Sequence[Reading], received: float, done: Done | None) -> None: ...

    by_topic = MqttSourceConfig(broker="b", topics=("watch/+",))
    by_payload = MqttSourceConfig(broker="b", topics=("all",), key="payload")
    assert own_readings(deliver, by_topic, Share(1, 2), Metrics()) is deliver
    assert own_readings(deliver, by_payload, Share(), Metrics()) is deliver
