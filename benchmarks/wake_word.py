"""microWakeWord's "Alexa" as a bundle: rows of features or sound in, a step of the model each 30 ms.

A window of 300 ms is ten steps, which is what a message brings: its answer is the highest of their ten probabilities,
each the mean of the last five as the model's publishers compute it. A window of 30 ms has an answer for each step. The
model is the published file; it lies with the data that is beside a development checkout (`EDGE_SHARED`).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from edge_export.graph.tflite.read.states import take_states_out
from edge_export.package.pack import VariantSource, pack

from benchmarks.intake_data import DATA
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.manifest.outputs import MultiLabelOutput
from edge_runtime.manifest.stages import ModelStage, Output, Port, Smooth, State
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.engines.litert import load_litert

Floats = npt.NDArray[np.float32]

MODEL = DATA.parent / "models/micro-wake-word/alexa.tflite"
BANDS, ROWS = 40, 3
"""Bands of a row, and rows that a step takes."""
RATE_HZ = {"features": 100.0, "sound": 16_000.0}
STEP = {"features": ROWS, "sound": 480}
"""Samples of a step."""
STEPS = 10
"""Steps of a window."""
SLIDING = 5
"""Steps whose mean is compared, as the model was published."""
STEP_S = 0.03
RULE = EventRule(name="alexa", label="alexa", on=0.9, off=0.5, refractory_s=1.0)
"""Threshold that the model was published with."""


def signal(kind: str, keys: int, steps: int) -> Floats:
    """Return (keys, samples, channels) like a quiet room with noises, of `steps` steps."""
    random = np.random.default_rng(0)
    if kind == "features":
        return random.gamma(2.0, 3.0, (keys, steps * ROWS, BANDS)).clip(0, 26).astype("f4")
    loud = np.abs(np.sin(np.arange(steps * STEP[kind]) / 9_000.0))[None, :, None]
    noise = random.standard_normal((keys, steps * STEP[kind], 1)) * loud * 0.05
    return (np.rint(noise * 32768).clip(-32768, 32767) / 32768).astype("f4")


def wake_word_bundle(path: Path, kind: str, *, steps: int = STEPS, events: bool = True) -> Path:
    """Pack the model for rows of ``features`` or for ``sound``."""
    taken = take_states_out(MODEL.read_bytes())
    engine = load_litert(taken.data, EngineOptions(), {})
    kept = {name for state in taken.states for name in (state.input, state.output)}
    (audio,) = (tensor.name for tensor in engine.inputs if tensor.name not in kept)
    (answer,) = (tensor.name for tensor in engine.outputs if tensor.name not in kept)
    engine.close()
    model = ModelStage(
        inputs=(Port(name=audio, rows=ROWS, hop=ROWS, shape=(ROWS, BANDS)),),
        states=tuple(
            State(input=one.input, output=one.output, shape=one.shape[1:], initial=float(one.initial.flat[0]))
            for one in taken.states
        ),
        outputs=(Output(name=answer),),
    )
    smooth = Smooth(rows=SLIDING)
    window = steps * STEP[kind]
    channels = [f"band{k}" for k in range(BANDS)] if kind == "features" else ["sound"]
    pack(
        path,
        name="alexa",
        version=1,
        input=InputContract(
            channels=tuple(Channel(name=name, unit="1") for name in channels),
            rate_hz=RATE_HZ[kind],
            window=window,
            hop=window,
        ),
        output=MultiLabelOutput(labels=("alexa",), thresholds=(RULE.on,), rows=steps),
        variants=[VariantSource(name="tflite-int8", model=taken.data, format="tflite", precision="int8", layout="NWC")],
        golden_inputs=signal(kind, 1, 12 * steps).reshape(12, window, -1).transpose(0, 2, 1),
        stages=(model, smooth) if kind == "features" else (MicroFrontend(), model, smooth),
        events=(RULE,) if events else (),
    )
    return path
