"""Graph pass that writes Conv1d as Conv2d (1 x k), for which onnxruntime has fast float kernels.

onnxruntime computes float convolutions in blocks of channels (its NCHWc layout), but only on tensors of four axes; with
three axes a network is 1.5 to 7 times slower. Tensors therefore get an axis of size 1 between channels and samples at
the first convolution, and lose it behind the last node that can work with it. Integer graphs gain nothing.

Source: ``NchwcTransformer`` of onnxruntime, which asks for kernels of two sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir

from edge_export.graph.onnx_graph.model import (
    STANDARD,
    add_constant,
    apply,
    constant,
    drop_unread_constants,
    forget_shapes,
    has_subgraphs,
    shapes_of,
    transform,
)

_ADDED = 2
"""The added axis; the one that was there before it becomes 3."""
_POINTWISE = frozenset(
    {"Abs", "Add", "Cast", "Ceil", "Celu", "Clip", "Cos", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid"}
    | {"HardSwish", "Identity", "LeakyRelu", "Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Reciprocal"}
    | {"Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "Tanh", "Where"}
)
_BY_CHANNEL = frozenset({"BatchNormalization", "GlobalAveragePool", "GlobalMaxPool", "InstanceNormalization"})
_POOLS = frozenset({"AveragePool", "LpPool", "MaxPool"})
_REDUCTIONS = frozenset(
    f"Reduce{kind}" for kind in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
_PREFIX = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_shape": 1, "output_padding": 0}
"""What the added axis puts in front of a setting of a convolution or pool."""


class Conv1dToConv2d(ir.passes.InPlacePass):
    """Write every float Conv1d of a model, and the nodes between them, with four axes.

    A node is rewritten by the first rule that fits:

    1. Convolution, transposed or not, with weights of three axes: data and weights get the axis.
    2. Pool with a kernel, normalisation or global pool by channel: the data have the axis.
    3. Pointwise operator with an operand that has the axis: the other operands of two or three axes get it too.
    4. Concat and Split.
    5. Pad and Slice with constant settings.
    6. Squeeze, and reductions, over constant axes; where axes go, the added one goes with them.
    7. Flatten, and Reshape to a constant shape: the same numbers in the same order.
    8. Everything else, and the caller, reads three axes.

    A model with no Conv1d, with quantised nodes or with graphs inside nodes gains nothing and stays as it is.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the nodes in their order."""
        quantised = any("Quantize" in node.op_type or "Integer" in node.op_type for node in model.graph)
        if quantised or has_subgraphs(model.graph):
            return ir.passes.PassResult(model, modified=False)
        rewriter = _Rewriter(model)
        if not any(map(rewriter.is_conv1d, model.graph)):
            return ir.passes.PassResult(model, modified=False)
        for node in list(model.graph):
            rewriter.rewrite(node)
        rewriter.finish()
        return ir.passes.PassResult(model, modified=True)

    def ensures(self, model: ir.Model) -> None:
        """No node reads what was rewritten."""
        made = {value for node in model.graph for value in node.outputs} | set(model.graph.initializers.values())
        known = made | set(model.graph.inputs)
        for node in model.graph:
            if any(value is not None and value not in known for value in node.inputs):
                raise ir.passes.PostconditionError(f"{node.op_type} {node.name!r} reads a tensor that is gone")


def as_conv2d(model: onnx.ModelProto) -> onnx.ModelProto:
    """Write every float Conv1d of a model, and the nodes between them, with four axes (`Conv1dToConv2d`).

    Args:
        model: any ONNX model with its data inside.

    Returns:
        A new model with the same inputs and outputs; the given one where there is nothing to gain.
    """
    return transform(model, Conv1dToConv2d())


class _Rewriter:
    """The tensors that the rewritten nodes compute with three axes, with four, or both.

    Args:
        model: gets constants and nodes; the nodes that others replace are removed by `finish`.
    """

    def __init__(self, model: ir.Model) -> None:
        self._graph = model.graph
        self._before: ir.Node | None = None
        self._four: dict[ir.Value, ir.Value] = {}
        self._only_four: set[ir.Value] = set()
        self._replaced: list[ir.Node] = []
        self._lists: dict[tuple[int, ...], ir.Value] = {}
        self._taken = {value.name for node in model.graph for value in (*node.inputs, *node.outputs) if value}
        self._ranks = {name: len(sizes) for name, sizes in shapes_of(model).items()}
        self._axes_as_input = model.opset_imports.get(STANDARD, 0) >= 13

    def is_conv1d(self, node: ir.Node) -> bool:
        """Say whether rule 1 applies."""
        return node.domain == STANDARD and node.op_type in {"Conv", "ConvTranspose"} and self._rank(node.inputs[1]) == 3

    def rewrite(self, node: ir.Node) -> None:
        """Apply the first rule of `Conv1dToConv2d` that fits a node; every node is given once, in graph order."""
        self._before = node
        if not self._by_rule(node):  # rule 8
            for value in node.inputs:
                self._in_3d(value)

    def finish(self) -> None:
        """Give the caller the tensors that it had, and remove the nodes that others replace."""
        self._before = None
        for value in list(self._graph.outputs):
            self._in_3d(value)
        self._graph.remove(self._replaced, safe=True)
        forget_shapes(self._graph)
        drop_unread_constants(self._graph)

    def _insert(self, node: ir.Node) -> None:
        if self._before is None:
            self._graph.append(node)
        else:
            self._graph.insert_before(self._before, node)

    def _in_3d(self, value: ir.Value | None) -> None:
        """Make sure that a tensor exists with the axes that it had."""
        if value is None or value not in self._only_four:
            return
        self._only_four.remove(value)
        squeezed = self._change_axes("Squeeze", self._four[value], str(value.name))
        squeezed.type, squeezed.shape = value.type, value.shape
        self._four[squeezed] = self._four[value]
        ir.convenience.replace_all_uses_with(value, squeezed, replace_graph_outputs=True)

    def _in_4d(self, value: ir.Value | None) -> ir.Value:
        """Return a tensor's form with the added axis, which is computed if it does not exist yet."""
        assert value is not None  # the rules ask for operands that an operator must have
        if value not in self._four:
            array = constant(value)
            if array is None:
                self._four[value] = self._change_axes("Unsqueeze", value, self._free(str(value.name)))
            else:
                wide = np.expand_dims(array, array.ndim - 1)
                self._four[value] = add_constant(self._graph, f"{value.name}_4d", wide)
        return self._four[value]

    def _change_axes(self, operator: str, source: ir.Value, result: str) -> ir.Value:
        if self._axes_as_input:
            node = apply(operator, [source, self._constant([_ADDED])], result)
        else:
            node = apply(operator, [source], result, axes=[_ADDED])
        self._insert(node)
        return node.outputs[0]

    def _by_rule(self, node: ir.Node) -> bool:
        """Apply the first rule that fits, and say whether one did."""
        if self.is_conv1d(node):  # rule 1
            return self.windowed(node, operands=2)
        rule = _RULES.get(node.op_type)
        if rule is None or node.domain != STANDARD or not any(map(self._computed_in_4d, node.inputs)):
            return False
        if rule in (_Rewriter.pointwise, _Rewriter.along_an_axis):
            return rule(self, node)
        return self._computed_in_4d(node.inputs[0]) and len(node.outputs) == 1 and rule(self, node)

    def _computed_in_4d(self, value: ir.Value | None) -> bool:
        return value in self._four and not value.is_initializer()

    def windowed(self, node: ir.Node, *, operands: int = 1) -> bool:
        """Convolution or pool; settings of a global pool or a normalisation know of no axes."""
        changed: dict[str, Sequence[int]] = {}
        for name, value in _settings(node).items():
            if name in _PREFIX:
                changed[name] = [_PREFIX[name], *value]
            elif name == "pads":
                changed[name] = [0, value[0], 0, value[1]]
        inputs = {place: self._in_4d(node.inputs[place]) for place in range(operands)}
        return self._append(node, inputs, settings=changed)

    def pointwise(self, node: ir.Node) -> bool:
        ranks = [self._rank(value) for value in node.inputs if value is not None]
        # What has one axis at most broadcasts over the last one in either form.
        if any(rank is None or rank > 3 for rank in ranks):
            return False
        if any(self._rank(value) == 2 and constant(value) is None for value in node.inputs):
            return False
        wide = [place for place, value in enumerate(node.inputs) if (self._rank(value) or 0) > 1]
        return self._append(node, {place: self._in_4d(node.inputs[place]) for place in wide})

    def along_an_axis(self, node: ir.Node) -> bool:
        given = _settings(node)
        operands = list(node.inputs) if node.op_type == "Concat" else [node.inputs[0]]
        if any(self._rank(value) != 3 for value in operands):
            return False
        inputs = {place: self._in_4d(value) for place, value in enumerate(operands)}
        return self._append(node, inputs, settings={"axis": _moved(given.get("axis", 0))})

    def sized(self, node: ir.Node) -> bool:
        """Pad: (begins, ends) of all axes or of some; Slice: its axes alone."""
        sizes, axes = self._numbers(node, 1), self._numbers(node, 3)
        if axes is not None:
            inputs = {3: self._constant([_moved(axis) for axis in axes])}
        elif sizes is None or len(node.inputs) > 3:
            return False
        elif node.op_type == "Pad" and len(sizes) == 6:
            begins, ends = sizes[:3], sizes[3:]
            inputs = {1: self._constant([*begins[:2], 0, begins[2], *ends[:2], 0, ends[2]])}
        elif node.op_type == "Slice" and len(sizes) <= _ADDED:
            inputs = {}
        else:
            return False
        return self._append(node, {0: self._in_4d(node.inputs[0]), **inputs})

    def over_axes(self, node: ir.Node) -> bool:
        given = _settings(node)
        axes = given.get("axes", self._numbers(node, 1))
        if not axes:
            return False
        moved = sorted(_moved(axis) for axis in axes)
        keeps = node.op_type in _REDUCTIONS and bool(given.get("keepdims", 1))
        if not keeps:
            moved = sorted({*moved, _ADDED})
        data = self._in_4d(node.inputs[0])
        if "axes" in given:
            return self._append(node, {0: data}, settings={"axes": moved}, result=keeps)
        return self._append(node, {0: data, 1: self._constant(moved)}, result=keeps)

    def reshaped(self, node: ir.Node) -> bool:
        given = _settings(node)
        if node.op_type == "Flatten":
            if not 0 <= given.get("axis", 1) <= _ADDED:
                return False
        else:
            shape = self._numbers(node, 1)
            # A 0 copies the size at its place, and places move from the added axis on.
            if shape is None or 0 in shape[_ADDED:] or given.get("allowzero", 0):
                return False
        return self._append(node, {0: self._in_4d(node.inputs[0])}, result=False)

    def _append(
        self,
        node: ir.Node,
        inputs: Mapping[int, ir.Value],
        *,
        settings: Mapping[str, int | Sequence[int]] | None = None,
        result: bool = True,
    ) -> bool:
        """Change a node, or put a changed copy in its place, and say that it was done.

        Args:
            node: the node as it was.
            inputs: those that change, by place: one constant may serve several of them.
            settings: attributes that change.
            result: whether its results have the axis.
        """
        for place, value in enumerate(node.inputs):
            if place not in inputs:
                self._in_3d(value)
        if result:
            node = self._with_new_results(node)
        for place, value in inputs.items():
            node.replace_input_with(place, value)
        for name, setting in (settings or {}).items():
            node.attributes.pop(name, None)
            node.attributes.add(ir.convenience.convert_attribute(name, setting))
        return True

    def _with_new_results(self, node: ir.Node) -> ir.Node:
        """Insert a copy in front of a node, whose results are the four-axis forms of the node's."""
        results = [ir.Value(name=self._free(str(value.name))) for value in node.outputs]
        copy = ir.Node(
            node.domain, node.op_type, node.inputs, node.attributes.values(), outputs=results, name=node.name
        )
        self._insert(copy)
        self._replaced.append(node)
        self._four.update(zip(node.outputs, results, strict=True))
        self._only_four.update(node.outputs)
        return copy

    def _rank(self, value: ir.Value | None) -> int | None:
        if value is None:
            return None
        if self._computed_in_4d(value):
            return 3
        array = constant(value)
        return self._ranks.get(str(value.name)) if array is None else array.ndim

    def _numbers(self, node: ir.Node, place: int) -> list[int] | None:
        """Return a constant input as a list; None where there is none."""
        array = constant(node.inputs[place]) if len(node.inputs) > place else None
        return None if array is None else [int(n) for n in np.atleast_1d(array)]

    def _constant(self, values: Sequence[int]) -> ir.Value:
        key = tuple(values)
        if key not in self._lists:
            self._lists[key] = add_constant(self._graph, "axes_4d", np.array(values, np.int64))
        return self._lists[key]

    def _free(self, name: str) -> str:
        free = f"{name}_4d"
        while free in self._taken or free in self._graph.initializers:
            free += "_"
        self._taken.add(free)
        return free


def _settings(node: ir.Node) -> dict[str, Any]:
    """Return a node's attributes by name."""
    return {name: attribute.value for name, attribute in node.attributes.items()}


def _moved(axis: int) -> int:
    """Find the place of one of three axes among four."""
    return axis % 3 if axis % 3 < _ADDED else axis % 3 + 1


_RULES: Mapping[str, Callable[[_Rewriter, ir.Node], bool]] = {
    **dict.fromkeys([*_POOLS, *_BY_CHANNEL], _Rewriter.windowed),  # rule 2
    **dict.fromkeys(_POINTWISE, _Rewriter.pointwise),  # rule 3
    **dict.fromkeys(["Concat", "Split"], _Rewriter.along_an_axis),  # rule 4
    **dict.fromkeys(["Pad", "Slice"], _Rewriter.sized),  # rule 5
    **dict.fromkeys(["Squeeze", *_REDUCTIONS], _Rewriter.over_axes),  # rule 6
    **dict.fromkeys(["Flatten", "Reshape"], _Rewriter.reshaped),  # rule 7
}
