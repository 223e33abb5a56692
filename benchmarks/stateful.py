"""An update of a stateful graph beside recomputing the window, at nine tenths overlap.

Both run with one thread in onnxruntime, on buffers bound once, and in LiteRT, states handed over at every update; they
take turns in many short rounds. The least CPU time of all rounds counts for each: a busy neighbour on the same core
only ever adds, and adds most to many small operators. The ratio is that of the best engine for the window to the best
one for the update. Both answer the same stream; the largest difference of their answers is printed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from ai_edge_litert.interpreter import Interpreter
from edge_export.graph.onnx_graph.passes.conv2d import as_conv2d
from edge_export.graph.quantize import Scheme
from edge_export.graph.streaming import (
    StreamingModel,
    StreamingRunner,
    StreamState,
    parity,
    quantize_streaming,
    to_streaming,
)
from edge_export.graph.streaming.runner import session
from edge_export.graph.tflite.convert import convert

from benchmarks import stateful_models as models
from benchmarks.report import Goal, Report

GOAL = 5.0
CLOSE = 1e-4
_CALLS = 10


@dataclass(frozen=True)
class Case:
    """A network in both forms.

    Attributes:
        name: as it is printed.
        windowed: what is recomputed.
        streaming: what is updated.
        difference: largest difference of answers, checked over a stream.
        goal: whether the network is one that the conversion is made for.
        lite: whether LiteRT runs it too.
    """

    name: str
    windowed: onnx.ModelProto
    streaming: StreamingModel
    difference: float
    goal: bool = True
    lite: bool = True


def _signal(channels: int, samples: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    steps = np.random.default_rng(1).standard_normal((channels, samples))
    return (np.cumsum(steps, axis=1) * 0.1 + steps).astype(np.float32)


def _windowed(name: str, model: onnx.ModelProto, hop: int, updates: int, *, goal: bool = True) -> Case:
    streaming = to_streaming(model, hop=hop)
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    stream = _signal(channels, streaming.window + updates * hop)
    return Case(name, model, streaming, parity(model, streaming, stream).max_abs_diff, goal=goal)


def _int8(name: str, model: onnx.ModelProto, hop: int, updates: int) -> Case:
    channels = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    samples = model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    stream = _signal(channels, samples + updates * hop)
    int8 = quantize_streaming(model, [stream], hop=hop, scheme=Scheme(activations="uint8"))
    return Case(
        name,
        int8.windowed,
        int8.streaming,
        parity(int8.windowed, int8.streaming, stream).max_abs_diff,
        goal=False,
        lite=False,
    )


def _recurrent(name: str, build: Callable[[int], onnx.ModelProto], samples: int, hop: int, updates: int) -> Case:
    """In mode stream the answer is that of the network whose one window is the whole stream."""
    streaming = to_streaming(build(samples), hop=hop, mode="stream")
    stream = _signal(6, updates * hop)[None]
    answers = StreamingRunner(streaming).run(stream)
    worst = 0.0
    for count in (1, updates // 2, updates):
        whole = session(build(count * hop)).run(None, {"window": stream[:, :, : count * hop]})[0]
        worst = max(worst, float(np.abs(whole - answers[count - 1]).max()))
    return Case(name, build(samples), streaming, worst)


def _recompute(model: onnx.ModelProto, shape: tuple[int, ...]) -> Callable[[], None]:
    """A call on bound buffers, the window copied in as an update's samples are."""
    network = session(model)
    given = _signal(shape[1], shape[2])[None]
    window = given.copy()
    (source,), (result,) = network.get_inputs(), network.get_outputs()
    answer = network.run(None, {source.name: window})[0]
    binding = network.io_binding()
    for bind, name, array in ((binding.bind_input, source.name, window), (binding.bind_output, result.name, answer)):
        bind(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def call() -> None:
        np.copyto(window, given)
        network.run_with_iobinding(binding)

    return call


def _lite(model: onnx.ModelProto, states: Sequence[StreamState] = ()) -> Callable[[], None]:
    """A call of the model as TensorFlow Lite: the samples and every state in, the answer and every state out."""
    interpreter = Interpreter(model_content=convert(model), num_threads=1)
    interpreter.allocate_tensors()
    inputs = {detail["name"]: detail for detail in interpreter.get_input_details()}
    outputs = {detail["name"]: detail["index"] for detail in interpreter.get_output_details()}
    (samples,) = [detail for name, detail in inputs.items() if name not in {state.name for state in states}]
    (answer,) = [index for name, index in outputs.items() if name not in {state.output for state in states}]
    given = _signal(*(int(size) for size in samples["shape"][1:]))[None]
    pairs = [(inputs[state.name]["index"], outputs[state.output]) for state in states]
    held = [state.initial[None] for state in states]

    def call() -> None:
        interpreter.set_tensor(samples["index"], given)
        for (index, _), array in zip(pairs, held, strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        interpreter.get_tensor(answer)
        held[:] = [interpreter.get_tensor(index) for _, index in pairs]

    return call


def _us(call: Callable[[], object]) -> float:
    """CPU time of a call in microseconds, from a few in a row."""
    began = time.thread_time_ns()
    for _ in range(_CALLS):
        call()
    return (time.thread_time_ns() - began) / _CALLS / 1e3


def stateful(quick: bool) -> Iterator[Report]:
    """Windowed against stateful, network by network."""
    rounds, updates = (40, 60) if quick else (200, 300)
    cases = [
        _windowed("convolutions 64-128-128, 6 x 256", models.student(256, (64, 128, 128)), 24, updates),
        _windowed("convolutions 64-128-128, 6 x 512", models.student(512, (64, 128, 128)), 48, updates),
        _windowed("TCN, 5 x 64 channels, 6 x 256", models.tcn(), 24, updates),
        _windowed("TCN, 5 x 64 channels, 6 x 512", models.tcn(512), 48, updates),
        _windowed("log-mel and DS-CNN, 16 kHz x 1 s", models.log_mel_net(), 1_600, updates),
        _recurrent("convolution and GRU 64, 6 x 128, mode stream", models.gru, 128, 12, updates),
        _windowed(
            "convolutions 64-128-128, 6 x 512, same padding",
            models.student(512, (64, 128, 128), same=True),
            48,
            updates,
            goal=False,
        ),
        _windowed("convolutions 32-64-64, 6 x 128", models.student(128, (32, 64, 64)), 12, updates, goal=False),
        _windowed("separable, 16-32-32-48, 6 x 128", models.separable(), 12, updates, goal=False),
        _int8("convolutions 64-128-128, 6 x 512, int8", models.student(512, (64, 128, 128)), 48, updates),
    ]
    report = Report(
        "an update of a stateful graph beside recomputing the window, 1 thread",
        (
            "network",
            "overlap %",
            "ORT window us",
            "ORT update us",
            "LiteRT window us",
            "LiteRT update us",
            "times less",
            "work %",
            "states kB",
            "max diff",
        ),
    )
    for case in cases:
        runner = StreamingRunner(replace(case.streaming, model=as_conv2d(case.streaming.model)))
        hop = runner.hop.copy()
        calls: list[Callable[[], object]] = [
            _recompute(as_conv2d(case.windowed), (1, hop.shape[1], case.streaming.window)),
            functools.partial(runner.update, hop),
        ]
        if case.lite:
            calls += [_lite(case.windowed), _lite(case.streaming.model, case.streaming.states)]
        rounds_us = [[_us(call) for call in calls] for _ in range(rounds)]
        least = [min(times) for times in zip(*rounds_us, strict=True)]
        ratio = min(least[::2]) / min(least[1::2])
        report.rows.append(
            (
                case.name,
                100 * (1 - case.streaming.hop / case.streaming.window),
                *(least if case.lite else (*least, None, None)),
                ratio,
                100 * case.streaming.work,
                sum(state.initial.nbytes for state in case.streaming.states) / 1e3,
                f"{case.difference:.1e}",
            )
        )
        if case.goal:
            report.goals.append(Goal(f"times less CPU per update, {case.name}", ratio, GOAL))
    worst = max(case.difference for case in cases)
    report.goals.append(Goal("largest difference of an answer", worst, CLOSE, at_most=True))
    report.notes.append(
        "us: least CPU time of all rounds, in which both take turns; work: multiply-accumulates of an update in those "
        "of the window. Without goal: padding on both sides is computed again at both edges, and where a window takes "
        "less than 100 us an update's fixed costs (a call, its states, its nodes) outweigh what it saves."
    )
    yield report
