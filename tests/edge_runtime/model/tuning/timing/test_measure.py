"""Children that measure: what kills one costs one candidate, and what they say survives the pipe."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from edge_export.package.pack import VariantSource

from edge_runtime import manifest
from edge_runtime.errors import EngineError, IncompatibleError
from edge_runtime.model.bundle import archive, npy
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.engines import null
from edge_runtime.model.tuning.timing import Measurement, TimedModel, TimingPlan, measure, measure_bundle
from edge_runtime.model.tuning.timing.child import trial
from edge_runtime.tools.cli import main
from tests import models

DIES = "import os, signal, sys\nprint('last words', file=sys.stderr, flush=True)\nos.kill(os.getpid(), signal.SIGSEGV)"
BOTH = ("onnx-fp32", "tflite-int8")
QUICK = TimingPlan(rounds=3, block_s=0.001)
WINDOWS = np.zeros((3, 6), np.float32)
needs_onnx = pytest.mark.skipif(not models.usable("onnxruntime"), reason="onnxruntime is not installed")
needs_both = pytest.mark.skipif(
    not (models.usable("onnxruntime") and models.usable("litert")), reason="onnxruntime or LiteRT is not installed"
)


def quiet(name: str, size: int = 6) -> TimedModel:
    return TimedModel(name=name, engine="null", model=null.describe((size,), 2), inputs=(WINDOWS,))


class Stub:
    """Stands in for onnxruntime in every child, through a module on its path."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._package = folder / "onnxruntime"
        self._package.mkdir()
        monkeypatch.syspath_prepend(str(folder))

    def candidate(self, body: str) -> TimedModel:
        (self._package / "__init__.py").write_text(body)
        return TimedModel(name="odd", engine="onnxruntime", model=b"", inputs=(WINDOWS,))


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    return Stub(tmp_path, monkeypatch)


@needs_onnx
@pytest.mark.parametrize(
    ("body", "why"),
    [
        (DIES, r"SIGSEGV \(last words\)"),
        ("import os\nos._exit(3)", "exit code 3"),
        ("import os\nos.write(1, b'{\"timings\": []}')\nos._exit(0)", "exit code 0"),
        ("raise ImportError('no such library')", "no such library"),
        ("x = bytearray(5 << 30)", "."),
    ],
)
def test_what_ended_a_child_is_told_in_one_line(stub: Stub, body: str, why: str) -> None:
    found = trial(stub.candidate(body))
    assert re.search(why, found.reason)
    assert "\n" not in found.reason
    assert found.peak_rss_kb == 0


@pytest.mark.slow
@needs_onnx
def test_what_takes_its_process_with_it_costs_one_candidate(stub: Stub) -> None:
    found = measure([quiet("calm"), stub.candidate(DIES)], reference="calm", threads=[1], plan=QUICK)
    assert [timing.name for timing in found.timings] == ["calm"]
    assert "SIGSEGV" in found.failed["odd"]


@needs_onnx
def test_what_never_ends_is_ended(stub: Stub) -> None:
    assert "within 1 s" in trial(stub.candidate("import time\ntime.sleep(60)"), timeout_s=1).reason


def test_a_reference_that_cannot_run_is_an_error() -> None:
    with pytest.raises(EngineError, match="wide, which the others are compared with"):
        measure([quiet("wide", 7), quiet("b")], reference="wide", plan=QUICK)


def test_candidates_need_names_of_their_own() -> None:
    with pytest.raises(ValueError, match="different names"):
        measure([quiet("a"), quiet("a")], reference="a")


def test_memory_and_loading_are_those_of_a_process_of_its_own() -> None:
    ballast = np.ones(30_000_000, np.float32)  # 120 MB that the child must not answer for
    found = trial(quiet("a"))
    assert len(ballast)
    assert found.reason == ""
    assert 5_000 < found.peak_rss_kb < 100_000
    assert found.load_ms > 0


@pytest.mark.slow
@needs_both
def test_every_variant_of_a_bundle_is_timed_and_comes_back_as_written(tmp_path: Path) -> None:
    with open_bundle(models.tiny_bundle(tmp_path, variants=BOTH)) as bundle:
        found = measure_bundle(bundle, threads=[1, 2], plan=QUICK)
        assert found.digest == bundle.digest
    assert found.reference == "onnx-fp32"
    assert set(found.of(1)) == set(found.of(2)) == set(BOTH)
    assert found.failed == {}
    assert all(timing.p50_us > 0 and timing.peak_rss_kb > 10_000 and timing.load_ms > 0 for timing in found.timings)
    assert found.microseconds()["onnx-fp32"] == found.of()["onnx-fp32"].p50_us
    assert found.of(2)["tflite-int8"].engine.startswith("LiteRT")
    again = Measurement.from_json(found.to_json())
    assert again == found
    assert "\n" not in found.to_json()


@pytest.mark.slow
@needs_onnx
def test_a_variant_that_is_not_for_here_or_answers_wrongly_is_not_timed(tmp_path: Path) -> None:
    elsewhere = dataclasses.replace(models.variant("onnx-int8"), targets=("riscv64",))
    path = models.tiny_bundle(tmp_path, variants=["onnx-fp32", elsewhere, a_copy("wrong")])
    with open_bundle(path) as bundle:
        names = [v.file for v in bundle.manifest.variants] + [f.file for f in bundle.manifest.files]
        contents = {name: bundle.file(name) for name in names}
        contents["golden/wrong.npy"] = npy.dump(npy.parse(contents["golden/wrong.npy"])[::-1].copy())
        files = tuple(
            manifest.File(file=f.file, size=f.size, sha256=_sha256(contents[f.file])) for f in bundle.manifest.files
        )
        changed = dataclasses.replace(bundle.manifest, files=files)
    path.write_bytes(archive.pack({**contents, "manifest.json": manifest.dump(changed)}))
    with open_bundle(path) as bundle:
        found = measure_bundle(bundle, threads=[1], plan=QUICK)
    assert list(found.of()) == ["onnx-fp32"]
    assert "it is for riscv64" in found.failed["onnx-int8"]
    assert "golden" in found.failed["wrong"]


@needs_onnx
def test_a_bundle_with_nothing_for_this_machine_is_an_error(tmp_path: Path) -> None:
    elsewhere = dataclasses.replace(models.variant("onnx-fp32"), targets=("riscv64",))
    with (
        open_bundle(models.tiny_bundle(tmp_path, variants=[elsewhere])) as bundle,
        pytest.raises(IncompatibleError, match=r"no variant .* runs here \(onnx-fp32: it is for riscv64"),
    ):
        measure_bundle(bundle)


@pytest.mark.slow
@needs_onnx
def test_the_command_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = models.tiny_bundle(tmp_path)
    assert main(["time", str(path), "--rounds", "2", "--block-ms", "1", "--threads", "1"]) == 0
    text = capsys.readouterr().out
    assert "ratio: to onnx-fp32" in text
    assert "onnxruntime" in text


def test_the_command_says_in_one_line_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = str(models.tiny_bundle(tmp_path))
    for wrong in ([str(tmp_path / "none.edge"), "--json"], [bundle, "--threads", "0"]):
        with pytest.raises(SystemExit) as exit_:
            main(["time", *wrong])
        assert exit_.value.code == 2
    assert main(["time", bundle, "--rounds", "0"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert len(captured.err.splitlines()) == 3


def a_copy(name: str) -> VariantSource:
    return dataclasses.replace(models.variant("onnx-fp32"), name=name, model=models.tiny_onnx_classifier(batch=1))


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
