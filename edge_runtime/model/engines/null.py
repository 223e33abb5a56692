"""An engine without a model: the same numbers for the same windows on every machine, in a microsecond or so.

For tests of everything around the model, and for measuring what the runtime costs alone. It answers with the
softmax of the means of equal slices of the window, so different windows get different answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from edge_runtime.errors import EngineError
from edge_runtime.model.engines.base import Array, EngineOptions, TensorSpec
from edge_runtime.model.engines.tensors import Inputs

# Beyond this a sample saturates, as it would at the edge of an int8 model; keeps sums of float32 finite.
_LIMIT = np.float32(1e6)


def describe(input_shape: tuple[int, ...], labels: int) -> bytes:
    """Write the "model file" of the null engine.

    Args:
        input_shape: shape of one window, without the batch axis.
        labels: number of probabilities in an answer.
    """
    return orjson.dumps({"null_engine": 1, "input": list(input_shape), "labels": labels})


def load(model: bytes, options: EngineOptions, provider_options: Mapping[str, Any]) -> NullEngine:  # noqa: ARG001 - an EngineFactory; nothing to tune here
    """Load what `describe` wrote.

    Raises:
        EngineError: something else was given.
    """
    try:
        spec = orjson.loads(model)
        version, shape, labels = spec["null_engine"], tuple(map(int, spec["input"])), int(spec["labels"])
    except (ValueError, KeyError, TypeError) as error:
        raise EngineError(f"not a description made for the null engine: {error}") from error
    if version != 1 or labels < 1 or not shape or min(shape) < 1:
        raise EngineError("not a description made for the null engine: unknown version, or a size below 1")
    return NullEngine(shape, labels)


class NullEngine:
    """See the module; one float32 input (batch, *input_shape), one output (batch, labels)."""

    name = "null 1"

    def __init__(self, input_shape: tuple[int, ...], labels: int) -> None:
        self.inputs: tuple[TensorSpec, ...] = (TensorSpec("x", np.dtype(np.float32), (-1, *input_shape)),)
        self.outputs: tuple[TensorSpec, ...] = (TensorSpec("y", np.dtype(np.float32), (-1, labels)),)
        self._check = Inputs(self.inputs).check
        self._labels = labels
        size = int(np.prod(input_shape))
        self._slice = max(1, size // labels)
        self._used = min(size, labels)
        self._open = True

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """See `edge_runtime.model.engines.base.Engine.run`."""
        if not self._open:
            raise EngineError("this engine is closed; load the model again")
        (x,) = self._check(arrays)
        flat = np.clip(x.reshape(len(x), -1)[:, : self._used * self._slice], -_LIMIT, _LIMIT)
        logits = np.zeros((len(x), self._labels), np.float32)
        logits[:, : self._used] = flat.reshape(len(x), self._used, self._slice).mean(axis=2)
        logits -= logits.max(axis=1, keepdims=True)
        y = np.exp(logits)
        y /= y.sum(axis=1, keepdims=True)
        return (y,)

    def close(self) -> None:
        """See `edge_runtime.model.engines.base.Engine.close`."""
        self._open = False
