"""Models timed in a child process: one that takes its process with it costs that candidate and nothing else.

The child (`edge_runtime.base.system.subprocess_job`) is a fresh interpreter, so what it says of memory is the device's
bill: Python, numpy, one engine, one model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from edge_runtime.base.system import subprocess_job
from edge_runtime.clock import SystemClock
from edge_runtime.errors import EngineError
from edge_runtime.model.tuning.timing.interleaved import TimedModel, Timing, TimingPlan, time_interleaved

_TRIAL = TimingPlan(rounds=1, block_s=0.001, warm_up=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateTrial:
    """Outcome of a candidate alone in a process.

    Attributes:
        reason: why it cannot be timed, one line; empty when it can.
        load_ms: importing the engine, loading the model and its first calls.
        peak_rss_kb: largest resident memory of the process; 0 where the system does not tell.
    """

    reason: str = ""
    load_ms: float = 0.0
    peak_rss_kb: int = 0


def trial(candidate: TimedModel, *, threads: int = 1, timeout_s: float = 60.0) -> CandidateTrial:
    """Load a candidate in a child process and let it answer a few windows."""
    answer = _ask([candidate], {"job": "trial", "threads": threads, "plan": asdict(_TRIAL)}, timeout_s)
    if "reason" in answer:
        return CandidateTrial(reason=answer["reason"])
    return CandidateTrial(load_ms=answer["load_ms"], peak_rss_kb=answer["peak_rss_kb"])


def time_in_child(
    candidates: Sequence[TimedModel], *, reference: str, threads: int, plan: TimingPlan, timeout_s: float
) -> tuple[Timing, ...]:
    """Run `edge_runtime.model.tuning.timing.interleaved` in a child process.

    Raises:
        EngineError: an engine refused a model, or the child died or did not end in time.
    """
    job = {"job": "interleaved", "reference": reference, "threads": threads, "plan": asdict(plan)}
    answer = _ask(candidates, job, timeout_s)
    if "reason" in answer:
        names = ", ".join(candidate.name for candidate in candidates)
        raise EngineError(f"timing {names} with {threads} threads failed: {answer['reason']}")
    return tuple(Timing(**timing) for timing in answer["timings"])


def _ask(candidates: Sequence[TimedModel], job: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
    blobs, entries = [], []
    for candidate in candidates:
        arrays = [np.ascontiguousarray(array) for array in candidate.inputs]
        entries.append({
            "name": candidate.name,
            "engine": candidate.engine,
            "size": len(candidate.model),
            "batch": candidate.batch,
            "providers": {name: dict(options) for name, options in candidate.providers.items()},
            "inputs": [{"dtype": array.dtype.str, "shape": array.shape} for array in arrays],
        })  # fmt: skip
        blobs += [candidate.model, *(array.tobytes() for array in arrays)]
    boundless = any(candidate.providers for candidate in candidates)
    try:
        return subprocess_job.ask(
            f"from {__name__} import main; main()",
            {**job, "candidates": entries},
            blobs,
            what="it",
            timeout_s=timeout_s,
            memory_bytes=None if boundless else subprocess_job.memory_for(sum(map(len, blobs))),
        )
    except EngineError as error:
        if error.how == "raised":  # nothing was tried
            raise
        return {"reason": str(error)}


def main() -> NoReturn:
    """Serve as the child process."""
    subprocess_job.answer(_attempt)


def _attempt(job: dict[str, Any], data: memoryview) -> dict[str, Any]:
    place = 0
    candidates = []
    for entry in job["candidates"]:
        model, place = bytes(data[place : place + entry["size"]]), place + entry["size"]
        arrays = []
        for spec in entry["inputs"]:
            shape = tuple(spec["shape"])
            array = np.frombuffer(data, spec["dtype"], int(np.prod(shape)), place).reshape(shape)
            place += array.nbytes
            arrays.append(array)
        candidates.append(
            TimedModel(
                name=entry["name"],
                engine=entry["engine"],
                model=model,
                inputs=tuple(arrays),
                providers=entry["providers"],
                batch=entry["batch"],
            ),
        )
    clock = SystemClock()
    started = clock.monotonic()
    timings = time_interleaved(
        candidates,
        reference=job.get("reference", candidates[0].name),
        threads=job["threads"],
        plan=TimingPlan(**job["plan"]),
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
