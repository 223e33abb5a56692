"""Backend: a variant on an engine and an accelerator; what it is, its state, and its loading on a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from edge_runtime.errors import EngineError
from edge_runtime.manifest import Variant
from edge_runtime.model.serving.loading import Predictor


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """Backend: a variant on an engine and an accelerator, one way to get an answer."""

    name: str
    """For people, logs and the status: the variant, and where it runs if that is not the CPU."""
    variant: Variant
    cost: float = 0.0
    """Cost of an answer, in one unit for all backends of a fallback chain: less is lighter."""
    engine: str = ""
    """Name in `edge_runtime.model.engines`; empty takes the best one installed."""
    threads: int = 0
    """That the engine may use; 0 is as configured."""
    batch: int = 0
    """Windows in a call at most; 0 is as configured."""
    accelerators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Execution providers or delegates by name, with their options; empty runs on the CPU."""
    apart: bool = False
    """It runs in a process of its own, so that it may hang or die."""


class Loaded(Predictor, Protocol):
    """A backend that is in memory and has proven itself."""

    def check(self) -> None:
        """Replay golden vectors.

        Raises:
            BundleError: the answers are other ones.
            EngineError: there are none.
        """
        ...

    def close(self) -> None:
        """Free it. May be called twice."""
        ...


Load = Callable[[Backend], Loaded]
"""Prove a backend in a child process and load it. Slow; called on any thread; raises BundleError or EngineError."""


class Preparation:
    """A backend that is being loaded by a thread of its own."""

    def __init__(self, backend: Backend, load: Load, report: Callable[[Preparation], None]) -> None:
        self.loaded: Loaded | None = None
        self.error: Exception | None = None
        self._backend = backend
        self._load = load
        self._report = report
        self._thread = threading.Thread(target=self._run, name=f"prepare {backend.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loaded = self._load(self._backend)
        except Exception as error:  # noqa: BLE001 - a vendor's library may raise anything; the loop handles it
            self.error = error
        self._report(self)

    def result(self) -> Loaded:
        """Wait for it."""
        self._thread.join()
        if self.loaded is None:
            raise self.error or EngineError("it was not loaded")
        return self.loaded


class BackendState:
    """State of a backend: whether it is loaded, since when it answers, why it may not."""

    __slots__ = ("backend", "failure_reason", "failures", "loaded", "preparation", "since")

    def __init__(self, backend: Backend, loaded: Loaded | None = None, failure_reason: str = "") -> None:
        self.backend = backend
        self.loaded = loaded
        self.failure_reason = failure_reason
        """Why it may not answer; empty if it may."""
        self.failures = int(bool(failure_reason))
        """In a row."""
        self.since = 0.0
        """When it began to answer."""
        self.preparation: Preparation | None = None
