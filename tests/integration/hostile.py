"""A process that takes updates, and everything that others may send to it."""

from __future__ import annotations

import base64
import itertools
import json
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from edge_export.package.sign import SigningKey, envelope, new_key, sign_bundle
from edge_export.package.trusted_keys import key_set

from edge_runtime.operate.update import announcement as announcements
from edge_runtime.operate.update import keys as key_sets
from tests.integration.running import Answer, Process, Publisher, payload, predictions, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

APP = """
[model]
bundle = "v1.edge"
trusted_keys = ["release.pub.pem"]
[broker.b]
url = "{url}"
client_id = "under-test"
status_topic = "fleet/w1/status"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[update]
folder = "updates"
drop = "drop"
poll_s = 0.2
broker = "b"
topic = "fleet/update"
keys_topic = "fleet/keys"
status_topic = "fleet/w1/update"
device_id = "w1"
{more}
"""
ANNOUNCED, KEYS = "fleet/update", "fleet/keys"
SAMPLES = 16
"""Of a good message: as many as a window has, so each gives at least one answer."""
PLACES = [
    "$share", "$share/", "$share//x", "$share/g/x", "$SYS/broker", "a/#", "+", "#", "evil/t", "fleet", "watch", "",
]  # fmt: skip


class Site:
    """A device's folder, its broker, and who signs for it."""

    def __init__(self, folder: Path, broker: Mosquitto, publisher: Publisher, more: str = "") -> None:
        self.folder = folder
        self.broker = broker
        self.publisher = publisher
        for name in ("release", "stranger"):
            new_key(folder / f"{name}.pem")
        self.key, self.stranger = SigningKey(folder / "release.pem"), SigningKey(folder / "stranger.pem")
        for version in (1, 2):
            sign_bundle(tiny_bundle(folder / f"v{version}.edge", hop=8, name="watch", version=version), self.key)
        (folder / "drop").mkdir()
        (folder / "app.toml").write_text(APP.format(url=broker.url, more=more))
        self._lives = itertools.count()
        self._sent = 0
        self._sequence = itertools.count(1)

    def run(self) -> Process:
        """The application; it has subscribed when this returns."""
        process = Process(self.folder, "run", "app.toml", "--json", name=f"life-{next(self._lives)}")
        process.subscribed(self.broker)
        return process

    def answers(self) -> list[Answer]:
        """Of the good sensor."""
        return [one for one in predictions(self.folder / "answers.jsonl") if one["key"] == "good"]

    def answered(self, process: Process) -> int:
        """Send a good reading and wait for its answer: the device still infers. How many answers there are."""
        before = len(self.answers())
        times = 1_700_000_000.0 + (self._sent * SAMPLES + np.arange(SAMPLES)) / 50.0
        self._sent += 1
        self.publisher.publish("watch/good/imu", payload(times, np.zeros((SAMPLES, 3), np.float32)), 1)
        until(lambda: len(self.answers()) > before or not process.running(), lambda: process.err[-3000:])
        assert process.running(), process.err[-3000:]
        return len(self.answers())

    def announce(self, *, by: SigningKey | None = None, **change: Any) -> bytes:
        """A well-formed announcement of version 9, signed; whatever is changed."""
        told = {
            "type": "announcement", "name": "watch", "version": 9, "sha256": "f" * 64, "size": 1000,
            "sequence": next(self._sequence), "issued": "2026-01-01T00:00:00Z", "expires": "2126-01-01T00:00:00Z",
            "devices": ["*"],
        }  # fmt: skip
        return envelope(announcements.PAYLOAD_TYPE, json.dumps(told | change).encode(), [by or self.key])


def unsigned(**change: Any) -> bytes:
    """An announcement as they were before they were signed."""
    return json.dumps({"name": "watch", "version": 9, "sha256": "f" * 64, "size": 1000} | change).encode()


def end(process: Process) -> dict[str, Any]:
    """Stop it in order; its final figures."""
    process.send(signal.SIGTERM)
    assert process.wait() == 0, process.err[-3000:]
    assert "Traceback" not in process.err
    figures: dict[str, Any] = json.loads(process.out)
    return figures


