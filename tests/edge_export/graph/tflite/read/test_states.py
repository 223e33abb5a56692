"""A file whose state was taken out answers as the file with its state inside, step after step."""

from __future__ import annotations

import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from edge_export.graph.tflite.read import states
from edge_export.graph.tflite.read.states import TakenOut, take_states_out

from edge_runtime.errors import ConfigError
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.model.engines.base import Array, EngineOptions
from edge_runtime.model.engines.litert import affine_of, load_litert
from edge_runtime.model.engines.quantization import Affine
from edge_runtime.signal.frontends.micro_frontend import MicroFrontendRows
from tests.edge_export.graph.tflite.read.variables import KEPT, ROWS, WIDTH, Inside, Remembering, explicit

WAKE_WORDS = ("alexa", "alexa_v1", "hey_jarvis", "okay_nabu", "vad")
LSTM = (
    "tflm-examples/dtln_noise_suppression.tflite", "tflm-examples/trained_lstm.tflite",
    "tflm-examples/trained_lstm_int8.tflite",
)  # fmt: skip


def inside(dtype: npt.DTypeLike = np.float32) -> Inside:
    initial = np.arange(KEPT * WIDTH).reshape(1, KEPT, WIDTH).astype(dtype)
    return Inside(explicit(dtype), initial)


def steps_of(data: bytes, rows: Array) -> Array:
    """Stored answers of a file with its state inside; rows (steps, *row) as stored."""
    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    source, target = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    answers = []
    for row in rows:
        interpreter.set_tensor(source["index"], row[None])
        interpreter.invoke()
        answers.append(interpreter.get_tensor(target["index"])[0])
    return np.array(answers)


def steps_outside(taken: TakenOut, rows: Array) -> Array:
    """The same of the copy for several keys at once; rows (keys, steps, *row) as stored."""
    interpreter = Interpreter(model_content=taken.data, num_threads=1)
    keys = len(rows)
    for detail in interpreter.get_input_details():
        interpreter.resize_tensor_input(detail["index"], [keys, *detail["shape"][1:]])
    interpreter.allocate_tensors()
    inputs = {detail["name"]: detail["index"] for detail in interpreter.get_input_details()}
    outputs = {detail["name"]: detail["index"] for detail in interpreter.get_output_details()}
    (source,) = inputs.keys() - {state.input for state in taken.states}
    (target,) = outputs.keys() - {state.output for state in taken.states}
    now = {state.input: np.repeat(state.initial, keys, axis=0) for state in taken.states}
    answers = []
    for step in range(rows.shape[1]):
        interpreter.set_tensor(inputs[source], rows[:, step])
        for name, value in now.items():
            interpreter.set_tensor(inputs[name], value)
        interpreter.invoke()
        answers.append(interpreter.get_tensor(outputs[target]))
        now = {state.input: interpreter.get_tensor(outputs[state.output]) for state in taken.states}
    return np.stack(answers, axis=1)


@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("keys", [1, 5])
def test_every_step_answers_as_the_file_with_its_state_inside(dtype: str, keys: int) -> None:
    data = inside(dtype).bytes()
    taken = take_states_out(data)
    rows = np.random.default_rng(0).integers(-128, 128, (keys, 6, ROWS, WIDTH)).astype(dtype)
    expected = np.stack([steps_of(data, own) for own in rows])
    np.testing.assert_array_equal(steps_outside(taken, rows), expected, strict=True)
    assert taken.opened
    assert not taken.inside


def test_the_copy_has_named_states_and_nothing_of_the_variables() -> None:
    taken = take_states_out(inside("int8").bytes())
    (state,) = taken.states
    assert (state.input, state.output) == ("state/stream/states", "state/stream/states/next")
    assert state.shape == (1, KEPT, WIDTH)
    np.testing.assert_array_equal(state.initial, np.arange(12, dtype=np.int8).reshape(1, KEPT, WIDTH), strict=True)
    model = schema.ModelT.InitFromPackedBuf(taken.data, 0)
    names = {code.builtinCode for code in model.operatorCodes}
    kept = schema.BuiltinOperator
    assert names == {kept.CONCATENATION, kept.STRIDED_SLICE, kept.RESHAPE}
    assert len(model.subgraphs) == 1


