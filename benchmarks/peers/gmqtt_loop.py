"""The loop on gmqtt (asyncio): ``python -m benchmarks.peers.gmqtt_loop --port 1883 --model model.onnx``."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from benchmarks.peers.loop import TOPICS, end_on_sigterm, loop, parser


async def run(port: int, model: Any) -> None:
    gmqtt = import_module("gmqtt")
    client = gmqtt.Client("peer")
    program = loop(client, model)
    client.on_connect = lambda c, *_: c.subscribe(TOPICS, qos=0)

    async def on_message(_client: Any, topic: str, payload: bytes, _qos: int, _properties: Any) -> int:
        program.handle(topic, payload)
        return 0

    client.on_message = on_message
    await client.connect("127.0.0.1", port, version=4)
    await asyncio.Event().wait()


if __name__ == "__main__":
    options = parser().parse_args()
    end_on_sigterm()
    asyncio.run(run(options.port, options.model))
