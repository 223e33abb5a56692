"""Graph pass that writes Conv1d as Conv2d (1 x k), for which onnxruntime has fast float kernels.

onnxruntime computes float convolutions in blocks of channels (its NCHWc layout), but only on tensors of four axes; with
three axes a network is 1.5 to 7 times slower. Tensors therefore get an axis of size 1 between channels and samples at
the first convolution, and lose it behind the last node that can work with it. Integer graphs gain nothing.

Source: ``NchwcTransformer`` of onnxruntime, which asks for kernels of two sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
from onnx import helper

from edge_export.onnx_graph.graph import Net, attributes

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


def as_conv2d(model: onnx.ModelProto) -> onnx.ModelProto:
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

    Args:
        model: any ONNX model with its data inside.

    Returns:
        A new model with the same inputs and outputs. The model itself where there is nothing to gain: no Conv1d,
        quantised nodes, or graphs inside nodes.
    """
    net = Net(model)
    nested = any(a.HasField("g") or a.graphs for node in net.graph.node for a in node.attribute)
    quantised = any("Quantize" in node.op_type or "Integer" in node.op_type for node in net.graph.node)
    rewriter = _Rewriter(net)
    if nested or quantised or not any(map(rewriter.is_conv1d, net.graph.node)):
        return model
    for node in net.graph.node:
        rewriter.add(node)
    for name in net.outputs:
        rewriter.in_3d(name)
    del net.graph.node[:], net.graph.value_info[:]
    net.graph.node.extend(rewriter.nodes)
    net.drop_unread_constants()
    return net.model


