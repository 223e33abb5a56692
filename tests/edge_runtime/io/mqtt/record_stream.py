"""Record what a real mosquitto sends to a subscriber: ``python -m tests.edge_runtime.io.mqtt.record_stream``.

Writes data/mosquitto_v311.bin and data/mosquitto_v5.bin beside this file: everything from the CONNACK on, for messages
of all QoS, retained ones among them, published by paho; the subscriber acknowledges. mosquitto 2.0.11 made the files.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from paho.mqtt.packettypes import PacketTypes

from edge_runtime.io.mqtt.packets import (
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    V5,
    V311,
    Connect,
    PacketParser,
    Subscribe,
    SubscribeFilter,
    encode_ack,
    encode_connect,
    encode_subscribe,
)
from tests.edge_runtime.io.mqtt.users import User, Wire, properties_for
from tests.mosquitto import Mosquitto

DATA = Path(__file__).with_name("data")
NAMES = {V311: "mosquitto_v311.bin", V5: "mosquitto_v5.bin"}
TOPICS = ("watch/01/imu", "watch/02/imu", "watch/03/imu", "räume/küche/température", "a", "x" * 200)


def _publish(port: int, version: int) -> None:
    chance = random.Random(2024)
    user = User(port, "publisher", version)
    for number in range(160):
        steady = number >= 60  # a burst of equal sizes, which the parser unpacks together
        size = 100 if steady else chance.choice((0, 1, 60, 200, 300, 5000))
        qos = (number // 25) % 2 if steady else chance.randrange(3)
        options: dict[str, Any] = {}
        if version == V5 and not steady and number % 3 == 0:
            pairs = [("unit", "m/s²"), ("long", "y" * 150)][: 1 + number % 2]
            options["properties"] = properties_for(
                PacketTypes.PUBLISH, UserProperty=pairs, CorrelationData=b"#\x23\x00"
            )
        user.publish(
            TOPICS[number % 3 if steady else chance.randrange(len(TOPICS))], chance.randbytes(size), qos, **options
        )
    user.publish("end", b"", 1)
    user.leave()


def record(version: int) -> bytes:
    with Mosquitto("max_inflight_messages 20") as broker:
        user = User(broker.port, "retains", version)
        for topic in TOPICS:
            user.publish(topic, b"retained", 1, retain=True)
        user.leave()
        reader = Wire(broker.port, version)
        reader.send(encode_connect(Connect("recorder", version=version)))
        reader.send(encode_subscribe(Subscribe(1, (SubscribeFilter(b"#", 2),)), version))
        stream, parser, ended, published = b"", PacketParser(version), False, False
        while not ended:
            data = reader.socket.recv(65536)
            stream += data
            for item in parser.feed(data):
                if len(item) == 6:
                    ended = ended or item[0] == b"end"
                    if item[3]:
                        reader.send(encode_ack(PUBACK if item[3] == 1 else PUBREC, [item[2]]))
                elif item[0] == PUBREL:
                    reader.send(encode_ack(PUBCOMP, [int.from_bytes(item[1][:2], "big")]))
            if not published and b"retained" in stream:
                published = True
                _publish(broker.port, version)
        reader.close()
    assert parser.pending_bytes == 0
    return stream


if __name__ == "__main__":
    DATA.mkdir(exist_ok=True)
    for version, name in NAMES.items():
        (DATA / name).write_bytes(record(version))
