"""Updates over MQTT, from a real mosquitto and from the embedded broker, while a stream is answered."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from edge_export.package.trusted_keys import key_set

from edge_runtime._version import __version__
from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.base.system.retry import Retry
from edge_runtime.operate.update import acquisition, check, fetch, inbox
from edge_runtime.operate.update import announcement as announcements
from edge_runtime.operate.update.acquisition import Acquisition
from edge_runtime.operate.update.chunks import Chunks
from edge_runtime.operate.update.inbox import Request
from edge_runtime.operate.update.rollout import Rollout
from edge_runtime.operate.update.update_store import UpdateStore
from edge_runtime.tools.cli import main
from tests.edge_runtime.operate.update.devices import (
    HOP,
    Device,
    Factory,
    announcement,
    assert_no_window_missing,
    configured,
    drop,
    state_of,
)
from tests.edge_runtime.operate.update.files import FileServer
from tests.integration.running import (
    PATIENCE_S,
    Publisher,
    answers,
    assert_same_answers,
    cut,
    listening,
    streams,
    until,
    write_recording,
)
from tests.mosquitto import either_broker, has_subscriptions

BROKER = """
[broker.b]
url = "{url}"
"""
TOPICS = {
    "broker": "b", "topic": "fleet/update", "keys_topic": "fleet/keys", "status_topic": "fleet/w1/update",
    "device_id": "w1", "drop": None,
}  # fmt: skip


class Operator:
    """Publishes retained messages, and knows when the broker has them."""

    def __init__(self, port: int) -> None:
        self._publisher = Publisher(port)

    def retain(self, topic: str, payload: bytes) -> None:
        self._publisher.sent += 1
        self._publisher._client.publish(topic, payload, 1, retain=True)
        self._publisher.flush()

    def __enter__(self) -> Operator:
        return self

    def __exit__(self, *_: object) -> None:
        self._publisher.close()


class Site:
    """A device, its broker, and who looks after it."""

    def __init__(self, folder: Path, url: str, operator: Operator, heard: list[dict[str, Any]]) -> None:
        self.folder = folder
        self.operator = operator
        self.heard = heard
        self._url = url

    def device(self, **update: Any) -> Device:
        return Device(configured(self.folder, more=BROKER.format(url=self._url), **TOPICS | update))

    def announce(self, payload: bytes) -> None:
        self.operator.retain("fleet/update", payload)

    def until_told(self, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Wait for a status of this kind, and return it."""
        until(lambda: any(condition(told) for told in self.heard), lambda: self.heard[-3:])
        return next(told for told in self.heard if condition(told))


