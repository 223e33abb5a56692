"""Front ends: rows of features out of samples, as the model's training computed them. One file each.

A front end is a pure function of the samples that it is given and of states that it names, for many keys at once. It
knows no keys, no files and no engines; `edge_runtime.model.chain` keeps the states and cuts the samples. Each is held
to the library that defines it, on real recordings.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from edge_runtime.types import Float32

Array = npt.NDArray[Any]


class StateSpec(NamedTuple):
    """State of one key: what a step leaves for the next one."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    """Of one key, without a batch axis."""
    initial: float | Array = 0.0
    """Value, or values of `shape`, before the first step."""


class Frontend(Protocol):
    """Makes rows of features. Used by one thread at a time; gives the same rows whatever else is in the batch."""

    rows: int
    """Rows that one cut gives."""
    shape: tuple[int, ...]
    """Of one row."""
    states: tuple[StateSpec, ...]
    """Empty where a row depends on nothing but its own cut."""

    def __call__(self, cuts: Float32, states: Sequence[Array], /) -> tuple[Float32, Sequence[Array]]:
        """Make the rows of some cuts.

        Args:
            cuts: (batch, n_cuts, samples, *row): for each key of the batch, its next cuts, oldest first; one at least.
            states: one array for each of `states`, (batch, *shape); not written to.

        Returns:
            (batch, n_cuts * rows, *shape) and the new states.
        """
        ...
