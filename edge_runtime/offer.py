"""A loaded bundle as a model that a server can offer."""

from __future__ import annotations

import numpy as np

from edge_runtime.bundle import arrange
from edge_runtime.model import Model
from edge_runtime.oip import Array, TensorSpec
from edge_runtime.serve_batch import ServedModel

INPUT, OUTPUT = "window", "probabilities"


def offer(model: Model, max_batch: int) -> ServedModel:
    """Wrap a bundle's model: windows as (batch, channels, samples) FP32 in, probabilities (batch, labels) out.

    Args:
        model: loaded; whatever layout its variant has, callers see one.
        max_batch: windows in one request.
    """
    contract, labels = model.manifest.input, model.manifest.output.labels

    def predict(inputs: dict[str, Array]) -> dict[str, Array]:
        (probabilities, *_) = model.engine.run(arrange(inputs[INPUT], model.variant))
        return {OUTPUT: np.asarray(probabilities, np.float32)}

    return ServedModel(
        name=model.manifest.name,
        version=str(model.manifest.version),
        inputs=(TensorSpec(INPUT, "FP32", (-1, len(contract.channels), contract.window)),),
        outputs=(TensorSpec(OUTPUT, "FP32", (-1, len(labels))),),
        predict=predict,
        max_batch=max_batch,
    )
