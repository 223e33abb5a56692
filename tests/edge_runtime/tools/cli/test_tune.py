"""``edge-runtime tune`` as a user runs it."""

from __future__ import annotations

import dataclasses
import errno
import re
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest

from edge_runtime.base import hardware as devices
from edge_runtime.base.hardware import CACHE, EngineChoice, this_device
from edge_runtime.base.system import toml
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.tuning import benchmark as tune
from edge_runtime.model.tuning import compile_cache
from edge_runtime.model.tuning.results import Figure, Tuning
from edge_runtime.model.tuning.timing import TimingPlan
from edge_runtime.tools.cli import main
from edge_runtime.tools.cli.tune import _lines
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
    monkeypatch.setattr(tune, "_plan", lambda *_: TimingPlan(rounds=3, block_s=0.001))
    path = tmp_path / "tiny.edge"
    path.write_bytes(made)
    return path


def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object, **_more: object) -> tuple[int, str]:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)


@pytest.mark.slow
def test_it_measures_remembers_and_forgets(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(bundle), "--threads", "1"]) == 0
    text = capsys.readouterr().out
    assert re.search(r"^run takes (tflite-int8|onnx-fp32) on ", text, re.MULTILINE)
    assert "tflite-int8  litert" in text
    file = bundle.with_name("tiny.edge.tuned.json")
    assert f"saved in {file}" in text
    assert file.exists()
    assert main(["tune", str(bundle), "--forget", "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out) == {"forgotten": True, "file": str(file)}
    assert not file.exists()
    assert main(["tune", str(bundle), "--forget"]) == 0
    assert "nothing was saved" in capsys.readouterr().out


@pytest.mark.slow
def test_on_a_read_only_disk_it_tells_what_to_write_into_the_configuration(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only(monkeypatch)
    assert main(["tune", str(bundle), "--threads", "1", "--json"]) == 0
    out, err = capsys.readouterr()
    found = orjson.loads(out)
    assert found["saved"] is None
    assert found["choice"]["variant"] in {"onnx-fp32", "tflite-int8"}
    assert {one["variant"] for one in found["figures"]} == {"onnx-fp32", "tflite-int8"}
    assert f'variant = "{found["choice"]["variant"]}"' in err
    assert "Read-only file system" in err
    assert err.count("\n") == 1


@pytest.mark.slow
def test_another_file_may_remember(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "here.json"
    assert main(["tune", str(bundle), "--threads", "1", "--tuned", str(file), "--json"]) == 0
    assert orjson.loads(capsys.readouterr().out)["saved"] == str(file)
    assert file.exists()
    assert not bundle.with_name("tiny.edge.tuned.json").exists()


def figure(variant: str, p50_us: float, threads: int = 1, **more: Any) -> Figure:
    return Figure(
        variant=variant, engine="e", threads=threads, p50_us=p50_us, p95_us=p50_us, cpu_us=p50_us * threads,
        ratio=p50_us, ratio_low=p50_us, ratio_high=p50_us, **more,
    )  # fmt: skip


PLAIN = Tuning(
    model="tiny/1", machine="board", versions={}, measured="2026-11-21", refused={"b on e": "it crashed"},
    figures=(figure("a", 100.0), figure("a", 40.0, threads=4)), round_trip_us=20.0,
)  # fmt: skip
PROVIDERS = {"TensorrtExecutionProvider": {"device_id": "0", "path": 'C:\\"x"'}, "CUDAExecutionProvider": {}}


def with_accelerator(p50_us: float) -> Tuning:
    return dataclasses.replace(
        PLAIN, figures=(*PLAIN.figures, figure("b", p50_us, accelerator="tensorrt", providers=PROVIDERS))
    )


def test_what_more_threads_would_bring_and_what_was_refused_is_told() -> None:
    lines = _lines(PLAIN)
    assert lines[-2].endswith("a on e, 2.5 times as fast for 1.6 times the processor time")
    assert lines[-1] == "run takes a on e, the fastest here"
    assert "refused b on e: it crashed" in lines


def test_an_accelerator_that_is_worth_it_is_what_run_takes() -> None:
    *_, takes, instead = _lines(with_accelerator(30.0))
    assert takes == (
        "run takes b on tensorrt: 50.0 us a window, 20.0 of them for the way to a process of its own and back, "
        "against 100.0 us for a on e, which stands in"
    )
    assert instead == "to leave it to the processor: accelerators = {} under [model]"


def test_one_that_is_not_worth_it_is_told_with_the_line_that_takes_it_all_the_same() -> None:
    *_, takes, why, instead = _lines(with_accelerator(30.1))
    assert takes == "run takes a on e, the fastest on the processor"
    assert why.startswith("not b on tensorrt: 50.1 us a window, 20.0 of them")
    assert why.endswith("against 100.0 us: it would have to save half of that to be worth its power and memory")
    line = instead.removeprefix("to have it all the same: ").removesuffix(" under [model]").replace(" and ", "\n")
    assert toml.loads(line) == {"variant": "b", "accelerators": PROVIDERS}


@pytest.mark.parametrize(("p50_us", "accelerator"), [(30.0, "tensorrt"), (30.1, None)])
def test_programs_are_told_the_same(
    p50_us: float, accelerator: str | None, bundle: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """And who has a read-only disk is told all that has to stand in the configuration."""
    monkeypatch.setattr(tune, "tune", lambda *_args, **_more: with_accelerator(p50_us))
    read_only(monkeypatch)
    assert main(["tune", str(bundle), "--json"]) == 0
    out, err = capsys.readouterr()
    choice = orjson.loads(out)["choice"]
    assert choice["accelerator"] == accelerator
    assert choice["variant"] == ("b" if accelerator else "a")
    assert ("and accelerators = {" in err) == bool(accelerator)


def test_where_only_an_accelerator_runs_it_is_taken() -> None:
    alone = dataclasses.replace(PLAIN, figures=(figure("b", 9e6, accelerator="cuda"),))
    assert _lines(alone)[-1] == "run takes b on cuda, the fastest here"


@pytest.mark.slow
def test_nothing_is_left_of_what_was_compiled_for_nothing(
    bundle: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    absent = EngineChoice(name="absent", engine="onnxruntime", providers={"NoSuchExecutionProvider": {"cache": CACHE}})
    monkeypatch.setattr(devices, "this_device", lambda: dataclasses.replace(this_device(), choices=(absent,)))
    assert main(["tune", str(bundle), "--threads", "1"]) == 0
    assert "refused onnx-fp32 on absent: " in capsys.readouterr().out
    assert sorted(path.name for path in bundle.parent.iterdir()) == ["tiny.edge", "tiny.edge.tuned.json"]


def test_what_was_compiled_is_forgotten_too(bundle: Path, tmp_path: Path) -> None:
    folder = tmp_path / "compiled"
    with open_bundle(bundle) as opened:
        place = compile_cache.compiled_of(folder, opened)
    place.mkdir(parents=True)
    (folder / "another").mkdir()
    assert main(["tune", str(bundle), "--forget", "--compiled", str(folder)]) == 0
    assert [path.name for path in folder.iterdir()] == ["another"]
