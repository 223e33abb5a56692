"""Inputs of a model that takes other things than one array of windows: several inputs, states, numbers that stay."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from edge_export.data.dataset import Float32
from edge_export.graph.onnx_graph.model import Array
from edge_runtime.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Examples:
    """Inputs of a number of calls.

    Attributes:
        arrays: by the input's name, (calls, *shape of the input in one call), its own batch axis included.
        joined: calls may be put together along the first axis of every input, which the model leaves open.
    """

    arrays: Mapping[str, Array]
    joined: bool = False

    def __post_init__(self) -> None:
        lengths = {name: len(array) for name, array in self.arrays.items()}
        if len(set(lengths.values())) != 1:
            listed = ", ".join(f"{name} {count}" for name, count in lengths.items()) or "no input"
            raise ConfigError(f"each input needs as many examples as the others, and there are: {listed}")

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, part: slice | Array) -> Examples:
        return Examples({name: array[part] for name, array in self.arrays.items()}, self.joined)

    def feeds(self, batch: int) -> Iterator[dict[str, Array]]:
        """Yield what the model is given in one run after the other: `batch` calls at once where they may be joined."""
        size = batch if self.joined else 1
        for begin in range(0, len(self), size):
            parts = {name: array[begin : begin + size] for name, array in self.arrays.items()}
            # Not ascontiguousarray: it makes an axis where a single number has none.
            yield {
                name: np.asarray(part.reshape(-1, *part.shape[2:]) if self.joined else part[0], order="C")
                for name, part in parts.items()
            }


Windows: TypeAlias = Float32 | Examples
"""What a model is calibrated on: (n, ...) windows of a model with one input, or examples of any model."""
