"""Unsigned quantised tensors as signed ones: both stand for the same reals, 128 steps apart.

Quantisers for x86 write uint8 activations; TensorFlow Lite's operators take int8. A pair of QuantizeLinear and
DequantizeLinear rounds and saturates the same in both, so that nothing between two floats changes.
"""

from __future__ import annotations

from collections.abc import MutableMapping

import numpy as np
import numpy.typing as npt
import onnx

_HALF = 128

Constants = MutableMapping[str, npt.NDArray[np.generic]]


def sign(graph: onnx.GraphProto, constants: Constants) -> None:
    """Shift what is uint8 between QuantizeLinear and DequantizeLinear, and constants that only the latter read.

    1. A tensor that something else reads, or that is a result, stays as it is.
    2. It comes from a QuantizeLinear, or is stored as uint8.
    3. All its ends are shifted or none, so that they stand for the same reals.

    Args:
        graph: changed in place.
        constants: arrays by name; shifted ones are added.
    """
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    results = {info.name for info in graph.output}
    producers = {name: node for node in graph.node for name in node.output}
    for name, nodes in readers.items():
        maker = producers.get(name)
        if name in results or not all(node.op_type == "DequantizeLinear" and node.input[0] == name for node in nodes):
            continue  # rule 1
        pair = nodes if maker is None else [maker, *nodes]
        if maker is None and (name not in constants or constants[name].dtype != np.uint8):  # rule 2
            continue
        if maker is not None and maker.op_type != "QuantizeLinear":  # rule 2
            continue
        if all(_is_unsigned(node, constants) for node in pair):  # rule 3
            for node in pair:
                _shift_zero(node, constants)
            if maker is None:
                _shift_stored(name, nodes, constants)


def _is_unsigned(node: onnx.NodeProto, constants: Constants) -> bool:
    """Report that its zero point is a constant uint8; left out, it is 0 and, for a QuantizeLinear, uint8."""
    if len(node.input) < 3 or not node.input[2]:
        return not any(attribute.name == "output_dtype" for attribute in node.attribute)
    zero = constants.get(node.input[2])
    return zero is not None and zero.dtype == np.uint8


def _shift_zero(node: onnx.NodeProto, constants: Constants) -> None:
    given = node.input[2] if len(node.input) > 2 else ""
    scale = constants.get(node.input[1])
    zero = constants[given] if given else np.zeros(() if scale is None else scale.shape, np.uint8)
    name = f"{node.output[0]}:signed_zero"
    constants[name] = (zero.astype(np.int16) - _HALF).astype(np.int8)
    node.input[:] = [*node.input[:2], name]


def _shift_stored(name: str, nodes: list[onnx.NodeProto], constants: Constants) -> None:
    constants[f"{name}:signed"] = (constants[name].astype(np.int16) - _HALF).astype(np.int8)
    for node in nodes:
        node.input[0] = f"{name}:signed"
