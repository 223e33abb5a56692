"""Out-of-distribution detector inside the graph: a factor on the logits, from statistics of the window itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from edge_export.graph.onnx_graph.model import (
    UnsuitableModelError,
    add_constant,
    apply,
    final_softmax,
    only_input,
    sizes_of,
    transform,
)
from edge_export.graph.onnx_graph.out_of_distribution import FAR, OodDetector


class ScaleUnfamiliarLogits(ir.passes.InPlacePass):
    """Divide the logits of unfamiliar windows by how unfamiliar they are.

    Args:
        detector: result of `edge_export.graph.onnx_graph.out_of_distribution.fit_ood_detector`.
    """

    def __init__(self, detector: OodDetector) -> None:
        self._detector = detector

    def requires(self, model: ir.Model) -> None:
        """Windows (batch, n_channels, samples) of the channels that were learned, and a Softmax at the end."""
        shape, channels = sizes_of(only_input(model)), len(self._detector.floor)
        if len(shape) != 3 or shape[1] != channels:
            raise UnsuitableModelError(f"the model takes windows of shape {shape}, not (batch, {channels}, samples)")
        final_softmax(model)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert statistics, distance and division in front of the Softmax."""
        softmax = final_softmax(model)
        formula = _Formula(model.graph, softmax)
        found = formula.statistics(only_input(model), self._detector)
        distance = formula.distance(found, self._detector)
        factor = formula.add("Max", "excess", distance, formula.numbers("one", 1.0))
        softmax.replace_input_with(0, formula.add("Div", "logits", softmax.inputs[0], factor))
        return ir.passes.PassResult(model, modified=True)


class _Formula:
    """Nodes and constants in front of a node; their prefix is part of every file written so far."""

    def __init__(self, graph: ir.Graph, before: ir.Node) -> None:
        self._graph, self._before = graph, before
        self._along, self._across = self.places("along", 2), self.places("across", 1)

    def add(self, kind: str, name: str, *inputs: ir.Value | None, **settings: int) -> ir.Value:
        """Append a node; its result."""
        node = apply(kind, list(inputs), f"novelty_{name}", name=f"novelty_{name}", **settings)
        self._graph.insert_before(self._before, node)
        return node.outputs[0]

    def numbers(self, name: str, array: npt.ArrayLike) -> ir.Value:
        """Add a float32 constant."""
        return add_constant(self._graph, f"novelty_{name}", np.asarray(array, np.float32))

    def places(self, name: str, *values: int) -> ir.Value:
        """Add a constant of axes or of places along them."""
        return add_constant(self._graph, f"novelty_{name}", np.array(values, np.int64))

    def statistics(self, window: ir.Value, detector: OodDetector) -> ir.Value:
        """(batch, 3 * n_channels), as `edge_export.graph.onnx_graph.out_of_distribution.statistics` computes them."""
        add, places, samples = self.add, self.places, sizes_of(window)[2] or 0
        along, floor = self._along, self.numbers("floor", detector.floor)
        mean = add("ReduceMean", "mean", window, along, keepdims=1)
        centred = add("Sub", "centred", window, mean)
        power = add("ReduceMean", "power", add("Mul", "squared", centred, centred), along, keepdims=0)
        deviation = add("Log", "deviation", add("Add", "deviation_floor", add("Sqrt", "root", power), floor))
        first, last = places("first", 0), places("last", samples - 1)
        second, end = places("second", 1), places("end", samples)
        later = add("Slice", "later", window, second, end, along)
        earlier = add("Slice", "earlier", window, first, last, along)
        steps = add("Abs", "steps", add("Sub", "difference", later, earlier))
        change = add("ReduceMean", "change", steps, along, keepdims=0)
        change = add("Log", "change_log", add("Add", "change_floor", change, floor))
        level = add("ReduceMean", "level", window, along, keepdims=0)
        return add("Concat", "statistics", level, deviation, change, axis=1)

    def distance(self, every: ir.Value, detector: OodDetector) -> ir.Value:
        """(batch, 1) distance to the nearest class, over the limit."""
        add, numbers = self.add, self.numbers
        count = detector.means.shape[1]
        one_share = 1 / (count * detector.limit)
        scaled = add("Mul", "scaled", add("Sub", "from_centre", every, numbers("centre", detector.centre)),
                     numbers("scale", detector.scale))  # fmt: skip
        scaled = add("Clip", "bounded", scaled, numbers("lowest", -FAR), numbers("highest", FAR))
        # mean((s - m)^2) as mean(s^2) - 2 s.m / n + mean(m^2): one product with a table instead of one per class.
        towards = add("MatMul", "towards", scaled, numbers("means", -2 * one_share * detector.means.T))
        sizes = np.square(detector.means, dtype=np.float64).sum(axis=1) * one_share
        from_each = add("Add", "offset", towards, numbers("sizes", sizes))
        size = add("ReduceSum", "size", add("Mul", "scaled_squared", scaled, scaled), self._across, keepdims=1)
        nearest = add("ReduceMin", "nearest", from_each, self._across, keepdims=1)
        return add("Add", "distance", nearest, add("Mul", "size_share", size, numbers("share", one_share)))


def with_ood_detector(model: onnx.ModelProto, detector: OodDetector) -> onnx.ModelProto:
    """Divide the logits of unfamiliar windows by how unfamiliar they are (`ScaleUnfamiliarLogits`).

    Args:
        model: a model from windows (batch, n_channels, samples) to what a Softmax gives; float or quantised.
        detector: result of `edge_export.graph.onnx_graph.out_of_distribution.fit_ood_detector`.

    Returns:
        A new model with the same input and output.

    Raises:
        ConfigError: the graph does not end in a Softmax, or its windows have other channels.
    """
    return transform(model, ScaleUnfamiliarLogits(detector))
