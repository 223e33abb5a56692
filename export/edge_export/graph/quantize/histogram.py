"""Counts of values in bounded memory, whatever comes and in whatever order."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from edge_export.graph.onnx_graph.model import Array

BINS = 4096
"""At least half of them span the values seen: eight bins or more per step of an 8-bit type."""


class Histogram:
    """Counts in bins as wide as a power of two, aligned to zero.

    When a value lies outside, the width doubles until `BINS` bins are enough, and bins merge in pairs. A power of two
    divides exactly and pairs merge exactly, so the result does not depend on the order or the batches in which values
    came: the same as counting all at once.
    """

    def __init__(self) -> None:
        self.low = math.inf
        self.high = -math.inf
        self.zeros = 0
        self._exponent = -1074
        self._first = 0
        self._counts: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, values: Array) -> None:
        """Count values, all of them finite."""
        if not values.size:
            return
        flat = values.ravel().astype(np.float64)
        self.zeros += flat.size - int(np.count_nonzero(flat))
        self.low, self.high = min(self.low, float(flat.min())), max(self.high, float(flat.max()))
        exponent = max(self._exponent, self._needed())
        self._coarsen(exponent)
        first, last = (math.floor(math.ldexp(edge, -exponent)) for edge in (self.low, self.high))
        counts = np.zeros(last - first + 1, np.int64)
        if self._counts.size:
            begin = self._first - first
            counts[begin : begin + self._counts.size] = self._counts
        index = np.floor(np.ldexp(flat, -exponent)).astype(np.int64) - first
        counts += np.bincount(index, minlength=counts.size)
        self._first, self._counts = first, counts

    def _needed(self) -> int:
        """Smallest exponent at which `BINS` bins span the values, and bin numbers are exact."""
        largest = max(abs(self.low), abs(self.high))
        if largest == 0:
            return -1074
        # Fewer than 2^50 bins from zero: their numbers stay exact in floats.
        exponent = math.frexp(largest)[1] - 50
        if self.high > self.low:
            exponent = max(exponent, math.frexp(self.high - self.low)[1] - BINS.bit_length())
        while math.floor(math.ldexp(self.high, -exponent)) - math.floor(math.ldexp(self.low, -exponent)) >= BINS:
            exponent += 1
        return exponent

    def _coarsen(self, exponent: int) -> None:
        steps = exponent - self._exponent
        if self._counts.size and steps:
            # Python's integers: a shift may exceed 64 bits.
            first = self._first >> steps
            index = [(self._first + i >> steps) - first for i in np.flatnonzero(self._counts).tolist()]
            merged = np.zeros(((self._first + self._counts.size - 1) >> steps) - first + 1, np.int64)
            np.add.at(merged, index, self._counts[self._counts > 0])
            self._first, self._counts = first, merged
        self._exponent = exponent

    @property
    def total(self) -> int:
        """Values counted."""
        return int(self._counts.sum())

    @property
    def width(self) -> float:
        """Width of a bin."""
        return math.ldexp(1.0, self._exponent)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Values in each bin."""
        return self._counts

    @property
    def centers(self) -> npt.NDArray[np.float64]:
        """Middle of each bin."""
        return np.asarray((self._first + np.arange(self._counts.size) + 0.5) * self.width, np.float64)

    @property
    def counts_without_zeros(self) -> npt.NDArray[np.int64]:
        """Values in each bin, those that are exactly zero left out: half of all behind a ReLU."""
        counts = self._counts.copy()
        if self.zeros:
            counts[-self._first] -= self.zeros
        return counts

    def quantile(self, share: float) -> float:
        """Value below which this share lies, exact to the width of a bin and never outside the values seen."""
        reached = np.cumsum(self._counts)
        place = int(np.searchsorted(reached, share * reached[-1]))
        before = int(reached[place] - self._counts[place])
        part = (share * int(reached[-1]) - before) / max(1, int(self._counts[place]))
        value = (self._first + place + min(1.0, max(0.0, part))) * self.width
        return min(self.high, max(self.low, value))
