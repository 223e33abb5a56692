"""A job for a child process: sent over a pipe, bounded, and answered with one JSON object.

For what may end the process that does it, which no Python code can catch. The child is a fresh interpreter with the
path of this one. It opens nothing that this process has open, is bounded in memory, processor time and wall time even
when this process is gone, and leaves no core dump of the user's model.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from edge_runtime.errors import ADVICE, BundleError, EdgeError, EngineError, one_line

MEMORY_BYTES: Final = 4 * 2**30
"""Most for any job; rule 3 of `memory_for`. Not for accelerators: CUDA and its like map far more than they use."""

BASE_BYTES: Final = 512 * 2**20
"""Rule 1 of `memory_for`: five times what interpreter, numpy and an engine with a small model write to (0.1 GB)."""

BASE_BYTES_PER_CPU: Final = 64 * 2**20
"""OpenBLAS has a buffer and a stack for each processor, whether numpy multiplies or not."""

TIMES: Final = 32
"""Rule 2 of `memory_for`: int8 weights become floats (4), are packed again (8), and each input has its activations."""

LEAST_BYTES: Final = 384 * 2**20
"""Rule 3 of `memory_for` on the smallest boards, where less would refuse every model."""

_HEADER: Final = struct.Struct("<Q")


def command(program: str) -> list[str]:
    """Return the command that starts an interpreter like this one with a line of Python.

    It does not look into the working directory.
    """
    # As -P of Python 3.11 does it, for 3.10, too; `sys` is built in and read from no path.
    return [sys.executable, "-s", "-c", f"import sys; sys.path = [path for path in sys.path if path]; {program}"]


def environment() -> dict[str, str]:
    """Return this process's own environment, with its path."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)}


def memory_for(sent_bytes: int, declared_bytes: int = 0) -> int:
    """Return the memory that a child may write to for a job with a model; `ask` takes it.

    1. An engine with a small model takes `BASE_BYTES`, and `BASE_BYTES_PER_CPU` for each processor.
    2. What is sent (models, states, windows) may take `TIMES` its own size, and so may what it only declares.
    3. Never more than `MEMORY_BYTES`, nor than three quarters of this machine's memory, but `LEAST_BYTES` always.

    Args:
        sent_bytes: size of the model files and inputs.
        declared_bytes: size of what the job allocates because a file says so: states of a key.
    """
    wanted = BASE_BYTES + BASE_BYTES_PER_CPU * (os.cpu_count() or 1) + TIMES * (sent_bytes + declared_bytes)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(LEAST_BYTES, min(wanted, MEMORY_BYTES, machine * 3 // 4))


def ask(
    program: str,
    job: Mapping[str, Any],
    data: Sequence[bytes],
    *,
    what: str,
    timeout_s: float,
    memory_bytes: int | None,
) -> dict[str, Any]:
    """Have a job done.

    Args:
        program: a line of Python that ends in `answer`.
        job: plain values that become JSON.
        data: bytes that go with it.
        what: name of the job, for messages.
        timeout_s: wall time after which the child is killed, on each processor also the most that it computes.
        memory_bytes: memory that it may write to (`memory_for`); None is any.

    Returns:
        What it answered; with a ``reason``, one line, where it refused the job, and then with the ``outcome`` ``wrong``
        (a BundleError) or ``refused``.

    Raises:
        EngineError: no child can be started, or it hung or died; `EngineError.how` tells which.
    """
    head = json.dumps({**job, "timeout_s": timeout_s, "memory_bytes": memory_bytes}).encode()
    message = b"".join((_HEADER.pack(len(head)), head, *data))
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and a constant program
            command(program), env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise EngineError(f"cannot start a child process to try a model in: {error.strerror}") from error
    with process:
        try:
            answer, noise = process.communicate(message, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise EngineError(f"{what} did not end within {timeout_s:g} s in a child process", how="hung") from None
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0:
        with contextlib.suppress(ValueError):
            outcome = json.loads(answer)
            if isinstance(outcome, dict):
                return outcome
    if process.returncode == -signal.SIGALRM:  # its own alarm, set in case this process should be gone
        raise EngineError(f"{what} did not end in time in a child process", how="hung")
    lines = [line.strip() for line in noise.decode("utf-8", "replace").splitlines() if line.strip()]
    last = f" ({lines[-1][:200]})" if lines else ""
    raise EngineError(f"{what} ended a child process {ended(process.returncode)}{last}", how="died")


def ended(code: int) -> str:
    """Describe how a process ended, for people: ``of SIGSEGV``, ``with exit code 1``."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"of {signal.Signals(-code).name}"
    except ValueError:
        return f"of signal {-code}"


# -- the other side ----------------------------------------------------------------------------------------------------


def answer(work: Callable[[dict[str, Any], memoryview], dict[str, Any]]) -> NoReturn:
    """Do the job that stands on standard input, answer on standard output, and end.

    Without the interpreter's clean-up, which costs time, and in which engines have been seen to crash.

    Args:
        work: takes the job and its data, under the limits, and gives what becomes JSON.
    """
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not get into the answer
    outcome: dict[str, Any]
    try:
        data = memoryview(sys.stdin.buffer.read())
        (size,) = _HEADER.unpack_from(data)
        job = json.loads(bytes(data[_HEADER.size : _HEADER.size + size]))
        _limit(job["timeout_s"], job["memory_bytes"])
        outcome = work(job, data[_HEADER.size + size :])
    except (EdgeError, MemoryError, ValueError, TypeError) as error:
        reason = one_line(error, ADVICE)
        outcome = {"outcome": "wrong" if isinstance(error, BundleError) else "refused", "reason": reason}
    with os.fdopen(out, "wb") as file:
        file.write(json.dumps(outcome).encode())
    os._exit(0)


def limit_memory(memory_bytes: int | None) -> None:
    """Bound the memory that this process may write to from now on (None: any), and leave no core dump."""
    _lower("RLIMIT_CORE", 0)
    if memory_bytes is not None:
        _lower("RLIMIT_DATA", memory_bytes)
        # Libraries, and what allocators only reserve, count as address space alone.
        _lower("RLIMIT_AS", memory_bytes + MEMORY_BYTES)


def _limit(timeout_s: float, memory_bytes: int | None) -> None:
    limit_memory(memory_bytes)
    seconds = max(1, round(timeout_s)) + 1
    _lower("RLIMIT_CPU", seconds * (os.cpu_count() or 1))
    signal.alarm(seconds)


def _lower(name: str, value: int) -> None:
    import resource  # noqa: PLC0415 - POSIX only, and only the child needs it

    what = getattr(resource, name)
    _, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))