class Fuzzer:
    """Messages on every topic that the application listens on: hostile, mutated, valid.

    Args:
        site: whose keys sign some of them.
        rng: decides.
    """

    def __init__(self, site: Site, rng: random.Random) -> None:
        self._site = site
        self._rng = rng
        self._round = 0
        self._makers: list[Callable[[], tuple[str, bytes]]] = [
            self._sensor, self._sensor, self._announcement, self._announcement, self._keys, self._chunk, self._other,
        ]  # fmt: skip

    def messages(self, count: int) -> Iterator[tuple[str, bytes, bool]]:
        """Topic, payload, and whether it is retained."""
        for _ in range(count):
            topic, data = self._rng.choice(self._makers)()
            yield topic, data, self._rng.random() < 0.02

    def next_round(self) -> bytes:
        """An announcement that is to be followed: its chunks are asked for below a topic of its own."""
        self._round += 1
        return self._site.announce(chunks=f"fuzz/c{self._round}", chunk_bytes=100)

    def _mutated(self, data: bytes) -> bytes:
        rng, changed = self._rng, bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(changed) + 1)
            changed[at : at + rng.choice([0, 0, 1, 1, 5, 50])] = rng.randbytes(rng.choice([0, 1, 1, 3]))
        return bytes(changed)

    def _junk(self) -> bytes:
        rng = self._rng
        depth = rng.randrange(1, 3000)
        return rng.choice([
            b"", b"\0", b"{}", b"[]", b"null", b"NaN", b"1e999", rng.randbytes(rng.randrange(1, 300)), b"[" * depth,
            b'{"a":' * depth, b'"' + b"\\" * depth, b"9" * 5000, b'{"t": 1e308, "values": [[1e308]]}',
            b'{"t": -1e308, "values": [[0,0,0]]}', b'{"t": 1, "values": {"t": []}}', b"\xff\xfe", b" " * 20_000,
        ])  # fmt: skip

    def _sensor(self) -> tuple[str, bytes]:
        rng = self._rng
        times = rng.choice([0.0, 1e9, 1.7e9, 4e9, -1e9]) + np.arange(8) / 50.0
        good = payload(times, np.zeros((8, 3), np.float32))
        key = rng.choice(["a", "b", "$SYS", "..", " ", "ä" * 50, "{0}", "%s", "x" * 200, ""])
        return f"watch/{key}/imu", rng.choice([good, self._mutated(good), self._mutated(good), self._junk()])

    def _announcement(self) -> tuple[str, bytes]:
        rng, site = self._rng, self._site
        place = rng.choice(PLACES)
        change: dict[str, Any] = rng.choice([
            {"chunks": place}, {"url": "http://a..b/x"}, {"url": "http://127.0.0.1:1/x"}, {"url": "http://[::1]:1/x"},
            {"chunks": "fuzz/c0", "size": 10**15}, {"chunks": "evil/t", "canary": 0.0}, {"version": 2**70},
            {"chunks": "evil/t", "expires": "2026-01-02"}, {"chunks": "evil/t", "devices": ["*" * 200]},
            {"chunks": "evil/t", "not_before": "0001-01-01T00:00+23:59"}, {"chunks": "evil/t", "name": "\0"},
        ])  # fmt: skip
        kind = rng.randrange(6)
        if kind == 0:
            return ANNOUNCED, self._junk()
        if kind <= 2:
            return ANNOUNCED, unsigned(**change)
        made = site.announce(by=site.stranger if kind == 3 else site.key, **{"sequence": rng.randrange(1, 3)} | change)
        return ANNOUNCED, made if kind == 5 else self._mutated(made)

    def _keys(self) -> tuple[str, bytes]:
        rng, site = self._rng, self._site
        forged = key_set([site.stranger.public], 1, [site.stranger])
        opened = json.loads(forged)
        opened["payload"] = base64.b64encode(self._junk()).decode()
        signed = envelope(key_sets.PAYLOAD_TYPE, self._junk(), [site.key])
        return KEYS, rng.choice([forged, self._mutated(forged), orjson.dumps(opened), signed, self._junk()])

    def _chunk(self) -> tuple[str, bytes]:
        rng = self._rng
        number = rng.choice(["0", "1", "9", "10", "-1", "", "x", "0/1", "²", "99999999999", "00000001"])
        return f"fuzz/c{max(0, self._round - rng.randrange(3))}/{number}", rng.randbytes(
            rng.choice([0, 1, 99, 100, 101])
        )

    def _other(self) -> tuple[str, bytes]:
        return self._rng.choice(["evil/t/0", "evil/t", "fleet/w1/update", "fleet/other", "x/0"]), self._junk()


def fuzz(site: Site, rng: random.Random, count: int, *, every: int = 500) -> tuple[int, dict[str, Any]]:
    """Send many messages to a running application, with a good reading after each few hundred.

    In the middle it is killed and started again, on the session and the retained messages that it left.

    Returns:
        How many good readings were answered, and the final figures of its last life.
    """
    fuzzer, answered = Fuzzer(site, rng), 0
    process = site.run()
    try:
        for sent in range(0, count, every):
            site.publisher.publish(ANNOUNCED, fuzzer.next_round(), 1)
            for topic, data, retain in fuzzer.messages(every):
                site.publisher.sent += 1
                site.publisher._client.publish(topic, data, 1, retain=retain)
            site.answered(process)
            answered += 1
            if sent < count // 2 <= sent + every:
                process.kill()
                process = site.run()
        said = "".join(path.read_text("utf-8", "replace") for path in site.folder.glob("*.err")).splitlines()
        assert any("began to fetch: model=watch/9" in line for line in said), "nothing was followed"
        assert [line for line in said if "unexpected error" in line or "internal_error" in line] == []
        return answered, end(process)
    finally:
        if process.running():
            process.kill()
