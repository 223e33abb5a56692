"""R8: a network that comes and goes a thousand times, in every way a network can: nothing acknowledged is lost.

Half of the flaps hit MQTT (a real mosquitto behind the proxy), half the cloud. Broken on purpose, each seen to fail: a
clean MQTT session, messages of ours not sent again on the next connection, no wait before a new attempt, five attempts
before the first wait (as it was when the test was written), waits without jitter, a cap of ten minutes, an HTTP client
that never gives up on silence.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import RECONNECT, Retry
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.connector import Connector
from edge_runtime.metrics import Metrics
from tests.faults.conftest import Note
from tests.faults.network.endpoint import RIGHT, Device, Endpoint
from tests.faults.network.proxy import (
    Bandwidth,
    Latency,
    LimitData,
    Proxy,
    ResetPeer,
    Slicer,
    SlowClose,
    Timeout,
)
from tests.faults.network.traffic import Answering, Sensor, turn, until
from tests.faults.oracle import History
from tests.long_tier import Tier
from tests.mosquitto import Mosquitto, free_port, needs_mosquitto

CAP_S = 0.04
KINDS = (
    *("fin", "reset", "down", "latency", "limit", "slicer", "half open", "timeout", "reset peer", "slow", "slow close"),
)


@dataclass(frozen=True, kw_only=True)
class Recorded(Retry):
    """Short waits, written down."""

    base_s: float = 0.005
    cap_s: float = CAP_S
    drawn: ClassVar[list[tuple[int, float]]] = []

    def delay(self, failures: int, retry_after_s: float | None, rng: random.Random) -> float:
        wait = super().delay(failures, retry_after_s, rng)
        self.drawn.append((failures, wait))
        return wait


@pytest.fixture
def retry() -> Iterator[Recorded]:
    Recorded.drawn.clear()
    yield Recorded()
    Recorded.drawn.clear()


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the client began to connect."""
    began: list[float] = []
    connect = Connector.connect

    def noted(self: Connector, *arguments: object) -> None:
        began.append(arguments[2].clock.monotonic())  # type: ignore[attr-defined] # the loop
        connect(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Connector, "connect", noted)
    return began


def flap(proxy: Proxy, rng: random.Random, loop: Loop, largest: int) -> str:
    """One disturbance out of all of them; the network is well again afterwards.

    Args:
        proxy: which connections.
        rng: which disturbance.
        loop: turns meanwhile.
        largest: bytes after which a connection may be cut: about a request, so that it often happens inside one.
    """
    kind = rng.choice(
        (
            "fin",
            "reset",
            "down",
            "latency",
            "limit",
            "slicer",
            "half open",
            "timeout",
            "reset peer",
            "slow",
            "slow close",
        )
    )
    if kind in {"fin", "reset"}:
        proxy.cut(reset=kind == "reset")
        return kind
    if kind == "down":
        proxy.down(reset=rng.random() < 0.5)
        turn(loop, rng.uniform(0, CAP_S))
        proxy.up()
        return kind
    toxic = {
        "latency": Latency(rng.uniform(0.001, 0.01), 0.001),
        "limit": LimitData(rng.randrange(1, largest)),
        "slicer": Slicer(rng.randrange(1, 60), delay=0.0002),
        "half open": Timeout(0),
        "timeout": Timeout(rng.uniform(0.001, 0.02)),
        "reset peer": ResetPeer(rng.uniform(0.0, 0.01)),
        "slow": Bandwidth(rng.uniform(2e4, 2e5)),
        "slow close": SlowClose(0.01),
    }[kind]
    direction = rng.choice(("both", "up", "down"))
    proxy.poison(toxic, up=direction != "down", down=direction != "up")
    if kind in {"slow close", "limit", "slicer"}:
        proxy.cut()  # so that it meets a handshake
    turn(loop, rng.uniform(0.005, 0.04))
    proxy.heal()
    if kind in {"half open", "timeout"} and rng.random() < 0.7:
        proxy.cut()  # else the devices have to find out for themselves
    return kind


