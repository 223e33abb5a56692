"""``edge-runtime tune`` as a user runs it."""

from __future__ import annotations

import dataclasses
import errno
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge_runtime import tune
from edge_runtime.cli import main
from edge_runtime.cli.tune import _lines
from edge_runtime.timing import Plan
from edge_runtime.tuning import Figure, Tuning
from tests import models

pytestmark = pytest.mark.skipif(
    not (models.usable("onnxruntime") and models.usable("litert")), reason="onnxruntime or LiteRT is not installed"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("bundle") / "tiny.edge"
    return models.tiny_bundle(path, variants=("onnx-fp32", "tflite-int8")).read_bytes()


@pytest.fixture
def bundle(tmp_path: Path, made: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tune, "_plan", lambda *_: Plan(rounds=3, block_s=0.001))
    path = tmp_path / "tiny.edge"
    path.write_bytes(made)
    return path


def test_it_measures_remembers_and_forgets(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(bundle), "--threads", "1"]) == 0
    text = capsys.readouterr().out
    assert "fastest here: " in text
    assert "tflite-int8  litert" in text
    file = bundle.with_name("tiny.edge.tuned.json")
    assert f"remembered in {file}" in text
    assert file.exists()
    assert main(["tune", str(bundle), "--forget", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out) == {"forgotten": True, "file": str(file)}
    assert not file.exists()
    assert main(["tune", str(bundle), "--forget"]) == 0
    assert "nothing was remembered" in capsys.readouterr().out


def test_on_a_read_only_disk_it_tells_what_to_write_into_the_configuration(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_more: object) -> tuple[int, str]:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)
    assert main(["tune", str(bundle), "--threads", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    found = orjson.loads(out)
    assert found["remembered"] is None
    assert found["choice"]["variant"] in {"onnx-fp32", "tflite-int8"}
    assert {one["variant"] for one in found["figures"]} == {"onnx-fp32", "tflite-int8"}
    assert f'variant = "{found["choice"]["variant"]}"' in err
    assert "Read-only file system" in err
    assert err.count("\n") == 1


def test_another_file_may_remember(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "here.json"
    assert main(["tune", str(bundle), "--threads", "1", "--file", str(file), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["remembered"] == str(file)
    assert file.exists()
    assert not bundle.with_name("tiny.edge.tuned.json").exists()


def test_what_more_threads_would_bring_and_what_was_refused_is_told() -> None:
    def figure(threads: int, p50_us: float, **more: Any) -> Figure:
        return Figure(
            variant="a", engine="e", threads=threads, p50_us=p50_us, p95_us=p50_us, cpu_us=p50_us * threads, ratio=1.0,
            ratio_low=1.0, ratio_high=1.0, **more,
        )  # fmt: skip

    tuning = Tuning(
        model="tiny/1", machine="board", versions={}, measured="2026-11-21", refused={"b on e": "it crashed"},
        figures=(figure(1, 100.0), figure(4, 40.0)),
    )  # fmt: skip
    lines = _lines(tuning)
    assert lines[-1].endswith("a on e, 2.5 times as fast for 1.6 times the processor time")
    assert "refused b on e: it crashed" in lines
    providers = {"TensorrtExecutionProvider": {"device_id": "0", "path": 'C:\\"x"'}, "CUDAExecutionProvider": {}}
    fast = dataclasses.replace(
        tuning, figures=(*tuning.figures, figure(1, 10.0, accelerator="tensorrt", providers=providers))
    )
    last = _lines(fast)[-1]
    assert last.endswith("under [model]: a on tensorrt, 10.0 times as fast")
    line = last[last.index("accelerators") : last.index(" under [model]")]
    assert tomllib.loads(line) == {"accelerators": providers}
