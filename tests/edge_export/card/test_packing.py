"""A borrowed model as a bundle: golden vectors, comparison of files, the command, and real models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import orjson
import pytest
from edge_export.card import pack_models, recorded_windows, seeded_windows
from edge_export.cli import main
from edge_export.package.sign import new_key
from onnx import numpy_helper

from edge_runtime.errors import BundleError, ConfigError, EngineError
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.tuning.timing.child import Trial
from edge_runtime.signal.windowing.recorded import cut_recording
from edge_runtime.tools.cli import main as edge_runtime
from tests.edge_export.card import models
from tests.edge_export.graphs import onnx_answers


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    model = models.plain()
    onnx.save(model, str(tmp_path / "net.onnx"))
    (tmp_path / "net.tflite").write_bytes(models.tflite(model))
    return [tmp_path / "net.onnx", tmp_path / "net.tflite"]


def recording(tmp_path: Path, samples: int = 95, scale: float = 1.0) -> Path:
    x = models.physical(1).repeat(samples, axis=2)[0, :, :samples].T * scale
    rows = [f"{i / 50},{','.join(str(v) for v in row)}" for i, row in enumerate(x.tolist())]
    path = tmp_path / "day.csv"
    path.write_text("t,ax,ay,p\n" + "\n".join(rows) + "\n")
    return path


def test_seeded_windows_stay_in_the_cards_ranges_and_are_always_the_same(tmp_path: Path) -> None:
    card = models.card(tmp_path)
    x = seeded_windows(card)
    assert x.shape == (8, 3, 20)
    assert x.dtype == np.float32
    for index, channel in enumerate(card.input.channels):
        assert (x[:, index].min(), x[:, index].max()) == (channel.low, channel.high)
    assert np.array_equal(x, seeded_windows(card))
    assert len(np.unique(x, axis=0)) == 8


def test_ranges_are_asked_for_where_there_is_no_recording(tmp_path: Path) -> None:
    card = models.card(tmp_path, channels=['{ name = "a", unit = "g", low = 0 }'])
    with pytest.raises(ConfigError, match="give --recording FILE, or low and high of channel 'a'"):
        seeded_windows(card)


def test_recorded_windows_are_those_that_the_device_would_cut(tmp_path: Path) -> None:
    card = models.card(tmp_path)
    path = recording(tmp_path, samples=200)
    table = np.loadtxt(path, delimiter=",", skiprows=1)
    cut = cut_recording(card.input.contract(), "day", table[:, 0], table[:, 1:].astype(np.float32))
    wanted = np.stack([window.samples.T for window in cut])
    chosen = np.linspace(0, len(wanted) - 1, 8).astype(int)
    np.testing.assert_array_equal(recorded_windows(card, [path]), wanted[chosen])


def test_a_recording_of_another_unit_or_length_is_refused(tmp_path: Path) -> None:
    card = models.card(tmp_path)
    with pytest.raises(ConfigError, match=r"channel 'ax' reaches from .* is it in another unit\?"):
        recorded_windows(card, [recording(tmp_path, scale=1000)])
    with pytest.raises(ConfigError, match="not one window of 20 samples"):
        recorded_windows(card, [recording(tmp_path, samples=19)])


def test_two_files_of_one_model_become_variants_that_agree(files: list[Path], tmp_path: Path) -> None:
    card = models.card(tmp_path)
    packed = pack_models(tmp_path / "net.edge", files, card, seeded_windows(card))
    assert [each.name for each in packed.compared][:2] == ["onnx-fp32", "tflite-fp32"]
    assert all(each.worst < 1e-5 and each.flips == 0 for each in packed.compared)
    with open_bundle(tmp_path / "net.edge") as bundle:
        inputs, expected = bundle.golden("tflite-fp32")
        wanted = models.softmax(onnx_answers(models.plain(), models.seen(inputs)))
        np.testing.assert_allclose(expected, wanted, atol=1e-5)
        assert bundle.manifest.provenance["origin"]["licence"] == "CC0"
        assert set(bundle.manifest.provenance["files"]) == {"net.onnx", "net.tflite"}
        assert b"Licence: CC0" in bundle.file("card.md")
        assert str(tmp_path).encode() not in b"".join(bundle.read_variant(v.name) for v in bundle.manifest.variants)


@pytest.mark.slow
def test_files_of_different_models_are_refused(files: list[Path], tmp_path: Path) -> None:
    files[1].write_bytes(models.tflite(negated(onnx.load(str(files[0])))))
    card = models.card(tmp_path)
    with pytest.raises(ConfigError, match=r"tflite-fp32 on litert and onnx-fp32 differ by up to .*--max-difference"):
        pack_models(tmp_path / "net.edge", files, card, seeded_windows(card))
    assert not (tmp_path / "net.edge").exists()
    packed = pack_models(tmp_path / "net.edge", files, card, seeded_windows(card), max_difference=1.0)
    assert packed.compared[-1].worst > 1e-3


def test_an_onnx_file_can_bring_a_tflite_one(files: list[Path], tmp_path: Path) -> None:
    card = models.card(tmp_path)
    packed = pack_models(tmp_path / "net.edge", files[:1], card, seeded_windows(card), also_tflite=True)
    assert [variant.name for variant in packed.manifest.variants] == ["onnx-fp32", "tflite-fp32"]
    assert packed.changes["tflite-fp32"][0] == "written from the ONNX file"
    with pytest.raises(ConfigError, match="give an ONNX file, and no other"):
        pack_models(tmp_path / "net.edge", files, card, seeded_windows(card), also_tflite=True)


def test_what_cannot_be_written_as_tflite_is_left_out_with_its_node(tmp_path: Path) -> None:
    model = models.plain()
    dilated = {"kernel_shape": [2], "dilations": [2], "pads": [1, 1]}
    model.graph.node.insert(0, onnx.helper.make_node("MaxPool", ["window"], ["odd"], name="odd_one", **dilated))
    model.graph.node[1].input[0] = "odd"
    onnx.save(model, str(tmp_path / "net.onnx"))
    card = models.card(tmp_path)
    packed = pack_models(tmp_path / "e.edge", [tmp_path / "net.onnx"], card, seeded_windows(card), also_tflite=True)
    assert "MaxPool" in packed.left_out["tflite-fp32"]
    assert len(packed.manifest.variants) == 1


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (lambda model: models.tflite(negated(model)), "differ by up to"),
        (lambda model: models.tflite(model)[:400], "tflite-fp32"),
        (lambda model: models.tflite(models.plain(4)), "answers with"),
    ],
    ids=["another model", "a cut file", "other answers"],
)
def test_a_written_tflite_file_that_fails_leaves_the_onnx_file_in_the_bundle(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Any, reason: str
) -> None:
    monkeypatch.setattr("edge_export.tflite.convert.convert", written)
    card = models.card(tmp_path)
    packed = pack_models(tmp_path / "net.edge", files[:1], card, seeded_windows(card), also_tflite=True)
    assert [variant.name for variant in packed.manifest.variants] == ["onnx-fp32"]
    assert reason in packed.left_out["tflite-fp32"]
    assert [each.name for each in packed.compared] == ["onnx-fp32"]


def negated(model: onnx.ModelProto) -> onnx.ModelProto:
    weights = numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(-weights, model.graph.initializer[0].name))
    return model


def test_a_float_conv1d_is_packed_as_conv2d_and_answers_as_before(files: list[Path], tmp_path: Path) -> None:
    card = models.card(tmp_path)
    packed = pack_models(tmp_path / "net.edge", files[:1], card, seeded_windows(card), also_tflite=True)
    assert packed.changes["onnx-fp32"][-1] == "Conv1d as Conv2d"
    assert "Conv1d as Conv2d" not in packed.changes["tflite-fp32"]
    with open_bundle(tmp_path / "net.edge") as bundle:
        model = onnx.load_model_from_string(bundle.read_variant("onnx-fp32"))
        assert [len(t.dims) for t in model.graph.initializer if len(t.dims) > 2] == [
            3,
            3,
            4,
        ]  # scaling, and the weights
        inputs, expected = bundle.golden("onnx-fp32")
    wanted = models.softmax(onnx_answers(models.plain(), models.seen(inputs)))
    np.testing.assert_allclose(expected, wanted, rtol=0, atol=3e-7)


def test_answers_that_are_no_probabilities_point_to_the_card(files: list[Path], tmp_path: Path) -> None:
    card = models.card(tmp_path, output="")
    with pytest.raises(ConfigError, match=r'onnx-fp32 answers with numbers .*score of a class.*values = "logits"'):
        pack_models(tmp_path / "net.edge", files[:1], card, seeded_windows(card))


def test_answers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    model = models.plain()
    model.graph.node.insert(0, onnx.helper.make_node("Log", ["window"], ["log"]))
    model.graph.node[1].input[0] = "log"
    onnx.save(model, str(tmp_path / "net.onnx"))
    card = models.card(tmp_path)
    with pytest.raises(BundleError, match="NaN or infinity to golden window"):
        pack_models(tmp_path / "net.edge", [tmp_path / "net.onnx"], card, seeded_windows(card))


def test_a_file_that_ends_the_process_costs_a_child_only(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reason = "it ended a child process of SIGSEGV"
    monkeypatch.setattr("edge_export.card.packing.trial", lambda _: Trial(reason=reason))
    monkeypatch.setattr("edge_export.card.packing.answers", lambda *_, **__: pytest.fail("asked in this process"))
    card = models.card(tmp_path)
    with pytest.raises(EngineError, match=f"onnx-fp32: {reason}"):
        pack_models(tmp_path / "net.edge", files, card, seeded_windows(card))


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_packed_bundle_is_signed_and_replays(
    files: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "card.toml").write_text(models.card_text())
    new_key(tmp_path / "k.pem")
    day, out = recording(tmp_path), tmp_path / "net.edge"
    arguments = ["pack", *map(str, files), "--card", str(tmp_path / "card.toml"), "--recording", str(day)]
    assert main([*arguments, "--key", str(tmp_path / "k.pem"), "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "onnx-fp32: scaling of each channel, softmax" in said
    assert "golden windows recorded" in said
    predictions = tmp_path / "p.jsonl"
    trusted = ["--trusted-key", str(tmp_path / "k.pub.pem")]
    for variant in ("onnx-fp32", "tflite-fp32"):
        assert (
            edge_runtime(["replay", str(out), str(day), "--variant", variant, "--out", str(predictions), *trusted]) == 0
        )
        scores = [orjson.loads(line)["scores"] for line in predictions.read_bytes().splitlines()]
        table = np.loadtxt(day, delimiter=",", skiprows=1).astype(np.float32)
        cut = np.stack([table[i : i + 20, 1:].T for i in range(0, 76, 10)])
        wanted = models.softmax(onnx_answers(models.plain(), models.seen(cut)))
        np.testing.assert_allclose(scores, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "content", "code", "message"),
    [
        ("net.onnx", b"nothing", 2, "not a usable ONNX model"),
        ("net.tflite", b"nothing at all", 2, "not a TensorFlow Lite file"),
        ("net.h5", b"\x89HDF", 2, "convert the model to one of them first"),
    ],
)
def test_wrong_files_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes, code: int, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "card.toml").write_text(models.card_text())
    arguments = ["pack", str(tmp_path / name), "--card", str(tmp_path / "card.toml"), "-o", str(tmp_path / "o.edge")]
    assert main(arguments) == code
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error), error
    assert not (tmp_path / "o.edge").exists()


# -- real models -------------------------------------------------------------------------------------------------------


def real_card(labels: int, channels: int, window: int, low: float, high: float, channel: str = "") -> str:
    names = ", ".join(f'{{ name = "c{i}", unit = "1", low = {low}, high = {high}{channel} }}' for i in range(channels))
    return f"""
