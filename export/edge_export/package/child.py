"""Model files in a child process, so that one that kills its process, hangs or asks for all memory costs one line."""

from __future__ import annotations

from edge_runtime.base.system.subprocess_job import memory_for
from edge_runtime.errors import IncompatibleError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.engines.subprocess_engine import WorkerEngine

DEADLINE_S = 60.0
"""For one call, and for loading: a workstation needs a hundredth of it."""

_ACTIVATIONS_BYTES = 2**25
"""Of a small file that takes large pictures or sounds: as much as `memory_for` allows another gigabyte for."""


def in_child(format_: str, data: bytes, max_batch: int = 32) -> WorkerEngine:
    """Load a model, or a chain, in a child process whose memory and time are bounded.

    Raises:
        EngineError: the engine refuses it, or dies or hangs.
        IncompatibleError: no engine for the format is installed.
    """
    installed = engines.available(format_)
    if not installed:
        wanted = engines.engines_for(format_)[0]
        raise IncompatibleError(f"no engine for {format_} is installed; run: {wanted.install}")
    return WorkerEngine(
        installed[0].name, data, EngineOptions(max_batch=max_batch), deadline_s=DEADLINE_S, load_timeout_s=DEADLINE_S,
        memory_bytes=memory_for(len(data), _ACTIVATIONS_BYTES),
    )  # fmt: skip
