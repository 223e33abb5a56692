"""A foreign float model file: its bytes, its edges on the device's own engine, and the same graph in ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from edge_export.graph.onnx_graph.model import Array, from_proto, graphs_in, read_model
from edge_export.graph.quantize.checks import fault_of
from edge_export.package.child import in_child
from edge_runtime.errors import ConfigError, EngineError, IncompatibleError, one_line
from edge_runtime.model import engines
from edge_runtime.model.engines.base import Engine, TensorSpec

Format = Literal["onnx", "tflite"]

_CONVERT = {
    ".pt": "load the module in Python and call edge_export.from_torch(module, example)",
    ".pth": "load the module in Python and call edge_export.from_torch(module, example)",
    ".jit": "torch.jit.load it in Python and call edge_export.from_torch(module, example)",
    ".h5": "python -m tf2onnx.convert --keras MODEL.h5 --output MODEL.onnx",
    ".keras": "python -m tf2onnx.convert --keras MODEL.keras --output MODEL.onnx",
    ".pb": "python -m tf2onnx.convert --saved-model FOLDER --output MODEL.onnx",
}
_INTEGERS = frozenset({"QuantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "MatMulNBits"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FloatModel:
    """A float model.

    Attributes:
        name: the file's name without its suffix.
        format: of the file.
        model: the file's bytes, weights inside.
        inputs: in the file's order, as the engine takes them; -1 is an open size.
        outputs: likewise.
        graph: the same model in ONNX.
        notes: what was done to get there.
    """

    name: str
    format: Format
    model: bytes = field(repr=False)
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    graph: onnx.ModelProto = field(repr=False)
    notes: tuple[str, ...] = ()


def open_source(path: Path) -> FloatModel:
    """Read an ONNX or TensorFlow Lite file with float weights.

    Raises:
        ConfigError: it is another kind of file, or holds integers already.
        EngineError: the engine refuses it.
        IncompatibleError: no engine for it is installed.
    """
    kind = path.suffix.lower()
    if kind not in (".onnx", ".tflite"):
        how = _CONVERT.get(kind) or (_CONVERT[".pb"] if (path / "saved_model.pb").is_file() else "")
        raise ConfigError(
            f"{path}: not an .onnx or .tflite file; {f'convert it: {how}' if how else 'convert it first'}"
        )
    try:
        if kind == ".onnx":
            read_model(path.read_bytes(), str(path))
            graph = onnx.load(str(path))  # with the data that lies beside it
            model = graph.SerializeToString()
        else:
            from edge_export.graph.tflite.read.file import read_tflite  # noqa: PLC0415 - needs LiteRT's schema

            model = path.read_bytes()
            graph = read_tflite(model, str(path))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except ConfigError:
        raise
    except Exception as error:  # protobuf's own types, and those of a damaged flatbuffer
        raise ConfigError(f"{path}: not a whole {kind[1:]} file: {one_line(error)}") from error
    _refuse_integers(graph, path)
    try:
        fault = fault_of(from_proto(graph).graph)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if fault:
        raise ConfigError(f"{path}: {fault}; train it again")
    format_: Format = "onnx" if kind == ".onnx" else "tflite"
    try:
        loaded = load(format_, model)
    except EngineError as error:
        raise EngineError(f"{path}: {error}") from error
    try:
        return FloatModel(
            name=path.stem, format=format_, model=model, inputs=loaded.inputs, outputs=loaded.outputs, graph=graph
        )
    finally:
        loaded.close()


def _refuse_integers(model: onnx.ModelProto, path: Path) -> None:
    for graph in graphs_in(model.graph):
        if found := next((node for node in graph.node if node.op_type in _INTEGERS), None):
            raise ConfigError(
                f"{path}: is quantised already (node {found.name or found.output[0]!r}, {found.op_type}); give the "
                "float file that it was made from"
            )


def load(format_: Format, model: bytes) -> Engine:
    """Load a file on the best engine installed, in a child process: some files end the process that runs them.

    Raises:
        EngineError: the engine refuses it, or dies or hangs.
        IncompatibleError: none is installed.
    """
    return in_child(format_, model)


def engine_of(format_: Format) -> str:
    """Name the best engine installed for a format.

    Raises:
        IncompatibleError: none is.
    """
    installed = engines.available(format_)
    if not installed:
        raise IncompatibleError(f"no engine for {format_} is installed; run: {engines.engines_for(format_)[0].install}")
    return installed[0].name


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """Order of a model's calls, and what goes from one to the next.

    Attributes:
        states: position of the output that the next call reads, by the input's name.
        answers: positions of the other outputs.
        batched: calls are rows: every input's first axis is the batch, and no state goes from call to call.
    """

    states: Mapping[str, int]
    answers: tuple[int, ...]
    batched: bool


def flow_of(source: FloatModel, given: Mapping[str, Array]) -> Flow:
    """Say which inputs are states: those without data that an output of the same type and sizes feeds.

    Args:
        source: the model.
        given: data by the input's name, (n, *sizes of one call).

    Raises:
        ConfigError: an input has neither data nor an output that fits.
    """
    states: dict[str, int] = {}
    for spec in source.inputs:
        if spec.name not in given:
            states[spec.name] = _fed_by(spec, source, states)
    answers = tuple(i for i in range(len(source.outputs)) if i not in states.values())
    rows = all(by_row(spec.shape) for spec in source.inputs) and all(by_row(spec.shape) for spec in source.outputs)
    return Flow(states=states, answers=answers, batched=rows and not states)


def _fed_by(spec: TensorSpec, source: FloatModel, taken: Mapping[str, int]) -> int:
    """Find the output that feeds a state: the last that fits, as long as one is left for an answer."""
    free = [i for i in range(len(source.outputs)) if i not in taken.values()]
    fitting = [i for i in free if _may_feed(source.outputs[i], spec)]
    if not fitting or len(free) < 2:
        known = ", ".join(each.name for each in source.inputs)
        raise ConfigError(
            f"input {spec.name!r} {readable(spec.shape)} has no data, and no output that could be its state; give "
            f"an array of that name, or --constant {spec.name}=VALUE (inputs: {known})"
        )
    return fitting[-1]


def _may_feed(output: TensorSpec, target: TensorSpec) -> bool:
    same = len(output.shape) == len(target.shape) and output.dtype == target.dtype
    return same and all(a == b or -1 in (a, b) for a, b in zip(output.shape, target.shape, strict=True))


def by_row(shape: Sequence[int]) -> bool:
    """Say whether the first axis of an input or output is one call's batch."""
    return bool(shape) and shape[0] in (-1, 1)


