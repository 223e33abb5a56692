"""A loaded bundle as a model that a server can offer."""

from __future__ import annotations

import numpy as np

from edge_runtime.bundle.variants import arrange
from edge_runtime.errors import InputError
from edge_runtime.model.loading import Model
from edge_runtime.oip import Array, TensorSpec
from edge_runtime.server.batcher import ServedModel
from edge_runtime.windowing.batch import fill_first

INPUT = "window"


def served_model(model: Model, max_batch: int) -> ServedModel:
    """Wrap a bundle's model: windows as (batch, channels, samples) FP32 in, answers by the task out.

    Where the manifest says how a missing beginning is filled (`InputContract.fill`), the axis of samples is open (-1),
    and shorter windows are taken too.

    Args:
        model: loaded; whatever layout its variant has, callers see one.
        max_batch: windows in one request.
    """
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
        inputs=(TensorSpec(INPUT, "FP32", (-1, len(contract.channels), -1 if contract.fill else contract.window)),),
        outputs=task.outputs,
        predict=predict,
        max_batch=max_batch,
        max_numbers=len(contract.channels) * contract.window,
    )
