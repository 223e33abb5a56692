"""Graphs that a float graph can become: int8 by each algorithm, partly int8, constants in half precision."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import onnx
import onnx_ir as ir

from edge_export.choose.variants.budget import TimeBudget
from edge_export.graph.onnx_graph.examples import Examples
from edge_export.graph.onnx_graph.model import (
    add_constant,
    apply,
    constant,
    drop_unread_constants,
    from_proto,
    name_of,
    to_proto,
)
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.adaround import Rounded, Rounding, adaround
from edge_export.graph.quantize.bias import correct
from edge_export.graph.quantize.equalize import equalize
from edge_export.graph.quantize.histogram import Histogram
from edge_export.graph.quantize.layers import layers
from edge_export.graph.quantize.loosen import loosened
from edge_export.graph.quantize.ranges import Ranges, choose, collect
from edge_export.graph.quantize.scheme import OPERATORS, Method
from edge_export.graph.quantize.select import quantised
from edge_export.graph.quantize.write import write
from edge_runtime.errors import ConfigError

RANGES: tuple[Method, ...] = ("minmax", "percentile", "mse")
"""Ways to set the ranges of activations that are compared."""

_ROUNDING = Rounding(descents=0, positions=4000)
"""Single flips alone: as good as with the descent before them (21.8 and 21.6 dB of 21.3 on a speech embedding of 20
layers), in a tenth of the time."""

_SMALL = 256
"""Numbers below which a constant in half precision saves nothing: its Cast takes up to 100 bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A graph that could become a file.

    Attributes:
        name: of the variant, ``int8-adaround`` for example.
        family: only the best of a family is written.
        graph: in ONNX.
        how: what was done, for the report.
    """

    name: str
    family: str
    graph: onnx.ModelProto = field(repr=False)
    how: str


class Judge(Protocol):
    """Compares graphs with the float model on calls that chose no range."""

    def decibels(self, graph: onnx.ModelProto) -> float:
        """Measure signal over noise; minus infinity where no file can be written or run."""
        ...

    def within(self, graph: onnx.ModelProto) -> bool:
        """Say whether the loss is within the limit."""
        ...


@dataclass(frozen=True, kw_only=True)
class CalibratedGraph:
    """A prepared float graph with its calibration examples.

    Attributes:
        graph: as `edge_export.graph.quantize.write.prepare` gives it.
        examples: calibration calls.
        scheme: of the integers.
        budget: of the search.
        seen: number of calls that weights are rounded and biases corrected by: each layer is computed again for each.
    """

    graph: onnx.ModelProto
    examples: Examples
    scheme: Scheme
    budget: TimeBudget
    seen: int = 16
    _chosen: dict[Method, Ranges] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def few(self) -> Examples:
        """The calls that weights are rounded and biases corrected by."""
        return self.examples[:: max(1, len(self.examples) // self.seen)]

    @cached_property
    def counted(self) -> Mapping[str, Histogram]:
        """Values of each activation."""
        return collect(self.graph, self.examples)

    def ranges(self, method: Method) -> Ranges:
        """Ranges of activations by one method."""
        if method not in self._chosen:
            self._chosen[method] = choose(self.counted, method)
        return self._chosen[method]

    @cached_property
    def rounded(self) -> Rounded:
        """The graph with AdaRound's weights."""
        return adaround(self.graph, self.scheme, self.few, _ROUNDING, proceed=self.budget.check)

    @cached_property
    def equalized(self) -> CalibratedGraph:
        """The graph with equalised weights; itself where no two layers can be."""
        found = equalize(self.graph, self.few)
        return replace(self, graph=found.model) if found.pairs else self

    def layer_names(self) -> list[str]:
        """Names of the layers with constant weights, in graph order."""
        return [layer.name for layer in layers(from_proto(self.graph).graph)]


