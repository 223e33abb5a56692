"""The hand-written loop as a program of its own: what the benchmarks compare with.

The loop itself is `edge_runtime.bench.handwritten`. With ``--queue`` it takes the other usual shape: paho's own network
thread (``loop_start``), and a queue to the thread that infers.

Run as ``python -m benchmarks.handwritten --port 1883 --model model.onnx --payload raw``.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import signal
from pathlib import Path

import orjson
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from edge_runtime.bench.handwritten import Decode, HandWritten, decode_raw, json_decoder, no_delay, onnx_call

DECODERS: dict[str, Decode] = {
    "raw": decode_raw,
    "json": json_decoder(json.loads),
    "orjson": json_decoder(orjson.loads),
}
LABELS = ("rest", "press", "row", "curl", "raise", "swing")


def main() -> None:
    parser = argparse.ArgumentParser(description="The loop that a competent user writes by hand.")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--payload", choices=DECODERS, default="raw")
    parser.add_argument("--qos", type=int, default=0)
    parser.add_argument("--mqtt5", action="store_true")
    parser.add_argument("--queue", action="store_true", help="network thread and queue instead of one thread")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5 if options.mqtt5 else mqtt.MQTTv311)
    program = HandWritten(
        client,
        onnx_call(options.model.read_bytes()),
        decode=DECODERS[options.payload],
        dumps=json.dumps if options.payload == "json" else orjson.dumps,
        labels=LABELS,
        window=128,
        hop=64,
        rate_hz=50.0,
        channels=6,
    )
    client.on_socket_open = no_delay
    client.on_connect = lambda c, *_: c.subscribe("sensors/+/raw", options.qos)
    if options.queue:
        messages: queue.SimpleQueue[mqtt.MQTTMessage] = queue.SimpleQueue()
        client.on_message = lambda _client, _userdata, message: messages.put(message)
        client.connect("127.0.0.1", options.port)
        client.loop_start()
        while True:
            message = messages.get()
            program.handle(message.topic, message.payload)
    client.on_message = lambda _client, _userdata, message: program.handle(message.topic, message.payload)
    client.connect("127.0.0.1", options.port)
    client.loop_forever()


if __name__ == "__main__":
    main()