name = "real"
origin = {{ name = "see SOURCE.md", source = "public", licence = "Apache-2.0" }}
[input]
rate_hz = 50
window = {window}
layout = "samples-first"
channels = [{names}]
[output]
labels = [{", ".join(f'"{i}"' for i in range(labels))}]
"""


@pytest.mark.slow
def test_keywords_of_mlperf_tiny_are_answered_as_published(shared: Path, tmp_path: Path) -> None:
    """0.967 for the int8 file and 0.962 for the other one, on the 213 recordings beside them."""
    folder = shared / "models" / "mlperf-tiny"
    with np.load(shared / "data" / "speech-commands-mini" / "mfcc.npz", allow_pickle=False) as stored:
        x, y = stored["mfcc"], stored["label"]
    n = len(x)
    np.savez(
        tmp_path / "words.npz",
        x=x.reshape(-1, 10),
        t=np.tile(np.arange(49) / 50, n),
        offset=np.arange(n + 1) * 49,
        channels=np.array([f"c{i}" for i in range(10)]),
    )
    (tmp_path / "card.toml").write_text(real_card(12, 10, 49, -123, 26))
    arguments = ["pack", str(folder / "kws_ref_model.tflite"), str(folder / "kws_ref_model_float32.tflite")]
    options = ["--card", str(tmp_path / "card.toml"), "--recording", str(tmp_path / "words.npz")]
    assert main([*arguments, *options, "-o", str(tmp_path / "words.edge")]) == 0
    for variant, right in (("tflite-int8", 206), ("tflite-mixed", 205)):
        out = tmp_path / "predictions.jsonl"
        replay = ["replay", str(tmp_path / "words.edge"), str(tmp_path / "words.npz"), "--variant", variant]
        assert edge_runtime([*replay, "--out", str(out)]) == 0
        answered = {line["id"]: line["label"] for line in map(orjson.loads, out.read_bytes().splitlines())}
        assert sum(answered[f"words-{i}@0"] == str(label) for i, label in enumerate(y.tolist())) == right


@pytest.mark.parametrize(
    ("file", "code", "message"),
    [
        ("hard-cases/keyword_scrambled_8bit.tflite", 2, r"keeps state between calls \(SVDF\)"),
        ("hard-cases/audio_preprocessor_int8.tflite", 2, "no part of LiteRT: SignalEnergy, "),
        ("hard-cases/person_detect.tflite", 2, "a picture is no window|the card says"),
        ("micro-wake-word/alexa.tflite", 2, "keeps state between calls"),
        ("silero-vad/silero_vad.onnx", 2, r"has 3 inputs \(input, state, sr\)"),
        ("dtln/model_1.tflite", 2, "has 2 inputs"),
        ("basic-pitch/nmp.onnx", 2, "has 3 outputs"),
        ("fan-autoencoder/fan_low_model-moving.tflite", 2, "the card says"),
    ],
)
def test_real_models_that_no_bundle_can_hold_say_why(
    shared: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, code: int, message: str
) -> None:
    (tmp_path / "card.toml").write_text(real_card(2, 1, 96, 0, 1))
    arguments = ["pack", str(shared / "models" / file), "--card", str(tmp_path / "card.toml")]
    assert main([*arguments, "-o", str(tmp_path / "o.edge")]) == code
    assert re.search(message, capsys.readouterr().err)
