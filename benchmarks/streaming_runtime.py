"""A streaming bundle beside its windowed one through the pipeline: readings of many keys in, predictions out.

Both get the same readings, a hop of each key at a time, and both answer the same windows, nine tenths of which overlap
the one before. Either one key's readings arrive alone, or those of all keys together. The bundles take turns in many
rounds; the least CPU time of all rounds counts for each. All of it counts: windows cut, states moved, predictions made.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from edge_export.graph.onnx_graph.passes.conv2d import as_conv2d
from edge_export.graph.onnx_graph.passes.temperature import with_temperature
from edge_export.graph.tflite.convert import convert
from edge_export.package.pack import VariantSource, pack
from edge_export.package.streaming_bundle import stream_bundle

from benchmarks import stateful_models as models
from benchmarks.report import Goal, Report
from edge_runtime.answer.pipeline import Pipeline, Stages
from edge_runtime.app.python_api import single_variant
from edge_runtime.base.system.malloc import tune_malloc
from edge_runtime.clock import SystemClock
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.manifest import Channel, InputContract, OutputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.loading import load_model
from edge_runtime.model.tasks.build import build_task
from edge_runtime.signal.intake.config import IntakeConfig
from edge_runtime.signal.intake.intake import Intake
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.types import Prediction, Reading

GOAL = 5.0
CLOSE = 1e-5
KEYS = 32
RATE_HZ = {1: 16_000.0, 6: 50.0}


def _bundles(folder: Path, model: onnx.ModelProto, hop: int) -> tuple[Path, Path]:
    channels, samples = (int(dim.dim_value) for dim in model.graph.input[0].type.tensor_type.shape.dim[1:])
    random = np.random.default_rng(0)
    both = (("onnx-fp32", as_conv2d(model).SerializeToString(), "onnx"), ("tflite-fp32", convert(model), "tflite"))
    windowed, streaming = folder / "windowed.edge", folder / "streaming.edge"
    pack(
        windowed,
        name="net",
        version=1,
        input=InputContract(
            channels=tuple(Channel(name=f"c{k}", unit="1") for k in range(channels)),
            rate_hz=RATE_HZ[channels],
            window=samples,
            hop=hop,
        ),
        output=OutputContract(labels=tuple(f"l{k}" for k in range(models.CLASSES))),
        variants=[
            VariantSource(name=name, model=data, format=kind, precision="fp32")  # type: ignore[arg-type]
            for name, data, kind in both
        ],
        golden_inputs=random.standard_normal((2, channels, samples)).astype("f4"),
    )
    stream_bundle(windowed, streaming)
    return windowed, streaming


class _Run:
    """A pipeline with one variant of a bundle, which is fed a hop of every key at a time."""

    def __init__(self, bundle: Path, variant: str, max_batch: int, *, together: bool, stack: ExitStack) -> None:
        model = stack.enter_context(load_model(replace(single_variant(bundle, (), variant), max_batch=max_batch)))
        self.contract = model.manifest.input
        clock, metrics, window = SystemClock(), Metrics(), WindowConfig()
        self.sink = MemorySink()
        self._together = together
        self._at = 0
        self._pipeline = Pipeline(
            model=model,
            windower=windower_of(self.contract, window, metrics),
            stages=Stages(
                intake=Intake(IntakeConfig(), window.max_keys, metrics, clock), task=build_task(model.manifest)
            ),
            sinks=[self.sink],
            metrics=metrics,
            clock=clock,
        )

    def feed(self, signals: np.ndarray[Any, np.dtype[np.float32]], hops: int) -> float:
        """Deliver hops of signals (keys, samples, channels), over and over; returns CPU seconds a window."""
        hop, period = self.contract.hop, 1 / self.contract.rate_hz
        readings = []
        for _ in range(hops):
            at = self._at % (signals.shape[1] // hop) * hop
            stamp = 1_000 + self._at * hop * period
            readings.append([Reading(f"k{n}", stamp, one[at : at + hop], period) for n, one in enumerate(signals)])
            self._at += 1
        deliver, flush = self._pipeline.deliver, self._pipeline.flush_iteration
        began = time.thread_time_ns()
        for step in readings:
            for reading in step:
                deliver([reading], 0.0, None)
                if not self._together:
                    flush()
            flush()
        return (time.thread_time_ns() - began) / 1e9 / (hops * len(signals))

    def taken(self) -> dict[str, list[float]]:
        """Scores by window, of all answers since the last call."""
        answers, self.sink.answers = self.sink.answers, []
        return {answer.id: answer.scores for answer in answers if isinstance(answer, Prediction)}


def through_the_runtime(quick: bool) -> Iterator[Report]:
    """Windows against hops, network by network."""
    rounds = 8 if quick else 30
    tune_malloc()  # as `edge-runtime run` does
    report = Report(
        f"a streaming bundle beside the windowed one through the pipeline, {KEYS} keys, 1 thread",
        ("network", "arrivals", "overlap %", "window us", "update us", "times less", "max diff"),
    )
    worst = 0.0
    for name, model, hop, goal in (
        # At their own temperature, random weights answer 0 or 1, which would hide a difference.
        ("TCN, 5 x 64 channels, 6 x 256", with_temperature(models.tcn(), 10.0), 24, True),
        ("TCN, 5 x 64 channels, 6 x 512", with_temperature(models.tcn(512), 10.0), 48, True),
        ("log-mel and DS-CNN, 16 kHz x 1 s", models.log_mel_net(), 1_600, True),
        ("convolutions 64-128-128, 6 x 512", models.student(512, (64, 128, 128)), 48, False),
    ):
        with TemporaryDirectory() as folder, ExitStack() as stack:
            bundles = _bundles(Path(folder), model, hop)
            for together in (False, True):
                runs = [
                    [
                        _Run(bundle, variant, most, together=together, stack=stack)
                        for variant in ("onnx-fp32", "tflite-fp32")
                        for most in ((8, 32) if together else (32,))
                    ]
                    for bundle in bundles
                ]
                least, difference = _compare(runs, rounds)
                worst = max(worst, difference)
                contract = runs[0][0].contract
                windows_us, updates_us = (min(times) * 1e6 for times in least)
                ratio = windows_us / updates_us
                arrivals = "together" if together else "alone"
                overlap = 100 * (1 - contract.hop / contract.window)
                report.rows.append((name, arrivals, overlap, windows_us, updates_us, ratio, f"{difference:.1e}"))
                if goal and together:
                    report.goals.append(Goal(f"times less CPU, {name}, keys {arrivals}", ratio, GOAL))
    report.goals.append(Goal("largest difference of an answer", worst, CLOSE, at_most=True))
    report.notes.append(
        "us: CPU of a window from reading to prediction, on the better one of ONNX Runtime and LiteRT, with the better "
        "one of max_batch 8 and 32."
    )
    yield report


def _compare(runs: list[list[_Run]], rounds: int) -> tuple[list[list[float]], float]:
    """Return the least CPU seconds a window by bundle and variant, and the largest difference of an answer."""
    contract = runs[0][0].contract
    steps = np.random.default_rng(1).standard_normal((KEYS, 3 * contract.window, len(contract.channels)))
    wandering = np.cumsum(steps, axis=1) * 0.1 + steps
    signals = np.ascontiguousarray(wandering / wandering.std(), np.float32)
    fill = contract.window // contract.hop + 1
    for run in (run for variants in runs for run in variants):
        run.feed(signals, fill + 2)
    least = [[float("inf")] * len(variants) for variants in runs]
    difference = 0.0
    for _ in range(rounds):
        for place, variants in enumerate(runs):
            for which, run in enumerate(variants):
                least[place][which] = min(least[place][which], run.feed(signals, 4))
        for windowed, streaming in zip(*runs, strict=True):
            expected, found = windowed.taken(), streaming.taken()
            assert expected.keys() == found.keys()
            gaps = [np.abs(np.subtract(expected[name], found[name])).max() for name in expected]
            difference = max(difference, float(max(gaps)))
    return least, difference
