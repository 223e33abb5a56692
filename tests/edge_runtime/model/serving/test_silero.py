"""Silero VAD through the pipeline: several keys at levels of their own, thinned, and over an orderly stop."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from edge_export.package.pack import VariantSource, pack

from edge_runtime.answer.pipeline import Pipeline, Stages
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.recordings.wav import read_sound
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.manifest import Channel, InputContract, MultiLabelOutput
from edge_runtime.manifest.stages import Constant, ModelStage, Output, Port, State
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.loading import Model
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Float32, Prediction, Reading
from tests.integration.running import load_model

RATE, STEP, LEAD = 16000, 512, 64
LEVELS = (1.0, 0.001, 0.3)


def silero(shared: Path, path: Path) -> Path:
    stage = ModelStage(
        inputs=(Port(name="input", rows=STEP + LEAD, hop=STEP, lead=LEAD, shape=(STEP + LEAD,)),),
        constants=(Constant(name="sr", value=RATE),),
        states=(State(input="state", output="stateN", shape=(2, 128), batch=1),),
        outputs=(Output(name="output"),),
    )
    data = (shared / "models/silero-vad/silero_vad_16k_op15.onnx").read_bytes()
    pack(
        path,
        name="silero",
        version=1,
        input=InputContract(channels=(Channel(name="sound", unit="1"),), rate_hz=RATE, window=STEP, hop=STEP),
        output=MultiLabelOutput(labels=("speech",)),
        variants=[VariantSource(name="onnx", model=data, format="onnx", precision="fp32", layout="NWC")],
        golden_inputs=np.random.default_rng(0).normal(0, 0.05, (4, 1, STEP)).astype("f4"),
        stages=(stage,),
    )
    return path


def by_hand(data: bytes, samples: Float32) -> Float32:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(data, providers=["CPUExecutionProvider"])
    state, before = np.zeros((2, 1, 128), "f4"), np.zeros(LEAD, "f4")
    found = []
    for at in range(0, len(samples) - STEP + 1, STEP):
        window = np.concatenate((before, samples[at : at + STEP]))
        before = window[-LEAD:]
        answer, state = session.run(None, {"input": window[None], "state": state, "sr": np.array(RATE)})
        found.append(float(answer[0, 0]))
    return np.array(found, "f4")


def pipeline(model: Model, sink: MemorySink, metrics: Metrics) -> Pipeline:
    clock, contract = SimulatedClock(), model.manifest.input
    return Pipeline(
        model=model,
        windower=Windower(contract, metrics=metrics),
        stages=Stages(task=model.task()),
        sinks=[sink],
        metrics=metrics,
        clock=clock,
    )


@pytest.mark.slow
def test_speech_is_found_in_77_percent_of_the_steps(shared: Path, tmp_path: Path) -> None:
    data = (shared / "models/silero-vad/silero_vad_16k_op15.onnx").read_bytes()
    sound = np.concatenate(list(read_sound(shared / "data/wake-word-wavs/silero-vad-speech/test.wav", RATE)))[:, 0]
    wanted = {f"k{k}": by_hand(data, sound * np.float32(level)) for k, level in enumerate(LEVELS)}
    metrics, sink = Metrics(), MemorySink()
    with load_model(silero(shared, tmp_path / "silero.edge"), "onnx") as model:
        assert model.states is not None
        model.states.bound(10, metrics)
        live = pipeline(model, sink, metrics)
        for at in range(0, len(sound), RATE):
            if at == 20 * RATE:  # saved, and given back to a store that knows nothing
                saved = model.states.save(whole=True)
                model.states.bound(10, metrics)
                assert model.states.restore(saved) is None
            live.answer_every(4 if at > 40 * RATE else 1)
            for k, level in enumerate(LEVELS):
                part = (sound[at : at + RATE] * np.float32(level))[:, None]
                live.deliver([Reading(f"k{k}", (at + np.arange(len(part))) / RATE, part)], 0.0, None)
            live.flush_iteration()
    found: dict[str, dict[int, float]] = {key: {} for key in wanted}
    for answer in sink.answers:
        assert isinstance(answer, Prediction)
        found[answer.key][int(answer.id.partition("@")[2]) // STEP] = answer.scores[0]
    for key, numbers in wanted.items():
        steps = np.array(list(found[key]))
        assert len(steps) > 1300
        np.testing.assert_allclose(list(found[key].values()), numbers[steps], atol=1e-5)
    assert (wanted["k0"] > 0.5).mean() == pytest.approx(0.77, abs=0.005)
    assert not [name for name in metrics.counts if name.startswith("state_resets")]
