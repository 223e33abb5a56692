"""The seam to the libraries that run models.

Why a protocol and not a base class: an engine shares no code with another one, and a vendor's engine must not need to
import ours to be one. Engines live in `edge_runtime.model.engines`, a file each, import their library only when a model
is loaded, and pass the checks in ``tests/contracts/test_engine.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, element type and shape of one model input or output; -1 stands for any size."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Limits on an engine's use of the machine.

    The defaults are the measured best for small sensor models: one thread is as fast as two, and two spinning threads
    burn a core between windows (docs/decisions/0004-engine-options.md).
    """

    threads: int = 1
    spinning: bool = False
    max_batch: int = 32
    """Windows given to the engine in one call; beyond 32 nothing is gained on the models measured."""


class Engine(Protocol):
    """A loaded model that can be run.

    An engine is used by one thread at a time. Floats go in and come out, whatever the file holds: an int8 model's
    quantisation at its edges is the engine's business.
    """

    name: str
    """Library and version, for example ``onnxruntime 1.31.1``."""
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        """Run one batch.

        Args:
            arrays: one array per input, in the order of `inputs`, first axis the batch (1 to any number).

        Returns:
            One float32 array per output (or the model's integer type where it is not a quantised float), owned by
            the caller until the next call of `run`.

        Raises:
            InputError: wrong number of arrays, wrong shape, or a type that cannot be converted without loss.
            EngineError: the library failed.
        """
        ...

    def close(self) -> None:
        """Free the model. May be called twice; running afterwards raises EngineError."""
        ...


class EngineFactory(Protocol):
    """Loads a model from the bytes of a verified file."""

    def __call__(self, model: bytes, options: EngineOptions, provider_options: Mapping[str, Any]) -> Engine:
        """Load, or raise EngineError with the line that installs what is missing."""
        ...
