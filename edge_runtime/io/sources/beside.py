"""Costly messages decoded beside the loop, where decoding them would hold up the other keys.

1. A message that is costly by its header is decoded beside the loop, and so is what follows of its key (of its topic,
   where the key stands in the message) until it is back: the order stays. All else is decoded on the loop.
2. With what follows them, those that wait take at most `MOST_BYTES`, and those of QoS 0 half of it a key; what comes
   then is counted as ``too_expensive``. So a backlog waits, as far as a broker sends it. Keys take turns.
3. They are decoded in a child process. One that takes longer than `DEADLINE_S`, or ends the child, is refused, and the
   next one gets a new child. Where a codec remembers (sound, whose streams numpy resamples; coarse stamps), or each
   topic filter has its own, they are decoded here, in turns with the loop.
4. The `done` of messages that arrived together is called when that of each of them is.
5. What is not back when the source is closed is not acknowledged, and comes again; with QoS 0 it is counted as
   ``paused``.
"""

from __future__ import annotations

import json
import logging
import os
import struct
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn, Protocol, runtime_checkable

import numpy as np

from edge_runtime import schema
from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import EngineError, InputError, one_line
from edge_runtime.io.codecs import Codec, Notice
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.io.sources import Deliver
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.manifest.frames import Frame
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading

if TYPE_CHECKING:
    from edge_runtime.base.system.subprocess_worker import Service, Worker

logger = logging.getLogger(__name__)

MOST_BYTES: Final = 64 * 2**20
"""Twenty pictures of 3 MB, which a broker sends before it waits for acknowledgements."""
_OVERHEAD_BYTES: Final = 1024
"""Of each that waits."""
DEADLINE_S: Final = 5.0
"""Ten times the longest that a fuzzer found, and some."""
COSTLY_BYTES: Final = 2**14
"""Of text and documents, of which the slowest takes 4 ms for them on the machine of `docs/speed.md`."""
_BEGIN_S: Final = 60.0
_NICE: Final = 5
"""The loop comes first where there is one core."""


_CALL: Final = struct.Struct("<dI")
"""Time of arrival, and bytes of the key, which follows; then the payload."""


class _Job(NamedTuple):
    key: str
    order: str
    """Those of one come back in the order of arrival."""
    payload: bytes
    decoder: Decoder
    received: float
    wall: float
    done: Done | None


Way = tuple[str, str, Decoder]
"""Key of a topic's messages, the name that messages share which keep their order (`_Job.order`), and their decoder."""


@runtime_checkable
class CostlyCodec(Codec, Protocol):
    """A codec that tells what a message costs before it decodes it; of others the size tells."""

    def is_costly(self, payload: bytes) -> bool:
        """Return whether decoding takes longer than 2 ms or so, by the header alone."""
        ...


