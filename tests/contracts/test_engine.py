"""One list of checks over every engine: what `edge_runtime.model.engines.base.Engine` promises."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import EngineError, InputError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import Engine, EngineOptions
from tests import models
from tests.contracts.engines import CASES, CHANNELS, LABELS, OPTIONS, WINDOW, Case, Floats


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    param: Case = request.param
    if not models.usable(param.engine):
        pytest.skip(f"{param.engine} is not installed, or cannot work with this numpy")
    return param


@pytest.fixture
def engine(case: Case) -> Iterator[Engine]:
    loaded = case.load()
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def shared_engine(case: Case) -> Iterator[Engine]:
    """Loaded once, for the tests that run it under many examples."""
    loaded = case.load()
    yield loaded
    loaded.close()


def answer(engine: Engine, x: Floats) -> Floats:
    (y,) = engine.run(x)
    return np.array(y)


def test_it_states_its_library_its_inputs_and_its_outputs(case: Case, engine: Engine) -> None:
    assert any(character.isdigit() for character in engine.name)
    (x,), (y,) = engine.inputs, engine.outputs
    assert x.dtype == y.dtype == np.float32
    assert x.shape == ((-1, CHANNELS, WINDOW) if case.layout == "NCW" else (-1, WINDOW, CHANNELS))
    assert y.shape == (-1, LABELS)


def test_a_second_load_gives_the_same_output(case: Case, engine: Engine) -> None:
    x = case.arrange(models.windows(7, CHANNELS, WINDOW))
    other = case.load()
    np.testing.assert_array_equal(answer(other, x), answer(engine, x))
    other.close()


def test_it_answers_what_the_network_answers_in_numpy(case: Case, engine: Engine) -> None:
    x = models.windows(64, CHANNELS, WINDOW, seed=7)
    y = answer(engine, case.arrange(x))
    np.testing.assert_allclose(y.sum(axis=1), 1, atol=0.02)
    if case.reference is not None:
        net = models.tiny_net(CHANNELS, LABELS, 0)
        np.testing.assert_allclose(y, net.probabilities(x), atol=case.reference)
        assert len(set(y.argmax(axis=1))) > 1, "the windows do not tell a constant answer from a right one"


@given(n=st.integers(1, 100), seed=st.integers(0, 3))
@settings(deadline=None, max_examples=25, derandomize=True)
def test_a_batch_of_any_size_answers_each_window_as_if_it_were_alone(
    case: Case, shared_engine: Engine, n: int, seed: int
) -> None:
    x = case.arrange(models.windows(n, CHANNELS, WINDOW, seed))
    alone = np.concatenate([answer(shared_engine, x[i : i + 1]) for i in range(n)])
    together = answer(shared_engine, x)
    assert together.shape == (n, LABELS)
    assert together.dtype == np.float32
    np.testing.assert_allclose(together, alone, rtol=0, atol=case.close)


@pytest.mark.parametrize(
    "options",
    [*(EngineOptions(max_batch=most) for most in (1, 2, 7, 64)), EngineOptions(threads=2, spinning=True)],
    ids=["1 at once", "2 at once", "7 at once", "64 at once", "two threads that spin"],
)
def test_no_option_changes_an_answer(case: Case, engine: Engine, options: EngineOptions) -> None:
    x = case.arrange(models.windows(33, CHANNELS, WINDOW))
    other = engines.load(case.engine, case.model(), options)
    np.testing.assert_allclose(answer(other, x), answer(engine, x), rtol=0, atol=case.close)
    other.close()


def test_it_refuses_the_wrong_number_of_arrays(case: Case, engine: Engine) -> None:
    x = case.arrange(models.windows(1, CHANNELS, WINDOW))
    for arrays in ((), (x, x)):
        with pytest.raises(InputError) as caught:
            engine.run(*arrays)
        assert caught.value.reason == "input_count"


def test_it_refuses_every_other_shape(case: Case, engine: Engine) -> None:
    x = case.arrange(models.windows(2, CHANNELS, WINDOW))
    for wrong in (x[0], x[:, :-1], x[:, :, :-1], x[None], x[:0], x.reshape(2, -1), np.zeros((), np.float32)):
        with pytest.raises(InputError) as caught:
            engine.run(wrong)
        assert caught.value.reason == "shape"
        assert "\n" not in str(caught.value)


def test_it_refuses_types_that_would_lose_digits_and_takes_those_that_do_not(case: Case, engine: Engine) -> None:
    x = case.arrange(models.windows(2, CHANNELS, WINDOW))
    for dtype in (np.float64, np.int32, np.int64, np.complex64, "U4", object):
        with pytest.raises(InputError) as caught:
            engine.run(np.zeros(x.shape, dtype))
        assert caught.value.reason == "dtype"
    with pytest.raises(InputError):
        engine.run(x.tolist())
    whole = np.rint(x)
    for narrow in (np.int8, np.int16, np.float16):
        np.testing.assert_array_equal(answer(engine, whole.astype(narrow)), answer(engine, whole))
    np.testing.assert_array_equal(answer(engine, x.astype(">f4")), answer(engine, x))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("n", [1, 3, 40])
def test_it_refuses_what_is_not_a_number_wherever_it_stands(case: Case, engine: Engine, bad: float, n: int) -> None:
    x = case.arrange(models.windows(n, CHANNELS, WINDOW))
    before = answer(engine, x)
    for place in (0, -1):
        broken = x.copy()
        broken.flat[place] = bad
        with pytest.raises(InputError) as caught:
            engine.run(broken)
        assert caught.value.reason == "not_finite"
    np.testing.assert_array_equal(answer(engine, x), before)


def test_samples_beyond_the_range_saturate(case: Case, engine: Engine) -> None:
    if case.limits is None:
        pytest.skip("a float model has no range")
    sign = np.where(models.windows(6, CHANNELS, WINDOW) < 0, -1, 1).astype(np.float32)
    edge = answer(engine, case.arrange(sign * np.float32(case.limits)))
    assert np.isfinite(edge).all()
    for beyond in (case.limits * 10, 1e20, float(np.finfo(np.float32).max)):
        np.testing.assert_array_equal(answer(engine, case.arrange(sign * np.float32(beyond))), edge)


def test_views_that_are_not_contiguous_are_read_right(case: Case, engine: Engine) -> None:
    x = case.arrange(models.windows(12, CHANNELS, WINDOW))
    expected, alone = answer(engine, x), answer(engine, x[:1])
    padded = np.full((24, *(n * 2 for n in x.shape[1:])), np.nan, np.float32)
    views: list[Any] = [
        np.asfortranarray(x),
        np.ascontiguousarray(x[::-1])[::-1],
        np.ascontiguousarray(x.transpose(2, 1, 0)).transpose(2, 1, 0),
    ]
    padded[::2, ::2, ::2] = x
    views.append(padded[::2, ::2, ::2])
    for view in views:
        assert not view.flags.c_contiguous
        np.testing.assert_array_equal(answer(engine, view), expected)
        np.testing.assert_array_equal(answer(engine, view[:1]), alone)


def test_a_read_only_input_is_taken_and_no_input_is_written_to(case: Case, engine: Engine) -> None:
    x = case.arrange(models.windows(9, CHANNELS, WINDOW))
    copy = x.copy()
    x.flags.writeable = False
    for n in (1, 9):
        engine.run(x[:n])
    np.testing.assert_array_equal(x, copy)


@pytest.mark.parametrize("n", [1, 2, 40])
def test_an_answer_holds_until_the_next_call(case: Case, engine: Engine, n: int) -> None:
    x = case.arrange(models.windows(2 * n, CHANNELS, WINDOW, seed=3))
    expected = answer(engine, x[:n])
    (held,) = engine.run(x[:n])
    x[:n] = 0  # the caller fills its buffer for the next batch meanwhile
    np.testing.assert_array_equal(held, expected)
    copied = held.copy()
    engine.run(x[n:])
    np.testing.assert_array_equal(copied, expected)


def test_batches_of_changing_size_do_not_disturb_each_other(case: Case, engine: Engine) -> None:
    x = case.arrange(models.windows(100, CHANNELS, WINDOW, seed=4))
    expected = answer(engine, x)
    rng = np.random.default_rng(0)
    for _ in range(60):
        start = int(rng.integers(0, 99))
        stop = int(rng.integers(start + 1, 101))
        np.testing.assert_allclose(answer(engine, x[start:stop]), expected[start:stop], rtol=0, atol=case.close)


def test_it_closes_twice_and_then_refuses_to_run(case: Case, engine: Engine) -> None:
    x = case.arrange(models.windows(1, CHANNELS, WINDOW))
    answer(engine, x)
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match="closed"):
        engine.run(x)


@pytest.mark.parametrize("garbage", [b"", b"x", b"\x00" * 64, b"garbage " * 1000, b'{"null_engine": 2}', b"[]"])
def test_garbage_is_refused_on_one_line(case: Case, garbage: bytes) -> None:
    with pytest.raises(EngineError) as caught:
        engines.load(case.engine, garbage, OPTIONS)
    assert "\n" not in str(caught.value)


def test_an_unknown_accelerator_is_refused(case: Case) -> None:
    if case.engine == "null":
        pytest.skip("has none")
    with pytest.raises(EngineError, match=r"no-such-accelerator|delegate"):
        engines.load(case.engine, case.model(), OPTIONS, {"no-such-accelerator": {}})


def test_asking_what_is_available_imports_no_engine() -> None:
    names = [kind.package for kind in engines.ENGINES if kind.package]
    assert engines.available("onnx") or importlib.util.find_spec("onnxruntime") is None
    code = (
        "import sys; from edge_runtime.model import engines; engines.available('onnx'); engines.available('tflite');"
        f"sys.exit(any(name in sys.modules for name in {names!r}))"
    )
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=root).returncode == 0


def test_an_unknown_engine_is_refused_with_the_known_ones() -> None:
    with pytest.raises(EngineError, match="onnxruntime, litert"):
        engines.load("tensorrt", b"", OPTIONS)


def test_a_missing_engine_is_refused_with_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines.EngineKind, "importable", lambda self: False)
    with pytest.raises(EngineError, match=r'pip install "edge-runtime\[onnx\]"'):
        engines.load("onnxruntime", b"", OPTIONS)


# Real models, made by others. Inputs are drawn within what the file's own quantisation can hold.

REAL = {
    "mlperf-tiny/kws_ref_model.tflite": "litert",
    "mlperf-tiny/kws_ref_model_float32.tflite": "litert",
    "mlperf-tiny/ad01_int8.tflite": "litert",
    "mlperf-tiny/str_ww_ref_model.tflite": "litert",
    "fan-autoencoder/fan_low_model-moving.tflite": "litert",
    "tflm-examples/hello_world_int8.tflite": "litert",
    "tflm-examples/micro_speech_quantized.tflite": "litert",
    "tflm-examples/trained_lstm_int8.tflite": "litert",
    "coral/keras_lstm_mnist_ptq.tflite": "litert",
    "coral/mobilenet_v1_0.25_128_quant.tflite": "litert",
    "st-aed-esc10/yamnet_256_64x96_tl_int8.tflite": "litert",
    "openwakeword-frontend/embedding_model.onnx": "onnxruntime",
    "basic-pitch/nmp.onnx": "onnxruntime",
    "dtln/model_1.onnx": "onnxruntime",
}


@pytest.mark.parametrize(("file", "name"), REAL.items(), ids=REAL)
def test_real_models_answer_each_window_of_a_batch_as_if_it_were_alone(shared: Path, file: str, name: str) -> None:
    if not models.usable(name):
        pytest.skip(f"{name} is not installed")
    engine = engines.load(name, (shared / "models" / file).read_bytes(), OPTIONS)
    rng = np.random.default_rng(0)
    n = 3
    x = [rng.uniform(-1, 1, (n, *spec.shape[1:])).astype(spec.dtype) for spec in engine.inputs]
    together = [np.array(y) for y in engine.run(*x)]
    assert [len(y) for y in together] == [n] * len(engine.outputs)
    for i in range(n):
        for whole, part in zip(together, engine.run(*(a[i : i + 1] for a in x)), strict=True):
            np.testing.assert_allclose(whole[i : i + 1], part, rtol=1e-4, atol=1e-4)
    engine.close()


@pytest.mark.skipif(not models.usable("litert"), reason="LiteRT is not installed")
def test_a_recurrent_layer_does_not_remember_the_window_before(shared: Path) -> None:
    engine = engines.load("litert", (shared / "models/tflm-examples/trained_lstm_int8.tflite").read_bytes(), OPTIONS)
    x = np.random.default_rng(2).uniform(0, 1, (6, 28, 28)).astype(np.float32)
    first = answer(engine, x)
    np.testing.assert_array_equal(answer(engine, x), first)
    np.testing.assert_array_equal(answer(engine, x[::-1])[::-1], first)


@pytest.mark.skipif(not models.usable("litert"), reason="LiteRT is not installed")
def test_a_streaming_model_is_given_its_rows_in_order(shared: Path) -> None:
    model = (shared / "models/micro-wake-word/vad.tflite").read_bytes()
    x = np.random.default_rng(1).uniform(-13, 26, (30, 3, 40)).astype(np.float32)
    one_by_one = engines.load("litert", model, OPTIONS)
    alone = np.concatenate([one_by_one.run(x[i : i + 1])[0] for i in range(len(x))])
    at_once = engines.load("litert", model, OPTIONS)
    np.testing.assert_array_equal(at_once.run(x)[0], alone)
    assert not np.array_equal(at_once.run(x)[0], alone), "it forgot, so the order proves nothing"


@pytest.mark.skipif(not models.usable("onnxruntime"), reason="onnxruntime is not installed")
def test_a_model_with_a_state_tensor_is_run_as_given(shared: Path) -> None:
    engine = engines.load("onnxruntime", (shared / "models/silero-vad/silero_vad.onnx").read_bytes(), OPTIONS)
    assert [spec.shape for spec in engine.inputs] == [(-1, -1), (2, -1, 128), ()]
    x, state = np.zeros((1, 576), np.float32), np.zeros((2, 1, 128), np.float32)
    speech, after = engine.run(x, state, np.array(16000))
    assert speech.shape == (1, 1)
    assert after.shape == state.shape
    with pytest.raises(InputError, match="shape"):
        engine.run(x, state[:1], np.array(16000))


@pytest.mark.skipif(not models.usable("litert"), reason="LiteRT is not installed")
def test_a_file_that_misstates_its_output_is_believed_after_it_ran(shared: Path) -> None:
    model = (shared / "models/ultra-light-face/version-slim-320_without_postprocessing.tflite").read_bytes()
    engine = engines.load("litert", model, OPTIONS)
    assert [spec.shape for spec in engine.outputs] == [(-1, 4420, 4), (-1, 4420, 2)]


@pytest.mark.skipif(not models.usable("litert"), reason="LiteRT is not installed")
@pytest.mark.parametrize(
    "file", ["audio_preprocessor_float.tflite", "audio_preprocessor_int8.tflite", "person_detect.tflite"]
)
def test_models_that_the_library_refuses_are_refused_on_one_line(shared: Path, file: str) -> None:
    with pytest.raises(EngineError, match="refuses the model") as caught:
        engines.load("litert", (shared / "models/hard-cases" / file).read_bytes(), OPTIONS)
    assert "\n" not in str(caught.value)
