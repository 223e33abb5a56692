"""R6: brokers are killed and restarted while readings flow: nothing we acknowledged is lost, and soon it flows again.

Readings come from a broker that is killed and forgets everything; answers go to one that keeps what it has acknowledged
over its restarts (persistence, SIGTERM: with SIGKILL mosquitto loses what it had taken, whoever sent it). A reading is
acknowledged when the second broker has its answer.

Broken on purpose, each seen to fail here: no new SUBSCRIBE when the session is gone (nothing flows), answers in flight
not sent again to the broker that came back (lost), waits of a minute (flows too late).
"""

from __future__ import annotations

import random
import time
from pathlib import Path

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.metrics import Metrics
from tests.faults.conftest import Note
from tests.faults.network.traffic import Answering, Sensor, turn, until
from tests.faults.oracle import History
from tests.long_tier import Tier
from tests.mosquitto import Mosquitto, needs_mosquitto

RETRY = Retry(base_s=0.05, cap_s=1.0)
SLOW_MACHINE_S = 1.0
"""For everything that is not waiting: the new broker's first turn, CONNECT, SUBSCRIBE, a loaded machine."""


@needs_mosquitto
def test_restarts_lose_nothing_that_was_acknowledged_and_flow_resumes(
    tmp_path: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    restarts = tier(5, 100)
    history, loop = History(), Loop()
    queues = "max_queued_messages 0"
    keeps = ("persistence true", f"persistence_location {tmp_path}/", "autosave_interval 1", queues)
    resumed: list[float] = []
    with Mosquitto(queues) as readings, Mosquitto(*keeps) as answers:
        sensor = Sensor(readings.url, loop, answers_url=answers.url, retry=Retry(base_s=0.01, cap_s=0.05))
        source = BrokerClient(BrokerConfig(url=readings.url, client_id="in"), "in", Metrics(), retry=RETRY, rng=rng)
        sink = BrokerClient(BrokerConfig(url=answers.url, client_id="out"), "out", Metrics(), retry=RETRY, rng=rng)
        device = Answering(sink, history)
        source.subscribe([("readings/#", 1)], device.take)
        source.open(loop)
        sink.open(loop, publish_qos=1)
        until(loop, lambda: sensor.connected and source.connected and sink.connected and not source._subscribing)
        for number in range(restarts):
            for _ in range(rng.randrange(5, 15)):
                sensor.publish(rng.randrange(1, 8))
                turn(loop, rng.uniform(0.001, 0.01))
            if number % 2:
                answers.restart()
                until(loop, lambda: sink.connected)
            else:
                readings.kill()
                turn(loop, rng.uniform(0.0, 0.5))
                readings.start()
                back = time.monotonic()
                until(loop, lambda: sensor.broker_client.connected)
                # A message that nobody has subscribed to is nobody's: publish until one comes through.
                known = len(device.seen)
                while len(device.seen) == known:
                    assert time.monotonic() < back + 30, "nothing flows any more"
                    sensor.publish(1)
                    turn(loop, 0.02)
                resumed.append(time.monotonic() - back)
        until(loop, lambda: sink.connected and source.connected)
        sensor.publish(1)
        last = str(sensor.sent - 1)
        until(loop, lambda: last in history.acknowledged and not device.unanswered, lambda: device.unanswered)
        heard = sensor.answers
        until(loop, lambda: {one.decode() for one in heard.payloads} >= history.acknowledged)
        for payload in heard.payloads:
            history.deliver(payload.decode(), payload)
        verdict = history.verdict()
        for broker_client in (source, sink):
            broker_client.close(0.5)
        sensor.close()
    loop.close()
    assert verdict.valid, verdict
    assert max(resumed) <= 2 * RETRY.cap_s + SLOW_MACHINE_S, resumed
    lost_by_broker = sensor.sent - len(device.seen)
    note(
        "R6",
        f"{restarts} restarts, {sensor.sent} readings, {verdict.acknowledged.total()} acknowledged, 0 lost; "
        f"{lost_by_broker} went down with the killed broker; flowing again in {max(resumed):.2f} s at most",
    )
