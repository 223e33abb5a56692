"""A network that misbehaves: a TCP proxy on 127.0.0.1 with the eight toxics of Shopify's toxiproxy.

::

    with Proxy(broker_port) as proxy:      clients connect to proxy.port
        proxy.poison(Latency(0.05), Slicer(7))
        proxy.poison(Timeout(0), up=False)  half-open: nothing comes down any more, and nobody is told
        proxy.heal()
        proxy.down()                        the port is closed, what is connected is cut
        proxy.up()

Toxics act on connections that exist as well as on new ones. Names and meanings as in toxiproxy's README.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import threading
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

_CHUNK = 16 * 1024
_WAIT_S = 30.0
_FOR_EVER_S = 86_400.0


class Cut(Exception):  # noqa: N818 - what a toxic does, not a mistake
    """Ends the connection; with ``reset`` by RST and not by FIN."""

    def __init__(self, *, reset: bool = False) -> None:
        super().__init__()
        self.reset = reset


class Toxic:
    """Does nothing; the others override what they disturb."""

    async def watch(self) -> None:
        """Runs beside the connection from the moment on that both are there; may raise `Cut`."""

    async def pieces(self, data: bytes, passed: int) -> AsyncIterator[bytes]:
        """What becomes of `data`, when `passed` bytes have gone through in this direction before."""
        yield data

    async def closing(self) -> None:
        """Runs before an end of stream is passed on."""


@dataclass(frozen=True)
class Latency(Toxic):
    """Each piece waits ``seconds``, give or take ``jitter``."""

    seconds: float
    jitter: float = 0.0

    async def pieces(self, data: bytes, passed: int) -> AsyncIterator[bytes]:
        await asyncio.sleep(max(0.0, self.seconds + random.uniform(-self.jitter, self.jitter)))
        yield data


@dataclass(frozen=True)
class Bandwidth(Toxic):
    """So many bytes a second."""

    bytes_per_s: float

    async def pieces(self, data: bytes, passed: int) -> AsyncIterator[bytes]:
        step = max(1, int(self.bytes_per_s / 50))
        for at in range(0, len(data), step):
            piece = data[at : at + step]
            await asyncio.sleep(len(piece) / self.bytes_per_s)
            yield piece


@dataclass(frozen=True)
class SlowClose(Toxic):
    """The end of the stream arrives later than it happened."""

    seconds: float

    async def closing(self) -> None:
        await asyncio.sleep(self.seconds)


@dataclass(frozen=True)
class Timeout(Toxic):
    """Nothing passes any more; after ``seconds`` the connection ends, with 0 it stays half-open.

    What has met it stays frozen when the network heals: TCP delivers everything or nothing more.
    """

    seconds: float = 0.0

    async def watch(self) -> None:
        if self.seconds:
            await asyncio.sleep(self.seconds)
            raise Cut

    async def pieces(self, data: bytes, passed: int) -> AsyncIterator[bytes]:
        await asyncio.sleep(_FOR_EVER_S)
        yield data

    async def closing(self) -> None:
        await asyncio.sleep(_FOR_EVER_S)  # whoever ends the connection is not heard either


@dataclass(frozen=True)
class ResetPeer(Toxic):
    """RST after ``seconds``."""

    seconds: float = 0.0

    async def watch(self) -> None:
        await asyncio.sleep(self.seconds)
        raise Cut(reset=True)


@dataclass(frozen=True)
class Slicer(Toxic):
    """Small packets: ``size`` bytes, give or take ``variation``, ``delay`` seconds apart."""

    size: int
    variation: int = 0
    delay: float = 0.0

    async def pieces(self, data: bytes, passed: int) -> AsyncIterator[bytes]:
        at = 0
        while at < len(data):
            end = at + max(1, self.size + random.randint(-self.variation, self.variation))
            yield data[at:end]
            at = end
            await asyncio.sleep(self.delay)


@dataclass(frozen=True)
class LimitData(Toxic):
    """The connection ends when this many bytes have passed."""

    limit: int

    async def pieces(self, data: bytes, passed: int) -> AsyncIterator[bytes]:
        if left := data[: max(0, self.limit - passed)]:
            yield left
        if passed + len(data) >= self.limit:
            raise Cut


class Proxy:
    """Passes 127.0.0.1:`port` on to 127.0.0.1:`upstream`. ``down`` and ``up`` are the eighth toxic.

    Attributes:
        accepted: connections taken so far.
        cuts: connections that a toxic, `cut` or `down` ended.
    """

    def __init__(self, upstream: int) -> None:
        self.upstream = upstream
        self.port = 0
        self.accepted = self.cuts = 0
        self._toxics: tuple[list[Toxic], list[Toxic]] = ([], [])
        self._tasks: dict[asyncio.Task[None], _Group | None] = {}
        self._listener: socket.socket | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    # -- from the test's thread ----------------------------------------------------------------------------------

    def poison(self, *toxics: Toxic, up: bool = True, down: bool = True) -> None:
        """Add toxics in the direction to the upstream, from it, or both."""
        self._do(self._poison(toxics, up, down))

    def heal(self) -> None:
        """Take all toxics away. Connections that were frozen stay so."""
        for toxics in self._toxics:
            toxics.clear()

    def cut(self, *, reset: bool = False) -> None:
        """End every connection now."""
        self._do(self._cut(reset))

    def down(self, *, reset: bool = False) -> None:
        """Close the port and every connection."""
        self._do(self._down(reset))

    def up(self) -> None:
        """Open the port again, if it is closed."""
        self._do(self._up())

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(_WAIT_S)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self.up()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down(reset=True)
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WAIT_S)
        self._loop.close()

    # -- on the proxy's own --------------------------------------------------------------------------------------

    async def _poison(self, toxics: Sequence[Toxic], up: bool, down: bool) -> None:
        for wanted, present in zip((up, down), self._toxics, strict=True):
            present.extend(toxics if wanted else ())
        for group in list(self._tasks.values()):
            for toxic in toxics:
                _watch(group, toxic)

    async def _cut(self, reset: bool) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel("reset" if reset else "")
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _down(self, reset: bool) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self._cut(reset)

    async def _end(self) -> None:
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.wait(others)
        await asyncio.sleep(0)  # the transports' own last callbacks

    async def _up(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", self.port))
            self._listener.setblocking(False)
            self.port = self._listener.getsockname()[1]
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        # Not asyncio.start_server nor sock_accept: ended in the moment of an accept, they forget that connection.
        assert self._listener is not None
        with suppress(OSError):
            sock, _ = self._listener.accept()
            self.accepted += 1
            handling = self._loop.create_task(self._handle(sock))
            self._tasks[handling] = None
            handling.add_done_callback(lambda _: sock.close())
            handling.add_done_callback(self._tasks.pop)

    async def _handle(self, sock: socket.socket) -> None:
        task = asyncio.current_task()
        assert task is not None
        reader, writer = await asyncio.open_connection(sock=sock)
        ends = [writer]
        reset = False
        try:
            onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self.upstream)
            ends.append(onward_writer)
            self._tasks[task] = group = _Group()
            for toxic in {id(toxic): toxic for toxics in self._toxics for toxic in toxics}.values():
                _watch(group, toxic)
            group.start(self._pump(reader, onward_writer, self._toxics[0]))
            group.start(self._pump(onward_reader, writer, self._toxics[1]))
            await group.wait()
        except Cut as cut:
            self.cuts += 1
            reset = cut.reset
        except OSError:
            reset = True  # the upstream is away, or one end broke: the other one hears of it
        except asyncio.CancelledError as cancelled:
            self.cuts += 1
            reset = "reset" in cancelled.args
        finally:
            for end in ends:
                _close(end, reset=reset)

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, toxics: list[Toxic]) -> None:
        passed = 0
        while data := await reader.read(_CHUNK):
            async for piece in _through(list(toxics), data, passed):
                writer.write(piece)
                await writer.drain()
            passed += len(data)
        for toxic in list(toxics):
            await toxic.closing()
        if writer.can_write_eof():
            with suppress(OSError):
                writer.write_eof()


async def _through(toxics: list[Toxic], data: bytes, passed: int) -> AsyncIterator[bytes]:
    if not toxics:
        yield data
        return
    first, *others = toxics
    async for piece in first.pieces(data, passed):
        async for out in _through(others, piece, passed):
            yield out


class _Group:
    """Tasks that end together: with the first that fails, or when all are done. (asyncio's is of Python 3.11.)"""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[None]] = set()
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        error = None if task.cancelled() else task.exception()
        if self.ended.done():
            return
        if error is not None:
            self.ended.set_exception(error)
        elif not self._running:
            self.ended.set_result(None)

    async def wait(self) -> None:
        try:
            await self.ended
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)


def _watch(group: _Group | None, toxic: Toxic) -> None:
    if group is not None and not group.ended.done():  # else it is not connected yet, and will see it when it is
        group.start(toxic.watch())


def _close(end: asyncio.StreamWriter, *, reset: bool) -> None:
    sock: socket.socket | None = end.get_extra_info("socket")
    if reset and sock is not None:
        with suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.transport.abort()
