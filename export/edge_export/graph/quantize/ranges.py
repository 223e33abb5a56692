"""Between which values each activation's integers lie, from what the float model computes on real windows.

onnxruntime's calibrators keep every value until the end, or one histogram of 128 to 2048 bins; here each tensor costs
one `Histogram`, and four ways to choose a range read the same counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from edge_export.graph.onnx_graph.examples import Windows
from edge_export.graph.onnx_graph.model import from_proto, name_of
from edge_export.graph.onnx_graph.run import observe
from edge_export.graph.quantize.checks import check_model, check_windows
from edge_export.graph.quantize.histogram import Histogram
from edge_export.graph.quantize.scheme import Method
from edge_export.graph.quantize.select import quantised
from edge_runtime.errors import ConfigError

Ranges = Mapping[str, tuple[float, float]]
"""Lowest and highest value by tensor name. Both lie on their side of zero, or at it."""

_LARGEST_BATCH = 64
_LARGEST_RUN = 2**24
"""Values that one run may hold for all tensors together: 64 MiB of float32."""
_TRIES = 48
"""Candidates per end of a range and round; on a geometric grid down to a 30th of what was seen."""


def collect(model: onnx.ModelProto, windows: Windows) -> Mapping[str, Histogram]:
    """Count the values of every tensor that quantisation touches.

    Args:
        model: float ONNX model with one input, as `edge_export.graph.quantize.write.prepare` gives it.
        windows: (n, ...) float32 inputs, from training groups, that span what the model will meet.

    Returns:
        A histogram by tensor name.

    Raises:
        ConfigError: windows or weights are not finite, shapes differ, or an activation is not finite (named).
    """
    check_windows(windows)
    check_model(model, windows)
    names = activations(model)
    histograms = {name: Histogram() for name in names}
    one = next(observe(model, names, windows[:1]))
    held = max(1, sum(values.size for values in one.values()))
    batch = max(1, min(_LARGEST_BATCH, _LARGEST_RUN // held))
    for values in observe(model, names, windows, batch=batch):
        for name, array in values.items():
            if not np.isfinite(array).all():
                raise ConfigError(
                    f"tensor {name!r} is not finite on the calibration windows; check the model's scaling"
                )
            histograms[name].add(array)
    return MappingProxyType(histograms)


def activations(model: onnx.ModelProto) -> tuple[str, ...]:
    """Float tensors that a quantised operator reads or writes, without constants, in graph order."""
    graph = from_proto(onnx.shape_inference.infer_shapes(model)).graph
    chosen = quantised(graph)
    values = [value for node in graph if node.name in chosen for value in (*node.inputs, *node.outputs) if value]
    floats = [value for value in values if value.dtype == ir.DataType.FLOAT and not value.is_initializer()]
    return tuple(dict.fromkeys(map(name_of, floats)))


def choose(
    collected: Mapping[str, Histogram],
    method: Method,
    *,
    percentile: float = 99.999,
    symmetric: bool = False,
) -> Ranges:
    """Choose a range for every tensor.

    Args:
        collected: what `collect` counted.
        method:
            ``minmax`` covers every value seen: nothing is clipped, and one outlier can cost all others their steps.
            ``percentile`` leaves out the rest of `percentile` percent, half at each end.
            ``entropy`` loses the least information: smallest Kullback-Leibler divergence between the values and what
            the integers can say of them (Migacz, "8-bit Inference with TensorRT", 2017), over both ends.
            ``mse`` has the smallest mean squared error, rounding and clipping together, over both ends.
        percentile: see ``percentile``.
        symmetric: ranges will be used with the zero point in the middle.

    Returns:
        Ranges by tensor name, frozen.
    """
    chosen: dict[str, tuple[float, float]] = {}
    for name, histogram in collected.items():
        low, high = min(0.0, histogram.low), max(0.0, histogram.high)
        if symmetric:
            low, high = -max(-low, high), max(-low, high)
        if method == "percentile":
            rest = (1 - percentile / 100) / 2
            low, high = min(0.0, histogram.quantile(rest)), max(0.0, histogram.quantile(1 - rest))
        elif method != "minmax" and low < high:
            cost = _squared_error if method == "mse" else _divergence
            low, high = _search(histogram, cost, low, high, symmetric=symmetric)
        chosen[name] = (float(low), float(high))
    return MappingProxyType(chosen)


def calibrate(
    model: onnx.ModelProto,
    windows: Windows,
    method: Method = "minmax",
    *,
    percentile: float = 99.999,
    symmetric: bool = False,
) -> Ranges:
    """`collect` and `choose` in one step."""
    return choose(collect(model, windows), method, percentile=percentile, symmetric=symmetric)


def affine(low: float, high: float) -> tuple[float, int]:
    """Scale and zero point of the unsigned type that covers a range (Jacob et al. 2018, arXiv:1712.05877, eq. 1).

    The signed type has the same scale and a zero point 128 lower.
    """
    scale = (max(0.0, high) - min(0.0, low)) / 255
    return (scale, round(-min(0.0, low) / scale)) if scale > 0 else (1.0, 0)


_Cost = Callable[[Histogram, float, float], float]


def _search(histogram: Histogram, cost: _Cost, low: float, high: float, *, symmetric: bool) -> tuple[float, float]:
    """Shrink one end after the other from what was seen, twice; what was seen is always among the candidates."""
    factors = np.geomspace(1 / 30, 1, _TRIES)
    if symmetric:
        best = min((cost(histogram, -high * f, high * f), -f) for f in factors)
        return high * best[1], -high * best[1]
    ends = [low, high]
    for _ in range(2):
        for side in (1, 0):
            if ends[side] == 0:
                continue
            seen = (low, high)[side]
            tries = [(cost(histogram, *_with(ends, side, seen * f)), -f) for f in factors]
            ends[side] = -min(tries)[1] * seen
    return ends[0], ends[1]


def _with(ends: list[float], side: int, value: float) -> tuple[float, float]:
    return (value, ends[1]) if side == 0 else (ends[0], value)


def _levels(histogram: Histogram, low: float, high: float) -> tuple[npt.NDArray[np.int64], float, int]:
    scale, zero = affine(low, high)
    return np.clip(np.rint(histogram.centers / scale) + zero, 0, 255).astype(np.int64), scale, zero


def _squared_error(histogram: Histogram, low: float, high: float) -> float:
    # Levels stay floats here: 200 searches a tensor, and integers that small are exact.
    scale, zero = affine(low, high)
    centers = histogram.centers
    error = (np.clip(np.rint(centers / scale) + zero, 0, 255) - zero) * scale - centers
    return float(histogram.counts @ np.square(error))


def _divergence(histogram: Histogram, low: float, high: float) -> float:
    """Of the counts from the same counts with those of a level spread evenly over its bins.

    Zero is exact in every range, so exact zeros do not count: the peak they make in one bin would call for a range so
    narrow that one bin is one level.

    What lies outside counts at the outermost bins inside, where the integers will put it, but does not shape what they
    can say: so clipping costs as much as it distorts.
    """
    levels, scale, zero = _levels(histogram, low, high)
    centers, counts = histogram.centers, histogram.counts_without_zeros.astype(np.float64)
    inside = np.flatnonzero((centers >= -zero * scale - scale / 2) & (centers <= (255 - zero) * scale + scale / 2))
    if not inside.size:
        return math.inf
    begin, end = int(inside[0]), int(inside[-1]) + 1
    given = counts[begin:end].copy()
    given[0] += counts[:begin].sum()
    given[-1] += counts[end:].sum()
    kept, level = counts[begin:end], levels[begin:end]
    mass = np.bincount(level, kept, 256)
    bins = np.bincount(level, kept > 0, 256)
    said = np.where(kept > 0, (mass / np.maximum(bins, 1))[level], 0.0)
    if not said.sum():
        return math.inf
    p, q = given / given.sum(), said / said.sum()
    # Where only clipped values lie, the integers' distribution has nothing; a small floor keeps the cost finite.
    seen = p > 0
    divergence = float(np.sum(p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-4 / p.size))))
    # Counts scatter, and fine levels follow that scatter: with few values per bin it would favour narrow ranges.
    # Its expectation is half a degree of freedom per value (Miller 1955).
    return divergence - int(np.count_nonzero(kept) - np.count_nonzero(mass)) / (2 * float(given.sum()))
