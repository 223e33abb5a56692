"""State inside a TensorFlow Lite file, taken out: what a file keeps becomes inputs and outputs.

A streaming file keeps its state inside, so that each stream needs an interpreter of its own (204 to 558 kB for wake
words), and nothing can save or reset the state. The same graph with the state as inputs and outputs takes 1 to 8 kB a
stream, and rows of many streams in one call.

State is kept in two ways. The first is variables. Their operators are VAR_HANDLE, READ_VARIABLE and ASSIGN_VARIABLE;
CALL_ONCE runs a second graph that assigns the first values. They are left out of the copy:

1. What READ_VARIABLE gave is an input, what ASSIGN_VARIABLE took is an output.
2. Quantised state crosses these edges as the plain integers that a variable holds. So a RESHAPE to the same shape
   stands there, whose outer tensor has no quantisation: engines would turn it into floats and back.
3. The batch is opened: a RESHAPE to 1 row gives all rows, a STRIDED_SLICE of the first row takes all. Where LiteRT then
   gives each row of a batch what it gets alone, the copy has an open batch; else it stays at 1.

The second is variable tensors: inputs of an LSTM or SVDF operator that it also writes. A file cannot say whether such a
layer runs on from call to call, or forgets before each, so the caller says it. Where it runs on:

4. The same tensor is named as an input and as an output of the graph. The operator goes on reading and writing it in
   place. Nothing is computed otherwise.
5. It keeps its quantisation, which the operator needs. Engines have it as floats; integers of 8 and 16 bits come back
   as they were. It begins at 0.

Source: https://www.tensorflow.org/guide/variable as LiteRT's kernels `read_variable.cc` and `assign_variable.cc` do it;
`GetVariableInput` and `ResetVariableTensor` of LiteRT for variable tensors.

Either copy is tried beside the file itself for some steps, in a child process, and refused where one answer differs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from edge_export.graph.tflite.read import editing
from edge_export.graph.tflite.read.state_trial import try_copies
from edge_runtime.errors import ConfigError, EngineError
from edge_runtime.model.engines.batch_trial import Carried

_VARIABLE = ("CALL_ONCE", "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE")
_ADVICE = "convert the model again with states as inputs and outputs (in Keras: return_state=True)"
_SHARED = (schema.TensorType.FLOAT32, schema.TensorType.INT8, schema.TensorType.INT16)
"""Types whose numbers are the same again after an engine has made floats of them."""


class TakenState(NamedTuple):
    """A state that is an input and an output of the copy."""

    input: str
    output: str
    shape: tuple[int, ...]
    """Of the tensor; the first axis is 1, the batch."""
    initial: npt.NDArray[Any]
    """Value before the first step, of that shape and of the type that an engine has it in."""


class TakenOut(NamedTuple):
    """A copy of a file without state inside."""

    data: bytes
    """The file as it was, where nothing was taken out."""
    states: tuple[TakenState, ...]
    opened: bool
    """The rows of a batch were tried, and each gets what it gets alone."""
    inside: str
    """Layers whose state stays in the file, for people; empty where none does."""


class _Variable(NamedTuple):
    name: str
    read: int
    assigned: int


def take_states_out(data: bytes, file: str = "the file", *, kept: bool = False) -> TakenOut:
    """Turn what a file keeps from call to call into inputs and outputs.

    Args:
        data: the file's bytes.
        file: named in errors.
        kept: LSTM and SVDF layers run on from call to call, so their variable tensors are taken out, too. Else these
            stay inside, where an engine clears them before each call, and `TakenOut.inside` names them.

    Raises:
        ConfigError: the file is damaged, keeps its state in a way that inputs and outputs cannot stand for, or ends the
            child process in which it is tried.
    """
    model = editing.unpack(data, file)
    try:
        return _take_out(model, data, kept=kept)
    except _RefusalError as error:
        raise ConfigError(f"{file}: its state cannot be taken out: {error}; {_ADVICE}") from None
    except EngineError as error:
        raise ConfigError(f"{file}: {error}") from None
    except Exception as error:  # a damaged file ends in any of a dozen types
        raise ConfigError(f"{file}: not a whole TensorFlow Lite file: {error}") from error


class _RefusalError(Exception):
    """A use of state that has no form as inputs and outputs."""


def _take_out(model: Any, data: bytes, *, kept: bool) -> TakenOut:
    inside = "" if kept else variable_tensors(model)
    graph = model.subgraphs[0]
    tensors = _kept_tensors(graph) if kept else []
    names = {editing.operator_name(code) for code in model.operatorCodes}
    if not tensors and not names & set(_VARIABLE):
        return TakenOut(data, (), opened=False, inside=inside)
    initial = _initial_values(model)
    variables = _variables(model, graph)
    if unset := [each.name for each in variables if each.name not in initial]:
        raise _RefusalError(f"variable {unset[0]!r} has no first value")
    graph.operators = [each for each in graph.operators if _name(model, each) not in _VARIABLE]
    model.subgraphs, model.signatureDefs = [graph], None
    states = [_edge(model, graph, each, initial[each.name]) for each in variables]
    states += [_shared_edge(model, graph, index) for index in tensors]
    plain = copy.deepcopy(model)
    editing.drop_unused(plain)
    _open_batch(model, graph)
    editing.drop_unused(model)
    opened = editing.repack(model)
    carried = {each.input: Carried(each.output, each.initial) for each in states}
    closed = editing.repack(plain)
    trial = try_copies(data, closed, None if inside else opened, carried, clears=bool(inside))
    if trial.difference is not None:
        raise _RefusalError(f"without it, step {trial.difference} of some noise is answered otherwise")
    return TakenOut(opened if trial.opened else closed, tuple(states), opened=trial.opened, inside=inside)


def _name(model: Any, operator: Any) -> str:
    return editing.operator_name(model.operatorCodes[operator.opcodeIndex])


def variable_tensors(model: Any) -> str:
    """Return, for people, the layers whose variable tensors stay inside a file; empty where none do."""
    graph = model.subgraphs[0]
    kept = set(_kept_tensors(graph))
    users = sorted({_name(model, each) for each in graph.operators if kept & {int(i) for i in each.inputs}})
    return f"{len(kept)} variable tensors of {', '.join(users)}" if kept else ""


def _kept_tensors(graph: Any) -> list[int]:
    return [index for index, tensor in enumerate(graph.tensors) if tensor.isVariable]


def _initial_values(model: Any) -> dict[str, npt.NDArray[Any]]:
    """Read the graphs that CALL_ONCE runs; refuse graphs that anything else runs."""
    main = model.subgraphs[0]
    once = {each.builtinOptions.initSubgraphIndex for each in main.operators if _name(model, each) == "CALL_ONCE"}
    if others := set(range(1, len(model.subgraphs))) - once:
        raise _RefusalError(f"it has {len(others)} more graphs than the one that sets first values")
    values: dict[str, npt.NDArray[Any]] = {}
    for graph in (model.subgraphs[index] for index in sorted(once)):
        handles: dict[int, str] = {}
        for operator in graph.operators:
            name = _name(model, operator)
            if name == "VAR_HANDLE":
                handles[int(operator.outputs[0])] = _variable_name(operator)
            elif name == "ASSIGN_VARIABLE":
                tensor = graph.tensors[int(operator.inputs[1])]
                values[handles[int(operator.inputs[0])]] = _constant(model, tensor)
            else:
                raise _RefusalError(f"its first values are computed by {name}")
    return values


def _constant(model: Any, tensor: Any) -> npt.NDArray[Any]:
    content, dtype = editing.constant(model, tensor), editing.TYPES.get(tensor.type)
    if content is None or dtype is None:
        raise _RefusalError(f"the first value {editing.text(tensor.name)!r} is no constant of numbers")
    return np.frombuffer(content.tobytes(), dtype).reshape([int(size) for size in tensor.shape])


def _variable_name(operator: Any) -> str:
    options = operator.builtinOptions
    container = editing.text(options.container) if options.container else ""
    return "/".join(filter(None, (container, editing.text(options.sharedName))))


def _uses(model: Any, graph: Any) -> Iterator[tuple[str, str, int]]:
    """Yield for each reading and writing of a variable "read" or "written", its name, and the tensor, in order."""
    handles: dict[int, str] = {}
    for operator in graph.operators:
        kind = _name(model, operator)
        if kind == "VAR_HANDLE":
            handles[int(operator.outputs[0])] = _variable_name(operator)
        elif kind == "READ_VARIABLE":
            yield "read", handles[int(operator.inputs[0])], int(operator.outputs[0])
        elif kind == "ASSIGN_VARIABLE":
            yield "written", handles[int(operator.inputs[0])], int(operator.inputs[1])
        elif handles.keys() & {int(index) for index in operator.inputs}:
            raise _RefusalError(f"{kind} takes a variable as a whole")


def _variables(model: Any, graph: Any) -> list[_Variable]:
    """Find the reading and the writing of each variable, in order of name."""
    found: dict[str, dict[str, int]] = {"read": {}, "written": {}}
    for use, name, tensor in _uses(model, graph):
        if name in found[use]:
            raise _RefusalError(f"variable {name!r} is {use} twice")
        if use == "read" and name in found["written"]:
            raise _RefusalError(f"variable {name!r} is read after it was written")
        found[use][name] = tensor
    reads, writes = found.values()
    if alone := sorted(reads.keys() ^ writes.keys()):
        raise _RefusalError(f"variable {alone[0]!r} is {'read' if alone[0] in reads else 'written'} only")
    return [_Variable(name, reads[name], writes[name]) for name in sorted(reads)]


def _edge(model: Any, graph: Any, variable: _Variable, initial: npt.NDArray[Any]) -> TakenState:
    """Make a variable's input and output (rules 1 and 2)."""
    read, assigned = graph.tensors[variable.read], graph.tensors[variable.assigned]
    shape = [int(size) for size in assigned.shape]
    if read.type != assigned.type or editing.TYPES[read.type] != initial.dtype or tuple(shape) != initial.shape:
        raise _RefusalError(f"variable {variable.name!r} changes its type or shape")
    if not shape or shape[0] != 1:
        raise _RefusalError(f"variable {variable.name!r} has the shape {shape}, without an axis of 1 row for the batch")
    edges = {int(index) for index in (*graph.inputs, *graph.outputs)}
    if (
        edges & {variable.assigned}
        or editing.constant(model, assigned) is not None
        or variable.assigned == variable.read
    ):
        raise _RefusalError(f"variable {variable.name!r} takes an input, an output or a constant of the file as it is")
    read.shape, read.hasRank = shape, True
    taken = {editing.text(tensor.name) for tensor in graph.tensors if tensor.name}
    names = [_free_name(f"state/{variable.name}{end}", taken) for end in ("", "/next")]
    source = _plain_twin(graph, assigned, names[0])
    target = _plain_twin(graph, assigned, names[1])
    graph.operators.insert(0, _reshape(model, graph, source, variable.read, shape))
    graph.operators.append(_reshape(model, graph, variable.assigned, target, shape))
    graph.inputs, graph.outputs = [*graph.inputs, source], [*graph.outputs, target]
    return TakenState(names[0], names[1], tuple(shape), initial)