def test_an_engine_has_the_states_as_plain_integers() -> None:
    taken = take_states_out(inside("int8").bytes())
    engine = load_litert(taken.data, EngineOptions(), {})
    kinds = {spec.name: (str(spec.dtype), spec.shape) for spec in (*engine.inputs, *engine.outputs)}
    assert kinds == {
        "rows": ("float32", (-1, ROWS, WIDTH)),
        "state/stream/states": ("int8", (-1, KEPT, WIDTH)),
        "answer": ("float32", (-1, 20)),
        "state/stream/states/next": ("int8", (-1, KEPT, WIDTH)),
    }


def test_a_file_without_variables_stays_as_it_is() -> None:
    data = explicit()
    assert take_states_out(data) == TakenOut(data, (), opened=False, inside="")


def first_axis(file: Inside) -> None:
    """Two rows in the first axis."""
    for index in (file.state, file.kept):
        file.graph.tensors[index].shape = [2, KEPT, 2]
    file.init.tensors[1].shape = [2, KEPT, 2]


def reads_twice(file: Inside) -> None:
    file.graph.operators.insert(3, file.reading(file.add(file.graph, 0, (1, KEPT, WIDTH))))


def reads_late(file: Inside) -> None:
    operators = file.graph.operators
    operators.append(operators.pop(2))


def writes_twice(file: Inside) -> None:
    file.graph.operators.append(file.writing(file.handle, file.kept))


def never_writes(file: Inside) -> None:
    file.graph.operators.pop()


def never_reads(file: Inside) -> None:
    file.graph.operators.pop(2)


def no_first_value(file: Inside) -> None:
    file.init.operators = []


def computed_first_value(file: Inside) -> None:
    file.init.operators.append(file.graph.operators[3])


def first_value_without_numbers(file: Inside) -> None:
    file.init.tensors[1].buffer = 0


def another_graph(file: Inside) -> None:
    extra = schema.SubGraphT()
    extra.name, extra.tensors, extra.inputs, extra.outputs, extra.operators = b"body", [], [], [], []
    file.model.subgraphs.append(extra)


def writes_an_input(file: Inside) -> None:
    file.graph.operators[-1].inputs = [file.handle, file.graph.inputs[0]]
    file.graph.tensors[file.graph.inputs[0]].shape = [1, KEPT, WIDTH]


def other_shape(file: Inside) -> None:
    file.init.tensors[1].shape = [1, WIDTH, KEPT]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (another_graph, "1 more graphs than the one"),
        (computed_first_value, "first values are computed by CONCATENATION"),
        (first_axis, "without an axis of 1 row for the batch"),
        (first_value_without_numbers, "is no constant of numbers"),
        (never_reads, "'stream/states' is written only"),
        (never_writes, "'stream/states' is read only"),
        (no_first_value, "'stream/states' has no first value"),
        (other_shape, "changes its type or shape"),
        (reads_late, "is read after it was written"),
        (reads_twice, "'stream/states' is read twice"),
        (writes_an_input, "takes an input, an output or a constant"),
        (writes_twice, "'stream/states' is written twice"),
    ],
)
def test_what_cannot_be_taken_out_is_refused_with_its_reason(change: Callable[[Inside], None], reason: str) -> None:
    file = inside()
    change(file)
    with pytest.raises(
        ConfigError, match=f"^wake.tflite: its state cannot be taken out: .*{reason}.*convert the model again"
    ):
        take_states_out(file.bytes(), "wake.tflite")


def refusal(data: bytes) -> str:
    try:
        take_states_out(data, "wake.tflite")
    except ConfigError as error:
        return str(error)
    return ""


