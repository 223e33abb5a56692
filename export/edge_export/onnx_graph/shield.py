"""Keep onnxruntime from quantising what was left in float.

Since 1.21 it makes integers of the float weights of a layer that stands between a DequantizeLinear and a
QuantizeLinear, and runs the layer in integers: what a search for accuracy has put back into float
(`edge_export.quantize.mixed`) would be undone on the device without a word, and was: the answers of a small network
with one float layer moved by 0.011. A Clip without bounds, which changes nothing, in front of the layer stops it.

Source: WeightBiasQuantization of onnxruntime (microsoft/onnxruntime pull requests 22969 and 24537).
"""

from __future__ import annotations

import onnx
from onnx import helper

from edge_export.onnx_graph.graph import Net

_LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_CLIPPING = frozenset({"Relu", "Clip", "Add"})
"""What onnxruntime takes for a part of the layer or of the quantisation behind it."""


def shield(model: onnx.ModelProto) -> onnx.ModelProto:
    """Put a Clip without bounds in front of each float layer that onnxruntime would quantise.

    Args:
        model: with QuantizeLinear/DequantizeLinear pairs, or without any.

    Returns:
        A new model that computes the same.
    """
    net = Net(model)
    places = [i for i, node in enumerate(net.graph.node) if _would_be_quantised(net, node)]
    for place in reversed(places):
        node = net.graph.node[place]
        source = f"{node.output[0]}_shielded"
        clip = helper.make_node("Clip", [node.input[0]], [source], name=f"Clip_{source}")
        node.input[0] = source
        net.graph.node.insert(place, clip)
    return net.model


def _would_be_quantised(net: Net, node: onnx.NodeProto) -> bool:
    if node.op_type not in _LAYERS or not net.is_constant(node.input[1]):
        return False
    source = net.producers.get(node.input[0])
    if source is None or source.op_type != "DequantizeLinear":
        return False
    reader = net.sole_reader(node.output[0])
    while reader is not None and reader.op_type in _CLIPPING:
        reader = net.sole_reader(reader.output[0])
    return reader is not None and reader.op_type == "QuantizeLinear"