class _Rewriter:
    """The rewritten nodes, and which tensors they compute with three axes, with four, or both.

    Args:
        net: the model; it gets constants, and its nodes stay as they are.
    """

    def __init__(self, net: Net) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._net = net
        self._four: dict[str, str] = {}
        self._only_four: set[str] = set()
        self._lists: dict[tuple[int, ...], str] = {}
        self._taken = {name for node in net.graph.node for name in (*node.input, *node.output)}
        self._ranks = {
            name: len(info.type.tensor_type.shape.dim)
            for name, info in net.infos().items()
            if info.type.tensor_type.HasField("shape")
        }
        versions = {entry.domain: entry.version for entry in net.model.opset_import}
        self._axes_as_input = max(versions.get("", 0), versions.get("ai.onnx", 0)) >= 13

    def is_conv1d(self, node: onnx.NodeProto) -> bool:
        """Whether rule 1 applies."""
        standard = node.domain in ("", "ai.onnx")
        return standard and node.op_type in {"Conv", "ConvTranspose"} and self._rank(node.input[1]) == 3

    def add(self, node: onnx.NodeProto) -> None:
        """Append a node, rewritten by the rules of `as_conv2d`."""
        if not self._rewrite(node):  # rule 8
            for name in node.input:
                self.in_3d(name)
            self.nodes.append(node)

    def in_3d(self, name: str) -> None:
        """Make sure that a tensor exists with the axes that it had."""
        if name in self._only_four:
            self._only_four.remove(name)
            self._change_axes("Squeeze", self._four[name], name)

    def _in_4d(self, name: str) -> str:
        """Name of a tensor's form with the added axis, which is computed if it does not exist yet."""
        if name not in self._four:
            if self._net.is_constant(name):
                array = self._net.constant(name)
                self._four[name] = self._net.store(f"{name}_4d", np.expand_dims(array, array.ndim - 1))
            else:
                self._four[name] = self._free(name)
                self._change_axes("Unsqueeze", name, self._four[name])
        return self._four[name]

    def _change_axes(self, operator: str, source: str, result: str) -> None:
        node = helper.make_node(operator, [source], [result])
        self.nodes.append(node)
        if self._axes_as_input:
            node.input.append(self._constant([_ADDED]))
        else:
            node.attribute.append(helper.make_attribute("axes", [_ADDED]))

    def _rewrite(self, node: onnx.NodeProto) -> bool:
        """Apply the first rule that fits, and say whether one did."""
        if self.is_conv1d(node):  # rule 1
            return self.windowed(node, operands=2)
        rule = _RULES.get(node.op_type)
        if rule is None or node.domain not in ("", "ai.onnx") or not any(map(self._computed_in_4d, node.input)):
            return False
        if rule in (_Rewriter.pointwise, _Rewriter.along_an_axis):
            return rule(self, node)
        return self._computed_in_4d(node.input[0]) and len(node.output) == 1 and rule(self, node)

    def _computed_in_4d(self, name: str) -> bool:
        return name in self._four and not self._net.is_constant(name)

    def windowed(self, node: onnx.NodeProto, *, operands: int = 1) -> bool:
        """Convolution or pool; settings of a global pool or a normalisation know of no axes."""
        changed: dict[str, Sequence[int]] = {}
        for name, value in attributes(node).items():
            if name in _PREFIX:
                changed[name] = [_PREFIX[name], *value]
            elif name == "pads":
                changed[name] = [0, value[0], 0, value[1]]
        inputs = {place: self._in_4d(node.input[place]) for place in range(operands)}
        return self._append(node, inputs, settings=changed)

    def pointwise(self, node: onnx.NodeProto) -> bool:
        ranks = [self._rank(name) for name in node.input if name]
        # What has one axis at most broadcasts over the last one in either form.
        if any(rank is None or rank > 3 for rank in ranks):
            return False
        if any(self._rank(name) == 2 and not self._net.is_constant(name) for name in node.input):
            return False
        wide = [place for place, name in enumerate(node.input) if name and (self._rank(name) or 0) > 1]
        return self._append(node, {place: self._in_4d(node.input[place]) for place in wide})

    def along_an_axis(self, node: onnx.NodeProto) -> bool:
        given = attributes(node)
        operands = list(node.input) if node.op_type == "Concat" else [node.input[0]]
        if any(self._rank(name) != 3 for name in operands):
            return False
        inputs = {place: self._in_4d(name) for place, name in enumerate(operands)}
        return self._append(node, inputs, settings={"axis": _moved(given.get("axis", 0))})

    def sized(self, node: onnx.NodeProto) -> bool:
        """Pad: (begins, ends) of all axes or of some; Slice: its axes alone."""
        sizes, axes = self._numbers(node, 1), self._numbers(node, 3)
        if axes is not None:
            inputs = {3: self._constant([_moved(axis) for axis in axes])}
        elif sizes is None or len(node.input) > 3:
            return False
        elif node.op_type == "Pad" and len(sizes) == 6:
            begins, ends = sizes[:3], sizes[3:]
            inputs = {1: self._constant([*begins[:2], 0, begins[2], *ends[:2], 0, ends[2]])}
        elif node.op_type == "Slice" and len(sizes) <= _ADDED:
            inputs = {}
        else:
            return False
        return self._append(node, {0: self._in_4d(node.input[0]), **inputs})

    def over_axes(self, node: onnx.NodeProto) -> bool:
        given = attributes(node)
        axes = given.get("axes", self._numbers(node, 1))
        if not axes:
            return False
        moved = sorted(_moved(axis) for axis in axes)
        keeps = node.op_type in _REDUCTIONS and bool(given.get("keepdims", 1))
        if not keeps:
            moved = sorted({*moved, _ADDED})
        data = self._in_4d(node.input[0])
        if "axes" in given:
            return self._append(node, {0: data}, settings={"axes": moved}, result=keeps)
        return self._append(node, {0: data, 1: self._constant(moved)}, result=keeps)

    def reshaped(self, node: onnx.NodeProto) -> bool:
        given = attributes(node)
        if node.op_type == "Flatten":
            if not 0 <= given.get("axis", 1) <= _ADDED:
                return False
        else:
            shape = self._numbers(node, 1)
            # A 0 copies the size at its place, and places move from the added axis on.
            if shape is None or 0 in shape[_ADDED:] or given.get("allowzero", 0):
                return False
        return self._append(node, {0: self._in_4d(node.input[0])}, result=False)

    def _append(
        self,
        node: onnx.NodeProto,
        inputs: Mapping[int, str],
        *,
        settings: Mapping[str, int | Sequence[int]] | None = None,
        result: bool = True,
    ) -> bool:
        """Append a changed copy of a node, and say that it was.

        Args:
            node: as it was.
            inputs: those that change, by place: one constant may serve several of them.
            settings: attributes that change.
            result: whether its results have the axis.
        """
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        for place, name in enumerate(node.input):
            if place not in inputs:
                self.in_3d(name)
            copy.input[place] = inputs.get(place, name)
        kept = [attribute for attribute in node.attribute if attribute.name not in (settings or {})]
        del copy.attribute[:]
        copy.attribute.extend([*kept, *(helper.make_attribute(*setting) for setting in (settings or {}).items())])
        if result:
            for place, name in enumerate(node.output):
                copy.output[place] = self._four[name] = self._free(name)
                self._only_four.add(name)
        self.nodes.append(copy)
        return True

    def _rank(self, name: str) -> int | None:
        if self._computed_in_4d(name):
            return 3
        return self._net.constant(name).ndim if self._net.is_constant(name) else self._ranks.get(name)

    def _numbers(self, node: onnx.NodeProto, place: int) -> list[int] | None:
        """A constant input as a list; None where there is none."""
        name = node.input[place] if len(node.input) > place else ""
        return [int(n) for n in np.atleast_1d(self._net.constant(name))] if self._net.is_constant(name) else None

    def _constant(self, values: Sequence[int]) -> str:
        key = tuple(values)
        if key not in self._lists:
            self._lists[key] = self._net.store("axes_4d", np.array(values, np.int64))
        return self._lists[key]

    def _free(self, name: str) -> str:
        free = f"{name}_4d"
        while free in self._taken or self._net.is_constant(free):
            free += "_"
        self._taken.add(free)
        return free


def _moved(axis: int) -> int:
    """Where one of three axes is among four."""
    return axis % 3 if axis % 3 < _ADDED else axis % 3 + 1


_RULES: Mapping[str, Callable[[_Rewriter, onnx.NodeProto], bool]] = {
    **dict.fromkeys([*_POOLS, *_BY_CHANNEL], _Rewriter.windowed),  # rule 2
    **dict.fromkeys(_POINTWISE, _Rewriter.pointwise),  # rule 3
    **dict.fromkeys(["Concat", "Split"], _Rewriter.along_an_axis),  # rule 4
    **dict.fromkeys(["Pad", "Slice"], _Rewriter.sized),  # rule 5
    **dict.fromkeys(["Squeeze", *_REDUCTIONS], _Rewriter.over_axes),  # rule 6
    **dict.fromkeys(["Flatten", "Reshape"], _Rewriter.reshaped),  # rule 7
}
