"""An engine in a process of its own, so that it may hang or die: what a driver does to its process cannot be undone.

The process is given the verified bytes of the model over a socket, loads it, and answers batch after batch. When a call
is not back in time the process is killed; when the process ends, the caller hears of it at once. Either way it gets an
`EngineError` that says how, and still has its windows. A call costs a round trip more than in this process
(docs/decisions/0010-failover.md has figures).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NoReturn

import numpy as np

from edge_runtime.engines.base import Array, Engine, EngineOptions, TensorSpec
from edge_runtime.engines.tensors import Inputs
from edge_runtime.errors import ADVICE, EdgeError, EngineError, InputError, one_line
from edge_runtime.system import subprocess_job

if TYPE_CHECKING:
    from edge_runtime.engines.providers import Placement

_HEAD: Final = struct.Struct("<BI")
"""Kind of message, and bytes that follow."""
_ARRAY: Final = struct.Struct("<4sB6q")
"""Element type as numpy writes it, number of axes, and up to six sizes."""
_JOB, _CALL, _FINE, _REFUSED, _FAILED = range(5)
_GRACE_S: Final = 2.0
"""Longest wait for a process to end on request."""


class WorkerEngine:
    """An engine that runs in a child process; see `edge_runtime.engines.base.Engine`.

    Args:
        engine: name in `edge_runtime.engines`.
        model: the bytes of a verified file.
        options: how it may use the machine.
        provider_options: accelerators by name with their settings.
        deadline_s: how long a call may take.
        load_timeout_s: how long loading may take.
        memory_bytes: memory that the process may write to (`subprocess_job.memory_for`); None is any.

    Raises:
        EngineError: no process can be started, or the engine refuses the model, or hangs or dies while it loads it.
    """

    def __init__(
        self,
        engine: str,
        model: bytes,
        options: EngineOptions,
        provider_options: Mapping[str, Any] | None = None,
        *,
        deadline_s: float,
        load_timeout_s: float,
        memory_bytes: int | None = None,
    ) -> None:
        self._buffer = memoryview(bytearray(4096))
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process: subprocess.Popen[bytes] | None = self._start(theirs.fileno())
        job = {
            "engine": engine,
            "options": asdict(options),
            "provider_options": dict(provider_options or {}),
            "deadline_s": deadline_s,
            "load_timeout_s": load_timeout_s,
            "memory_bytes": memory_bytes,
        }
        head = json.dumps(job).encode()
        self._timeout_s = load_timeout_s
        self._socket.settimeout(load_timeout_s)
        try:
            about = json.loads(bytes(self._ask(_JOB, [struct.pack("<I", len(head)), head, model], "loading the model")))
        except BaseException:
            self.close()
            raise
        self.name = f"{about['name']}, in a process of its own"
        self.inputs: tuple[TensorSpec, ...] = tuple(map(_spec, about["inputs"]))
        self.outputs: tuple[TensorSpec, ...] = tuple(map(_spec, about["outputs"]))
        self.placement = _placement(about.get("placement"))
        """See `edge_runtime.engines.onnx.OnnxEngine.placement`."""
        self._check = Inputs(self.inputs).check
        self._timeout_s = deadline_s
        self._socket.settimeout(deadline_s)

    @property
    def pid(self) -> int:
        """Of the process; 0 when there is none any more."""
        return self._process.pid if self._process is not None else 0

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """See `edge_runtime.engines.base.Engine.run`."""
        return _unpack(self._ask(_CALL, _pack(self._check(arrays)), "an answer"))

    def close(self) -> None:
        """See `edge_runtime.engines.base.Engine.close`."""
        self._end(kill=False)

    def _start(self, fd: int) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and a constant program
                subprocess_job.command(f"from {__name__} import child; child({fd})"),
                env=subprocess_job.environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[fd],
            )  # fmt: skip
        except OSError as error:
            self._socket.close()
            raise EngineError(f"cannot start a process for the engine: {error.strerror}") from error

    def _ask(self, kind: int, parts: Sequence[Any], what: str) -> memoryview:
        """Send a message, wait for the answer. When that does not work the process is gone afterwards."""
        if self._process is None:
            raise EngineError("this engine is closed; load the model again")
        size = sum([len(part) for part in parts])
        try:
            # Joined, so that it is one system call and wakes the other side once.
            self._socket.sendall(b"".join([_HEAD.pack(kind, size), *parts]))
            outcome, answer = self._receive()
        except TimeoutError:
            self._end(kill=True)
            raise EngineError(f"{what} was not there within {self._timeout_s:g} s", how="hung") from None
        except OSError:
            how = self._end(kill=False)
            raise EngineError(f"{what} did not come: its process ended {how}", how="died") from None
        if outcome == _FINE:
            return answer
        refusal = json.loads(bytes(answer))
        if outcome == _REFUSED:
            raise InputError(refusal["reason"], refusal["message"])
        raise EngineError(refusal["message"])

    def _receive(self) -> tuple[int, memoryview]:
        """Receive one message, in a buffer that the next one overwrites."""
        buffer, receive = self._buffer, self._socket.recv_into
        got, due, kind = 0, _HEAD.size, -1
        while got < due:
            n = receive(buffer[got:])
            if not n:
                raise ConnectionResetError
            got += n
            if kind < 0 and got >= _HEAD.size:
                kind, size = _HEAD.unpack_from(buffer)
                due += size
                if due > len(buffer):
                    self._buffer = larger = memoryview(bytearray(due))
                    larger[:got] = buffer[:got]
                    buffer = larger
        return kind, buffer[_HEAD.size : due]

    def _end(self, *, kill: bool) -> str:
        """End the process; returns how it ended."""
        process, self._process = self._process, None
        self._socket.close()
        if process is None:
            return ""
        if kill:
            process.kill()
        try:
            code = process.wait(_GRACE_S)  # it ends when it finds the socket closed
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        return subprocess_job.ended(code)


def _spec(plain: Mapping[str, Any]) -> TensorSpec:
    return TensorSpec(plain["name"], np.dtype(plain["dtype"]), tuple(plain["shape"]))


def _placement(plain: Mapping[str, Any] | None) -> Placement | None:
    if plain is None:
        return None
    from edge_runtime.engines.providers import Placement  # noqa: PLC0415 - where there is an accelerator

    return Placement(nodes=dict(plain["nodes"]), on_cpu=tuple(plain["on_cpu"]))


def _pack(arrays: Sequence[Array]) -> list[Any]:
    parts: list[Any] = []
    for array in arrays:
        shape = array.shape
        parts.append(_ARRAY.pack(array.dtype.str.encode(), len(shape), *shape, *(0,) * (6 - len(shape))))
        parts.append(array.tobytes())
    return parts


def _unpack(message: memoryview) -> tuple[Array, ...]:
    arrays = []
    at = 0
    while at < len(message):
        dtype, axes, *sizes = _ARRAY.unpack_from(message, at)
        at += _ARRAY.size
        shape = sizes[:axes]
        count = 1
        for size in shape:
            count *= size
        array = np.frombuffer(message, dtype.rstrip(b"\0").decode(), count, at).reshape(shape)
        at += array.nbytes
        arrays.append(array)
    return tuple(arrays)


# -- the other side ----------------------------------------------------------------------------------------------------


def child(fd: int) -> NoReturn:
    """Load what the parent sends, answer until it closes the socket, and end.

    Signals meant for the whole group are the parent's to act on; an alarm ends a call that hangs even when the parent
    is gone.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=fd) as sock:
        engine: Engine | None = None
        deadline_s = 0.0
        while (message := _next(sock)) is not None:
            kind, body = message
            try:
                if kind == _JOB or engine is None:
                    engine, deadline_s = _load(body)
                    parts: list[Any] = [json.dumps(_about(engine)).encode()]
                else:
                    signal.setitimer(signal.ITIMER_REAL, 2 * deadline_s + 1)
                    parts = _pack(engine.run(*_unpack(memoryview(body))))
                    signal.setitimer(signal.ITIMER_REAL, 0)
                outcome = _FINE
            except InputError as error:
                outcome, parts = _REFUSED, [json.dumps({"reason": error.reason, "message": str(error)}).encode()]
            except Exception as error:  # noqa: BLE001 - whatever it is, the parent gets it
                reason = one_line(error if isinstance(error, EdgeError) else f"{type(error).__name__}: {error}", ADVICE)
                outcome, parts = _FAILED, [json.dumps({"message": reason}).encode()]
            sock.sendall(b"".join([_HEAD.pack(outcome, sum(map(len, parts))), *parts]))
    os._exit(0)  # without the clean-up of a library whose process may be ending because of it


