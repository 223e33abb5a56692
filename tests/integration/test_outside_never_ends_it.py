"""Nothing from outside ends inference: real process, real mosquitto, resumed session, retained messages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.integration.hostile import ANNOUNCED, KEYS, Site, end, fuzz, unsigned
from tests.integration.running import Publisher, until
from tests.mosquitto import Mosquitto, needs_mosquitto

pytestmark = needs_mosquitto


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with Mosquitto("max_queued_messages 0") as mosquitto, Publisher(mosquitto.port) as publisher:
        yield Site(tmp_path, mosquitto, publisher)


@pytest.mark.slow
def test_three_unsigned_messages_end_nothing(site: Site) -> None:
    """They ended the process: a filter that is none, and then any message; and every restart after that."""
    for _ in range(2):
        with site.run() as process:
            site.answered(process)
            for place in ("$share", "evil/t"):
                site.publisher.publish(ANNOUNCED, unsigned(chunks=place), 1)
                site.publisher.publish(ANNOUNCED, site.announce(chunks=place, by=site.stranger), 1)
            site.publisher.publish(ANNOUNCED, site.announce(chunks="$share"), 1)
            site.publisher.publish("evil/t/0", b"x", 1)
            site.publisher.flush()
            until(lambda: process.err.count("update: refused: what=announcement") >= 3, lambda: process.err)
            site.answered(process)
            figures = end(process)
        dropped = figures["dropped"]
        assert dropped["update_announcement_unsigned"] == 2
        assert dropped["update_announcement_signature"] == 2
        assert dropped["update_announcement"] == 1
        assert "unexpected_topic" not in dropped, "no filter was asked for"
        assert "began to fetch" not in process.err
        assert figures["counts"].get("side_channel_errors_total", 0) == 0


@pytest.mark.slow
def test_thousands_of_announcements_are_bounded_in_filters_threads_and_log(site: Site) -> None:
    with site.run() as process:
        for i in range(2000):
            site.publisher.publish(ANNOUNCED, site.announce(chunks=f"fuzz/c{i}"), 1)
            site.publisher.publish(KEYS, b"no keys %d" % i, 1)
        site.publisher.flush()
        site.answered(process)
        threads = len(list(Path(f"/proc/{process.pid}/task").iterdir()))
        assert threads < 20
        figures = end(process)
    assert figures["dropped"]["update_flood"] > 3000
    assert process.err.count("began to fetch: model=watch/9") < 100
    assert len(process.err.splitlines()) < 200
    with site.run() as process:  # the filters of the last life are gone from the session
        for i in range(2000):
            site.publisher.publish(f"fuzz/c{i}/0", b"x", 1)
        site.publisher.flush()
        site.answered(process)
        figures = end(process)
    assert figures["dropped"].get("unexpected_topic", 0) == 0


@pytest.mark.slow
def test_a_session_that_was_left_with_foreign_filters_is_cleaned(site: Site) -> None:
    """As earlier releases left it, which asked for every topic that they were told of."""
    leave_session(site.broker.port, "under-test", ["evil/t/+", "evil/u/0"])
    with site.run() as process:
        assert "session resumed" in process.err
        for topic in ("evil/t/0", "evil/u/0"):
            site.publisher.publish(topic, b"x", 1)
            process.says(f"topic='{topic}'")
        site.answered(process)
        for i in range(50):
            site.publisher.publish(f"evil/t/{i}", b"x", 1)
            site.publisher.publish("evil/u/0", b"x", 1)
        site.answered(process)
        figures = end(process)
    assert figures["dropped"]["unexpected_topic"] == 2


def leave_session(port: int, client_id: str, filters: list[str]) -> None:
    """Make a session that stays at the broker, with subscriptions."""
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id, protocol=paho.MQTTv5)
    granted: list[int] = []
    client.on_subscribe = lambda *_: granted.append(1)
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = 3600
    client.connect("127.0.0.1", port, clean_start=False, properties=properties)
    client.loop_start()
    until(client.is_connected)
    client.subscribe([(one, 1) for one in filters])
    until(lambda: granted)
    client.disconnect()
    client.loop_stop()


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["", "state", "keys", "lock", "bundles"])
def test_an_unusable_update_folder_turns_updates_off_and_nothing_else(site: Site, broken: str) -> None:
    path = site.folder / "updates" / broken
    if broken in ("state", "keys", "lock"):
        path.mkdir(parents=True)
    else:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"no folder")
    with site.run() as process:
        site.answered(process)
        assert process.err.count("update: turned off, and the configured bundle runs") == 1
        end(process)


@pytest.mark.slow
def test_thousands_of_hostile_messages_end_nothing(site: Site) -> None:
    """The long run of this is tests/faults/test_hostile_messages.py."""
    answered, figures = fuzz(site, random.Random(20261122), 3000)
    assert answered == 6
    assert figures["counts"].get("side_channel_errors_total", 0) == 0
    assert figures["dropped"].get("internal_error", 0) == 0
