"""Weights alone in integers: onnxruntime's 4-bit products, and its dynamic int8 for products and LSTMs."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
from onnxruntime import quantization as ort_quantization

from edge_export.choose.variants.make import Made
from edge_export.graph.onnx_graph.model import add_constant, apply, constant, from_proto, name_of, numbers, to_proto
from edge_export.graph.quantize.layers import layers
from edge_export.graph.quantize.write import without_advice
from edge_runtime.errors import ConfigError

LEAST_WEIGHTS = 16_384
"""Of a product that 4 bits are tried on: below, the floats lie in a processor's first cache as it is."""

_BLOCK = 32
_RECURRENT = frozenset({"LSTM"})


def four_bit_graph(graph: onnx.ModelProto) -> Made | str:
    """Store the weights of large products in 4 bits, which onnxruntime widens while it multiplies (MatMulNBits)."""
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer  # noqa: PLC0415 - slow to import

    copy = from_proto(graph)
    large = [each for each in layers(copy.graph) if each.operator != "Conv" and each.weights.size >= LEAST_WEIGHTS]
    if not large:
        return f"no product with {LEAST_WEIGHTS:,} constant weights or more"
    small = [each.name for each in layers(copy.graph) if each.operator == "MatMul" and each not in large]
    for layer in large:
        if layer.operator == "Gemm":
            _as_product(copy.graph, layer.node, transposed=layer.outputs_first)
    with without_advice():
        quantizer = MatMulNBitsQuantizer(
            to_proto(copy), bits=4, block_size=_BLOCK, is_symmetric=True, accuracy_level=4, nodes_to_exclude=small
        )
        quantizer.process()
    how = f"{len(large)} products, {_BLOCK} weights to a step; runs on onnxruntime only"
    return Made(name="int4-weights", family="int4-weights", graph=quantizer.model.model, how=how)


def _as_product(graph: ir.Graph, node: ir.Node, *, transposed: bool) -> None:
    """Write a Gemm as MatMul and Add, the form that 4-bit weights come in."""
    weight = node.inputs[1]
    assert weight is not None
    array = numbers(weight)
    product = apply(
        "MatMul",
        [node.inputs[0], add_constant(graph, f"{weight.name}_product", array.T if transposed else array)],
        f"{node.outputs[0].name}_product",
        name=f"{node.name}_product",
    )
    graph.insert_before(node, product)
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    added = bias if bias is not None else add_constant(graph, f"{node.name}_zero", np.zeros(1, np.float32))
    node.op_type = "Add"
    node.attributes.clear()
    node.resize_inputs(2)
    node.replace_input_with(0, product.outputs[0])
    node.replace_input_with(1, added)


def dynamic_graph(graph: onnx.ModelProto) -> Made | str:
    """Store weights of products and LSTMs in int8; activations get their step at each call. Convolutions stay float.

    onnxruntime's own default takes convolutions too, and its kernel for those is 4 to 20 times slower than float.
    """
    parsed = from_proto(graph).graph
    products = [each for each in layers(parsed) if each.operator != "Conv"]
    recurrent = [node for node in parsed if node.op_type in _RECURRENT and constant(node.inputs[1]) is not None]
    if not products and not recurrent:
        return "no product or LSTM with constant weights"
    with tempfile.TemporaryDirectory() as folder, without_advice():
        given, written = (Path(folder) / f"{name}.onnx" for name in ("given", "dynamic"))
        onnx.save(graph, str(given))
        try:
            ort_quantization.quantize_dynamic(
                str(given), str(written), op_types_to_quantize=["MatMul", "LSTM"], per_channel=False,
                weight_type=ort_quantization.QuantType.QInt8,
                nodes_to_exclude=[name_of(node) for node in parsed if node.op_type == "Conv"],
            )  # fmt: skip
        except Exception as error:  # the library's own types and bare asserts
            raise ConfigError(f"onnxruntime does not write it: {(str(error).splitlines() or ['?'])[0]}") from error
        made = onnx.load(str(written))
    how = f"{len(products)} products and {len(recurrent)} LSTMs, steps of activations at each call"
    return Made(name="int8-dynamic", family="int8-dynamic", graph=made, how=how)
