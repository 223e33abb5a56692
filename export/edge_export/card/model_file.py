"""A model file as it lies there: its tensors, its numbers, and what it remembers; run in a child process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import numpy as np
import onnx

from edge_export.card.kinds import Format, kind_of
from edge_export.card.zip_map import without_zip_map
from edge_runtime import engines
from edge_runtime.engines.base import Array, Engine, EngineOptions, TensorSpec
from edge_runtime.engines.subprocess_engine import WorkerEngine
from edge_runtime.errors import ConfigError, EngineError, IncompatibleError, one_line
from edge_runtime.manifest.stages import State

Precision = Literal["fp32", "fp16", "int8", "mixed"]

DEADLINE_S = 60.0
"""For one call, and for loading: a workstation needs a hundredth of it."""


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
    """

    path: Path
    data: bytes = field(repr=False)
    format: Format
    precision: Precision
    engine: WorkerEngine
    taken: tuple[State, ...] = ()
    inside: str = ""
    notes: tuple[str, ...] = ()

    def close(self) -> None:
        """End the child."""
        self.engine.close()

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


def open_file(path: Path, *, kept: bool = False) -> ModelFile:
    """Read a model file and open it in a child process.

    Args:
        path: of the file.
        kept: layers that remember (LSTM, SVDF in TensorFlow Lite) run on from call to call.

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
    return _open_tflite(path, data, kept=kept)


def _open(
    path: Path,
    data: bytes,
    format_: Format,
    precision: Precision,
    *,
    taken: tuple[State, ...] = (),
    inside: str = "",
    notes: tuple[str, ...] = (),
) -> ModelFile:
    try:
        engine = in_child(format_, data)
    except EngineError as error:
        raise ConfigError(f"{path}: {error}") from error
    return ModelFile(
        path=path, data=data, format=format_, precision=precision, engine=engine, taken=taken, inside=inside,
        notes=notes,
    )  # fmt: skip


def in_child(format_: str, data: bytes) -> WorkerEngine:
    """Load a model, or a chain, in a child process.

    Raises:
        EngineError: the engine refuses it, or dies or hangs.
        IncompatibleError: no engine for the format is installed.
    """
    installed = engines.available(format_)
    if not installed:
        wanted = engines.engines_for(format_)[0]
        raise IncompatibleError(f"no engine for {format_} is installed; run: {wanted.install}")
    return WorkerEngine(
        installed[0].name, data, EngineOptions(), None, deadline_s=DEADLINE_S, load_timeout_s=DEADLINE_S
    )


def _open_onnx(path: Path, data: bytes) -> ModelFile:
    precision, notes = onnx_precision(data, path), []
    model = onnx.load_model_from_string(data)
    if taken := without_zip_map(model):
        data, notes = model.SerializeToString(), [f"ZipMap taken off {', '.join(taken)}, now a tensor"]
    return _open(path, data, "onnx", precision, notes=tuple(notes))


def _open_tflite(path: Path, data: bytes, *, kept: bool) -> ModelFile:
    from edge_export.card.tflite_edges import custom_operators, precision_of  # noqa: PLC0415 - needs LiteRT's schema
    from edge_export.tflite.states import take_states_out  # noqa: PLC0415

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
    try:
        return _open(
            path, taken.data, "tflite", cast("Precision", precision), taken=tuple(states), inside=taken.inside,
            notes=tuple(notes),
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
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # the parser raises types of its own library
        raise ConfigError(f"{path}: not a usable ONNX model: {one_line(error)}") from error
    from edge_export.card.onnx_edges import QUANTISED  # noqa: PLC0415 - needs onnx_ir
    from edge_export.onnx_graph.model import graphs_in  # noqa: PLC0415

    graphs = list(graphs_in(model.graph))
    if any(node.op_type in QUANTISED for graph in graphs for node in graph.node):
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
