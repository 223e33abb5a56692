"""Comparison of a packed model with the original file, which its library alone runs on rows put into it by hand.

Nothing here comes from what fits a card, so that a mistake there does not repeat itself: see rule 2.

1. The file is run in a child process, on rows of the recording, or drawn ones, with its states at their start.
2. Rows and columns are put into its tensor in every way that its sizes allow: an axis each, in both orders, or joined
   in one. Ways that the file refuses do not count.
3. One way at least must give the packed answers, in the order that the card states.
4. Joined ways do not count where the file also takes an axis for each and then answers otherwise; nor does a first axis
   of 1 where two windows in it are answered otherwise than each alone, and the file takes the rows there. The card's
   `batch` settles both.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, NoReturn

import numpy as np

from edge_runtime.base.system import subprocess_job
from edge_runtime.errors import ConfigError, EngineError
from edge_runtime.model.engines.base import Array

_TIMEOUT_S = 60.0
_NEAR = {"fp32": 1e-3, "fp16": 2e-2, "int8": 5e-2, "mixed": 5e-2}
"""Share of the largest answer by which one library may differ from itself between two numbers of rows."""

Call = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Subject of a comparison.

    Attributes:
        file: for messages.
        format: of the file.
        precision: of its numbers.
        input: that takes the rows; empty for the only one.
        layout: that the card states; empty where it does not.
        batch: the card says which axis is the batch.
        frame: height and width of a picture.
        offset: taken from the rows, for each column.
        scale: factor after that.
        others: numbers that other inputs are filled with, by name.
        outputs: that were packed; empty for the only one.
    """

    file: str
    format: str
    precision: str
    input: str = ""
    layout: str = ""
    batch: bool = False
    frame: tuple[int, ...] = ()
    offset: Any = 0.0
    scale: Any = 1.0
    others: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ("",)


class _Way(NamedTuple):
    layout: str
    shape: Sequence[int]
    apart: bool
    """Rows and columns have an axis each."""
    worst: float
    stacks: bool | None
    """Two windows in the first axis are answered as each alone; None where it is not open, or not 1."""


def compare(question: Question, model: bytes, rows: Array, answers: Sequence[Array]) -> str:
    """Compare packed answers with the original's.

    Args:
        question: see `Question`.
        model: bytes of the original file.
        rows: (calls, rows, columns).
        answers: the packed model's answers, (calls, numbers) for each output.

    Returns:
        One line that says what was compared.

    Raises:
        ConfigError: no way of feeding the file gives the packed answers, or the card's order of axes is another one.
    """
    blobs = [np.asarray(one, np.float32) for one in (rows, *answers)]
    job = {**asdict(question), "shapes": [one.shape for one in blobs]}
    data = [*(one.tobytes() for one in blobs), model]
    try:
        found = subprocess_job.ask(
            f"from {__name__} import child; child()", job, data, what="the comparison", timeout_s=_TIMEOUT_S,
            memory_bytes=subprocess_job.memory_for(sum(map(len, data)), 2**25),
        )  # fmt: skip
    except EngineError as error:
        raise ConfigError(f"{question.file}: {error}") from error
    if reason := found.get("reason"):
        raise ConfigError(f"{question.file}: {reason}")
    ways = [_Way(*one) for one in found["ways"]]
    size = max(1.0, *(float(np.abs(one).max(initial=0)) for one in blobs[1:]))
    same = [way for way in ways if way.worst <= _NEAR[question.precision] * size]
    if not ways:
        return f"{question.file}: not compared with the original, which refuses rows without what other inputs take"
    if not same:  # rule 3
        nearest = min(ways, key=lambda way: way.worst)
        raise ConfigError(
            f"{question.file}: the packed model answers otherwise than the file fed by hand, by {nearest.worst:.3g} at "
            f"least (as {_written(nearest.shape)}); correct the input's rows and layout, and the outputs"
        )
    chosen = _allowed(question, ways, same)
    return (
        f"{question.file}: compared with the original, fed by hand with {len(rows)} windows as "
        f"{_written(chosen.shape)}: differs by up to {chosen.worst:.2g}"
    )


