"""The loop on aiomqtt (asyncio over paho): ``python -m benchmarks.peers.aiomqtt_loop --port 1883 --model m.onnx``."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from benchmarks.peers.loop import TOPICS, Answers, end_on_sigterm, loop, parser


async def run(port: int, model: Any) -> None:
    answers = Answers()
    program = loop(answers, model)
    async with import_module("aiomqtt").Client("127.0.0.1", port) as client:
        await client.subscribe(TOPICS)
        async for message in client.messages:
            program.handle(str(message.topic), message.payload)
            for topic, payload in answers.take():
                await client.publish(topic, payload)


if __name__ == "__main__":
    options = parser().parse_args()
    end_on_sigterm()
    asyncio.run(run(options.port, options.model))
