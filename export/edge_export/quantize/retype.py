"""The same integers under the other sign: uint8 and int8 activations differ by 128 in the zero point, and nothing else.

A model calibrated and rounded once so ships in the type that each target wants.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import onnx

from edge_export.onnx_graph.graph import Net
from edge_runtime.errors import ConfigError

_SHIFT = 128
_WEIGHTS = {"Conv": 1, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}
"""Input that holds the weights. They stay int8 in every scheme."""


def retype(model: onnx.ModelProto, activations: Literal["uint8", "int8"]) -> onnx.ModelProto:
    """Write the activations of a quantised model in this type.

    Args:
        model: with QuantizeLinear/DequantizeLinear pairs (``form="qdq"``).
        activations: type that quantised values between layers have afterwards.

    Returns:
        A new model that computes the same numbers; a copy, if it has that type already.

    Raises:
        ConfigError: the model has no such pairs, or is made of onnxruntime's integer operators.
    """
    net = Net(model)
    if other := [node for node in net.graph.node if node.op_type.startswith("QLinear") or node.op_type == "QGemm"]:
        raise ConfigError(
            f"node {other[0].name!r} is an integer operator; write the model in QDQ form to change its type"
        )
    pairs = [node for node in net.graph.node if node.op_type in {"QuantizeLinear", "DequantizeLinear"}]
    if not pairs:
        raise ConfigError("the model has no QuantizeLinear and DequantizeLinear; quantise it first")
    old, new, shift = (np.uint8, np.int8, -_SHIFT) if activations == "int8" else (np.int8, np.uint8, _SHIFT)
    changed = set()
    for node in pairs:
        if len(node.input) < 3 or _is_weight(net, node):
            continue
        for name in (node.input[2], node.input[0]):
            if net.is_constant(name) and name not in changed and net.constant(name).dtype == old:
                net.change(name, (net.constant(name).astype(np.int16) + shift).astype(new))
                changed.add(name)
    # Types written down for values between the pairs are those of before; whoever needs them infers them.
    del net.graph.value_info[:]
    return net.model


def _is_weight(net: Net, node: onnx.NodeProto) -> bool:
    """Whether a DequantizeLinear holds a layer's weights or bias, and not a constant that activations are added to."""
    if node.op_type != "DequantizeLinear" or not net.is_constant(node.input[0]):
        return False
    readers = net.readers(node.output[0])
    return any(
        node.output[0] == name and (index == _WEIGHTS[reader.op_type] or index == 2)
        for reader in readers
        if reader.op_type in _WEIGHTS
        for index, name in enumerate(reader.input)
    )