def _allowed(question: Question, ways: Sequence[_Way], same: Sequence[_Way]) -> _Way:
    """Return the way that agrees and may be meant (rules 3 and 4)."""
    meant = [way for way in ways if question.layout in ("", way.layout)]
    others = [way for way in meant if way not in same and way.apart]
    deep = any(way.shape[0] > 1 for way in others)
    for way in meant:
        may = (way.apart or not others) and (way.stacks is not False or not deep)
        if way in same and (may or question.batch):
            return way
    listed = " or ".join(dict.fromkeys(_written(way.shape) for way in (*same[:1], *others[:2])))
    raise ConfigError(
        f"{question.file}: takes a window as {listed}, with other answers; write layout, and batch = 0 or -1 (none), "
        "at the model's input under [[stages]]"
    )


def _written(shape: Sequence[int]) -> str:
    return " x ".join(map(str, shape))


# -- the other side ----------------------------------------------------------------------------------------------------


def child() -> NoReturn:
    """Serve as the child process of `compare`."""
    subprocess_job.answer(_attempt)


def _attempt(job: dict[str, Any], data: memoryview) -> dict[str, Any]:
    blobs, place = [], 0
    for shape in job["shapes"]:
        blobs.append(np.frombuffer(data, np.float32, math.prod(shape), place).reshape(shape))
        place += blobs[-1].nbytes
    rows, *expected = blobs
    rows = (rows - np.asarray(job["offset"], np.float32)) * np.asarray(job["scale"], np.float32)
    sizes, call = (_onnx if job["format"] == "onnx" else _tflite)(bytes(data[place:]), job)
    own = [1, *sizes[1:]] if sizes and sizes[0] > 1 else sizes
    filled = [(own, 1)] if own is sizes else [(own, sizes[0]), (sizes, 1)]
    ways = []
    for (dims, copies), layout in itertools.product(filled, ("samples-first", "channels-first")):
        ordered = rows if layout == "samples-first" else rows.transpose(0, 2, 1)
        for shape, apart in _ways(dims, job["frame"], *ordered.shape[1:]):
            tensors = [_repeated(one.reshape(shape), copies) for one in ordered]
            if (made := _made(call, tensors, copies)) is not None:
                ways.append((layout, shape, apart, _worst(made, expected), _stacks(call, tensors, made, sizes)))
    return {"ways": ways}


def _made(call: Any, tensors: Sequence[Array], copies: int) -> list[list[Array]] | None:
    """Return the file's answers, None where it refuses the tensors (rule 2)."""
    try:
        return [[_taken(one, copies) for one in call(tensor)] for tensor in tensors]
    except Exception:  # noqa: BLE001 - of any library
        return None


def _ways(sizes: Sequence[int], frame: Sequence[int], one: int, other: int) -> Iterator[tuple[list[int], bool]]:
    """Yield the tensors of two numbers in order, and whether each has an axis (rule 2)."""
    fits = [[size] if size > 0 else [1, one, other, one * other, *frame] for size in sizes]
    if math.prod(map(len, fits)) > 4**6:
        return
    for shape in map(list, itertools.product(*(dict.fromkeys(each) for each in fits))):
        if math.prod(shape) != one * other:
            continue
        cuts = {math.prod(shape[:cut]) for cut in range(len(shape) + 1)}
        yield shape, one in cuts


def _repeated(tensor: Array, copies: int) -> Array:
    """Fill a batch of fixed size up with zeros."""
    return tensor if copies == 1 else np.concatenate([tensor, np.zeros((copies - 1, *tensor.shape[1:]), np.float32)])


def _taken(answer: Array, copies: int) -> Array:
    return answer[:1] if copies > 1 and answer.shape[:1] == (copies,) else answer