def test_damaged_files_are_refused_on_one_line() -> None:
    data, rng = inside("int8").bytes(), np.random.default_rng(0)
    damaged = [data[:k] for k in range(0, len(data), 97)]
    for _ in range(60):
        copy = bytearray(data)
        for at in rng.integers(8, len(data), 3):
            copy[at] = rng.integers(256)
        damaged.append(bytes(copy))
    errors = [error for error in map(refusal, damaged) if error]
    assert len(errors) > len(damaged) // 2
    assert all(error.startswith("wake.tflite: ") and "\n" not in error for error in errors)


def sound_rows(path: Path) -> Array:
    """Rows of the micro-frontend of a recording."""
    with wave.open(str(path)) as file:
        sound = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, file.getnchannels())[:, 0]
    frontend = MicroFrontendRows(MicroFrontend(), (480,))
    cuts = np.lib.stride_tricks.sliding_window_view(sound, 480)[::160]
    rows, _ = frontend(np.asarray(cuts[None] / np.float32(32768), np.float32), [np.zeros((1, 40), np.uint32)])
    return np.asarray(rows[0])


def stored(rows: Array, data: bytes) -> Array:
    """Rows of the front end as the steps that a wake word's file takes."""
    detail: Any = Interpreter(model_content=data).get_input_details()[0]
    count, (scale, zero) = int(detail["shape"][1]), detail["quantization"]
    integers = np.clip(np.round(rows / np.float32(scale)) + zero, -128, 127).astype(np.int8)
    whole = len(integers) // count * count
    return np.asarray(integers[:whole].reshape(-1, count, 40))


@pytest.mark.parametrize("name", WAKE_WORDS)
def test_wake_words_answer_alike_over_whole_recordings_alone_and_together(name: str, shared: Path) -> None:
    data = (shared / f"models/micro-wake-word/{name}.tflite").read_bytes()
    taken = take_states_out(data)
    assert taken.opened
    folder = shared / "data/wake-word-wavs"
    sounds = [
        stored(sound_rows(folder / each), data) for each in ("alexa/1.wav", "hey_jarvis/1.wav", "okay_nabu/1.wav")
    ]
    longest = max(map(len, sounds))
    rows = np.stack([np.resize(sound, (longest, *sound.shape[1:])) for sound in sounds])
    expected = np.stack([steps_of(data, own) for own in rows])
    assert expected.max() > 200  # the word is in it
    np.testing.assert_array_equal(steps_outside(taken, rows), expected, strict=True)
    np.testing.assert_array_equal(steps_outside(taken, rows[1:2]), expected[1:2], strict=True)


def steps_of_engine(taken: TakenOut, rows: Array) -> Array:
    """Answers of the copy for several keys at once; rows (keys, steps, *row) as an engine takes them."""
    engine = load_litert(taken.data, EngineOptions(), {})
    states = [np.repeat(state.initial, len(rows), axis=0) for state in taken.states]
    answers = []
    for step in range(rows.shape[1]):
        answer, *states = engine.run(np.ascontiguousarray(rows[:, step]), *states)
        answers.append(answer)
    return np.stack(answers, axis=1)


def noise(data: bytes, keys: int, steps: int) -> tuple[Array, Array, Affine | None]:
    """Rows (keys, steps, *row) as the file stores them, and as engines take them, and how answers are stored."""
    interpreter = Interpreter(model_content=data)
    source, target = interpreter.get_input_details()[0], interpreter.get_output_details()[0]
    rng, shape = np.random.default_rng(0), (keys, steps, *source["shape"][1:])
    affine = affine_of(source)
    if affine is None:
        rows = rng.standard_normal(shape).astype(np.float32)
        return rows, rows, affine_of(target)
    stored = rng.integers(-128, 128, shape).astype(np.int8)
    return stored, affine.dequantize(stored), affine_of(target)