class Beside:
    """Way of costly messages. Used on the loop's thread; one of its own decodes, or waits for the child.

    Args:
        metrics: counts ``paused``.
        process: decodes them; None: their codec does, on that thread.
        max_bytes: the most bytes of a message; a larger one is refused as soon on the loop.
        costly: tells which are costly, where their size does not.
    """

    def __init__(
        self,
        metrics: Metrics,
        process: DecodingProcess | None = None,
        max_bytes: int = 2**31,
        costly: Callable[[bytes], bool] | None = None,
    ) -> None:
        self._max_bytes = max_bytes
        self._own = costly
        self._process = process
        self._metrics = metrics
        self._deliver: Deliver | None = None
        self._loop: Loop | None = None
        self._out: Counter[str] = Counter()
        """Bytes that are not back, by the order that they keep."""
        self._waiting: OrderedDict[str, deque[_Job]] = OrderedDict()  # both threads', behind `_changed`
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name="decoder", daemon=True)

    def open(self, loop: Loop, deliver: Deliver) -> None:
        """Deliver from now on."""
        self._loop, self._deliver = loop, deliver

    def may_take(self, publishes: Sequence[Publish]) -> bool:
        """Return whether `part` may take one of them; of most batches it cannot."""
        if self._out or self._own is not None:
            return True
        for publish in publishes:  # noqa: SIM110 - a generator takes three times as long
            if len(publish[1]) > COSTLY_BYTES:
                return True
        return False

    def part(
        self, publishes: list[Publish], way_of: Callable[[bytes], Way | None], received: float, wall: float,
        done: Done | None,
    ) -> tuple[list[Publish], Done | None]:  # fmt: skip
        """Take the costly ones of messages that arrived together; return the others, with their `done`."""
        others: list[Publish] = []
        mine: list[tuple[Publish, Way]] = []
        held = set(self._out)
        for publish in publishes:
            way = None if publish[4] else way_of(publish[0])
            if way is not None and (way[1] in held or self._is_costly(publish[1])):  # rule 1
                held.add(way[1])
                mine.append((publish, way))
            else:
                others.append(publish)
        if not mine:
            return publishes, done
        each = None if done is None else _Each(len(mine) + 1, done)
        for publish, (key, order, decoder) in mine:
            self._put(_Job(key, order, bytes(publish[1]), decoder, received, wall, each))
        return others, each

    def _is_costly(self, payload: bytes) -> bool:
        if len(payload) > self._max_bytes:
            return False
        return len(payload) > COSTLY_BYTES if self._own is None else self._own(payload)

    def close(self) -> None:
        """End the thread, and what it waits for. May be called twice."""
        with self._changed:
            self._deliver = None
            lost = [job for jobs in self._waiting.values() for job in jobs if job.done is None]
            self._metrics.dropped.update("paused" for _ in lost)  # rule 5
            self._waiting.clear()
            self._changed.notify()
        if self._process is not None:
            self._process.kill()
        if self._thread.is_alive():
            self._thread.join()
        if self._process is not None:
            self._process.close()

    def _put(self, job: _Job) -> None:
        size, total, own = len(job.payload) + _OVERHEAD_BYTES, self._out.total(), self._out[job.order]
        of_order = MOST_BYTES if job.done is not None else MOST_BYTES // 2
        if (total and total + size > MOST_BYTES) or (own and own + size > of_order):  # rule 2
            self._back(job, InputError("too_expensive", "as many costly messages wait as may"), 0.0)
            return
        self._out[job.order] += size
        with self._changed:
            self._waiting.setdefault(job.order, deque()).append(job)
            self._changed.notify()
        if self._thread.ident is None:
            self._thread.start()

    def _finish(self, job: _Job, outcome: list[Reading] | InputError, seconds: float) -> None:
        self._out[job.order] -= len(job.payload) + _OVERHEAD_BYTES
        if not self._out[job.order]:
            del self._out[job.order]
        self._back(job, outcome, seconds)

    def _back(self, job: _Job, outcome: list[Reading] | InputError, seconds: float) -> None:
        if self._deliver is None:
            return
        job.decoder.count(1, len(job.payload), seconds)
        if not isinstance(outcome, InputError):
            if outcome:
                self._deliver(outcome, job.received, job.done)
                return
        else:
            job.decoder.refuse(outcome, job.key, job.payload)
        if job.done is not None:
            job.done()

    # -- its own thread ------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        assert self._loop is not None
        clock = self._loop.clock
        while (job := self._next()) is not None:
            began = clock.monotonic()
            decode = job.decoder.codec.decode if self._process is None else self._process.decode
            outcome: list[Reading] | InputError
            try:
                outcome = decode(job.key, job.payload, job.wall)
            except InputError as error:
                outcome = error
            except Exception as error:
                logger.debug("source: decoding a message failed", exc_info=True)
                outcome = InputError("internal_error", f"{one_line(repr(error))}; please report it")
            finish = partial(self._finish, job, outcome, clock.monotonic() - began)
            self._loop.call_soon_threadsafe(finish)

    def _next(self) -> _Job | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._deliver is None)
            if not self._waiting:
                return None
            order, jobs = next(iter(self._waiting.items()))
            job = jobs.popleft()
            if jobs:
                self._waiting.move_to_end(order)
            else:
                del self._waiting[order]
            return job


class DecodingProcess:
    """A child process that decodes, begun when the first message comes.

    Args:
        config: the codec's settings.
        contract: the model's contract.
        notice: told what the codec has to say.
    """

    def __init__(self, config: CodecConfig, contract: InputContract, notice: Notice) -> None:
        frame = None if contract.frame is None else asdict(contract.frame)
        job = {"codec": asdict(config), "channels": list(map(asdict, contract.channels)), "frame": frame}
        self._job = json.dumps(job | {"rate_hz": contract.rate_hz}).encode()
        self._notice = notice
        self._worker: Worker | None = None

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        """See `edge_runtime.io.codecs.Codec`."""
        try:
            if self._worker is None or not self._worker.pid:
                from edge_runtime.base.system.subprocess_worker import Worker  # noqa: PLC0415 - where a costly one comes

                self._worker = Worker(f"from {__name__} import child; child")
                self._worker.begin([self._job], "a process that decodes", _BEGIN_S)
            whose = key.encode()
            answer = self._worker.ask([_CALL.pack(received, len(whose)), whose, payload], "a message", DEADLINE_S)
        except EngineError as error:  # rule 3
            raise InputError("internal_error" if error.how == "raised" else "too_large", str(error)) from None
        readings, notices = _unpack(bytes(answer))
        for name, advice in notices:
            self._notice(name, advice)
        return readings

    def kill(self) -> None:
        """End the process at once, whatever it is at; from any thread."""
        if self._worker is not None:
            self._worker.kill()

    def close(self) -> None:
        """Free what the process leaves; from the thread of `decode`, or after it. May be called twice."""
        if self._worker is not None:
            self._worker.close()


