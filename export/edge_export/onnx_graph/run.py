"""Runs of ONNX models as they are written, nothing optimised, with any of their tensors as answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx
import onnxruntime

from edge_export.data.dataset import Float32
from edge_export.onnx_graph.model import Array, drop_unread, from_proto, name_of, only_input, to_proto
from edge_runtime.errors import ConfigError


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Load a model as it is written, nothing optimised.

    Raises:
        ConfigError: onnxruntime does not load it.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes derive from nothing narrower
        raise ConfigError(f"onnxruntime does not load the model: {str(error).splitlines()[0]}") from error


def observe(
    model: onnx.ModelProto, names: Iterable[str], windows: Float32, *, batch: int = 64
) -> Iterator[Mapping[str, Array]]:
    """Run a model batch by batch and give the values of any of its tensors; what they do not need does not run.

    Nothing is optimised away: quantised graphs are computed as their Q/DQ pairs say, in floats, so that what is seen
    is the same on every processor.

    Args:
        model: with one input.
        names: tensors to see; the input's own name is allowed.
        windows: (n, ...) inputs.
        batch: windows per run.

    Yields:
        Values by name, of one batch after the other.

    Raises:
        ConfigError: the model has more than one input, no tensor of that name, or does not run.
    """
    wanted = list(dict.fromkeys(names))
    copy = from_proto(model)
    source = name_of(only_input(copy))
    asked = [name for name in wanted if name != source]
    computed = {name_of(value): value for node in copy.graph for value in node.outputs}
    if unknown := [name for name in asked if name not in computed]:
        raise ConfigError(f"the model computes no tensor {unknown[0]!r}")
    copy.graph.outputs[:] = [computed[name] for name in asked]
    drop_unread(copy.graph)
    loaded = session(to_proto(copy)) if asked else None
    for begin in range(0, len(windows), batch):
        part = windows[begin : begin + batch]
        values = {source: part} if source in wanted else {}
        if loaded is not None:
            try:
                values.update(zip(asked, loaded.run(asked, {source: part}), strict=True))
            except Exception as error:
                raise ConfigError(f"onnxruntime does not run the model: {str(error).splitlines()[0]}") from error
        yield values


def answers(model: onnx.ModelProto, windows: Float32, *, batch: int = 64) -> Float32:
    """Give a model's first answer to each window, computed as the graph says (see `observe`)."""
    name = model.graph.output[0].name
    return np.concatenate([values[name] for values in observe(model, [name], windows, batch=batch)])
