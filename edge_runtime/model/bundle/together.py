"""Keys that may share a call of a chain on this machine."""

from __future__ import annotations

import logging

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.model.bundle.bundle import Bundle
from edge_runtime.model.bundle.variants import arrange
from edge_runtime.model.engines.base import Array, Engine
from edge_runtime.model.engines.batch_trial import LEVELS, largest_batch
from edge_runtime.model.engines.tensors import in_chunks

log = logging.getLogger(__name__)

_STEPS = 64
"""Golden windows that are played; the first ones of a chain whose stages wait for rows give no answer."""
ROUNDING = 1e-5
"""Share of an answer's largest number: what float kernels for other numbers of rows differ by, and a good deal more."""
_LONG_S = 1.0
"""A trial of the largest batch that would take longer is left out: such a model gains nothing by large batches."""


class LimitedEngine:
    """An engine that is given few rows at a time; see `edge_runtime.model.engines.base.Engine`."""

    def __init__(self, engine: Engine, most: int) -> None:
        self._engine, self._most = engine, most
        self.name, self.inputs, self.outputs = engine.name, engine.inputs, engine.outputs

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """See `edge_runtime.model.engines.base.Engine.run`."""
        if len(arrays[0]) <= self._most:
            return self._engine.run(*arrays)
        return tuple(in_chunks(lambda parts: list(self._engine.run(*parts)), list(arrays), self._most))

    def close(self) -> None:
        """See `edge_runtime.model.engines.base.Engine.close`."""
        self._engine.close()


def in_calls_of(engine: Engine, most: int) -> Engine:
    """Return an engine that is given at most `most` rows in a call; 0 leaves it as it is."""
    return LimitedEngine(engine, most) if most else engine


def keep_rows_apart(engine: Engine, bundle: Bundle, variant: str, max_batch: int, clock: Clock | None = None) -> Engine:
    """Return an engine that gives each key what it gets alone: a chain's, limited where the rows of a batch touch.

    Whether they do was tried when the bundle was packed, but a library may choose other kernels on another processor.
    So the golden windows are played here, too, at several levels, alone and together.

    Args:
        engine: the variant's engine; it has reproduced the golden vectors.
        bundle: an open bundle.
        variant: the variant's name.
        max_batch: rows that it will be given at most.
        clock: measures the trial; None takes the system's.

    Raises:
        EngineError: the engine failed.
    """
    if not bundle.manifest.stages or max_batch < 2:
        return engine
    windows = arrange(bundle.golden(variant)[0], bundle.variant(variant))
    steps = min(len(windows), _STEPS) if len(engine.inputs) > 1 else 1
    clock = clock or SystemClock()
    began = clock.monotonic()
    most = largest_batch(engine, [windows], sizes=(), steps=steps, rounding=ROUNDING)
    took = clock.monotonic() - began
    if most == 0 and took * max_batch / len(LEVELS) < _LONG_S:
        most = largest_batch(engine, [windows], sizes=tuple(sorted({2, max_batch})), steps=steps, rounding=ROUNDING)
    if most == 0:
        return engine
    log.warning(
        "model: keys answer otherwise together than alone here, so fewer share a call, which costs time: variant=%s "
        "engine=%s keys=%d",
        *(variant, engine.name, most),
    )
    return LimitedEngine(engine, most)
