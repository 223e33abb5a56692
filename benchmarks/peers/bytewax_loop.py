"""The loop as a dataflow of Bytewax, fed by paho: ``python -m benchmarks.peers.bytewax_loop --port 1883 ...``."""

from __future__ import annotations

import queue
from importlib import import_module
from typing import Any

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.peers.loop import TOPICS, Answers, end_on_sigterm, loop, parser
from edge_runtime.tools.bench.handwritten import no_delay

MOST = 256
"""Messages in one batch of the dataflow."""


def main() -> None:
    options = parser().parse_args()
    end_on_sigterm()
    inputs, outputs = import_module("bytewax.inputs"), import_module("bytewax.outputs")
    operators = import_module("bytewax.operators")
    answers = Answers()
    program = loop(answers, options.model)
    messages: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
    client = mqtt.Client(CallbackAPIVersion.VERSION2)
    client.on_socket_open = no_delay
    client.on_connect = lambda c, *_: c.subscribe(TOPICS)
    client.on_message = lambda _client, _userdata, message: messages.put((message.topic, bytes(message.payload)))

    class Partition(inputs.StatelessSourcePartition):  # type: ignore[misc, name-defined]
        def next_batch(self) -> list[tuple[str, bytes]]:
            return [messages.get() for _ in range(min(messages.qsize(), MOST))]

    class Source(inputs.DynamicSource):  # type: ignore[misc, name-defined]
        def build(self, *_where: Any) -> Partition:
            return Partition()

    class Publisher(outputs.StatelessSinkPartition):  # type: ignore[misc, name-defined]
        def write_batch(self, items: list[tuple[str, bytes]]) -> None:
            for topic, payload in items:
                client.publish(topic, payload)

    class Sink(outputs.DynamicSink):  # type: ignore[misc, name-defined]
        def build(self, *_where: Any) -> Publisher:
            return Publisher()

    def answered(message: tuple[str, bytes]) -> list[tuple[str, bytes]]:
        program.handle(*message)
        return answers.take()

    flow = import_module("bytewax.dataflow").Dataflow("loop")
    read = operators.input("messages", flow, Source())
    operators.output("results", operators.flat_map("answers", read, answered), Sink())
    client.connect("127.0.0.1", options.port)
    client.loop_start()
    import_module("bytewax.run").cli_main(flow)


if __name__ == "__main__":
    main()
