"""Operators that work place by place, on one, two or three operands."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.write.file import TYPES, Quantization
from edge_export.graph.tflite.write.graph import NO_ACTIVATION, RELU, RELU6, RELU_N1_TO_1, Graph, attributes
from edge_export.graph.tflite.write.moves import constant, write_rescaled
from edge_export.graph.tflite.write.values import ConstantOperand, Value, arranged


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """TensorFlow Lite form of an ONNX operator.

    Attributes:
        name: of the TensorFlow Lite operator.
        options: of `BuiltinOptions`.
        int8: it has an int8 form with a step of its own for every operand.
        same_step: its int8 form wants one step for all operands and the result.
        fuses: it can apply an activation to its result.
    """

    name: str
    options: str = ""
    int8: bool = False
    same_step: bool = False
    fuses: bool = False


_BROADCAST = {
    "Add": _Form(name="ADD", options="AddOptions", int8=True, fuses=True),
    "Atan2": _Form(name="ATAN2", options="ATan2Options"),
    "And": _Form(name="LOGICAL_AND", options="LogicalAndOptions"),
    "Div": _Form(name="DIV", options="DivOptions", fuses=True),
    "Equal": _Form(name="EQUAL", options="EqualOptions"),
    "Greater": _Form(name="GREATER", options="GreaterOptions"),
    "GreaterOrEqual": _Form(name="GREATER_EQUAL", options="GreaterEqualOptions"),
    "Less": _Form(name="LESS", options="LessOptions"),
    "LessOrEqual": _Form(name="LESS_EQUAL", options="LessEqualOptions"),
    "Max": _Form(name="MAXIMUM", options="MaximumMinimumOptions", int8=True, same_step=True),
    "Min": _Form(name="MINIMUM", options="MaximumMinimumOptions", int8=True, same_step=True),
    "Mul": _Form(name="MUL", options="MulOptions", int8=True, fuses=True),
    "Or": _Form(name="LOGICAL_OR", options="LogicalOrOptions"),
    "Pow": _Form(name="POW", options="PowOptions"),
    "Sub": _Form(name="SUB", options="SubOptions", int8=True, fuses=True),
    "Xor": _Form(name="NOT_EQUAL", options="NotEqualOptions"),
    "Where": _Form(name="SELECT_V2", options="SelectV2Options"),
}

_UNARY = {
    "Abs": _Form(name="ABS", options="AbsOptions", int8=True),
    "Ceil": _Form(name="CEIL"),
    "Cos": _Form(name="COS", options="CosOptions"),
    "Elu": _Form(name="ELU", int8=True),
    "Exp": _Form(name="EXP", options="ExpOptions"),
    "Floor": _Form(name="FLOOR"),
    "HardSwish": _Form(name="HARD_SWISH", options="HardSwishOptions", int8=True),
    "Log": _Form(name="LOG"),
    "Neg": _Form(name="NEG", options="NegOptions"),
    "Not": _Form(name="LOGICAL_NOT", options="LogicalNotOptions"),
    "Round": _Form(name="ROUND"),
    "Sign": _Form(name="SIGN", options="SignOptions"),
    "Sin": _Form(name="SIN"),
}

_SIGMOID_STEP, _TANH_STEP = Quantization.of(1 / 256, -128), Quantization.of(1 / 128, 0)
"""What the int8 forms are fixed to."""

_COARSEST = 0.9
"""A fixed step may be this much coarser than the one asked for; beyond, the operator is written in floats, so that
the result stays within about one step."""


def broadcast(graph: Graph, node: onnx.NodeProto) -> None:
    """Write an operator on several operands that may differ in size where one is 1."""
    form = _BROADCAST[node.op_type]
    result, activation = graph.fused_activation(node) if form.fuses else (node.output[0], NO_ACTIVATION)
    write_broadcast(graph, node, list(node.input), form, result, activation)


def write_broadcast(
    graph: Graph, node: onnx.NodeProto, names: list[str], form: _Form, result: str, activation: int = NO_ACTIVATION
) -> None:
    """Bring the operands to one layout and one step where they need it, and append the operator.

    1. Channels are last only where all values have the same rank: others are lined up by ONNX's last axis.
    2. An int8 form that does not rescale takes all its operands at the step of the result.
    """
    operands, quantized = graph.operands(node, names, [result], int8=form.int8)
    values = [operand for operand in operands if isinstance(operand, Value)]
    rank = max(len(operand.shape) for operand in operands)
    last = all(len(value.shape) == rank for value in values) and graph.layout(values)  # rule 1
    step = graph.result_quantization(result) if quantized and form.same_step else None  # rule 2
    kind = next(value.dtype for value in reversed(values))
    tensors = []
    for operand in operands:
        if isinstance(operand, Value):
            index = graph.tensor(operand, node, channels_last=last)
            if step is not None and operand.quantization is not None:  # rule 2
                index = graph.requantized(index, operand.quantization, step, operand.name)
        else:
            index = _fixed(graph, operand, rank, step, quantized=quantized, channels_last=last, kind=kind)
        tensors.append(index)
    _, target = graph.output(result, quantized=quantized, channels_last=last)
    if form.fuses:
        graph.file.operator(form.name, tensors, [target], options=form.options, fusedActivationFunction=activation)
    else:
        graph.file.operator(form.name, tensors, [target], options=form.options)


def _fixed(
    graph: Graph,
    operand: ConstantOperand,
    rank: int,
    step: Quantization | None,
    *,
    quantized: bool,
    channels_last: bool,
    kind: np.dtype[np.generic],
) -> int:
    real = arranged(operand.real, rank, channels_last=channels_last)
    if step is not None:
        return constant(graph, operand.name, real, step)
    integers = operand.integers() if quantized else None
    if integers is not None:
        stored = arranged(integers[0], rank, channels_last=channels_last)
        return graph.file.constant(operand.name, stored, integers[1])
    if real.dtype not in TYPES:
        # An exponent, say, may be an integer of another size than its base.
        real = real.astype(kind)
    return graph.file.constant(operand.name, real)


def prelu(graph: Graph, node: onnx.NodeProto) -> None:
    """PRelu. One slope for all becomes one a channel: an older reader takes what lies behind it for the others."""
    value, _ = graph.operand(node, int8=False)
    slope, rank, last = graph.fixed(node.input[1]), len(value.shape), value.channels_last
    if slope is None:
        write_broadcast(graph, node, list(node.input), _Form(name="PRELU"), node.output[0])
        return
    source = graph.tensor(value, node, channels_last=last)
    whole = slope.real.reshape((1,) * (rank - slope.real.ndim) + slope.shape)
    slopes = arranged(whole, rank, channels_last=last)
    if slopes.size == 1:
        slopes = np.full((*[1] * (slopes.ndim - 1), graph.file.shape(source)[-1]), slopes.item())
    if rank > 4:
        # Old readers spread no slopes over more than four axes.
        slopes = np.broadcast_to(slopes, graph.file.shape(source))
        graph.close_batch()
    index = graph.file.constant(slope.name, slopes.astype(np.float32))
    _, target = graph.output(node.output[0], quantized=False, channels_last=last)
    graph.file.operator("PRELU", [source, index], [target])


def power(graph: Graph, node: onnx.NodeProto) -> None:
    """Pow; squares and square roots by the operators that vector units have."""
    exponent = graph.constant(node.input[1])
    number = float(exponent.item()) if exponent is not None and exponent.size == 1 else None
    source = node.input[0]
    if number == 2:
        write_broadcast(graph, node, [source, source], _BROADCAST["Mul"], node.output[0])
    elif number in (0.5, -0.5):
        _write_unary(graph, node, "SQRT" if number == 0.5 else "RSQRT", int8=False)
    elif exponent is not None and exponent.dtype != np.float32:
        graph.constants[node.input[1]] = exponent.astype(graph.dtype(source))
        write_broadcast(graph, node, list(node.input), _BROADCAST["Pow"], node.output[0])
    else:
        write_broadcast(graph, node, list(node.input), _BROADCAST["Pow"], node.output[0])


def unary(graph: Graph, node: onnx.NodeProto) -> None:
    """Write an operator on one operand without settings."""
    form = _UNARY[node.op_type]
    _write_unary(graph, node, form.name, options=form.options, int8=form.int8)


def _write_unary(
    graph: Graph,
    node: onnx.NodeProto,
    name: str,
    *,
    int8: bool,
    options: str = "",
    result: str = "",
    **settings: object,
) -> None:
    result = result or node.output[0]
    value, quantized = graph.operand(node, results=[result], int8=int8)
    last = value.channels_last
    source = graph.tensor(value, node, channels_last=last)
    _, target = graph.output(result, quantized=quantized, channels_last=last)
    graph.file.operator(name, [source], [target], options=options, **settings)


def leaky(graph: Graph, node: onnx.NodeProto) -> None:
    """LeakyRelu."""
    alpha = float(attributes(node).get("alpha", 0.01))
    _write_unary(graph, node, "LEAKY_RELU", int8=True, options="LeakyReluOptions", alpha=alpha)


def gelu(graph: Graph, node: onnx.NodeProto) -> None:
    """Gelu, exact or with tanh."""
    approximate = attributes(node).get("approximate", b"none") == b"tanh"
    _write_unary(graph, node, "GELU", int8=True, options="GeluOptions", approximate=approximate)


def root(graph: Graph, node: onnx.NodeProto) -> None:
    """Sqrt, and with the Reciprocal that alone reads it, RSQRT."""
    reader = graph.sole_reader(node.output[0])
    if reader is not None and reader.op_type == "Reciprocal":
        graph.written.add(reader.output[0])
        _write_unary(graph, node, "RSQRT", int8=False, result=reader.output[0])
        return
    _write_unary(graph, node, "SQRT", int8=False)


def reciprocal(graph: Graph, node: onnx.NodeProto) -> None:
    """Reciprocal."""
    value, _ = graph.operand(node, int8=False)
    last = value.channels_last
    one = graph.file.constant("one", np.array(1, np.float32))
    source = graph.tensor(value, node, channels_last=last)
    _, target = graph.output(node.output[0], quantized=False, channels_last=last)
    graph.file.operator("DIV", [one, source], [target], options="DivOptions")


def relu(graph: Graph, node: onnx.NodeProto) -> None:
    """Relu and Clip."""
    name = {RELU: "RELU", RELU6: "RELU6", RELU_N1_TO_1: "RELU_N1_TO_1"}.get(graph.activation(node))
    if name is not None:
        _write_unary(graph, node, name, int8=name != "RELU_N1_TO_1")
        return
    low, high = graph.bounds(node)
    value, _ = graph.operand(node, int8=False)
    last = value.channels_last
    index = graph.tensor(value, node, channels_last=last)
    bounds = [(operator, bound) for operator, bound in (("MAXIMUM", low), ("MINIMUM", high)) if bound is not None]
    if not bounds:
        raise UnsupportedNodeError(node, "it bounds nothing; leave it out")
    for count, (operator, bound) in enumerate(bounds, 1):
        if count == len(bounds):
            _, made = graph.output(node.output[0], quantized=False, channels_last=last)
        else:
            made = graph.file.tensor(f"{node.output[0]}:low", graph.file.shape(index), value.dtype)
        limit = graph.file.constant("bound", np.array(bound, value.dtype))
        graph.file.operator(operator, [index, limit], [made], options="MaximumMinimumOptions")
        index = made


def saturating(graph: Graph, node: onnx.NodeProto) -> None:
    """Sigmoid and Tanh, whose int8 forms have a fixed step."""
    name, step = ("LOGISTIC", _SIGMOID_STEP) if node.op_type == "Sigmoid" else ("TANH", _TANH_STEP)
    result = node.output[0]
    value, quantized = graph.operand(node, int8=is_fine(graph, result, step))
    last = value.channels_last
    source = graph.tensor(value, node, channels_last=last)
    out, target = graph.output(result, quantized=quantized, channels_last=last)
    write_rescaled(graph, step, out, target, lambda made: graph.file.operator(name, [source], [made]))


def is_fine(graph: Graph, result: str, step: Quantization) -> bool:
    """Report that an operator with a fixed int8 step serves the step that the graph asks for."""
    reader = graph.sole_reader(result)
    if reader is None or reader.op_type != "QuantizeLinear":
        return False
    return float(graph.quantization(reader).scale[0]) >= _COARSEST * float(step.scale[0])


def cast(graph: Graph, node: onnx.NodeProto) -> None:
    """Cast between floats, integers and truth values."""
    value, _ = graph.operand(node, int8=False)
    last = value.channels_last
    source = graph.tensor(value, node, channels_last=last)
    out, target = graph.output(node.output[0], quantized=False, channels_last=last)
    kinds = {"inDataType": TYPES[value.dtype], "outDataType": TYPES[out.dtype]}
    graph.file.operator("CAST", [source], [target], options="CastOptions", **kinds)


def modulo(graph: Graph, node: onnx.NodeProto) -> None:
    """Mod with the sign of the divisor."""
    if attributes(node).get("fmod", 0):
        raise UnsupportedNodeError(node, "fmod has no form")
    write_broadcast(graph, node, list(node.input), _Form(name="FLOOR_MOD", options="FloorModOptions"), node.output[0])


WRITERS = {
    **dict.fromkeys(_BROADCAST, broadcast),
    **dict.fromkeys(_UNARY, unary),
    "Cast": cast,
    "Clip": relu,
    "Gelu": gelu,
    "LeakyRelu": leaky,
    "Mod": modulo,
    "PRelu": prelu,
    "Pow": power,
    "Reciprocal": reciprocal,
    "Relu": relu,
    "Sigmoid": saturating,
    "Sqrt": root,
    "Tanh": saturating,
}
