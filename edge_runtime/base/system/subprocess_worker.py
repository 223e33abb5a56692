"""Child process that answers one call after another, and may hang or die: its caller hears of it, and lives.

Calls and answers go over a socket. When an answer is not back in time the process is killed; when the process ends, the
caller hears of it at once. `edge_runtime.base.system.subprocess_job` is for a single job.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, NoReturn

from edge_runtime.base.system import subprocess_job
from edge_runtime.errors import ADVICE, EdgeError, EngineError, InputError, one_line

_HEAD: Final = struct.Struct("<BI")
"""Kind of message, and bytes that follow."""
_BEGIN, _CALL, _FINE, _REFUSED, _FAILED = range(5)
_GRACE_S: Final = 2.0
"""Longest wait for a process to end on request."""


class Worker:
    """The process, as its caller sees it. For one thread at a time.

    Args:
        program: a line of Python that ends in a function of the file descriptor of a socket, which calls `serve`.

    Raises:
        EngineError: no process can be started.
    """

    def __init__(self, program: str) -> None:
        self._buffer = memoryview(bytearray(4096))
        self._socket, theirs = socket.socketpair()
        fd = theirs.fileno()
        with theirs:
            try:
                self._process: subprocess.Popen[bytes] | None = subprocess.Popen(  # noqa: S603 - our own interpreter
                    subprocess_job.command(f"{program}({fd})"), env=subprocess_job.environment(),
                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[fd],
                )  # fmt: skip
            except OSError as error:
                self._socket.close()
                raise EngineError(f"cannot start a child process: {error.strerror}") from error

    @property
    def pid(self) -> int:
        """Of the process; 0 when there is none any more."""
        return self._process.pid if self._process is not None else 0

    def begin(self, parts: Sequence[Any], what: str, timeout_s: float) -> memoryview:
        """Send what the process needs to begin; as `ask`, but that the process is gone after any error."""
        try:
            return self._exchange(_BEGIN, parts, what, timeout_s)
        except BaseException:
            self.close()
            raise

    def ask(self, parts: Sequence[Any], what: str, timeout_s: float) -> memoryview:
        """Send a call, and wait for its answer, which the next one overwrites.

        Args:
            parts: the call's bytes, in parts.
            what: name of the call, for messages.
            timeout_s: after which the process is killed.

        Raises:
            InputError: the process refuses the call.
            EngineError: it failed; where it hung or died (`EngineError.how`), it is gone.
        """
        return self._exchange(_CALL, parts, what, timeout_s)

    def close(self) -> None:
        """End the process. May be called twice."""
        self._end(kill=False)

    def kill(self) -> None:
        """End the process at once; from any thread. A call that waits for it hears that it died."""
        if (process := self._process) is not None:
            process.kill()

    def _exchange(self, kind: int, parts: Sequence[Any], what: str, timeout_s: float) -> memoryview:
        size = sum([len(part) for part in parts])
        try:
            self._socket.settimeout(timeout_s)
            # Joined, so that it is one system call and wakes the other side once.
            self._socket.sendall(b"".join([_HEAD.pack(kind, size), *parts]))
            outcome, answer = self._receive()
        except TimeoutError:
            self._end(kill=True)
            raise EngineError(f"{what} was not there within {timeout_s:g} s", how="hung") from None
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


# -- the other side ----------------------------------------------------------------------------------------------------


class Service(NamedTuple):
    """Work of a process once it has begun."""

    about: Sequence[Any]
    """Parts of the answer to `Worker.begin`."""
    answer: Callable[[bytes], Sequence[Any]]
    """Takes a call, and returns the parts of its answer."""
    deadline_s: float
    """Of a call; twice that after it, the process ends even when its caller is gone."""


def serve(fd: int, begin: Callable[[bytes], Service]) -> NoReturn:
    """Begin with what the caller sends, answer until it closes the socket, and end.

    Signals meant for the whole group are the caller's to act on.

    Args:
        fd: the socket's file descriptor.
        begin: takes what `Worker.begin` was given.
    """
    import resource  # noqa: PLC0415 - POSIX only, and only the child needs it

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=fd) as sock:
        service: Service | None = None
        while (message := _next(sock)) is not None:
            kind, body = message
            try:
                if kind == _BEGIN or service is None:
                    service = begin(body)
                    parts = service.about
                else:
                    signal.setitimer(signal.ITIMER_REAL, 2 * service.deadline_s + 1)
                    parts = service.answer(body)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                outcome = _FINE
            except InputError as error:
                outcome, parts = _REFUSED, [json.dumps({"reason": error.reason, "message": str(error)}).encode()]
            except Exception as error:  # noqa: BLE001 - whatever it is, the caller gets it
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
    body = bytearray(size)
    got = 0
    while got < size:
        try:
            n = sock.recv_into(memoryview(body)[got:])
        except ConnectionError:
            return None
        if not n:
            return None
        got += n
    return bytes(body)