def check_kept(data: bytes, steps: int = 40, rounding: float = 0.0) -> TakenOut:
    """Hold the copy against an interpreter for each key: alone bit for bit, and together but for `rounding`."""
    taken = take_states_out(data, kept=True)
    stored, rows, affine = noise(data, 3, steps)
    expected = np.stack([steps_of(data, own) for own in stored])
    expected = expected if affine is None else affine.dequantize(expected)
    assert not np.array_equal(expected[:, 0], steps_of_engine(taken, rows[:, 1:2])[:, 0])
    np.testing.assert_array_equal(steps_of_engine(taken, rows[1:2]), expected[1:2], strict=True)
    np.testing.assert_allclose(steps_of_engine(taken, rows), expected, rtol=0, atol=rounding, strict=True)
    return taken


@pytest.mark.parametrize(("kind", "rows"), [("LSTM", 1), ("LSTM", 7), ("SVDF", 1)])
def test_a_layer_that_runs_on_answers_as_in_an_interpreter_of_its_own(kind: str, rows: int) -> None:
    taken = check_kept(Remembering(kind, rows).bytes(), rounding=1e-6)
    assert not taken.inside
    assert [state.input for state in taken.states] == ["state/zeros", "state/zeros_"][: len(taken.states)]
    assert all(state.input == state.output and not state.initial.any() for state in taken.states)


@pytest.mark.parametrize("name", LSTM)
def test_a_published_layer_that_runs_on_answers_as_in_an_interpreter_of_its_own(name: str, shared: Path) -> None:
    taken = check_kept((shared / "models" / name).read_bytes())
    assert taken.opened
    assert len(taken.states) == (4 if "dtln" in name else 2)


@pytest.mark.parametrize("name", LSTM)
def test_state_of_a_layer_that_is_not_said_to_run_on_stays_inside_and_is_named(name: str, shared: Path) -> None:
    data = (shared / "models" / name).read_bytes()
    taken = take_states_out(data)
    assert (taken.data, taken.states, taken.opened) == (data, (), False)
    assert taken.inside.endswith(" variable tensors of UNIDIRECTIONAL_SEQUENCE_LSTM")


def two_rows(file: Remembering) -> None:
    for tensor in file.graph.tensors:
        tensor.shape = [2, *tensor.shape[1:]] if tensor.isVariable else tensor.shape


def wide_numbers(file: Remembering) -> None:
    file.graph.tensors[file.kept[0]].type = schema.TensorType.INT32


def already_an_output(file: Remembering) -> None:
    file.graph.outputs = [file.target, file.kept[0]]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (already_an_output, "'zeros' is an input, an output or a constant of the file as well"),
        (two_rows, r"'zeros' has the shape \[2, 5\], without an axis of 1 row for the batch"),
        (wide_numbers, "'zeros' holds int32"),
    ],
)
def test_a_layer_s_state_that_cannot_be_taken_out_is_refused_with_its_reason(
    change: Callable[[Remembering], None], reason: str
) -> None:
    file = Remembering()
    change(file)
    with pytest.raises(ConfigError, match=f"^lstm.tflite: its state cannot be taken out: .*{reason}; convert"):
        take_states_out(file.bytes(), "lstm.tflite", kept=True)


def test_a_file_that_ends_its_process_is_refused(shared: Path) -> None:
    data = (shared / "models/hard-cases/keyword_scrambled_8bit.tflite").read_bytes()
    with pytest.raises(ConfigError, match=r"^svdf\.tflite: running it .* ended a child process of SIG"):
        take_states_out(data, "svdf.tflite", kept=True)


def test_a_copy_that_answers_otherwise_than_the_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a library began variables with other numbers than the file says."""
    other = {"stream/states": np.full((1, KEPT, WIDTH), 100, np.int8)}
    monkeypatch.setattr(states, "_initial_values", lambda _: other)
    with pytest.raises(ConfigError, match="without it, step 1 of some noise is answered otherwise"):
        take_states_out(inside("int8").bytes())
