"""An ONNX graph looked up by name, changed in place, and run with any of its tensors as answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from edge_export.data.dataset import Float32
from edge_runtime.errors import ConfigError

Array = npt.NDArray[Any]


class Net:
    """A copy of a model, with its constants as arrays and its nodes found by what they read and write.

    Args:
        model: any ONNX model with its data inside; not changed.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.graph = self.model.graph
        self._stored = {tensor.name: tensor for tensor in self.graph.initializer}
        self._constants: dict[str, Array] = {}
        self.outputs = frozenset(info.name for info in self.graph.output)
        self.index()

    def index(self) -> None:
        """Look up nodes anew; to be called after nodes were added, removed or rewired."""
        self.producers: dict[str, onnx.NodeProto] = {}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in self.graph.node:
            for name in node.output:
                self.producers[name] = node
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    @property
    def source(self) -> onnx.ValueInfoProto:
        """The one input that is no constant.

        Raises:
            ConfigError: the graph has none, or more than one.
        """
        sources = [info for info in self.graph.input if info.name not in self._stored]
        if len(sources) != 1:
            raise ConfigError(f"need a model with one input, not {len(sources)}")
        return sources[0]

    def readers(self, name: str) -> list[onnx.NodeProto]:
        """Nodes that read this tensor, in graph order; one that reads it twice comes twice."""
        return self._readers.get(name, [])

    def sole_reader(self, name: str) -> onnx.NodeProto | None:
        """The only node that reads this tensor, or None where there are more, or it is an answer of the model."""
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def is_constant(self, name: str) -> bool:
        """Whether this tensor's numbers are in the file."""
        return name in self._stored

    def constant(self, name: str) -> Array:
        """A constant's numbers; not to be written into, see `change`."""
        if name not in self._constants:
            array = numpy_helper.to_array(self._stored[name])
            array.flags.writeable = False
            self._constants[name] = array
        return self._constants[name]

    def change(self, name: str, array: Array) -> None:
        """Give a constant new numbers (and maybe a new type or shape)."""
        self._stored[name].CopyFrom(numpy_helper.from_array(np.asarray(array, order="C"), name))
        self._constants.pop(name, None)

    def store(self, name: str, tensor: Array | onnx.TensorProto) -> str:
        """Add a constant under a name that is not taken yet, and return that name."""
        taken = self._stored.keys() | self.producers.keys() | {info.name for info in self.graph.input}
        free, count = name, 1
        while free in taken:
            free, count = f"{name}_{count}", count + 1
        proto = numpy_helper.from_array(tensor, free) if isinstance(tensor, np.ndarray) else tensor
        proto.name = free
        self.graph.initializer.append(proto)
        self._stored[free] = self.graph.initializer[-1]
        return free

    def drop_unread_constants(self) -> None:
        """Remove constants that no node reads."""
        read = {name for node in self.graph.node for name in node.input} | self.outputs
        kept = [tensor for tensor in self.graph.initializer if tensor.name in read]
        copies = [onnx.TensorProto.FromString(tensor.SerializeToString()) for tensor in kept]
        del self.graph.initializer[:]
        self.graph.initializer.extend(copies)
        self._stored = {tensor.name: tensor for tensor in self.graph.initializer}

    def infos(self) -> dict[str, onnx.ValueInfoProto]:
        """Type and shape of every tensor that shape inference understands."""
        inferred = onnx.shape_inference.infer_shapes(self.model).graph
        return {info.name: info for info in (*inferred.input, *inferred.value_info, *inferred.output)}


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's settings by name."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def shape_of(info: onnx.ValueInfoProto) -> list[int | None]:
    """Sizes of a tensor, None where open."""
    dims = info.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """A model loaded as it is written, nothing optimised.

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
    """Run a model batch by batch and give the values of any of its tensors.

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
        ConfigError: the model has a name twice, none of that name, or does not run.
    """
    wanted = list(dict.fromkeys(names))
    net = Net(model)
    source = net.source.name
    asked = [name for name in wanted if name != source]
    if unknown := [name for name in asked if name not in net.producers]:
        raise ConfigError(f"the model computes no tensor {unknown[0]!r}")
    del net.graph.output[:]
    net.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in asked)
    loaded = session(net.model) if asked else None
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
    """A model's first answer to each window, computed as the graph says (see `observe`)."""
    name = model.graph.output[0].name
    return np.concatenate([values[name] for values in observe(model, [name], windows, batch=batch)])