@needs_mosquitto
@pytest.mark.parametrize("version", ["5", "3.1.1"])
def test_mqtt_flaps_lose_nothing_that_was_acknowledged(
    rng: random.Random, tier: Tier, note: Note, retry: Recorded, attempts: list[float], version: str
) -> None:
    """A device takes readings and answers each; both directions are held against what was sent."""
    flaps = tier(250, 5000)
    history = History()
    loop = Loop()
    with Mosquitto("max_queued_messages 0", "max_inflight_messages 20") as broker, Proxy(broker.port) as proxy:
        sensor = Sensor(broker.url, loop)
        until(loop, lambda: sensor.connected)
        attempts.clear()
        config = BrokerConfig(
            url=f"mqtt://127.0.0.1:{proxy.port}",
            client_id="device",
            protocol=version,  # type: ignore[arg-type]
            keepalive_s=1,
            connect_timeout_s=0.3,
            queue_messages=10**6,
        )
        broker_client = BrokerClient(config, "device", Metrics(), retry=retry, rng=rng)
        device = Answering(broker_client, history)
        broker_client.subscribe([("readings/#", 1)], device.take)
        broker_client.open(loop, publish_qos=1)
        until(loop, lambda: broker_client.connected and not broker_client._subscribing)
        kinds: set[str] = set()
        for _ in range(flaps):
            sensor.publish(rng.randrange(1, 6))
            kinds.add(flap(proxy, rng, loop, 300))
            if rng.random() < 0.5:
                until(loop, lambda: broker_client.connected)
        until(loop, lambda: broker_client.connected)
        sensor.publish(1)
        until(loop, lambda: len(set(sensor.answers.payloads)) == sensor.sent)
        for payload in sensor.answers.payloads:
            history.deliver(payload.decode(), payload)
        until(loop, lambda: len(history.acknowledged) == sensor.sent)  # the last acknowledgement is on its way
        verdict = history.verdict()
        waits = list(retry.drawn)
        broker_client.close(0.5)
        sensor.close()
    loop.close()
    assert verdict.valid, verdict
    assert kinds == set(KINDS)
    assert len(attempts) > flaps // 3, "the flaps did not hurt"
    assert len(attempts) <= len(waits) + 1  # one attempt a step, and the very first
    for (_, wait), before, after in zip(waits, attempts, attempts[1:], strict=False):
        assert after - before >= wait * 0.99
    assert_jitter(waits, retry)
    note(
        "R8",
        f"MQTT {version}: {flaps} flaps, {len(attempts)} connections, {sensor.sent} readings, "
        f"0 lost, {verdict.duplicated.total()} answered again",
    )


def assert_jitter(waits: list[tuple[int, float]], retry: Retry) -> None:
    """Waits after the first failure fill the whole span, and no wait is above the cap."""
    first = [wait for failures, wait in waits if failures == 1]
    if len(first) >= 30:
        assert min(first) < 0.25 * retry.base_s
        assert max(first) > 0.75 * retry.base_s
    assert len({wait for _, wait in waits}) == len(waits)
    assert max(wait for _, wait in waits) <= retry.cap_s