def _shared_edge(model: Any, graph: Any, index: int) -> TakenState:
    """Name a variable tensor as an input and an output (rules 4 and 5)."""
    tensor = graph.tensors[index]
    name, shape = editing.text(tensor.name), tuple(int(size) for size in tensor.shape)
    if shape[:1] != (1,):
        raise _RefusalError(f"tensor {name!r} has the shape {list(shape)}, without an axis of 1 row for the batch")
    if tensor.type not in _SHARED:
        raise _RefusalError(f"tensor {name!r} holds {editing.TYPES.get(tensor.type, 'no numbers')}")
    if index in {*graph.inputs, *graph.outputs} or editing.constant(model, tensor) is not None:
        raise _RefusalError(f"tensor {name!r} is an input, an output or a constant of the file as well")
    tensor.name = _free_name(f"state/{name}", {editing.text(each.name) for each in graph.tensors if each.name})
    graph.inputs, graph.outputs = [*graph.inputs, index], [*graph.outputs, index]
    quantised = tensor.quantization is not None and tensor.quantization.scale is not None
    dtype = np.dtype(np.float32) if quantised else editing.TYPES[tensor.type]
    return TakenState(tensor.name, tensor.name, shape, np.zeros(shape, dtype))


def _free_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _plain_twin(graph: Any, like: Any, name: str) -> int:
    """Add a tensor of the same type and shape without quantisation."""
    made = schema.TensorT()
    made.name, made.shape, made.type, made.buffer, made.hasRank = name, list(like.shape), like.type, 0, True
    graph.tensors.append(made)
    return len(graph.tensors) - 1


