"""Sampler: the interface of everything that training windows are drawn from."""

from __future__ import annotations

from typing import Protocol

from edge_export.data.dataset import Float32, Int64


class Sampler(Protocol):
    """Whatever training windows are drawn from."""

    def draw(self, count: int) -> tuple[Float32, Int64]:
        """Draw (count, n_channels, samples) windows and their (count,) class indices."""
        ...
