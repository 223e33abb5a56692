"""Shield of float layers against onnxruntime, which would quantise them again.

Since 1.21 it makes integers of the float weights of a layer that stands between a DequantizeLinear and a
QuantizeLinear, and runs the layer in integers: what a search for accuracy has put back into float
(`graph.quantize.mixed`) would be undone on the device without a word, and was: the answers of a small network
with one float layer moved by 0.011. A Clip without bounds, which changes nothing, in front of the layer stops it.

Source: WeightBiasQuantization of onnxruntime (microsoft/onnxruntime pull requests 22969 and 24537).
"""

from __future__ import annotations

import onnx_ir as ir

from edge_export.graph.onnx_graph.model import apply, constant, sole_reader

_LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
_CLIPPING = frozenset({"Relu", "Clip", "Add"})
"""What onnxruntime takes for a part of the layer or of the quantisation behind it."""


class ShieldFloatLayers(ir.passes.InPlacePass):
    """Put a Clip without bounds in front of each float layer that onnxruntime would quantise."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert the Clips."""
        exposed = [node for node in model.graph if _would_be_quantised(node)]
        for node in exposed:
            source = f"{node.outputs[0].name}_shielded"
            clip = apply("Clip", [node.inputs[0]], source, name=f"Clip_{source}")
            model.graph.insert_before(node, clip)
            node.replace_input_with(0, clip.outputs[0])
        return ir.passes.PassResult(model, modified=bool(exposed))

    def ensures(self, model: ir.Model) -> None:
        """No layer is left that onnxruntime would quantise."""
        if left := next((node for node in model.graph if _would_be_quantised(node)), None):
            raise ir.passes.PostconditionError(f"onnxruntime would quantise {left.op_type} {left.outputs[0].name!r}")


def _would_be_quantised(node: ir.Node) -> bool:
    if node.op_type not in _LAYERS or constant(node.inputs[1]) is None or node.inputs[0] is None:
        return False
    source = node.inputs[0].producer()
    if source is None or source.op_type != "DequantizeLinear":
        return False
    reader = sole_reader(node.outputs[0])
    while reader is not None and reader.op_type in _CLIPPING:
        reader = sole_reader(reader.outputs[0])
    return reader is not None and reader.op_type == "QuantizeLinear"