def test_cloud_flaps_lose_nothing_that_was_accepted(
    tmp_path: Path, rng: random.Random, tier: Tier, note: Note, retry: Recorded
) -> None:
    """Requests are cut anywhere: in the handshake, in the question, in the answer."""
    flaps = tier(200, 10_000)
    with Endpoint(lambda _rows: RIGHT) as endpoint, Proxy(endpoint.port) as proxy, Device(
        tmp_path, proxy.port, retry=retry, timeout_s=0.1, connect_timeout_s=0.1, deadline_s=0.5
    ) as device:  # fmt: skip
        offered = 0
        kinds: set[str] = set()
        for _ in range(flaps):
            count = rng.randrange(1, 4)
            device.submit(range(offered, offered + count))
            offered += count
            kinds.add(flap(proxy, rng, device.loop, 700))
            if rng.random() < 0.3:
                device.until(device.settled)
        device.until(device.settled)
        counts = device.outbox.counts()
        assert (counts.accepted, counts.delivered, counts.dead) == (offered, offered, 0)
        asked = sum(endpoint.asked.values())
        assert kinds == set(KINDS)
        assert len(device.attempts) > flaps // 3, "the flaps did not hurt"
        failed = [began for began, connected in device.attempts if not connected]
        assert len(failed) <= len(device.waits)
        for began, _ in device.attempts:
            steps = [due for at, due in device.waits if at <= began]
            assert not steps or began >= steps[-1] - 1e-3, "connected before the back-off was over"
        waits = list(retry.drawn)
    assert max(wait for _, wait in waits) <= retry.cap_s
    assert len({wait for _, wait in waits}) == len(waits)
    note(
        "R8",
        f"cloud: {flaps} flaps, {len(device.attempts)} connections, {offered} cases, 0 lost, "
        f"{asked - offered} asked again",
    )


def test_a_broker_that_is_away_for_a_day_is_tried_once_a_minute_at_most(rng: random.Random, note: Note) -> None:
    """The waits that ship, on a clock that is moved: never more than the cap, never in step with others."""
    retry = Recorded(base_s=RECONNECT.base_s, cap_s=RECONNECT.cap_s, growth=RECONNECT.growth)
    Recorded.drawn.clear()
    clock = SimulatedClock()
    loop = Loop(clock=clock)
    began: list[float] = []
    broker_client = BrokerClient(
        BrokerConfig(url=f"mqtt://127.0.0.1:{free_port()}"), "away", Metrics(), retry=retry, rng=rng
    )
    lost = broker_client._lost

    def noted(why: str) -> None:
        began.append(clock.monotonic())
        lost(why)

    broker_client._lost = noted  # type: ignore[method-assign]
    broker_client.open(loop)
    while clock.monotonic() < 6 * 3600:
        seen = len(began)
        while len(began) == seen:
            loop.iterate(0.05)  # refused at once; the clock stands meanwhile
        _, wait = retry.drawn[-1]
        clock.advance(wait)
    broker_client.close(0)
    loop.close()
    gaps = [after - before for before, after in itertools.pairwise(began[22:])]
    assert max(gaps) <= 60.0
    assert max(gaps) > 50.0
    assert 25 < statistics.mean(gaps) < 35  # full jitter: uniform from 0 to the cap
    assert len({round(gap, 6) for gap in gaps}) == len(gaps)
    assert len(began) <= len(retry.drawn)
    note("R8", f"away for 6 h: {len(began)} attempts, {statistics.mean(gaps):.0f} s apart on average, at most 60")


def test_a_broker_that_was_away_for_five_seconds_is_found_within_half_of_that(rng: random.Random, note: Note) -> None:
    """In most of thirty outages, on a clock that is moved. Mutation that this finds: waits that double."""
    late: list[float] = []
    for _ in range(30):
        retry = Recorded(base_s=RECONNECT.base_s, cap_s=RECONNECT.cap_s, growth=RECONNECT.growth)
        Recorded.drawn.clear()
        clock = SimulatedClock()
        loop = Loop(clock=clock)
        broker_client = BrokerClient(
            BrokerConfig(url=f"mqtt://127.0.0.1:{free_port()}"), "away", Metrics(), retry=retry, rng=rng
        )
        broker_client.open(loop)
        began = clock.monotonic()
        while clock.monotonic() < began + 5.0:
            seen = len(retry.drawn)
            while len(retry.drawn) == seen:
                loop.iterate(0.05)  # refused at once; the clock stands meanwhile
            clock.advance(retry.drawn[-1][1])
        late.append(clock.monotonic() - began - 5.0)
        broker_client.close(0)
        loop.close()
    found = sum(seconds <= 2.5 for seconds in late)
    assert found >= 24, sorted(late)
    note("R8", f"30 brokers away for 5 s: {found} found within 2.5 s, the last one after {max(late):.1f} s")
