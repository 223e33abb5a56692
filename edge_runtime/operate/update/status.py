"""Status of updates, as the topic, the page and ``edge-runtime status`` show it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from edge_runtime._version import __version__
from edge_runtime.base.system.iso8601 import in_words
from edge_runtime.operate.update.acquisition import Acquisition
from edge_runtime.operate.update.config import UpdateConfig
from edge_runtime.operate.update.rollout import Rollout
from edge_runtime.operate.update.state import UpdateState


def gone(config: UpdateConfig, state: str) -> dict[str, Any]:
    """Build the status of a device that is not there: ``stopped`` in order, or ``gone`` without a word."""
    return {"device": config.identity, "state": state, "runtime": __version__}


def of(
    config: UpdateConfig,
    state: UpdateState,
    rollout: Rollout,
    acquisition: Acquisition,
    keys_version: int,
    wall_s: float,
) -> dict[str, Any]:
    """Build the status, as plain values; `wall_s` is the time that it is of, seconds since 1970."""
    status: dict[str, Any] = {
        "device": config.identity,
        "state": rollout.stage,
        "time": in_words(wall_s),
        "runtime": __version__,
        "running": rollout.answering.model,
        "digest": rollout.digest,
        "candidate": state.candidate.model if state.candidate is not None else None,
        "held_back": [f"{one.name}/{one.version}" for one in state.held],
        "on_hold": state.on_hold,
        "keys_version": keys_version,
        "last": state.last,
    }
    if state.history:
        status["ended"] = asdict(state.history[-1])
    if (ready := acquisition.ready) is not None:
        status["ready"] = ready.what
        status["state"] = "ready" if status["state"] == "idle" else status["state"]
    if acquisition.note:
        status["note"] = acquisition.note
    if (progress := acquisition.progress) is not None:
        model, have, size = progress
        status |= {"state": "fetching", "candidate": model, "bytes": have, "size": size}
    if (run := rollout.run) is not None:
        tally = run.pair.tally
        status |= {
            "answered": tally.answered, "compared": tally.compared, "agreement": round(tally.agreement, 4),
            "slowdown": round(tally.slowdown, 2), "errors": tally.errors, "skipped": tally.skipped,
        }  # fmt: skip
        if (proof := rollout.proof) is not None:
            status["proof"] = proof.status()
    return status
