"""The loop on FastStream: ``python -m benchmarks.peers.faststream_loop --port 1883 --model model.onnx``."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from benchmarks.peers.loop import TOPICS, Answers, end_on_sigterm, loop, parser


async def run(port: int, model: Any) -> None:
    answers = Answers()
    program = loop(answers, model)
    framework, mqtt = import_module("faststream"), import_module("faststream.mqtt")
    broker = mqtt.MQTTBroker(f"mqtt://127.0.0.1:{port}", version="3.1.1", apply_types=False, logger=None)

    async def on_message(message: Any) -> None:
        program.handle(message.raw_message.topic, message.body)
        for topic, payload in answers.take():
            await broker.publish(payload, topic)

    async def as_it_came(message: Any) -> Any:
        return message

    broker.subscriber(TOPICS, decoder=as_it_came)(on_message)
    await framework.FastStream(broker, logger=None).run()


if __name__ == "__main__":
    options = parser().parse_args()
    end_on_sigterm()
    asyncio.run(run(options.port, options.model))