def _reshape(model: Any, graph: Any, source: int, target: int, shape: list[int]) -> Any:
    made = schema.OperatorT()
    made.opcodeIndex = _code(model, "RESHAPE")
    made.inputs, made.outputs = [source, _integers(model, graph, shape)], [target]
    made.builtinOptionsType = schema.BuiltinOptions.ReshapeOptions
    made.builtinOptions = schema.ReshapeOptionsT()
    made.builtinOptions.newShape = shape
    return made


def _code(model: Any, name: str) -> int:
    number = getattr(schema.BuiltinOperator, name)
    for place, code in enumerate(model.operatorCodes):
        if editing.builtin(code) == number:
            return place
    made = schema.OperatorCodeT()
    made.builtinCode, made.deprecatedBuiltinCode, made.version = number, number, 1
    model.operatorCodes.append(made)
    return len(model.operatorCodes) - 1


def _integers(model: Any, graph: Any, values: list[int]) -> int:
    buffer, tensor = schema.BufferT(), schema.TensorT()
    buffer.data = np.frombuffer(np.array(values, np.int32).tobytes(), np.uint8)
    model.buffers.append(buffer)
    tensor.name, tensor.shape, tensor.type = "state/shape", [len(values)], schema.TensorType.INT32
    tensor.buffer, tensor.hasRank = len(model.buffers) - 1, True
    graph.tensors.append(tensor)
    return len(graph.tensors) - 1