def best_ranges(model: CalibratedGraph, judge: Judge) -> tuple[Method, dict[str, str]]:
    """Choose the way to set ranges; the first of those that are equally good.

    Returns:
        The way, and why others were not tried, by name.
    """
    tried: dict[Method, float] = {}
    missing: dict[str, str] = {}
    for method in RANGES:
        if tried and model.budget.is_over:
            missing[f"int8 with ranges by {method}"] = model.budget.reason
        else:
            tried[method] = judge.decibels(write(model.graph, model.ranges(method), model.scheme))
    return max(tried, key=lambda method: tried[method]), missing


def int8_graphs(model: CalibratedGraph, method: Method) -> tuple[list[Made], dict[str, str]]:
    """Make the int8 graph by each algorithm, and by those that apply together.

    Returns:
        The graphs, and why an algorithm made none, by name.
    """
    made = [_int8("int8", write(model.graph, model.ranges(method), model.scheme), method)]
    missing: dict[str, str] = {}

    def equalized() -> onnx.ModelProto | str:
        own = model.equalized
        if own is model:
            return "no two layers with only ReLU, pools or reshapes between them"
        return write(own.graph, own.ranges(method), own.scheme)

    tries: dict[str, Callable[[], onnx.ModelProto | str]] = {
        "int8-equalized": equalized,
        "int8-bias": lambda: _corrected(model, method),
        "int8-adaround": lambda: _rounded(model, method),
        "int8-combined": lambda: _corrected(model.equalized, method, model.equalized.rounded),
    }
    for name, attempt in tries.items():
        try:
            model.budget.check()
            found = attempt()
        except ConfigError as error:
            found = str(error)
        if isinstance(found, str):
            missing[name] = found
        else:
            made.append(_int8(name, found, method))
    return made, missing


def _int8(name: str, graph: onnx.ModelProto, method: Method) -> Made:
    return Made(name=name, family="int8", graph=graph, how=f"ranges by {method}")


def _corrected(model: CalibratedGraph, method: Method, rounded: Rounded | None = None) -> onnx.ModelProto:
    """Write the graph with corrected biases, its weights rounded before where that is given."""
    ranges, scheme = model.ranges(method), model.scheme
    base, steps = (rounded.model, rounded.steps) if rounded is not None else (model.graph, None)
    graph = correct(base, ranges, scheme, model.few, reference=model.graph, steps=steps, proceed=model.budget.check)
    return write(graph, ranges, scheme, steps=steps)


def _rounded(model: CalibratedGraph, method: Method) -> onnx.ModelProto:
    return write(model.rounded.model, model.ranges(method), model.scheme, steps=model.rounded.steps)


def float_layers(model: CalibratedGraph, method: Method, judge: Judge) -> tuple[list[str], Mapping[str, float]] | str:
    """Find the fewest layers that have to stay in float.

    Each layer is quantised alone to rank them. How many of the worst stay in float is found by bisection, and those
    that turn out not to be needed are quantised again. Where the time is over, the smallest set so far is taken.

    Returns:
        Their names, and the signal over noise of each layer alone, dB; or why there is no such set.

    Raises:
        OutOfTimeError: the time was over before there was one.
    """
    names = model.layer_names()
    every = write(model.graph, model.ranges(method), replace(model.scheme, form="qdq"), keep_activations=True)

    def partly(scheme: Scheme) -> onnx.ModelProto:
        return loosened(every, model.graph, quantised(from_proto(model.graph).graph, scheme.exclude))

    alone: dict[str, float] = {}
    for name in names:
        model.budget.check()
        alone[name] = judge.decibels(partly(_only(model, name)))
    order = sorted(names, key=lambda name: alone[name])

    def good(kept: Iterable[str]) -> bool:
        return judge.within(partly(_without(model, kept)))

    low, high = 0, len(order)
    while high - low > 1 and not (model.budget.is_over and high < len(order)):
        model.budget.check()
        middle = (low + high) // 2
        low, high = (low, middle) if good(order[:middle]) else (middle, high)
    if high == len(order):
        return "no set of int8 layers is within the limit"
    kept = order[:high]
    for name in itertools.takewhile(lambda _: not model.budget.is_over, order[: high - 1]):
        fewer = [other for other in kept if other != name]
        if good(fewer):
            kept = fewer
    return kept, alone


