"""Every published model at hand: packed from its card, loaded as on a device, played on the recording of its source."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from edge_export.cli import main

from benchmarks.real_models.cases import CASES, Case
from benchmarks.real_models.playing import CARDS, Bundle, pack
from tests.long_tier import some

pytest.importorskip("ai_edge_litert")

PUSH = ("silero-vad", "micro-speech")
"""Cards that every push plays, an ONNX file with states and a TensorFlow Lite file behind a front end; `make soak` and
``make bench-models`` play all."""


@pytest.mark.slow
@pytest.mark.parametrize("case", some(CASES, PUSH, lambda case: case.card))
def test_a_published_model_gives_its_stated_result(shared: Path, tmp_path: Path, case: Case) -> None:
    if "esc10" in case.card and importlib.util.find_spec("soundfile") is None:
        pytest.skip("soundfile reads the clips: pip install soundfile")
    path = tmp_path / f"{case.card}.edge"
    data = case.data(shared, tmp_path)
    bundle = Bundle(path, pack(path, case.card, [shared / "models" / file for file in case.files], data))
    try:
        assert case.measure(bundle, shared, tmp_path)
    finally:
        bundle.close()


def test_every_card_is_played() -> None:
    assert {case.card for case in CASES} == {path.stem for path in CARDS.glob("*.toml")}


@pytest.mark.slow
def test_every_file_of_a_device_format_has_a_card_or_a_true_reason(shared: Path) -> None:
    played = {file for case in CASES for file in case.files}
    there = {
        path.relative_to(shared / "models").as_posix()
        for path in (shared / "models").rglob("*")
        if path.suffix in (".onnx", ".tflite")
    }
    refused = {file for file, *_ in REFUSED}
    assert there - played - refused == set()


REFUSED = (
    ("hard-cases/audio_preprocessor_float.tflite", "scrambled", "needs operators that are no part of LiteRT: Signal"),
    ("hard-cases/audio_preprocessor_int8.tflite", "scrambled", "needs operators that are no part of LiteRT: Signal"),
    ("hard-cases/keyword_scrambled_8bit.tflite", "scrambled", "its process ended"),
    ("hard-cases/person_detect.tflite", "scrambled", "quantized_dimension must be in range"),
    ("mlperf-tiny/ad01.h5", "toycar", "from_keras_model"),
    ("mlperf-tiny/kws_ref_model_savedmodel", "keyword", "from_saved_model"),
    ("silero-vad/silero_vad.jit", "silero-vad", "torch.onnx.export"),
    ("st-har/har_cnn_26hz.h5", "keyword", "from_keras_model"),
)


@pytest.mark.slow
@pytest.mark.parametrize(("file", "card", "reason"), REFUSED, ids=lambda value: str(value).rpartition("/")[2])
def test_what_cannot_be_packed_says_why_while_this_process_lives_on(
    shared: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], file: str, card: str, reason: str
) -> None:
    text = (CARDS / f"{card}.toml").read_text()
    (tmp_path / "card.toml").write_text(text)
    options = ["--card", str(tmp_path / "card.toml"), "-o", str(tmp_path / "o.edge")]
    assert main(["pack", str(shared / "models" / file), *options]) == 2
    (line,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("edge-export:")]
    assert reason in line
