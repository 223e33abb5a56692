"""Load a model where it may die: in a child process, before this one touches it.

A malformed model can end the process that loads or runs it, and no Python code can catch that. So a child is given the
verified bytes over a pipe (it opens no file of the bundle), bounded in memory, processor time and wall time, and told
to load the variant and replay the golden vectors. What became of it is classified here; the parent loads only what the
child survived.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import BundleError, EdgeError, EngineError

if TYPE_CHECKING:
    from edge_runtime.bundle import Bundle
    from edge_runtime.engine import EngineOptions

TIMEOUT_S = 30.0
"""A Raspberry Pi 3 imports an engine in about two seconds; ten times that, and some."""
MEMORY_BYTES = 4 * 2**30
"""Of address space, most of which an engine never touches; twenty times what loading a small model maps (0.2 GB)."""

_HEADER = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """What became of a variant in a child process."""

    variant: str
    outcome: Literal["ok", "refused", "wrong", "died", "hung"]
    """``refused``: the engine would not have it. ``wrong``: its answers are not the golden ones. ``died``: it took the
    process with it. ``hung``: it did not end in time."""
    reason: str = ""
    """One line for people; empty when ok."""
    engine: str = ""
    """Library and version, once the model was loaded."""
    worst: float = 0.0
    """Largest difference from the golden vectors."""
    load_s: float = 0.0
    """Importing the engine and loading the model, in the child."""
    replay_s: float = 0.0
    """Running the golden vectors."""
    total_s: float = 0.0
    """Wall time of the whole probe, as the parent saw it."""

    @property
    def ok(self) -> bool:
        """Whether the variant may be loaded."""
        return self.outcome == "ok"

    def require(self) -> None:
        """Do nothing if it is ok.

        Raises:
            BundleError: wrong answers.
            EngineError: refused, died or hung.
        """
        if self.outcome == "wrong":
            raise BundleError(self.reason)
        if not self.ok:
            raise EngineError(self.reason)


def probe(
    bundle: Bundle,
    variant: str,
    options: EngineOptions | None = None,
    *,
    engine: str | None = None,
    provider_options: Mapping[str, Any] | None = None,
    timeout_s: float = TIMEOUT_S,
    memory_bytes: int | None = None,
    clock: Clock | None = None,
) -> ProbeReport:
    """Load a variant in a child process and replay its golden vectors there.

    Args:
        bundle: an open bundle; its bytes are verified again before they are sent.
        variant: name of the variant.
        options: as for the real load.
        engine: name of an engine; None takes the best one installed.
        provider_options: accelerators by name with their settings.
        timeout_s: wall time after which the child is killed.
        memory_bytes: address space that the child may use; None is `MEMORY_BYTES` on the processor, and any with
            accelerators: CUDA and its like map far more than they use.
        clock: measures `ProbeReport.total_s`.

    Raises:
        BundleError: no such variant, no engine for it, or the bundle changed on disk.
        EngineError: no child process can be started.
    """
    from edge_runtime.bundle import engine_for  # noqa: PLC0415 - imports this module
    from edge_runtime.engine import EngineOptions  # noqa: PLC0415 - numpy, which the child imports under its limits

    clock = clock or SystemClock()
    started = clock.monotonic()
    chosen = bundle.variant(variant)
    inputs, expected = bundle.golden(variant)
    job = {
        "engine": engine or engine_for(chosen),
        "options": asdict(options or EngineOptions()),
        "provider_options": dict(provider_options or {}),
        "variant": asdict(chosen),
        "inputs": inputs.shape,
        "expected": expected.shape,
        "timeout_s": timeout_s,
        "memory_bytes": memory_bytes or (sys.maxsize if provider_options else MEMORY_BYTES),
    }
    head = json.dumps(job).encode()
    message = b"".join(
        (_HEADER.pack(len(head)), head, inputs.tobytes(), expected.tobytes(), bundle.read_variant(variant))
    )
    outcome = _run(message, timeout_s)
    return ProbeReport(variant=variant, total_s=clock.monotonic() - started, **_named(outcome, variant))


def _named(outcome: dict[str, Any], variant: str) -> dict[str, Any]:
    """Put the variant's name where the child's reason lacks it."""
    reason = outcome.get("reason", "")
    if reason and variant not in reason:
        outcome["reason"] = f"variant {variant}: {reason}"
    return outcome


def _run(message: bytes, timeout_s: float) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)}
    command = [sys.executable, "-P", "-s", "-c", "from edge_runtime import probe; probe.child()"]
    try:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter and a constant program
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        raise EngineError(f"cannot start a child process to try the model in: {error.strerror}") from error
    with process:
        try:
            answer, noise = process.communicate(message, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return {"outcome": "hung", "reason": f"loading it did not end within {timeout_s:g} s in a child process"}
        except BaseException:
            process.kill()
            raise
    return _classify(process.returncode, answer, noise)


def _classify(code: int, answer: bytes, noise: bytes) -> dict[str, Any]:
    if code == 0:
        with contextlib.suppress(ValueError):
            outcome = json.loads(answer)
            if isinstance(outcome, dict):
                return outcome
    if code == -signal.SIGALRM:  # its own alarm, set in case the parent should be gone
        return {"outcome": "hung", "reason": "loading it did not end in time in a child process"}
    lines = [line.strip() for line in noise.decode("utf-8", "replace").splitlines() if line.strip()]
    last = f" ({lines[-1][:200]})" if lines else ""
    return {"outcome": "died", "reason": f"loading it ended a child process {ended(code)}{last}; it is not loaded here"}


def ended(code: int) -> str:
    """How a process ended, for people: ``of SIGSEGV``, ``with exit code 1``."""
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"of {signal.Signals(-code).name}"
    except ValueError:
        return f"of signal {-code}"


def child() -> NoReturn:
    """The other side: read the job from standard input, answer with one JSON object on standard output, and end.

    Ends without the interpreter's own clean-up, which costs time and proves nothing about the model.
    """
    answer = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not get into the answer
    outcome: dict[str, Any]
    try:
        outcome = _attempt()
    except EngineError as error:
        outcome = {"outcome": "refused", "reason": str(error)}
    except BundleError as error:
        outcome = {"outcome": "wrong", "reason": str(error)}
    except (EdgeError, MemoryError, ValueError, TypeError) as error:
        outcome = {"outcome": "refused", "reason": " ".join(str(error).split()) or type(error).__name__}
    with os.fdopen(answer, "wb") as file:
        file.write(json.dumps(outcome).encode())
    os._exit(0)


def _attempt() -> dict[str, Any]:
    data = sys.stdin.buffer.read()
    (size,) = _HEADER.unpack_from(data)
    place = _HEADER.size + size
    job = json.loads(data[_HEADER.size : place])
    _limit(job["timeout_s"], job["memory_bytes"])

    import numpy as np  # noqa: PLC0415 - under the limits

    from edge_runtime import engines  # noqa: PLC0415
    from edge_runtime.bundle import replay  # noqa: PLC0415
    from edge_runtime.engine import EngineOptions  # noqa: PLC0415
    from edge_runtime.manifest import Variant  # noqa: PLC0415

    arrays = []
    for key in ("inputs", "expected"):
        array = np.frombuffer(data, np.float32, int(np.prod(job[key])), place).reshape(job[key])
        place += array.nbytes
        arrays.append(array)
    clock = SystemClock()
    started = clock.monotonic()
    engine = engines.load(job["engine"], data[place:], EngineOptions(**job["options"]), job["provider_options"])
    loaded = clock.monotonic()
    worst = replay(engine, Variant(**job["variant"]), arrays[0], arrays[1])
    replayed = clock.monotonic()
    name = engine.name
    engine.close()
    return {
        "outcome": "ok", "engine": name, "worst": worst, "load_s": loaded - started, "replay_s": replayed - loaded,
    }  # fmt: skip


def _limit(timeout_s: float, memory_bytes: int) -> None:
    """Bounds that hold even when the parent is gone; no core dumps of somebody's model."""
    import resource  # noqa: PLC0415 - POSIX only, and only the child needs it

    def lower(what: int, value: int) -> None:
        _, hard = resource.getrlimit(what)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(what, (value, value))

    lower(resource.RLIMIT_CORE, 0)
    if memory_bytes < sys.maxsize:
        lower(resource.RLIMIT_AS, memory_bytes)
    seconds = max(1, round(timeout_s)) + 1
    lower(resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1))
    signal.alarm(seconds)