def mixed_graphs(
    model: CalibratedGraph, method: Method, kept: list[str], alone: Mapping[str, float]
) -> tuple[list[Made], dict[str, str]]:
    """Quantise all layers but some, plain and with rounded weights.

    Returns:
        The graphs, and why one is missing, by name.
    """
    listed = ", ".join(f"{name} ({alone[name]:.0f} dB alone)" for name in kept)
    how = f"ranges by {method}; {len(kept)} of {len(alone)} layers in float: {listed}"
    scheme, ranges = _without(model, kept), model.ranges(method)
    made = [Made(name="mixed", family="mixed", graph=write(model.graph, ranges, scheme), how=how)]
    try:
        every = model.rounded
        rounded = adaround(model.graph, scheme, model.few, _ROUNDING, known=every, proceed=model.budget.check)
    except ConfigError as error:
        return made, {"mixed-adaround": str(error)}
    graph = write(rounded.model, ranges, scheme, steps=rounded.steps)
    return [*made, Made(name="mixed-adaround", family="mixed", graph=graph, how=how)], {}


def _only(model: CalibratedGraph, name: str) -> Scheme:
    others = [node.name for node in model.graph.graph.node if node.op_type in OPERATORS and node.name != name]
    return replace(model.scheme, exclude=tuple(others))


def _without(model: CalibratedGraph, kept: Iterable[str]) -> Scheme:
    """Make a scheme that leaves some layers in float, and with them what no longer stands between integer nodes."""
    graph, names = from_proto(model.graph).graph, set(model.layer_names())
    alone = set(kept)
    nodes = {name_of(node): node for node in graph if node.op_type in OPERATORS and node.name not in alone}
    while True:
        gone = [name for name, node in nodes.items() if name not in names and not _between(node, nodes)]
        if not gone:
            return replace(model.scheme, exclude=(*model.scheme.exclude, *alone))
        for name in gone:
            del nodes[name]
        alone.update(gone)


def _between(node: ir.Node, integers: Mapping[str, ir.Node]) -> bool:
    makers = [value.producer() for value in node.inputs if value is not None]
    readers = [reader for value in node.outputs for reader in value.consumers()]
    before = any(maker is not None and name_of(maker) in integers for maker in makers)
    return before and (node.op_type in {"Relu", "Clip"} or any(name_of(reader) in integers for reader in readers))


def half_graph(graph: onnx.ModelProto) -> Made | str:
    """Store every larger float constant in half precision; a Cast, folded at load, widens it to compute in float32."""
    copy = from_proto(graph)
    casts = []
    for constant_name, value in list(copy.graph.initializers.items()):
        array = constant(value)
        if array is None or array.dtype != np.float32 or array.size < _SMALL or value.is_graph_output():
            continue
        if not np.isfinite(array).all() or np.abs(array).max() > np.finfo(np.float16).max:
            continue
        narrow = add_constant(copy.graph, f"{constant_name}_half", array.astype(np.float16))
        cast = apply("Cast", [narrow], f"{constant_name}_wide", name=f"Cast_{constant_name}", to=onnx.TensorProto.FLOAT)
        value.replace_all_uses_with(cast.outputs[0])
        casts.append(cast)
    if not casts:
        return f"no constant of {_SMALL} float numbers or more"
    copy.graph.insert_before(copy.graph[0], casts)
    drop_unread_constants(copy.graph)
    how = f"{len(casts)} constants stored in half precision; computes in float32"
    return Made(name="fp16", family="fp16", graph=to_proto(copy), how=how)
