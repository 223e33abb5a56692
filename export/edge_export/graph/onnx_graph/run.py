"""Runs of ONNX models as they are written, nothing optimised, with any of their tensors as answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx
import onnxruntime

from edge_export.data.dataset import Float32
from edge_export.graph.onnx_graph.examples import Examples, Windows
from edge_export.graph.onnx_graph.model import Array, drop_unread, from_proto, name_of, only_input, to_proto
from edge_runtime.errors import ConfigError, one_line


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """Load a model as it is written, nothing optimised.

    Raises:
        ConfigError: onnxruntime does not load it.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4  # fatal only: an error reaches the caller as an exception
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own classes derive from nothing narrower
        raise ConfigError(f"onnxruntime does not load the model: {one_line(error)}") from error


def observe(
    model: onnx.ModelProto, names: Iterable[str], windows: Windows, *, batch: int = 64
) -> Iterator[Mapping[str, Array]]:
    """Run a model batch by batch and give the values of any of its tensors; what they do not need does not run.

    Nothing is optimised away: quantised graphs are computed as their Q/DQ pairs say, in floats, so that what is seen
    is the same on every processor.

    Args:
        model: a model with one input, or with those that the examples name.
        names: tensors to see; an input's own name is allowed.
        windows: (n, ...) inputs, or examples.
        batch: windows per run.

    Yields:
        Values by name, of one batch after the other.

    Raises:
        ConfigError: windows for a model of several inputs, no tensor of that name, or the model does not run.
    """
    wanted = list(dict.fromkeys(names))
    copy = from_proto(model)
    given = {name_of(only_input(copy))} if not isinstance(windows, Examples) else set(windows.arrays)
    asked = [name for name in wanted if name not in given]
    computed = {name_of(value): value for node in copy.graph for value in node.outputs}
    if unknown := [name for name in asked if name not in computed]:
        raise ConfigError(f"the model computes no tensor {unknown[0]!r}")
    copy.graph.outputs[:] = [computed[name] for name in asked]
    drop_unread(copy.graph)
    loaded = session(to_proto(copy)) if asked else None
    for feed in _feeds(windows, given, batch):
        values = {name: feed[name] for name in wanted if name in given}
        if loaded is not None:
            values.update(zip(asked, _run(loaded, asked, feed), strict=True))
        yield values


def _run(loaded: onnxruntime.InferenceSession, asked: list[str], feed: Mapping[str, Array]) -> list[Array]:
    read = {value.name for value in loaded.get_inputs()}
    try:
        found: list[Array] = loaded.run(asked, {name: array for name, array in feed.items() if name in read})
    except Exception as error:
        raise ConfigError(f"onnxruntime does not run the model: {one_line(error)}") from error
    return found


def _feeds(windows: Windows, names: Iterable[str], batch: int) -> Iterator[Mapping[str, Array]]:
    if isinstance(windows, Examples):
        yield from windows.feeds(batch)
        return
    (source,) = names
    for begin in range(0, len(windows), batch):
        yield {source: windows[begin : begin + batch]}


def answers(model: onnx.ModelProto, windows: Windows, *, batch: int = 64) -> Float32:
    """Give a model's first answer to each window, computed as the graph says (see `observe`)."""
    name = model.graph.output[0].name
    return np.concatenate([values[name] for values in observe(model, [name], windows, batch=batch)])