@pytest.fixture(params=["mosquitto", "embedded"])
def site(request: pytest.FixtureRequest, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(acquisition, "RETRY", Retry(base_s=0.01, cap_s=0.05))
    with (
        either_broker(request.param) as broker,
        Operator(broker.port) as operator,
        listening(broker.port, "fleet/w1/update") as heard,
    ):
        yield Site(folder, broker.url, operator, heard)


def test_an_announced_bundle_may_wait_until_it_is_asked_for(factory: Factory, site: Site) -> None:
    bundle = factory.bundle(2)
    with FileServer(bundle.read_bytes()) as files, site.device(start="asked") as device:
        assert not on_loop(device, device.updates.install)  # there is none
        site.announce(announcement(bundle, 2, url=files.url))
        told = site.until_told(lambda told: told["state"] == "ready")
        assert (told["ready"], told["running"]) == ("watch/2", "watch/1")
        assert "update apply" in told["note"]
        assert state_of(site.folder).candidate is None
        assert on_loop(device, device.updates.install)
        device.until_runs("watch/2")
        assert not on_loop(device, device.updates.install)
        device.stop()
    assert device.answers.models() == ["watch/1", "watch/2"]
    assert_no_window_missing(device.answers)


def test_a_bundle_that_waits_is_started_by_update_apply_and_fetched_no_second_time(
    factory: Factory, site: Site
) -> None:
    bundle = factory.bundle(2)
    with FileServer(bundle.read_bytes()) as files, site.device(start="asked") as device:
        site.announce(announcement(bundle, 2, url=files.url))
        device.until(lambda: device.updates.status()["state"] == "ready")
        asked = len(files.requests)
        inbox.post(UpdateStore(site.folder / "updates", read_only=True), Request(action="apply"))
        device.until_runs("watch/2")
        assert len(files.requests) == asked
        device.stop()


def test_a_bundle_that_waits_is_given_up_when_another_announcement_withdraws_it(factory: Factory, site: Site) -> None:
    bundle = factory.bundle(2)
    with FileServer(bundle.read_bytes()) as files, site.device(start="asked") as device:
        site.announce(announcement(bundle, 2, url=files.url))
        device.until(lambda: device.updates.status()["state"] == "ready")
        site.announce(announcement(bundle, 2, url=files.url, canary=0.0))
        device.until(lambda: device.updates.status()["state"] == "idle")
        assert not on_loop(device, device.updates.install)
        device.stop()
    assert device.answers.models() == ["watch/1"]


def test_a_bundle_that_waits_and_was_tampered_with_is_refused_when_it_is_asked_for(
    factory: Factory, site: Site
) -> None:
    bundle = factory.bundle(2)
    with FileServer(bundle.read_bytes()) as files, site.device(start="asked") as device:
        site.announce(announcement(bundle, 2, url=files.url))
        device.until(lambda: device.updates.status()["state"] == "ready")
        (part,) = (site.folder / "updates/incoming").glob("*.part")
        part.write_bytes(factory.bundle(2, key="stranger").read_bytes())
        assert on_loop(device, device.updates.install)
        device.until(lambda: device.counts.get("update_signature") == 1)
        device.stop()
    assert device.answers.models() == ["watch/1"]


def on_loop(device: Device, ask: Callable[[], bool]) -> bool:
    """Ask on the loop's thread."""
    found: list[bool] = []
    device.app.loop.call_soon_threadsafe(lambda: found.append(ask()))
    device.until(lambda: found)
    return found[0]


def test_an_announced_bundle_is_fetched_tried_and_told_of(factory: Factory, site: Site) -> None:
    bundle = factory.bundle(2)
    with FileServer(bundle.read_bytes()) as files:
        site.announce(announcement(bundle, 2, url=files.url))
        with site.device() as device:
            device.until_runs("watch/2")
            told = site.until_told(lambda told: told["state"] == "idle" and told["running"] == "watch/2")
            device.stop()
    assert_no_window_missing(device.answers)
    stages = list(dict.fromkeys(told["state"] for told in site.heard))
    assert [stage for stage in stages if stage in ("shadow", "trial", "idle")][:3] == ["idle", "shadow", "trial"]
    assert (told["digest"], told["runtime"]) == (hashlib.sha256(bundle.read_bytes()).hexdigest(), __version__)
    assert told["ended"]["result"] == "accepted"
    site.until_told(lambda told: told["state"] == "stopped")
    with site.device() as again:  # the announcement is still there, and is no news
        again.until(lambda: len(again.answers.all) > 50)
        assert again.answers.models() == ["watch/2"]
        assert again.counts.get("updates_refused_total", 0) == 0


def test_a_bundle_comes_in_chunks(factory: Factory, site: Site) -> None:
    bundle = factory.bundle(2)
    data, chunk = bundle.read_bytes(), 500
    for i in reversed(range(-(-len(data) // chunk))):
        site.operator.retain(f"fleet/chunks/{i}", data[i * chunk : (i + 1) * chunk])
    with site.device() as device:
        site.announce(announcement(bundle, 2, chunks="fleet/chunks", chunk_bytes=chunk))
        device.until_runs("watch/2")
        device.stop()
    assert_no_window_missing(device.answers)


def test_chunks_of_another_file_are_refused_by_their_digest(factory: Factory, site: Site) -> None:
    bundle, other = factory.bundle(2), factory.bundle(2, seed=5)
    data = other.read_bytes()[: bundle.stat().st_size].ljust(bundle.stat().st_size, b"\0")
    site.operator.retain("fleet/chunks/0", data)
    with site.device() as device:
        site.announce(announcement(bundle, 2, chunks="fleet/chunks", chunk_bytes=len(data)))
        device.until(lambda: device.counts.get("update_digest") == 1)
    assert state_of(site.folder).highest == {}


@pytest.mark.parametrize("how", ["chunks that never come", "a server that never answers"])
@pytest.mark.parametrize("what", ["drop", "apply"])
def test_what_a_person_installs_comes_before_a_fetch(factory: Factory, site: Site, what: str, how: str) -> None:
    """Mutation: `Acquisition.poll` waits for the fetch: it never ends, and neither does the wait."""
    never = factory.bundle(9)
    with site.device(drop=site.folder / "drop") as device, socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/x"
        where = {"chunks": "fleet/never"} if how.startswith("chunks") else {"url": url}
        site.announce(announcement(never, 9, **where))
        site.until_told(lambda told: told["state"] == "fetching")
        if what == "drop":
            drop(site.folder, factory.bundle(2))
        else:
            inbox.post(UpdateStore(site.folder / "updates", read_only=True), Request(action="apply"), factory.bundle(2))
        device.until_runs("watch/2")
        device.until(lambda: device.updates.status()["state"] == "fetching")  # and after it the fetch goes on
        device.stop()
    assert_no_window_missing(device.answers)


def test_what_is_dropped_and_refused_leaves_the_fetch_going_on(factory: Factory, site: Site) -> None:
    with site.device(drop=site.folder / "drop") as device:
        site.announce(announcement(factory.bundle(9), 9, chunks="fleet/never"))
        site.until_told(lambda told: told["state"] == "fetching")
        drop(site.folder, factory.bundle(2, key="stranger"))
        device.until(lambda: device.counts.get("update_signature") == 1)
        device.until(lambda: device.updates.status()["state"] == "fetching")


def test_a_replayed_announcement_a_frozen_one_and_a_widened_canary_are_refused(factory: Factory, site: Site) -> None:
    """Over a restart too. Mutation: `UpdateState` without `floors`."""
    bundle = factory.bundle(2)
    with FileServer(bundle.read_bytes()) as files:
        wide = announcement(bundle, 2, url=files.url)
        narrow = announcement(bundle, 2, url=files.url, canary=0.0)
        expired = announcement(bundle, 2, url=files.url, expires="2026-01-02")
        with site.device() as device:
            site.announce(narrow)
            site.until_told(lambda told: "for a share of 0" in told.get("note", ""))
            site.announce(wide)
            device.until(lambda: device.counts.get("update_announcement_replayed") == 1)
        site.announce(wide)
        with site.device() as device:
            device.until(lambda: device.counts.get("update_announcement_replayed") == 1)
            site.announce(expired)
            device.until(lambda: device.counts.get("update_announcement_expired") == 1)
            site.announce(b"")
            device.until(lambda: device.counts.get("update_announcement_empty") == 1)
            site.announce(announcement(bundle, 2, url=files.url, devices=["w2", "x*"]))
            site.until_told(lambda told: "for other devices" in told.get("note", ""))
            device.until(lambda: not device.updates.busy)
        assert files.requests == []


def test_the_filter_of_chunks_is_ended_when_the_fetch_ends(factory: Factory, site: Site) -> None:
    """Mutation: `Downloader._end` without its `unsubscribe`: the session keeps every filter that was ever asked for."""
    bundle = factory.bundle(2)
    data = bundle.read_bytes()
    with site.device() as device:
        for i in range(3):
            site.announce(announcement(factory.bundle(9), 9, chunks=f"fleet/never{i}"))
            device.until(lambda i=i: device.state.filters[-1:] == (f"fleet/never{i}/+",))  # type: ignore[misc]
            device.until(lambda: device.updates.status()["state"] == "fetching")
        site.operator.retain("fleet/chunks/0", data)
        site.announce(announcement(bundle, 2, chunks="fleet/chunks", chunk_bytes=len(data)))
        device.until_runs("watch/2")
        (broker_client,) = device.app.brokers.clients.values()
        device.until(lambda: not broker_client._unsubscribing and not broker_client._leaving)
        assert [one for one, _ in broker_client._router.filters()] == ["fleet/update", "fleet/keys"]
        for topic in ("fleet/never0/0", "fleet/never2/0", "fleet/chunks/0"):
            site.operator.retain(topic, b"x")
        site.announce(b"")
        device.until(lambda: device.counts.get("update_announcement_empty") == 1)
        assert device.counts.get("unexpected_topic", 0) == 0


def test_a_key_that_is_taken_out_takes_its_announcement_and_its_floors_with_it(factory: Factory, site: Site) -> None:
    """Else who stole the old key could have raised the floors beyond every later announcement."""
    new = key_set([factory.key("next").public], 1, [factory.key("release"), factory.key("next")])
    with site.device() as device:
        site.announce(announcement(factory.bundle(9), 9, chunks="fleet/never", sequence=2**62))
        site.until_told(lambda told: told["state"] == "fetching")
        bundle = factory.bundle(2, key="next")
        with FileServer(bundle.read_bytes()) as files:
            site.announce(announcement(bundle, 2, url=files.url, key="next"))  # before the key that signs it counts
            device.until(lambda: device.counts.get("update_announcement_signature") == 1)
            site.operator.retain("fleet/keys", new)
            device.until_runs("watch/2")


def test_an_unexpected_error_in_an_update_ends_neither_the_stream_nor_later_updates(
    factory: Factory, site: Site, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutations: `Updates.open` hands on the loop itself; `Jobs` without `unexpected`."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("nobody thought of this")

    bundle = factory.bundle(2)
    data = bundle.read_bytes()
    with site.device(drop=site.folder / "drop") as device, FileServer(data) as files:
        for place, name in (
            (announcements, "parse"), (Acquisition, "consider"), (fetch, "fetch"), (Chunks, "add"), (inbox,
            "requests"), (Acquisition, "poll"), (check, "examine"), (Rollout, "try_out"),
        ):  # fmt: skip
            with monkeypatch.context() as patched:
                patched.setattr(place, name, fail)
                where = {"url": files.url} if name != "add" else {"chunks": "fleet/one"}
                site.operator.retain("fleet/one/0", data)
                before = device.counts.get("side_channel_errors_total", 0)
                if name not in ("requests", "poll"):  # these are called by a timer
                    site.announce(announcement(bundle, 2, **where, chunk_bytes=len(data)))
                device.until(lambda before=before: device.counts.get("side_channel_errors_total", 0) > before)  # type: ignore[misc]
                seen = len(device.answers.all)
                device.until(lambda seen=seen: len(device.answers.all) > seen + 5)  # type: ignore[misc]
        inbox.post(UpdateStore(site.folder / "updates", read_only=True), Request(action="apply"), bundle)
        device.until_runs("watch/2")
        device.stop()
    assert_no_window_missing(device.answers)
    lines = [record.message for record in caplog.records if "unexpected error, inference goes on" in record.message]
    assert lines
    assert len(lines) == len(set(lines)), "each cause is logged once"
    assert not [record for record in caplog.records if record.exc_info and record.levelname != "DEBUG"]


REFUSALS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "signature": ({"key": "stranger"}, {}),
    "expired": ({"expires": "2001-01-01"}, {}),
    "digest": ({}, {"sha256": "0" * 64}),
    "size": ({}, {"size": 10}),
    "too_large": ({}, {"size": 10**9}),
    "name": ({}, {"name": "clock"}),
    "announcement": ({}, {"surprise": 1}),
}


def test_what_is_wrong_is_refused_once_with_one_line_and_counted(
    factory: Factory, site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    with site.device() as device:
        for reason, (made, told) in REFUSALS.items():
            caplog.clear()
            bundle = factory.bundle(2, **made)
            with FileServer(bundle.read_bytes()) as files:
                site.announce(announcement(bundle, 2, **{"url": files.url} | told))
                device.until(lambda reason=reason: device.counts.get(f"update_{reason}") == 1)  # type: ignore[misc]
                device.until(lambda: not device.updates.busy)
            lines = [record.message for record in caplog.records if "refused" in record.message]
            assert len(lines) == 1, lines
            assert "\n" not in lines[0]
        assert device.counts["updates_refused_total"] == len(REFUSALS)
        device.stop()
    assert device.answers.models() == ["watch/1"]
    assert_no_window_missing(device.answers)
    assert list((site.folder / "updates/bundles").iterdir()) == []


def test_an_older_version_is_refused_whatever_was_installed_since(factory: Factory, site: Site) -> None:
    with site.device() as device:
        for version in (3, 2):
            bundle = factory.bundle(version)
            with FileServer(bundle.read_bytes()) as files:
                site.announce(announcement(bundle, version, url=files.url))
                if version == 3:
                    device.until_runs("watch/3")
                else:
                    device.until(lambda: device.counts.get("update_older") == 1)
                    assert files.requests == []
    assert state_of(site.folder).highest == {"watch": 3}


def test_a_server_that_comes_back_is_asked_again(factory: Factory, site: Site) -> None:
    bundle = factory.bundle(2)
    with FileServer(bundle.read_bytes()) as files, site.device() as device:
        files.status = 503
        site.announce(announcement(bundle, 2, url=files.url))
        device.until(lambda: device.counts.get("update_fetch_failures_total", 0) > 2)
        site.until_told(lambda told: "answers 503" in told.get("note", ""))
        files.status = 200
        device.until_runs("watch/2")


def test_only_the_canaries_take_it_until_the_share_grows(factory: Factory, site: Site) -> None:
    bundle = factory.bundle(2)
    with FileServer(bundle.read_bytes()) as files, site.device() as device:
        site.announce(announcement(bundle, 2, url=files.url, canary=0.0))
        site.until_told(lambda told: "for a share of 0 of the devices" in told.get("note", ""))
        assert files.requests == []
        site.announce(announcement(bundle, 2, url=files.url, not_before="2100-01-01"))
        site.until_told(lambda told: "not before 2100-01-01" in told.get("note", ""))
        assert files.requests == []
        site.announce(b"")
        site.announce(announcement(bundle, 2, url=files.url, canary=1.0, not_before="2020-01-01"))
        device.until_runs("watch/2")


def test_a_new_key_is_taken_and_the_old_one_is_not_any_more(factory: Factory, site: Site) -> None:
    new = key_set([factory.key("next").public], 1, [factory.key("release"), factory.key("next")])
    forged = key_set([factory.key("stranger").public], 2, [factory.key("stranger")])
    with site.device() as device:
        site.operator.retain("fleet/keys", forged)
        device.until(lambda: device.counts.get("update_keys") == 1)
        site.operator.retain("fleet/keys", new)
        site.until_told(lambda told: told["keys_version"] == 1)
        bundle = factory.bundle(2)
        with FileServer(bundle.read_bytes()) as files:
            site.announce(announcement(bundle, 2, url=files.url))
            device.until(lambda: device.counts.get("update_announcement_signature") == 1)
            site.announce(announcement(bundle, 2, url=files.url, key="next"))
            device.until(lambda: device.counts.get("update_signature") == 1)
        bundle = factory.bundle(2, key="next")
        with FileServer(bundle.read_bytes()) as files:
            site.announce(announcement(bundle, 2, url=files.url, key="next"))
            device.until_runs("watch/2")
    with site.device() as again:  # the new key is known after a restart; what it signed runs
        again.until(lambda: again.answers.all)
        assert again.answers.models() == ["watch/2"]


def test_the_broker_says_that_a_device_is_gone_which_cannot_say_it(factory: Factory, site: Site) -> None:
    """Mutation: `BrokerClient._make_connection` without the Will: the retained status says "idle" for ever."""
    with site.device() as device:
        site.until_told(lambda told: told["state"] == "idle" and told["time"])
        connection = device.app.brokers.clients["b"]._connection
        assert connection is not None
        device.app.loop.call_soon_threadsafe(lambda: connection.abort("cut"))
        told = site.until_told(lambda told: told["state"] == "gone")
        assert (told["device"], told["runtime"]) == ("w1", __version__)
        seen = len(site.heard)
        until(lambda: any(told["state"] == "idle" for told in site.heard[seen:]), lambda: site.heard[-3:])
        device.stop()


def test_where_the_one_will_is_the_application_s_the_status_of_updates_names_its_topic(
    folder: Path, factory: Factory
) -> None:
    with either_broker("mosquitto") as broker, listening(broker.port, "fleet/w1/update") as heard:
        more = BROKER.format(url=broker.url) + 'status_topic = "fleet/w1/status"\n'
        topics: dict[str, Any] = TOPICS
        with Device(configured(folder, more=more, **topics)) as device:
            until(lambda: heard and heard[-1]["state"] == "idle", lambda: heard)
            assert heard[-1]["presence"] == "fleet/w1/status"
            device.stop()


STREAM = """
[model]
bundle = "v1.edge"
trusted_keys = ["release.pub.pem"]
[broker.b]
url = "{url}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "live.jsonl"
[window]
lateness_s = 1.0
[update]
folder = "updates"
broker = "b"
topic = "fleet/update"
hosts = ["127.0.0.1"]
shadow_s = 0.0
shadow_windows = 10
trial_s = 0.0
trial_windows = 10
compare_share = 1.0
max_slowdown = 1000.0
"""


@pytest.mark.parametrize("kind", ["mosquitto", "embedded"])
def test_a_stream_over_the_broker_is_answered_as_by_a_replay_across_the_swap(
    factory: Factory, folder: Path, kind: str
) -> None:
    """Same windows, ids, labels and scores as `edge-runtime replay`, but for the name of the model.

    The new bundle has the same network, so that the answers can be compared on both sides of the swap.
    """
    recorded = streams(3, 1600)
    recording = write_recording(folder / "whole.jsonl", recorded)
    out = folder / "replayed.jsonl"
    assert main(["replay", str(folder / "v1.edge"), str(recording), "--out", str(out)]) == 0
    expected = answers(out)
    messages = [message for parts in zip(*(cut(one, lambda: 16) for one in recorded), strict=True) for message in parts]
    bundle = factory.bundle(2)
    with either_broker(kind) as broker, Publisher(broker.port) as publisher, FileServer(bundle.read_bytes()) as files:
        application = App(parse(STREAM.format(url=broker.url), folder / "app.toml"))
        with Thread(application):
            until(lambda: has_subscriptions(broker, application.brokers.clients["b"]._client_id))
            counts = application.metrics.counts
            publisher.send(messages[:30])
            until(lambda: counts["readings_total"] >= 30, counts)
            publisher._client.publish("fleet/update", announcement(bundle, 2, url=files.url), 1, retain=True)
            sent = 30
            while application.model.manifest.version == 1 or application.updates.busy:  # type: ignore[union-attr]
                assert sent < len(messages), "the stream was too short for the update"
                publisher.send(messages[sent : sent + 1])
                sent += 1
                until(lambda sent=sent: counts["readings_total"] >= sent, counts)  # type: ignore[misc]
                time.sleep(0.02)
            publisher.send(messages[sent:])
            until(lambda: counts["readings_total"] >= len(messages), counts)
    found = answers(folder / "live.jsonl")
    models = {answer["model"] for answer in found}
    assert models == {"watch/1", "watch/2"}
    for answer in found:
        answer["model"] = "watch/1"
    assert_same_answers(found, expected)
    for key in {answer["key"] for answer in found}:
        slots = [int(answer["id"].rpartition("@")[2]) for answer in found if answer["key"] == key]
        assert all(b - a == HOP for a, b in pairwise(slots))


class Thread:
    """Runs an application beside the test."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._thread = threading.Thread(target=application.run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._application.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
