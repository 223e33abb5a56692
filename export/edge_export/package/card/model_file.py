"""A model file as it lies there: its tensors, its numbers, and what it remembers; run in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, cast

import numpy as np
import onnx
import onnx_ir as ir

from edge_export.graph.onnx_graph.edge import Edge
from edge_export.graph.onnx_graph.model import from_proto, graphs_in, read_model, to_proto
from edge_export.graph.onnx_graph.normalise import normalise
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.passes.conv2d import as_conv2d
from edge_export.package.card.kinds import Format, kind_of
from edge_export.package.card.zip_map import without_zip_map
from edge_export.package.child import in_child
from edge_runtime.errors import ConfigError, EngineError
from edge_runtime.manifest.stages import State
from edge_runtime.model.engines.base import Array, Engine, TensorSpec
from edge_runtime.model.engines.subprocess_engine import WorkerEngine

Precision = Literal["fp32", "fp16", "int8", "mixed"]

_QUANTISED = ("QuantizeLinear", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")
_WHOLE = 1_000_000
"""Rows that an engine is given in one call: what it would cut into several may be time."""


@dataclass(kw_only=True)
class ModelFile:
    """A model file, open in a child process, so that one that kills its process costs nothing.

    Attributes:
        path: of the file, for messages.
        data: its bytes as they are packed: state inside is taken out.
        format: of the file.
        precision: of its numbers.
        engine: runs it.
        taken: states that were inside.
        inside: layers that remember and were not taken out, for people.
        notes: what was done to it, a few words each.
        shapes: of its inputs as it stores them, the first axis included; -1 for open sizes.
        alone: inputs that had no batch, with the shape of a window (`give_batch`).
    """

    path: Path
    data: bytes = field(repr=False)
    format: Format
    precision: Precision
    engine: WorkerEngine
    taken: tuple[State, ...] = ()
    inside: str = ""
    notes: tuple[str, ...] = ()
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    alone: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def close(self) -> None:
        """End the child."""
        self.engine.close()

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the sizes of an input as the file stores them, the first axis included; -1 for open ones."""
        return self.shapes.get(name) or next(spec.shape for spec in self.engine.inputs if spec.name == name)

    def give_batch(self, name: str, shape: tuple[int, ...]) -> None:
        """Put a first axis of 1 before an input without a batch.

        Raises:
            ConfigError: a TensorFlow Lite file, or the result does not run.
        """
        if self.format != "onnx":
            raise ConfigError(
                f"{self.path}: input {name} has no axis for a batch, which a TensorFlow Lite file needs here; convert "
                "the model again with a first axis of 1"
            )
        self.close()
        self.data, self.alone[name] = _with_batch(self.data, name, shape), shape
        self.shapes = {**self.shapes, name: (1, *shape)}
        try:
            self.engine = in_child(self.format, self.data, _WHOLE)
        except EngineError as error:
            raise ConfigError(f"{self.path}: {error}") from error

    @property
    def inputs(self) -> dict[str, TensorSpec]:
        """Inputs that are no state that was inside, by name."""
        hidden = {state.input for state in self.taken}
        return {spec.name: spec for spec in self.engine.inputs if spec.name not in hidden}

    @property
    def outputs(self) -> dict[str, TensorSpec]:
        """Outputs that are no state that was inside, by name."""
        hidden = {state.output for state in self.taken}
        return {spec.name: spec for spec in self.engine.outputs if spec.name not in hidden}


