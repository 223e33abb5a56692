"""Models timed in a child process: one that takes its process with it costs that candidate and nothing else.

The child is given everything over a pipe and answers with one JSON object. It is a fresh interpreter, so what it
says of memory is the device's bill: Python, numpy, one engine, one model.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from edge_runtime.clock import SystemClock
from edge_runtime.errors import EdgeError, EngineError
from edge_runtime.timing.race import Contender, Plan, Timing, race

MEMORY_BYTES = 4 * 2**30
"""Of address space for each model, most of which an engine never touches."""

_HEADER = struct.Struct("<Q")
_TRIAL = Plan(rounds=1, block_s=0.001, warm_up=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What became of a contender alone in a process.

    Attributes:
        reason: why it cannot be timed, one line; empty when it can.
        load_ms: importing the engine, loading the model and its first calls.
        peak_rss_kb: largest resident memory of the process; 0 where the system does not tell.
    """

    reason: str = ""
    load_ms: float = 0.0
    peak_rss_kb: int = 0


def trial(contender: Contender, *, threads: int = 1, timeout_s: float = 60.0) -> Trial:
    """Load a contender in a child process and let it answer a few windows."""
    answer = _ask([contender], {"job": "trial", "threads": threads, "plan": asdict(_TRIAL)}, timeout_s)
    if "reason" in answer:
        return Trial(reason=answer["reason"])
    return Trial(load_ms=answer["load_ms"], peak_rss_kb=answer["peak_rss_kb"])


def race_in_child(
    contenders: Sequence[Contender], *, reference: str, threads: int, plan: Plan, timeout_s: float
) -> tuple[Timing, ...]:
    """What `edge_runtime.timing.race` does, in a child process.

    Raises:
        EngineError: an engine refused a model, or the child died or did not end in time.
    """
    job = {"job": "race", "reference": reference, "threads": threads, "plan": asdict(plan)}
    answer = _ask(contenders, job, timeout_s)
    if "reason" in answer:
        names = ", ".join(contender.name for contender in contenders)
        raise EngineError(f"timing {names} with {threads} threads failed: {answer['reason']}")
    return tuple(Timing(**timing) for timing in answer["timings"])


def _ask(contenders: Sequence[Contender], job: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    blobs, entries = [], []
    for contender in contenders:
        arrays = [np.ascontiguousarray(array) for array in contender.inputs]
        entries.append({
            "name": contender.name,
            "engine": contender.engine,
            "size": len(contender.model),
            "providers": {name: dict(options) for name, options in contender.providers.items()},
            "inputs": [{"dtype": array.dtype.str, "shape": array.shape} for array in arrays],
        })  # fmt: skip
        blobs += [contender.model, *(array.tobytes() for array in arrays)]
    # CUDA and its like map far more than they use.
    boundless = any(contender.providers for contender in contenders)
    bounds = {"timeout_s": timeout_s, "memory_bytes": sys.maxsize if boundless else MEMORY_BYTES * len(contenders)}
    head = json.dumps({**job, **bounds, "contenders": entries}).encode()
    message = b"".join((_HEADER.pack(len(head)), head, *blobs))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)}
    command = [sys.executable, "-P", "-s", "-c", "from edge_runtime.timing import child; child.main()"]
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and a constant program
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise EngineError(f"cannot start a child process to time a model in: {error.strerror}") from error
    with process:
        try:
            answer, noise = process.communicate(message, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {"reason": f"it did not end within {timeout_s:g} s in a child process"}
        except BaseException:
            process.kill()
            raise
    return _outcome(process.returncode, answer, noise)


def _outcome(code: int, answer: bytes, noise: bytes) -> dict[str, Any]:
    if code == 0:
        with contextlib.suppress(ValueError):
            outcome = json.loads(answer)
            if isinstance(outcome, dict):
                return outcome
    try:
        how = f"of {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    except ValueError:
        how = f"of signal {-code}"
    lines = [line.strip() for line in noise.decode("utf-8", "replace").splitlines() if line.strip()]
    last = f" ({lines[-1][:200]})" if lines else ""
    return {"reason": f"it ended a child process {how}{last}"}


def main() -> NoReturn:
    """The other side. Ends without the interpreter's clean-up, in which engines have been seen to crash."""
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not get into the answer
    outcome: dict[str, Any]
    try:
        outcome = _attempt()
    except (EdgeError, MemoryError, ValueError, TypeError) as error:
        outcome = {"reason": " ".join(str(error).split()) or type(error).__name__}
    with os.fdopen(answer, "wb") as file:
        file.write(json.dumps(outcome).encode())
    os._exit(0)


def _attempt() -> dict[str, Any]:
    data = sys.stdin.buffer.read()
    (size,) = _HEADER.unpack_from(data)
    place = _HEADER.size + size
    job = json.loads(data[_HEADER.size : place])
    _limit(job["timeout_s"], job["memory_bytes"])
    contenders = []
    for entry in job["contenders"]:
        model, place = data[place : place + entry["size"]], place + entry["size"]
        arrays = []
        for spec in entry["inputs"]:
            shape = tuple(spec["shape"])
            array = np.frombuffer(data, spec["dtype"], int(np.prod(shape)), place).reshape(shape)
            place += array.nbytes
            arrays.append(array)
        contenders.append(
            Contender(
                name=entry["name"],
                engine=entry["engine"],
                model=model,
                inputs=tuple(arrays),
                providers=entry["providers"],
            ),
        )
    clock = SystemClock()
    started = clock.monotonic()
    timings = race(
        contenders,
        reference=job.get("reference", contenders[0].name),
        threads=job["threads"],
        plan=Plan(**job["plan"]),
    )
    if job["job"] == "trial":
        return {"load_ms": (clock.monotonic() - started) * 1e3, "peak_rss_kb": _peak_rss_kb()}
    return {"timings": [asdict(timing) for timing in timings]}


def _peak_rss_kb() -> int:
    """From the kernel's own account of this address space.

    Not ``ru_maxrss``: it starts at what the parent had when it forked.
    """
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), 0)


def _limit(timeout_s: float, memory_bytes: int) -> None:
    """Bounds that hold even when the parent is gone; no core dump of somebody's model."""
    import resource  # noqa: PLC0415 - POSIX only, and only the child needs it

    for what, value in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_AS, memory_bytes)):
        _, hard = resource.getrlimit(what)
        if value < sys.maxsize:
            resource.setrlimit(what, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))
    signal.alarm(max(1, round(timeout_s)) + 1)
