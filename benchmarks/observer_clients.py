"""Ten unwanted observers: ``python -m benchmarks.observer_clients hanging|flooding PORT``, until it is ended.

*hanging*: four open the stream of pictures and never read, three send half a request and wait, three send and read one
byte a second; who is dropped comes again. *flooding*: each asks for the whole picture or for the metrics, and asks
again as soon as it has the answer. When all ten are there, a line says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Awaitable, Callable

CLIENTS = 10

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def _request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


async def _never_reads(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_request("/api/stream?keys=200"))
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    await asyncio.sleep(3600)


async def _half_a_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(_request("/api/report")[:40])
    await reader.read()


async def _a_byte_a_second(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for byte in _request("/api/stream"):
        writer.write(bytes([byte]))
        await asyncio.sleep(1)
    while await reader.read(1):  # noqa: ASYNC110 - a pace, not a poll
        await asyncio.sleep(1)


async def _asks_again(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(_request(path))
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        await reader.readexactly(length)


def clients(kind: str) -> list[Client]:
    """List what each of the ten does."""
    if kind == "hanging":
        return [*[_never_reads] * 4, *[_half_a_request] * 3, *[_a_byte_a_second] * 3]
    paths = ("/api/report?keys=200", "/metrics")
    return [
        lambda reader, writer, path=paths[at % 2]: _asks_again(path, reader, writer)  # type: ignore[misc]
        for at in range(CLIENTS)
    ]


async def _for_ever(client: Client, port: int, there: Callable[[], None]) -> None:
    while True:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096)
            there()
            await client(reader, writer)
            writer.close()
        await asyncio.sleep(0.02)


async def _all(kind: str, port: int) -> None:
    arrived = 0

    def there() -> None:
        nonlocal arrived
        arrived += 1
        if arrived == CLIENTS:
            print("there", flush=True)

    await asyncio.gather(*(_for_ever(client, port, there) for client in clients(kind)))


if __name__ == "__main__":
    os.nice(19)  # they share a core with the load, and must not slow that
    asyncio.run(_all(sys.argv[1], int(sys.argv[2])))
