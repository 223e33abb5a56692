"""The other commands, as a user runs them."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from edge_runtime.manifest import Reference
from edge_runtime.operate.server.server import ServeConfig
from edge_runtime.tools.cli import main, serve
from tests import models
from tests.integration.running import Process, answers, command, streams, write_recording
from tests.parsing import parsed


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "tiny.edge"
    return models.tiny_bundle(path, variants=("onnx-fp32", "tflite-int8"))


def test_inspect_tells_what_the_bundle_says(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(bundle)]) == 0
    text = capsys.readouterr().out
    for word in ("tiny/1", "onnx-fp32", "tflite-int8", "rest, walk, run", "unsigned"):
        assert word in text
    assert main(["inspect", str(bundle), "--json"]) == 0
    found = orjson.loads(capsys.readouterr().out)
    assert found["manifest"]["name"] == "tiny"
    assert len(found["digest"]) == 64


def test_inspect_says_in_words_what_the_bundle_expects_of_its_sensors(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quantiles = (0.1, 0.3, 0.532, 0.9, 1.0, 1.2, 1.86, 2.6, 4.0)
    reference = Reference(channels=("c0", "c1", "c2"), quantiles=quantiles, span_s=10, still_s=0.04)
    path = models.tiny_bundle(tmp_path / "tiny.edge", references=[reference])
    assert main(["inspect", str(path)]) == 0
    line = (
        "norm of c0, c1, c2: 0.532 to 1.86 1 in 90 % of training, compared over 10 s; never rests for more than 0.04 s"
    )
    found = capsys.readouterr().out
    assert line in found
    assert "no references" not in found
    assert main(["inspect", str(bundle)]) == 0
    found = capsys.readouterr().out
    assert "expects" not in found
    assert found.splitlines()[-1].startswith("this bundle has no references: wrong units are not noticed")


def test_verify_replays_every_variant(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(bundle), "--json"]) == 0
    report = orjson.loads(capsys.readouterr().out)
    assert report["ok"] is True
    assert {variant["name"]: variant["outcome"] for variant in report["variants"]} == {
        "onnx-fp32": "ok",
        "tflite-int8": "ok",
    }


@pytest.mark.parametrize("name", ["inspect", "verify"])
def test_a_damaged_bundle_is_one_line_and_code_1(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    data = bytearray(bundle.read_bytes())
    data[len(data) // 2] ^= 1
    damaged = tmp_path / "damaged.edge"
    damaged.write_bytes(data)
    assert main([name, str(damaged)]) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "damaged.edge" in err


def test_doctor_without_an_engine_says_how_to_get_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_runtime.model.engines.EngineKind.importable", lambda _kind: False)
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "no engine is installed" in text
    assert "pip install" in text


def test_replay_writes_predictions_and_a_summary(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = write_recording(tmp_path / "recording.jsonl", streams(2, 100))
    out = tmp_path / "out.jsonl"
    out.write_text("an earlier result\n")
    assert main(["replay", str(bundle), str(recording), "--out", str(out), "--json"]) == 0
    figures = orjson.loads(capsys.readouterr().out)
    found = answers(out)
    assert len(found) == figures["counts"]["predictions_total"] > 0
    assert list(found[0]) == [
        "id", "key", "start", "end", "label", "confidence", "scores", "route", "hard", "model", "variant", "latency_ms",
    ]  # fmt: skip
    assert main(["replay", str(bundle), str(recording), "--out", str(out)]) == 0
    assert "200 samples" in capsys.readouterr().err
    assert len(answers(out)) == len(found), "begun anew"


@pytest.mark.parametrize("victim", ["recording", "bundle"])
def test_replay_never_overwrites_what_it_reads(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], victim: str
) -> None:
    recording = write_recording(tmp_path / "recording.jsonl", streams(1, 50))
    own = tmp_path / "own.edge"
    own.write_bytes(bundle.read_bytes())
    (tmp_path / "link").symlink_to(recording if victim == "recording" else own)
    kept = recording.read_bytes(), own.read_bytes()
    assert main(["replay", str(own), str(recording), "--out", str(tmp_path / "link")]) == 2
    assert "is read as well" in capsys.readouterr().err
    assert (recording.read_bytes(), own.read_bytes()) == kept


@pytest.mark.parametrize("name", ["replay", "serve"])
def test_a_variant_that_is_not_there_is_wrong_use(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    recording = write_recording(tmp_path / "recording.jsonl", streams(1, 50))
    more = {
        "replay": [str(recording), "--out", str(tmp_path / "out.jsonl")],
        "serve": ["--allow-unsigned", "--port", "0"],
    }[name]
    assert main([name, str(bundle), *more, "--variant", "onnx-int4"]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "'onnx-int4'" in err
    assert "tflite-int8" in err
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.slow
def test_serve_where_somebody_else_listens_is_one_line(bundle: Path, tmp_path: Path) -> None:
    with Process(tmp_path, "serve", bundle, "--allow-unsigned", "--port", "0") as process:
        process.says("serving tiny")
        port = next(word for word in process.out.split() if word.startswith("http")).rsplit(":", 1)[1]
        done = command("serve", bundle, "--allow-unsigned", "--port", port)
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert port in done.err


def test_serve_adds_no_delay_and_limits_as_the_server_itself_unless_told(bundle: Path) -> None:
    options, config = parsed(serve.ServeOptions, bundle), ServeConfig()
    assert options.batch_delay_ms == config.max_queue_delay_ms == 0
    assert options.max_connections == config.max_connections
    assert options.max_connections_per_address is config.max_connections_per_address is None


def test_bundles_of_the_same_name_cannot_be_served_together(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", str(bundle), str(bundle), "--allow-unsigned", "--port", "0"]) == 2
    assert "same name" in capsys.readouterr().err
