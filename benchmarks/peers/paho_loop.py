"""The hand-written loop as a program of its own: what the benchmarks compare with.

The loop itself is `edge_runtime.tools.bench.handwritten`. With ``--queue`` it takes the other usual shape: paho's own
network thread (``loop_start``), and a queue to the thread that infers.

Run as ``python -m benchmarks.peers.paho_loop --port 1883 --model model.onnx --payload raw``.
"""

from __future__ import annotations

import json
import queue

import orjson
import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.peers.loop import TOPICS, end_on_sigterm, loop, parser
from edge_runtime.tools.bench.handwritten import Decode, decode_raw, json_decoder, no_delay

DECODERS: dict[str, Decode] = {
    "raw": decode_raw,
    "json": json_decoder(json.loads),
    "orjson": json_decoder(orjson.loads),
}


def main() -> None:
    asked = parser()
    asked.add_argument("--window", type=int, default=128)
    asked.add_argument("--channels", type=int, default=6)
    asked.add_argument("--payload", choices=DECODERS, default="raw")
    asked.add_argument("--qos", type=int, default=0)
    asked.add_argument("--mqtt5", action="store_true")
    asked.add_argument("--queue", action="store_true", help="network thread and queue instead of one thread")
    options = asked.parse_args()
    end_on_sigterm()
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5 if options.mqtt5 else mqtt.MQTTv311)
    program = loop(client, options.model, window=options.window, channels=options.channels)
    program.decode = DECODERS[options.payload]
    program.dumps = json.dumps if options.payload == "json" else orjson.dumps
    client.on_socket_open = no_delay
    client.on_connect = lambda c, *_: c.subscribe(TOPICS, options.qos)
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
