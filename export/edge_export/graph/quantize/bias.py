"""Bias correction: quantised layers answer with another mean than float ones, and a bias can take it back.

Source: Nagel et al. 2019 (arXiv:1906.04721), section 4.2 and appendix D, the empirical form: the shift is measured on
windows, layer by layer in the graph's order, so that each correction already knows those before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from edge_export.graph.onnx_graph.examples import Windows
from edge_export.graph.onnx_graph.model import add_constant, change, from_proto, numbers, sole_reader, to_proto
from edge_export.graph.onnx_graph.run import observe
from edge_export.graph.quantize.checks import check_windows
from edge_export.graph.quantize.layers import Layer, layers
from edge_export.graph.quantize.ranges import Ranges
from edge_export.graph.quantize.scheme import Scheme
from edge_export.graph.quantize.write import WeightSteps, write


def correct(
    model: onnx.ModelProto,
    ranges: Ranges,
    scheme: Scheme,
    windows: Windows,
    *,
    reference: onnx.ModelProto | None = None,
    steps: WeightSteps | None = None,
    proceed: Callable[[], None] = lambda: None,
) -> onnx.ModelProto:
    """Shift the biases of a model so that its quantised form answers with the float form's means.

    Args:
        model: what `edge_export.graph.quantize.write.write` will be given.
        ranges: its activations' ranges.
        scheme: what it will be written as.
        windows: (n, ...) inputs, from training groups.
        reference: the float model whose means are right, with the same node names; default: `model` itself. Give the
            model before `edge_export.graph.quantize.adaround` rounded its weights.
        steps: its weights' steps, as for `write`.
        proceed: called before each layer; may raise to end the work.

    Returns:
        The float model with corrected biases; convolutions and Gemms without a bias gained one.
    """
    check_windows(windows)
    copy = from_proto(model)
    # Products of MatMul have no bias to correct.
    found = [layer for layer in layers(copy.graph) if layer.operator != "MatMul" and layer.name not in scheme.exclude]
    expected = _means(model if reference is None else reference, found, windows)
    for layer in found:
        _add_bias(copy.graph, layer, np.zeros(layer.outputs))
    # Written once, with biases that can be changed; the rounding of 32-bit biases is far below what is corrected.
    written = write(to_proto(copy), ranges, replace(scheme, form="qdq"), steps=steps, float_biases=True)
    nodes = {node.name: node for node in written.graph.node}
    stored = {tensor.name: tensor for tensor in written.graph.initializer}
    for layer in found:
        proceed()
        shift = expected[layer.name] - _means(written, [layer], windows)[layer.name]
        _add_bias(copy.graph, layer, shift)
        bias = stored[nodes[layer.name].input[2]]
        bias.CopyFrom(numpy_helper.from_array((numpy_helper.to_array(bias) + shift).astype(np.float32), bias.name))
    return to_proto(copy)


def _means(model: onnx.ModelProto, wanted: Iterable[Layer], windows: Windows) -> dict[str, npt.NDArray[np.float64]]:
    """Mean of each layer's answer per channel, before any activation, by the node's name.

    In a quantised graph, too: what a layer writes there is not rounded or clipped yet.
    """
    results = {node.name: node.output[0] for node in model.graph.node}
    names = {layer.name: results[layer.name] for layer in wanted}
    sums: dict[str, npt.NDArray[np.float64]] = {}
    rows: Counter[str] = Counter()
    for values in observe(model, names.values(), windows):
        for name, tensor in names.items():
            array = values[tensor].astype(np.float64)
            mean = array.mean(axis=tuple(range(2, array.ndim))) if array.ndim > 2 else array
            sums[name] = sums.get(name, 0.0) + mean.sum(axis=0)
            rows[name] += len(mean)
    return {name: total / rows[name] for name, total in sums.items()}


def _add_bias(graph: ir.Graph, layer: Layer, shift: npt.NDArray[np.float64]) -> None:
    if layer.bias is not None and sole_reader(layer.bias) is not None:
        change(layer.bias, numbers(layer.bias) + shift)
        return
    before = 0.0 if layer.bias is None else numbers(layer.bias)
    bias = add_constant(graph, f"{layer.name}_bias", (before + shift).astype(np.float32))
    layer.node.resize_inputs(3)
    layer.node.replace_input_with(2, bias)