def beside_the_loop(
    config: CodecConfig, contract: InputContract, codecs: Sequence[Codec], metrics: Metrics, notice: Notice
) -> Beside | None:
    """Make the way of costly messages; None where none is, or they bring what later ones need.

    Args:
        config: the codecs' settings.
        contract: the model's contract.
        codecs: one, or one for each topic filter.
        metrics: receives its counts.
        notice: told what a codec has to say.
    """
    if config.type in ("raw", "sparkplug"):
        return None
    remembers = config.type == "pcm" or bool(getattr(config, "time_step_s", 0.0))
    process = None if remembers or len(codecs) > 1 else DecodingProcess(config, contract, notice)
    costly = codecs[0].is_costly if isinstance(codecs[0], CostlyCodec) else None
    return Beside(metrics, process, config.max_bytes, costly)


class _Each:
    """Callback that passes the last of several calls on (rule 4)."""

    def __init__(self, missing: int, done: Done) -> None:
        self._missing, self._done = missing, done

    def __call__(self) -> None:
        self._missing -= 1
        if not self._missing:
            self._done()


# -- the child ---------------------------------------------------------------------------------------------------------


def child(fd: int) -> NoReturn:
    """Decode messages, one after another."""
    from edge_runtime.base.system.subprocess_worker import serve  # noqa: PLC0415

    serve(fd, _begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Codec:
    """Codec of a child."""

    codec: CodecConfig
    channels: tuple[Channel, ...]
    rate_hz: float
    frame: Frame | None


def _begin(body: bytes) -> Service:
    from edge_runtime.base.system import subprocess_job  # noqa: PLC0415
    from edge_runtime.base.system.subprocess_worker import Service  # noqa: PLC0415

    job = schema.load(_Codec, json.loads(body))
    noticed: list[tuple[str, str]] = []

    def notice(name: str, advice: str) -> None:
        noticed.append((name, advice))

    codec = load_codec(job.codec, job.channels, rate_hz=job.rate_hz, notice=notice, frame=job.frame)
    os.nice(_NICE)
    most = job.codec.max_bytes + getattr(job.codec, "max_pixels", 0)
    subprocess_job.limit_memory(subprocess_job.memory_for(most))

    def decode(call: bytes) -> list[bytes]:
        received, length = _CALL.unpack_from(call)
        begin = _CALL.size + length
        noticed.clear()
        try:
            return _pack(codec.decode(call[_CALL.size : begin].decode(), call[begin:], received), noticed)
        except MemoryError:
            raise InputError("too_large", "it takes more memory than a message may") from None

    return Service([b""], decode, DEADLINE_S)


def _pack(readings: Sequence[Reading], notices: Sequence[tuple[str, str]]) -> list[bytes]:
    """Write readings: the length of the head, the head as JSON, padded to whole numbers of 8 bytes, and the arrays."""
    arrays, entries = [], []
    for key, t, values, period_s, channels in readings:
        entries.append((key, t if isinstance(t, float) else None, values.shape, period_s, channels))
        arrays += [b"" if isinstance(t, float) else t.tobytes(), values.astype("<f4").tobytes()]
        arrays.append(bytes(-len(arrays[-1]) % 8))
    head = json.dumps((entries, notices)).encode()
    head += b" " * (-len(head) % 8)
    return [len(head).to_bytes(8, "little"), head, *arrays]


def _unpack(answer: bytes) -> tuple[list[Reading], list[tuple[str, str]]]:
    at = 8 + int.from_bytes(answer[:8], "little")
    entries, notices = json.loads(answer[8:at])
    readings = []
    for key, stamp, shape, period_s, channels in entries:
        t = stamp
        if stamp is None:
            t = np.frombuffer(answer, np.float64, shape[0], at)
            at += t.nbytes
        values = np.frombuffer(answer, "<f4", shape[0] * shape[1], at).reshape(shape)
        at += -(-values.nbytes // 8) * 8
        readings.append(Reading(key, t, values, period_s, None if channels is None else tuple(channels)))
    return readings, notices
