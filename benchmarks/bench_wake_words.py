"""Cost of a wake word through the runtime: sound over MQTT in, answers over MQTT out, all of it counted.

Run: ``EDGE_SHARED=FOLDER python -m benchmarks wake-words`` with ``models/micro-wake-word/alexa.tflite`` in FOLDER, from
https://github.com/esphome/micro-wake-word-models. Its state is taken out of the file; a step is 30 ms of sound.
"""

from __future__ import annotations

import os
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson
from edge_export.package.pack import VariantSource, pack
from edge_export.tflite.states import take_states_out

from benchmarks.load import Load, Outcome, Row, Traffic
from benchmarks.programs import started
from edge_runtime.manifest import Channel, InputContract, ModelStage, MultiLabelOutput
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.manifest.stages import Output, Port, State

RATE_HZ, STEP = 16000, 480
BEGIN_S = 1_700_000_001
"""A time at which windows of .03 and .3 s begin."""
APPLICATION = """
[model]
bundle = "{bundle}"
unsigned = "allow"
max_batch = 128
latency_budget_ms = {budget_ms}

[broker.bench]
url = "mqtt://127.0.0.1:{port}"
protocol = "3.1.1"

[[source]]
type = "mqtt"
broker = "bench"
topics = ["sensors/+/raw"]
qos = 0

[source.codec]
type = "pcm"
time = "f64"

[[sink]]
type = "mqtt"
broker = "bench"
topic = "results/{{key}}"
qos = 0
"""


class Sound(Traffic):
    """Messages of noise, each one window of the model."""

    def __init__(self, streams: int, messages: int, window: int) -> None:
        self.streams, self.messages, self.samples = streams, messages, window
        rng = np.random.default_rng(0)
        noise = rng.normal(0, 1000, (min(streams, 64), messages, window)).astype("<i2")
        self.topics = [b"sensors/d%05d/raw" % stream for stream in range(streams)]
        self.keys = [f"d{stream:05d}" for stream in range(streams)]
        self.payloads = [
            struct.pack("<d", BEGIN_S + i * window / RATE_HZ) + noise[stream % len(noise), i].tobytes()
            for i in range(messages)
            for stream in range(streams)
        ]
        self._blobs = {}

    def completed_by(self, messages: int) -> dict[str, int]:
        """See `Traffic.completed_by`; the first window has no answer, since the front end waits for a whole frame."""
        first = BEGIN_S * RATE_HZ
        return {
            f"{self.keys[at % self.streams]}@{first + at // self.streams * self.samples}": at
            for at in range(self.streams, messages)
        }


class Words(Load):
    """Reads answers of several labels."""

    def _outcome(
        self,
        expected: dict[str, int],
        warm_up: int,
        total: int,
        sent_at: npt.NDArray[np.float64],  # noqa: ARG002 - latencies are not asked for here
        wall_s: float,
        cpu_s: float,
    ) -> Outcome:
        ids = Counter(orjson.loads(payload)["id"] for _, payload in self._answers)
        return Outcome(
            messages=total - warm_up,
            windows=sum(index >= warm_up for index in expected.values()),
            wall_s=wall_s,
            cpu_s=cpu_s,
            rows=dict.fromkeys(ids, Row("", ())),
            latencies_s=np.empty(0),
            repeated=sum(ids.values()) - len(ids),
            missing=len(expected.keys() - ids.keys()),
        )


def bundle(path: Path, file: Path, window: int) -> None:
    """Pack a wake word with its front end, for windows of some steps."""
    taken = take_states_out(file.read_bytes(), str(file))
    ends: dict[str, Any] = _ends(taken.data, {state.input for state in taken.states})
    states = [
        State(input=one.input, output=one.output, shape=one.shape[1:], initial=float(one.initial.flat[0]))
        for one in taken.states
    ]
    word = ModelStage(
        name="word",
        inputs=(Port(name=ends["input"], rows=3, hop=3),),
        states=tuple(states),
        outputs=(Output(name=ends["output"]),),
    )
    sound = np.random.default_rng(1).normal(0, 0.03, (8, 1, window)).astype(np.float32)
    pack(
        path,
        name=file.stem,
        version=1,
        input=InputContract(channels=(Channel(name="sound", unit="1"),), rate_hz=RATE_HZ, window=window, hop=window),
        output=MultiLabelOutput(labels=(file.stem,), rows=window // STEP),
        variants=[VariantSource(name="tflite-int8", model=taken.data, format="tflite", precision="int8", layout="NWC")],
        golden_inputs=sound,
        stages=(MicroFrontend(), word),
    )


def _ends(data: bytes, states: set[str]) -> dict[str, str]:
    from edge_runtime.engines.base import EngineOptions  # noqa: PLC0415
    from edge_runtime.engines.litert import load_litert  # noqa: PLC0415

    engine = load_litert(data, EngineOptions(), {})
    (source,) = (spec.name for spec in engine.inputs if spec.name not in states)
    target = next(spec.name for spec in engine.outputs if not spec.name.startswith("state/"))
    engine.close()
    return {"input": source, "output": target}


def main() -> int:
    """Print a row for each length of message."""
    file = Path(os.environ.get("EDGE_SHARED", "")) / "models/micro-wake-word/alexa.tflite"
    if not file.is_file():
        print(f"wake-words: {file} is not there; set EDGE_SHARED to the folder that holds it")
        return 0
    columns = ("message ms", "keys", "messages", "missing", "us of CPU a step of 30 ms", "streams a core")
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for window, keys, messages in ((STEP, 128, 120), (10 * STEP, 128, 30)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            bundle(folder / "word.edge", file, window)
            traffic = Sound(keys, messages, window)
            with Words() as load:
                app = folder / "app.toml"
                app.write_text(APPLICATION.format(bundle=folder / "word.edge", port=load.port, budget_ms=5.0), "utf-8")
                with started([sys.executable, "-m", "edge_runtime", "run", str(app)]) as process:
                    load.wait_for_subscriber(alive=lambda process=process: process.poll() is None)  # type: ignore[misc]
                    outcome = load.run(traffic, process.pid, warm_up=4 * keys)
        step_us = outcome.cpu_us_per_message / (window / STEP)
        print(
            f"| {1000 * window / RATE_HZ:.0f} | {keys} | {outcome.messages} | {outcome.missing} | {step_us:.1f} "
            f"| {30_000 / step_us:.0f} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