def _open_batch(model: Any, graph: Any) -> None:
    """Change what fixes the batch to one row (rule 3)."""
    for operator in graph.operators:
        kind = _name(model, operator)
        if kind == "RESHAPE":
            _open_reshape(model, graph, operator)
        elif kind == "STRIDED_SLICE" and _takes_first_row(model, graph, operator):
            operator.builtinOptions.beginMask |= 1
            operator.builtinOptions.endMask |= 1
    for index in (*graph.inputs, *graph.outputs):
        tensor = graph.tensors[int(index)]
        stated = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
        tensor.shapeSignature = [-1, *(int(size) for size in stated[1:])]


def _open_reshape(model: Any, graph: Any, operator: Any) -> None:
    shape = [int(size) for size in graph.tensors[int(operator.outputs[0])].shape]
    if shape[:1] == [1]:
        opened = [-1, *shape[1:]]
        # A shape of its own: others may share the constant.
        operator.inputs = [int(operator.inputs[0]), _integers(model, graph, opened)]
        operator.builtinOptionsType = schema.BuiltinOptions.ReshapeOptions
        operator.builtinOptions = operator.builtinOptions or schema.ReshapeOptionsT()
        operator.builtinOptions.newShape = opened


def _takes_first_row(model: Any, graph: Any, operator: Any) -> bool:
    options = operator.builtinOptions
    if (options.ellipsisMask | options.newAxisMask | options.shrinkAxisMask) & 1:
        return False
    found = [editing.constant(model, graph.tensors[int(index)]) for index in operator.inputs[1:4]]
    if any(each is None for each in found):
        return False
    begin, end, stride = (int(np.frombuffer(each.tobytes(), np.int32)[0]) for each in found if each is not None)
    return stride == 1 and (begin == 0 or bool(options.beginMask & 1)) and (end == 1 or bool(options.endMask & 1))
