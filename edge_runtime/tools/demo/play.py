"""Plays recordings as the watches would: one MQTT message of half a second from each, again and again.

Runs in a process of its own, with plain paho-mqtt, as a sensor's program would be written.
"""

from __future__ import annotations

import argparse
import queue
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.reasoncodes import ReasonCode

from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.tools.demo.schedule import ScheduledSet, load_recordings, plan

SAMPLES = 25  # half a second at 50 Hz


def messages(turns: list[ScheduledSet], rate_hz: float) -> Iterator[tuple[float, str, bytes]]:
    """Return all messages of a plan as (stamp of the last sample, topic, payload), in the order of those stamps."""
    ready = []
    for turn in turns:
        for at in range(0, len(turn.recording.values), SAMPLES):
            values = turn.recording.values[at : at + SAMPLES]
            t = turn.start + at / rate_hz
            document = {"t": t, "values": values.tolist()}
            ready.append((t + len(values) / rate_hz, f"watch/{turn.watch}/imu", orjson.dumps(document)))
    ready.sort(key=lambda message: message[0])
    yield from ready


def play(url: str, turns: list[ScheduledSet], *, base: float, speed: float, rate_hz: float) -> int:
    """Publish a plan with QoS 1, `speed` times as fast as it was recorded; return the number of messages.

    Raises:
        ConnectionError: the broker is not there, or does not take the watches.
    """
    address = BrokerConfig(url=url).address()
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2,
        client_id="edge-demo-watches",
        protocol=mqtt.MQTTv311,  # what every broker speaks, and most sensors
        transport="tcp" if address.websocket_path is None else "websockets",
    )
    if address.websocket_path is not None:
        client.ws_set_options(address.websocket_path)
    if address.tls:
        client.tls_set()
    client.max_inflight_messages_set(200)
    answers: queue.SimpleQueue[ReasonCode] = queue.SimpleQueue()
    client.on_connect = lambda _client, _userdata, _flags, reason, _properties: answers.put(reason)
    client.connect(address.host, address.port)
    client.loop_start()
    try:
        if (answer := answers.get(timeout=10)).is_failure:
            raise ConnectionRefusedError(f"the broker at {address} answers: {answer}")
    except queue.Empty:
        raise ConnectionError(f"the broker at {address} does not answer") from None
    began = time.monotonic()
    sent = []
    for stamp, topic, payload in messages(turns, rate_hz):
        wait = (stamp - base) / speed - (time.monotonic() - began)
        if wait > 0:
            time.sleep(wait)
        sent.append(client.publish(topic, payload, qos=1))
    for info in sent:
        info.wait_for_publish(30)
    client.disconnect()
    client.loop_stop()
    return len(sent)


def main() -> int:
    """Play the demo's messages; the demo calls this in a child process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--url", required=True)
    parser.add_argument("--watches", type=int, required=True)
    parser.add_argument("--base", type=float, required=True)
    parser.add_argument("--speed", type=float, required=True)
    parser.add_argument("--rate", type=float, required=True)
    options = parser.parse_args()
    turns = plan(load_recordings(options.recordings), options.watches, options.base, options.rate)
    try:
        print(play(options.url, turns, base=options.base, speed=options.speed, rate_hz=options.rate), flush=True)
    except OSError as error:
        print(f"watches: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
