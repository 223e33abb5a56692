"""Float16 for machines that compute in it (Jetson's GPU): half the bytes, float32 at both ends.

onnxruntime's own converter writes the graph. What it leaves to chance is decided here: a constant beyond float16 is
an error instead of a silent clip, and nodes whose values leave float16's range stay in float32.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import onnx
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

from edge_runtime.errors import ConfigError
from export.data import Float32
from export.quantize.checks import check_model, check_windows
from export.quantize.graph import Net, observe

LARGEST = float(np.finfo(np.float16).max)
"""65504."""

_HEADROOM = 4.0
"""What the device may meet beyond the windows seen, as a factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """A model in float16.

    Attributes:
        model: float16 inside, float32 input and output.
        float32_nodes: nodes that stayed in float32 since their values need it, in graph order.
    """

    model: onnx.ModelProto
    float32_nodes: tuple[str, ...]


def to_half(model: onnx.ModelProto, windows: Float32) -> Half:
    """Write a model in float16.

    Args:
        model: as `export.quantize.write.prepare` gives it.
        windows: (n, ...) inputs that span what the model will meet: physical units may exceed float16 (101325 Pa).

    Raises:
        ConfigError: a weight is beyond float16 (named).
    """
    check_windows(windows)
    check_model(model, windows)
    net = Net(model)
    for tensor in net.graph.initializer:
        array = net.constant(tensor.name)
        if array.dtype == np.float32 and array.size and float(np.abs(array).max()) > LARGEST:
            raise ConfigError(f"constant {tensor.name!r} holds {np.abs(array).max():.4g}, beyond float16; keep float32")
    large = _beyond(net, windows)
    kept = [node.name for node in net.graph.node if large.intersection(node.input) or large.intersection(node.output)]
    # A shape may be named in a larger type than infer_shapes reaches; stale ones would be written as they are.
    del net.graph.value_info[:]
    with warnings.catch_warnings():
        # It warns of constants below float16's smallest number, which become that number or zero: no harm.
        warnings.simplefilter("ignore")
        converted = convert_float_to_float16(
            net.model,
            keep_io_types=True,
            op_block_list=[*DEFAULT_OP_BLOCK_LIST],
            node_block_list=kept,
        )
    return Half(model=converted, float32_nodes=tuple(kept))


def _beyond(net: Net, windows: Float32) -> set[str]:
    """Float tensors whose values come near float16's largest."""
    infos = net.infos()
    names = [net.source.name] + [
        name
        for node in net.graph.node
        for name in node.output
        if name in infos and infos[name].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    ]
    large = set()
    for values in observe(net.model, names, windows):
        for name, array in values.items():
            if array.size and not float(np.abs(array).max()) * _HEADROOM <= LARGEST:
                large.add(name)
    return large