def _next(sock: socket.socket) -> tuple[int, bytes] | None:
    head = _exactly(sock, _HEAD.size)
    if head is None:
        return None
    kind, size = _HEAD.unpack(head)
    body = _exactly(sock, size)
    return None if body is None else (kind, body)


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    body = b""
    while len(body) < size:
        try:
            more = sock.recv(size - len(body))
        except ConnectionError:
            return None
        if not more:
            return None
        body = body + more if body else more
    return body


def _load(body: bytes) -> tuple[Engine, float]:
    from edge_runtime import engines  # noqa: PLC0415 - the parent has its own

    (size,) = struct.unpack_from("<I", body)
    job = json.loads(body[4 : 4 + size])
    subprocess_job.limit_memory(job["memory_bytes"])
    signal.setitimer(signal.ITIMER_REAL, 2 * job["load_timeout_s"] + 1)
    engine = engines.load(job["engine"], body[4 + size :], EngineOptions(**job["options"]), job["provider_options"])
    signal.setitimer(signal.ITIMER_REAL, 0)
    return engine, job["deadline_s"]


def _about(engine: Engine) -> dict[str, Any]:
    def plain(specs: Sequence[TensorSpec]) -> list[dict[str, Any]]:
        return [{"name": spec.name, "dtype": spec.dtype.str, "shape": spec.shape} for spec in specs]

    placement = getattr(engine, "placement", None)
    return {
        "name": engine.name,
        "inputs": plain(engine.inputs),
        "outputs": plain(engine.outputs),
        "placement": None if placement is None else asdict(placement),
    }
