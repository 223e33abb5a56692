"""A loaded bundle as a model that a server can offer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.variants import arrange
from edge_runtime.model.serving.loading import Model
from edge_runtime.model.serving.states import MAX_KEYS, StateStore
from edge_runtime.operate.server.batcher import InSequence, ServedModel
from edge_runtime.operate.server.sequences import Sequences
from edge_runtime.signal.windowing.batch import fill_first

INPUT = "window"


ANSWERED = OipTensor("answered", "BOOL", (-1,))
"""Output of a model with states: false for steps before the first answer, whose numbers are zeros."""
IDLE_S = 60.0


def served_model(
    model: Model, max_batch: int, *, clock: Clock | None = None, max_sequences: int = MAX_KEYS, idle_s: float = IDLE_S
) -> ServedModel:
    """Wrap a bundle's model: windows as (batch, channels, samples) FP32 in, answers by the task out.

    Where the manifest says how a missing beginning is filled (`InputContract.fill`), the axis of samples is open (-1),
    and shorter windows are taken too.

    Args:
        model: loaded; whatever layout its variant has, callers see one.
        max_batch: windows in one request. Of a model with states, they are steps of one sequence, in order.
        clock: measures idle sequences; None takes the system's.
        max_sequences: most sequences at a time, of a model with states.
        idle_s: seconds after which a sequence without a request is forgotten.
    """
    if model.states is not None:
        return _with_sequences(model, model.states, max_batch, clock or SystemClock(), (max_sequences, idle_s))
    contract, task = model.manifest.input, model.task()

    def predict(inputs: dict[str, Array]) -> dict[str, Array]:
        windows = inputs[INPUT]
        if not 1 <= windows.shape[2] <= contract.window:
            raise InputError("shape", f"windows have 1 to {contract.window} samples, not {windows.shape[2]}")
        (answers, *_) = model.engine.run(arrange(fill_first(windows, contract.window), model.variant))
        return task.offer(np.asarray(answers, np.float32))

    return ServedModel(
        name=model.manifest.name,
        version=str(model.manifest.version),
        inputs=(OipTensor(INPUT, "FP32", (-1, len(contract.channels), -1 if contract.fill else contract.window)),),
        outputs=task.outputs,
        predict=predict,
        max_batch=max_batch,
        max_numbers=len(contract.channels) * contract.window,
    )


def _with_sequences(
    model: Model, states: StateStore, max_batch: int, clock: Clock, bounds: tuple[int, float]
) -> ServedModel:
    contract, task = model.manifest.input, model.task()
    most, idle_s = bounds
    states.bound(most + max_batch, Metrics(), 0)  # those that a call begins, before others make room for them
    sequences = Sequences(model, states, clock, most, idle_s)

    def step(inputs: dict[str, Array], calls: Sequence[tuple[InSequence, int]]) -> dict[str, Array]:
        stepped = sequences.run(inputs[INPUT].transpose(0, 2, 1), calls)
        return {**task.offer(stepped.rows), ANSWERED.name: stepped.answered}

    def predict(_inputs: dict[str, Array]) -> dict[str, Array]:
        raise EngineError("a model with states answers sequences")

    return ServedModel(
        name=model.manifest.name,
        version=str(model.manifest.version),
        inputs=(OipTensor(INPUT, "FP32", (-1, len(contract.channels), contract.window)),),
        outputs=(*task.outputs, ANSWERED),
        predict=predict,
        step=step,
        max_batch=max_batch,
        evicted=lambda: sequences.evicted,
    )