def _worst(made: Sequence[Sequence[Array]], expected: Sequence[Array]) -> float:
    worst = 0.0
    for call, answers in enumerate(made):
        for answer, wanted in zip(answers, expected, strict=True):
            if answer.size != wanted[call].size:
                return 1e30
            worst = max(worst, float(np.abs(answer.ravel() - wanted[call].ravel()).max(initial=0)))
    return worst if math.isfinite(worst) else 1e30


def _stacks(call: Any, tensors: Sequence[Array], made: Sequence[Sequence[Array]], sizes: Sequence[int]) -> bool | None:
    if sizes[:1] != [-1] or tensors[0].shape[0] != 1 or len(tensors) < 2:
        return None
    try:
        both = call(np.concatenate(tensors[:2]))
    except Exception:  # noqa: BLE001 - of any library; then a first axis of 1 is all that it takes
        return None
    return all(
        two.size == 2 * one.size and np.allclose(two.ravel(), np.concatenate([one.ravel(), next_.ravel()]), 1e-3, 1e-4)
        for two, one, next_ in zip(both, made[0], made[1], strict=True)
    )


def _cast(x: Array, dtype: Any) -> Array:
    if np.dtype(dtype).kind in "iu":
        ends = np.iinfo(dtype)
        return np.clip(np.rint(x), ends.min, ends.max).astype(dtype)
    return x.astype(dtype)


def _onnx(model: bytes, job: Mapping[str, Any]) -> tuple[list[int], Any]:
    import onnxruntime  # noqa: PLC0415 - under the limits

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    names = {"float": "float32", "double": "float64"}
    types = {one.name: names.get(one.type[7:-1], one.type[7:-1]) for one in session.get_inputs()}
    dims = {one.name: _sizes(one.shape) for one in session.get_inputs()}
    source = job["input"] or next(iter(dims))
    given = job["others"].items()
    others = {name: np.full(np.maximum(dims[name], 1), value, types[name]) for name, value in given if name in dims}
    wanted = [name or session.get_outputs()[0].name for name in job["outputs"]]

    def call(x: Array) -> list[Array]:
        return list(map(_numbers, session.run(wanted, {**others, source: _cast(x, types[source])})))

    return dims[source], call


def _numbers(answer: Any) -> Array:
    return np.asarray(
        [list(row.values()) for row in answer] if isinstance(answer, list) else answer, np.float32
    )  # ZipMap


def _sizes(shape: Sequence[Any]) -> list[int]:
    return [size if isinstance(size, int) else -1 for size in shape]


def _tflite(model: bytes, job: Mapping[str, Any]) -> tuple[list[int], Any]:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - under the limits

    first = Interpreter(model_content=model)
    inputs = {one["name"]: one for one in first.get_input_details()}
    source = inputs.get(job["input"], next(iter(inputs.values())))

    def call(x: Array) -> list[Array]:
        interpreter = Interpreter(model_content=model)  # a fresh one has its states at their start
        if list(x.shape) != list(source["shape"]):
            interpreter.resize_tensor_input(source["index"], x.shape)
        interpreter.allocate_tensors()
        scale, zero = source["quantization"]
        interpreter.set_tensor(source["index"], _cast(x / scale + zero if scale else x, source["dtype"]))
        for name, value in job["others"].items():
            other = inputs[name]
            interpreter.set_tensor(other["index"], np.broadcast_to(value, other["shape"]).astype(other["dtype"]))
        interpreter.invoke()
        return _answers(interpreter, job["outputs"])

    return [int(size) for size in source.get("shape_signature", source["shape"])], call


def _answers(interpreter: Any, names: Sequence[str]) -> list[Array]:
    outputs = {one["name"]: one for one in interpreter.get_output_details()}
    arrays = []
    for one in (outputs[name] if name else next(iter(outputs.values())) for name in names):
        array, (scale, zero) = interpreter.get_tensor(one["index"]).astype(np.float32), one["quantization"]
        arrays.append((array - zero) * scale if scale else array)
    return arrays