def open_file(path: Path, *, kept: bool = False, floats: bool = False) -> ModelFile:
    """Read a model file and open it in a child process.

    Args:
        path: the file's path.
        kept: layers that remember (LSTM, SVDF in TensorFlow Lite) run on from call to call.
        floats: the engine is to turn floats into the file's integers and back.

    Raises:
        ConfigError: it is of another kind (names the command that converts it), cannot be read, or no engine loads it.
        IncompatibleError: no engine for it is installed.
    """
    suffix = kind_of(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if suffix == "onnx":
        return _open_onnx(path, data)
    return _open_tflite(path, data, kept=kept, floats=floats)


def _open(
    path: Path,
    data: bytes,
    format_: Format,
    precision: Precision,
    *,
    taken: tuple[State, ...] = (),
    inside: str = "",
    notes: tuple[str, ...] = (),
    shapes: Mapping[str, tuple[int, ...]],
) -> ModelFile:
    try:
        engine = in_child(format_, data, _WHOLE)
    except EngineError as error:
        raise ConfigError(f"{path}: {error}") from error
    return ModelFile(
        path=path, data=data, format=format_, precision=precision, engine=engine, taken=taken, inside=inside,
        notes=notes, shapes=shapes,
    )  # fmt: skip


def _open_onnx(path: Path, data: bytes) -> ModelFile:
    precision, notes = onnx_precision(data, path), []
    model = onnx.load_model_from_string(data)
    if taken := without_zip_map(model):
        data, notes = model.SerializeToString(), [f"ZipMap taken off {', '.join(taken)}, now a tensor"]
    elif (faster := _with_conv2d(model, path)) is not model:
        data, notes = faster.SerializeToString(deterministic=True), ["Conv1d as Conv2d"]
    shapes = {
        one.name: tuple(int(dim.dim_value) or -1 for dim in one.type.tensor_type.shape.dim) for one in model.graph.input
    }
    opened = partial(_open, path, format_="onnx", precision=precision)
    try:
        return opened(data, notes=tuple(notes), shapes=shapes)
    except ConfigError:
        first = next(iter(shapes), "")
        if len(shapes) != 1 or shapes[first][:1] != (-1,) or -1 in shapes[first][1:]:
            raise
        # A batch of one would run: this axis is the rows, of which a model may need more than one.
        notes.append(f"input {first} takes rows in its first axis, since the file does not run with one of them")
        whole = {first: (1, *shapes[first])}
        return opened(_with_batch(data, first, shapes[first]), notes=tuple(notes), shapes=whole)


def _with_conv2d(model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """Return a model of one input in the form that onnxruntime computes faster; itself where there is none."""
    if len(model.graph.input) > 1 or not any(len(tensor.dims) == 3 for tensor in model.graph.initializer):
        return model
    try:
        form = canonicalise(normalise(read_model(model.SerializeToString(), str(path))))
        changed = as_conv2d(form)
        return model if changed is form else canonicalise(changed)
    except ConfigError:  # the file may run as it is
        return model


def _with_batch(data: bytes, name: str, shape: Sequence[int]) -> bytes:
    """Put a first axis of 1 before an input, of whose sizes at most one is open (-1)."""
    model = from_proto(onnx.load_model_from_string(data))
    place, source = next((k, one) for k, one in enumerate(model.graph.inputs) if one.name == name)
    sizes = [1, *(size if size > 0 else f"{name}_rows" for size in shape)]
    window = ir.Value(name=name, type=source.type, shape=ir.Shape(sizes))
    edge = Edge(model.graph, "alone", next(iter(model.graph), None))
    flow = edge.node("Reshape", window, edge.constant(shape, np.int64))
    source.replace_all_uses_with(flow, replace_graph_outputs=True)
    model.graph.inputs[place] = window
    return bytes(to_proto(model).SerializeToString())


def _open_tflite(path: Path, data: bytes, *, kept: bool, floats: bool) -> ModelFile:
    from edge_export.graph.tflite.read.states import take_states_out  # noqa: PLC0415
    from edge_export.package.card.tflite_file import custom_operators, input_shapes, precision_of, with_float_ends  # noqa: PLC0415 - needs LiteRT's schema

    file = str(path)
    precision = precision_of(data, file)
    taken = take_states_out(data, file, kept=kept)
    states = []
    for one in taken.states:
        values = np.unique(one.initial)
        if len(values) > 1:
            raise ConfigError(
                f"{file}: its state {one.input!r} begins with different numbers; a bundle has one for all"
            )
        states.append(State(input=one.input, output=one.output, shape=one.shape[1:], initial=float(values[0])))
    notes = [f"{len(states)} states taken out of the file"] if states else []
    packed = with_float_ends(taken.data, file) if floats and not states else taken.data
    try:
        return _open(
            path, packed, "tflite", cast("Precision", precision), taken=tuple(states), inside=taken.inside,
            notes=tuple(notes), shapes=input_shapes(packed, file),
        )  # fmt: skip
    except ConfigError as error:
        if custom := custom_operators(data, file):  # LiteRT has some of them
            raise ConfigError(
                f"{file}: needs operators that are no part of LiteRT: {', '.join(custom)}; convert the model without "
                "SELECT_TF_OPS and custom operators"
            ) from error
        raise


def onnx_precision(data: bytes, path: Path) -> Precision:
    """Return the precision of a file by the weights of its main graph and the graphs in it.

    Raises:
        ConfigError: it is no ONNX model.
    """
    model = read_model(data, str(path))
    graphs = list(graphs_in(model.graph))
    if any(node.op_type in _QUANTISED for graph in graphs for node in graph.node):
        return "int8"
    stored = [tensor for graph in graphs for tensor in graph.initializer]
    stored += [
        attribute.t
        for graph in graphs
        for node in graph.node
        if node.op_type == "Constant"
        for attribute in node.attribute
        if attribute.name == "value"
    ]
    halves = any(tensor.data_type == onnx.TensorProto.FLOAT16 and len(tensor.dims) > 1 for tensor in stored)
    return "fp16" if halves else "fp32"


def run_once(engine: Engine, feed: dict[str, Array]) -> dict[str, Array]:
    """Run a file on arrays by name; returns copies of all its outputs by name.

    Raises:
        EngineError, InputError: as the engine does.
    """
    answers: Sequence[Array] = engine.run(*[feed[spec.name] for spec in engine.inputs])
    return {spec.name: np.array(answer) for spec, answer in zip(engine.outputs, answers, strict=True)}