def readable(shape: Sequence[int]) -> str:
    """Write a shape for people."""
    return f"({', '.join('any' if size < 0 else str(size) for size in shape)})"


def call_shape(spec: TensorSpec) -> tuple[int, ...]:
    """Sizes of an input in one call: an open batch is 1; other open sizes stay -1."""
    return (1, *spec.shape[1:]) if by_row(spec.shape) else tuple(spec.shape)


def run_through(loaded: Engine, arrays: Mapping[str, Array], flow: Flow) -> tuple[dict[str, Array], list[Array]]:
    """Give a model one call after the other, each with the state that the call before left; zeros at first.

    Args:
        loaded: the model, any variant of it.
        arrays: arrays by input, (n, *sizes of one call); without the states.
        flow: the model's flow of calls.

    Returns:
        (inputs with the states as they were given, answers): by input (n, *sizes), and per answer (n, *sizes).

    Raises:
        EngineError: the model does not run.
    """
    if flow.batched:
        count = len(next(iter(arrays.values())))
        rows = [arrays[spec.name].reshape(count, *arrays[spec.name].shape[2:]) for spec in loaded.inputs]
        found = [np.array(answer) for answer in loaded.run(*map(np.ascontiguousarray, rows))]
        if all(len(found[i]) == count for i in flow.answers):
            return dict(arrays), [found[i][:, None] for i in flow.answers]
    return _one_by_one(loaded, arrays, flow)


def _one_by_one(loaded: Engine, arrays: Mapping[str, Array], flow: Flow) -> tuple[dict[str, Array], list[Array]]:
    state = {spec.name: _zeros(spec) for spec in loaded.inputs if spec.name in flow.states}
    seen: list[dict[str, Array]] = []
    given: list[list[Array]] = []
    for call in range(len(next(iter(arrays.values())))):
        feed = [_given(spec, arrays, state, call) for spec in loaded.inputs]
        found = [np.array(answer) for answer in loaded.run(*feed)]
        seen.append(state)
        given.append(found)
        state = {name: _state(name, found[i], state[name]) for name, i in flow.states.items()}
    states = {name: np.stack([one[name] for one in seen]) for name in state}
    return {**arrays, **states}, [
        _one_size(loaded.outputs[i].name, [found[i] for found in given]) for i in flow.answers
    ]


def _one_size(name: str, answers: Sequence[Array]) -> Array:
    sizes = list(dict.fromkeys(array.shape for array in answers))
    if len(sizes) > 1:
        raise EngineError(
            f"output {name!r} changes its size from call to call, {readable(sizes[0])} and {readable(sizes[1])}; such "
            "answers cannot be compared; give the model without what selects them"
        )
    return np.stack(answers)


def _zeros(spec: TensorSpec) -> Array:
    return np.zeros([max(size, 1) for size in call_shape(spec)], spec.dtype)


def _given(spec: TensorSpec, arrays: Mapping[str, Array], state: Mapping[str, Array], call: int) -> Array:
    # Not ascontiguousarray: it makes an axis where a single number has none.
    return state[spec.name] if spec.name in state else np.asarray(arrays[spec.name][call], order="C")


def _state(name: str, found: Array, before: Array) -> Array:
    if found.shape != before.shape:
        raise EngineError(f"state {name!r} comes back as {found.shape}, not as {before.shape}")
    return found
