"""Front ends in a chain: the rows of a stream do not depend on its windows, and DTLN takes noise out of speech."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_runtime import schema
from edge_runtime.errors import EngineError
from edge_runtime.io.recordings.wav import read_sound
from edge_runtime.manifest.frontends import FrontendSpec, Magnitude, Masked, OverlapAdd, Spectrum, Statistic
from edge_runtime.manifest.mel import Mel, Pcen
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.manifest.stages import ModelStage, Output, Port, Stage, State
from edge_runtime.model import engines
from edge_runtime.model.bundle.golden import play
from edge_runtime.model.chain.engine import ChainEngine
from edge_runtime.model.chain.load import ModelPart, join
from edge_runtime.model.engines.base import Engine, EngineOptions
from edge_runtime.signal.frontends.build import build
from edge_runtime.types import Float32
from tests.edge_runtime.signal.frontends import cards
from tests.edge_runtime.signal.frontends.cuts import rows_of


def sound(samples: int) -> Float32:
    rng = np.random.default_rng(7)
    return (rng.normal(size=(samples, 1)) * 10.0 ** rng.uniform(-2, -0.5, (samples // 160, 1)).repeat(160, 0)).astype(
        np.float32
    )


STREAMS: dict[str, FrontendSpec] = {
    "kaldi": Mel(definition="kaldi", stream=True),
    "mel": Mel(frame=400, fft=512, hop=160, bands=40, stream=True),
    "micro-frontend": MicroFrontend(),
    "pcen": Mel(frame=512, hop=160, bands=40, power=1, pcen=Pcen(), stream=True),
    "spectrum": Spectrum(frame=512, hop=160, window="hann", stream=True),
    "tensorflow": Mel(definition="tensorflow", frame=480, hop=160, coefficients=10, stream=True),
}


@pytest.mark.parametrize("window", [160, 320, 800])
@pytest.mark.parametrize("name", sorted(STREAMS))
def test_a_stream_has_the_rows_of_the_whole_recording_however_it_is_cut(name: str, window: int) -> None:
    heard = sound(8000)
    whole = rows_of(build(STREAMS[name], heard.shape), heard)
    engine = ChainEngine([STREAMS[name]], (), (window, 1), {})
    for steps in play(engine, heard.reshape(-1, window, 1), keys=3):
        waited = int(np.argmax([step.any() for step in steps]))  # steps whose rows were not all there
        rows = steps[waited:].reshape(-1, whole.shape[1])
        assert len(rows) > len(whole) - window // 160
        np.testing.assert_array_equal(rows, whole[-len(rows) :])


def test_windows_that_overlap_have_frames_of_their_own() -> None:
    heard = sound(16000)
    spec = schema.load(Mel, cards.KEYWORD)
    engine = ChainEngine([spec], (), (16000, 1), {})
    assert len(engine.inputs) == 1  # no state
    (rows,) = engine.run(heard[None])
    np.testing.assert_array_equal(rows[0], rows_of(build(spec, heard.shape), heard))


def test_a_stage_that_does_not_fit_is_named() -> None:
    with pytest.raises(EngineError, match="stage 'wide': mel: takes one channel"):
        ChainEngine([Mel(name="wide")], (), (4000, 3), {})
    spectrum = Spectrum(frame=64, hop=16, values="complex", stream=True)
    with pytest.raises(EngineError, match=r"stage 'masked': masked: rows of .* do not fit"):
        ChainEngine([spectrum, Statistic(what=("mean",)), Masked(mask="statistic")], (), (64, 1), {})


def dtln(shared: Path) -> Engine:
    def model(name: str, file: str, inputs: list[str], outputs: list[str]) -> tuple[ModelStage, ModelPart, bytes]:
        data = (shared / "models/dtln" / file).read_bytes()
        stage = ModelStage(
            name=name, inputs=(Port(name=inputs[0]),), outputs=(Output(name=outputs[0]),),
            states=(State(input=inputs[1], output=outputs[1], shape=(2, 128, 2)),),
        )  # fmt: skip
        return stage, ModelPart(stage=name, format="onnx", tensors={}, together=1, size=len(data)), data

    mask = model("mask", "model_1.onnx", ["input_2", "input_3"], ["activation_2", "tf_op_layer_stack_2"])
    clean = model("clean", "model_2.onnx", ["input_4", "input_5"], ["conv1d_3", "tf_op_layer_stack_5"])
    stages: tuple[Stage, ...] = (
        Spectrum(frame=512, hop=128, values="complex", stream=True, lead=384), Magnitude(), mask[0],
        Masked(mask="mask"), clean[0], OverlapAdd(hop=128),
    )  # fmt: skip
    return engines.load("onnxruntime", join(stages, (), (128, 1), [mask[1:], clean[1:]]), EngineOptions())


@pytest.mark.slow
def test_dtln_takes_noise_out_of_speech(shared: Path) -> None:
    pytest.importorskip("onnxruntime")
    speech = np.concatenate(list(read_sound(shared / "data/wake-word-wavs/silero-vad-speech/test.wav", 16000)))[:, 0]
    speech = speech[16000 : 16000 * 9]
    noisy = speech + np.random.default_rng(0).normal(0, 0.02, len(speech)).astype(np.float32)
    engine = dtln(shared)
    answers = play(engine, noisy.reshape(-1, 128, 1), keys=2)
    np.testing.assert_array_equal(answers[0], answers[1])
    cleaned = answers[0].reshape(-1)[384:]

    def ratio_db(heard: Float32) -> float:
        return float(10 * np.log10((speech[:-384] ** 2).sum() / ((speech[:-384] - heard) ** 2).sum()))

    assert ratio_db(noisy[:-384]) == pytest.approx(9.1, abs=0.1)
    assert ratio_db(cleaned) == pytest.approx(17.3, abs=0.1)


def test_a_wake_word_is_heard_in_a_stream_of_single_frames(shared: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    data = (shared / "models/mlperf-tiny/str_ww_ref_model.tflite").read_bytes()
    mel = schema.load(Mel, cards.WAKE_WORD | {"stream": True})
    found = engines.load("litert", data, EngineOptions())
    names = found.inputs[0].name, found.outputs[0].name
    model = ModelStage(
        inputs=(Port(name=names[0], rows=30, hop=1, shape=(30, 1, 40), offset=-21.897, scale=1 / 64),),
        outputs=(Output(name=names[1]),),
    )
    part = ModelPart(stage="model", format="tflite", tensors={}, together=0, size=len(data))
    engine = engines.load("litert", join((mel, model), (), (512, 1), [(part, data)]), EngineOptions())
    heard = np.concatenate(
        list(read_sound(shared / "data/wake-word-wavs/mlperf-streaming/short_wav_easy10s.wav", 16000))
    )
    scores = play(engine, heard[: len(heard) // 512 * 512].reshape(-1, 512, 1))[0]
    ends = (np.flatnonzero(scores[:, 0] > 0.75) + 1) * 0.032
    said = ends[np.diff(ends, prepend=-1) > 1]
    np.testing.assert_allclose(said, [1.22, 4.51, 7.33], atol=0.07)
    assert ends.max() < 8
