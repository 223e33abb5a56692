"""Checks before calibration: an hour of search on windows that cannot set ranges is an hour lost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from edge_export.data.dataset import Float32
from edge_export.graph.onnx_graph.examples import Examples, Windows
from edge_export.graph.onnx_graph.model import constant, from_proto, name_of, only_input, sizes_of
from edge_runtime.errors import ConfigError

_PRODUCTS = frozenset({
    "BatchNormalization", "Conv", "ConvTranspose", "Div", "GRU", "Gemm", "InstanceNormalization", "LSTM",
    "LayerNormalization", "MatMul", "Mul", "RNN",
})  # fmt: skip


def check_windows(windows: Windows, *, at_least: int = 1, channels: Sequence[str] | None = None) -> None:
    """Refuse windows that cannot set ranges.

    Args:
        windows: (n, channels, samples) float32, or examples.
        at_least: how many there must be. A few dozen windows of each class are the usual advice; ranges from fewer
            clip what the device will meet.
        channels: names for the message.

    Raises:
        ConfigError: none, too few, or one with a value that is not finite; it names the window and the channel.
    """
    if not len(windows):
        raise ConfigError("calibration needs windows, and there are none; give some of the training groups'")
    if isinstance(windows, Examples):
        for name, array in windows.arrays.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                first = int(np.argwhere(~np.isfinite(array))[0][0])
                raise ConfigError(f"calibration needs finite values; example {first} of input {name!r} holds another")
    elif not np.isfinite(windows).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(windows))[0])
        where = f" in channel {_name(place[1], channels)}" if windows.ndim > 2 else ""
        raise ConfigError(f"calibration needs windows of finite values; window {place[0]} holds one that is not{where}")
    if len(windows) < at_least:
        raise ConfigError(f"calibration needs windows, at least {at_least}, and there are {len(windows)}; give more")


def check_model(model: onnx.ModelProto, windows: Windows | None = None) -> None:
    """Refuse a model that no calibration can help.

    Args:
        model: float ONNX model.
        windows: what it will be calibrated on, to compare shapes.

    Raises:
        ConfigError: a weight is not finite (named), or the windows have another shape than the input.
    """
    parsed = from_proto(model)
    if fault := fault_of(parsed.graph):
        raise ConfigError(f"{fault}; train it again")
    if windows is not None and not isinstance(windows, Examples):
        _check_sizes(parsed, windows)


def fault_of(graph: ir.Graph) -> str:
    """Name the first constant that a model cannot have learnt; empty where there is none.

    1. NaN anywhere.
    2. An infinity that a layer multiplies by. Added, compared or chosen it is a mask or a bound.
    """
    for name, value in graph.initializers.items():
        array = constant(value)
        if array is None or not np.issubdtype(array.dtype, np.floating):
            continue
        bad = np.isnan(array)  # rule 1
        if any(node.op_type in _PRODUCTS for node in value.consumers()):
            bad = ~np.isfinite(array)  # rule 2
        if bad.any():
            readers = ", ".join(name_of(node) or node.op_type for node in value.consumers()) or "nothing"
            return f"{int(bad.sum())} values of {name!r} (read by {readers}) are not finite"
    return ""


def _check_sizes(model: ir.Model, windows: Float32) -> None:
    expected = sizes_of(only_input(model))[1:]
    if len(expected) != windows.ndim - 1 or any(
        size is not None and size != real for size, real in zip(expected, windows.shape[1:], strict=True)
    ):
        asked = " x ".join("any" if size is None else str(size) for size in expected)
        given = " x ".join(str(size) for size in windows.shape[1:])
        raise ConfigError(f"the model takes windows of {asked}, and those for calibration are {given}")


def _name(channel: int, channels: Sequence[str] | None) -> str:
    return repr(channels[channel]) if channels is not None else str(channel)
