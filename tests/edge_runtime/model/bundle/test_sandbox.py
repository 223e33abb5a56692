"""What kills a process kills a child, and the parent says so in one line."""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.base.system import subprocess_job
from edge_runtime.errors import BundleError, EngineError
from edge_runtime.manifest import Channel, File, InputContract, Manifest, OutputContract, Variant, dump
from edge_runtime.model import engines
from edge_runtime.model.bundle import archive, npy, sandbox
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.engines.base import EngineOptions
from tests import models

needs_onnx = pytest.mark.skipif(not engines.available("onnx"), reason="onnxruntime is not installed")
needs_litert = pytest.mark.skipif(not engines.find("litert").importable(), reason="LiteRT is not installed")


@pytest.fixture
def bundle(tmp_path: Path) -> Iterator[Bundle]:
    with open_bundle(models.tiny_bundle(tmp_path, variants=models.VARIANTS)) as opened:
        yield opened


def unchecked_bundle(path: Path, model: bytes, model_format: str, *, channels: int = 3, window: int = 16) -> Bundle:
    """A bundle around any bytes, with right digests and made-up golden vectors: what an attacker could sign."""

    def listed(data: bytes) -> tuple[int, str]:
        return len(data), hashlib.sha256(data).hexdigest()

    inputs = npy.dump(models.windows(2, channels, window))
    outputs = npy.dump(np.full((2, 2), 0.5, np.float32))
    size, sha256 = listed(model)
    variant = Variant(
        name="v", file=f"variants/v.{model_format}", format=model_format, precision="int8",  # type: ignore[arg-type]
        size=size, sha256=sha256, golden="golden/v.npy", tolerance=1e9,
    )  # fmt: skip
    files = {"golden/inputs.npy": inputs, "golden/v.npy": outputs}
    manifest = Manifest(
        schema_version=1,
        name="bad",
        version=1,
        input=InputContract(
            channels=tuple(Channel(name=f"c{i}", unit="1") for i in range(channels)),
            rate_hz=50,
            window=window,
            hop=window,
        ),
        output=OutputContract(labels=("a", "b")),
        variants=(variant,),
        golden_inputs="golden/inputs.npy",
        files=tuple(File(file=name, size=len(data), sha256=listed(data)[1]) for name, data in files.items()),
    )
    file = path / "bad.edge"
    file.write_bytes(archive.pack({"manifest.json": dump(manifest), variant.file: model, **files}))
    return open_bundle(file)


@pytest.mark.parametrize("name", models.VARIANTS)
def test_a_good_variant_is_ok_with_its_figures(bundle: Bundle, name: str) -> None:
    if not engines.available(bundle.variant(name).format):
        pytest.skip("no engine")
    report = sandbox.probe(bundle, name)
    report.require()
    assert report.ok
    assert report.outcome == "ok"
    assert report.reason == ""
    assert report.engine
    assert report.worst <= bundle.variant(name).tolerance
    assert 0 < report.load_s < report.total_s
    assert 0 < report.replay_s < report.total_s


@needs_litert
def test_a_real_model_that_kills_its_process_kills_only_the_child(shared: Path, tmp_path: Path) -> None:
    model = (shared / "models/hard-cases/keyword_scrambled_8bit.tflite").read_bytes()
    with unchecked_bundle(tmp_path, model, "tflite", channels=1, window=96) as bundle:
        report = sandbox.probe(bundle, "v")
        assert report.outcome == "died"
        assert "SIGABRT" in report.reason or "SIGSEGV" in report.reason
        assert "\n" not in report.reason
        with pytest.raises(EngineError, match="ended a child process"):
            load_engine(bundle, "v")


@needs_litert
@pytest.mark.parametrize("file", ["audio_preprocessor_int8.tflite", "person_detect.tflite"])
def test_a_real_model_that_the_library_refuses_is_refused_in_its_words(shared: Path, tmp_path: Path, file: str) -> None:
    model = (shared / "models/hard-cases" / file).read_bytes()
    with unchecked_bundle(tmp_path, model, "tflite") as bundle:
        report = sandbox.probe(bundle, "v")
        assert report.outcome == "refused"
        assert "SignalWindow" in report.reason or "quantized_dimension" in report.reason
        assert "\n" not in report.reason


@needs_onnx
def test_wrong_answers_are_told_from_refusals(bundle: Bundle, tmp_path: Path) -> None:
    with unchecked_bundle(tmp_path, models.tiny_onnx_classifier(), "onnx") as other:  # three labels instead of two
        report = sandbox.probe(other, "v")
        assert report.outcome == "wrong"
        with pytest.raises(BundleError, match="labels"):
            report.require()


class _Stub:
    """Stands in for the model library inside the child, through a module on the child's path."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        monkeypatch.syspath_prepend(str(folder))

    def write(self, body: str) -> None:
        package = self._folder / "onnxruntime"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").write_text(body)


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> _Stub:
    folder = tmp_path / "stub"
    folder.mkdir()
    return _Stub(folder, monkeypatch)


@needs_onnx
@pytest.mark.parametrize("name", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGILL", "SIGFPE", "SIGKILL"])
def test_the_signal_that_ended_the_child_is_named(bundle: Bundle, stub: _Stub, name: str) -> None:
    stub.write(
        f"import os, signal, sys\nprint('last words', file=sys.stderr, flush=True)\nos.kill(os.getpid(), signal.{name})"
    )
    report = sandbox.probe(bundle, "onnx-fp32")
    assert report.outcome == "died"
    assert name in report.reason
    assert "last words" in report.reason
    assert "onnx-fp32" in report.reason


@needs_onnx
def test_a_library_that_leaves_the_process_is_dead_not_ok(bundle: Bundle, stub: _Stub) -> None:
    stub.write('import os\nos.write(1, b\'{"outcome": "ok"}\')\nos._exit(3)')
    report = sandbox.probe(bundle, "onnx-fp32")
    assert report.outcome == "died"
    assert "exit code 3" in report.reason
    stub.write('import os\nos.write(1, b\'{"outcome": "ok"}\')\nos._exit(0)')
    report = sandbox.probe(bundle, "onnx-fp32")
    assert report.outcome == "died"


@needs_onnx
def test_a_child_that_hangs_is_killed_in_time(bundle: Bundle, stub: _Stub) -> None:
    stub.write("import time\ntime.sleep(60)")
    report = sandbox.probe(bundle, "onnx-fp32", timeout_s=1.0)
    assert report.outcome == "hung"
    assert "1 s" in report.reason
    assert report.total_s < 10


@needs_onnx
def test_the_childs_own_alarm_ends_it_when_the_parent_does_not(bundle: Bundle, stub: _Stub) -> None:
    stub.write("import os, signal\nsignal.raise_signal(signal.SIGALRM)")
    assert sandbox.probe(bundle, "onnx-fp32").outcome == "hung"


@needs_onnx
def test_a_child_that_asks_for_too_much_memory_fails_alone(bundle: Bundle, stub: _Stub) -> None:
    stub.write("x = bytearray(3 << 30)")
    report = sandbox.probe(bundle, "onnx-fp32")
    assert report.outcome in {"refused", "died"}
    assert not report.ok


@needs_onnx
def test_the_child_leaves_no_core_and_is_bounded(bundle: Bundle, stub: _Stub, tmp_path: Path) -> None:
    seen = tmp_path / "limits"
    stub.write(
        "import resource, signal, pathlib\n"
        "names = ('RLIMIT_CORE', 'RLIMIT_DATA', 'RLIMIT_CPU')\n"
        "limits = [resource.getrlimit(getattr(resource, name))[0] for name in names]\n"
        f"pathlib.Path({str(seen)!r}).write_text(repr((limits, signal.alarm(0))))\n"
        "raise ImportError('enough')"
    )
    report = sandbox.probe(bundle, "onnx-fp32", timeout_s=7)
    assert report.outcome == "refused"
    assert "enough" in report.reason
    limits, alarm = ast.literal_eval(seen.read_text())
    assert limits[0] == 0
    assert subprocess_job.memory_for(0) <= limits[1] < subprocess_job.memory_for(2**20)
    assert limits[2] == 8 * (os.cpu_count() or 1)
    assert 0 < alarm <= 8


@needs_onnx
def test_what_a_library_prints_does_not_get_into_the_answer(bundle: Bundle, stub: _Stub) -> None:
    stub.write("import os\nos.write(1, b'noise')\nprint('more')\nraise ImportError('the reason')")
    report = sandbox.probe(bundle, "onnx-fp32")
    assert report.outcome == "refused"
    assert "the reason" in report.reason


def test_the_parent_loads_no_model(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the parent loaded the model")

    monkeypatch.setattr(engines, "load", refuse)
    assert sandbox.probe(bundle, "onnx-fp32").ok


@pytest.mark.slow
def test_options_reach_the_child(bundle: Bundle) -> None:
    assert sandbox.probe(bundle, "onnx-fp32", EngineOptions(threads=2, spinning=True, max_batch=1)).ok
    report = sandbox.probe(bundle, "onnx-fp32", provider_options={"NoSuchProvider": {}})
    assert report.outcome == "refused"
    assert "NoSuchProvider" in report.reason


def test_a_child_that_cannot_be_started_is_an_engine_error(bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nonexistent/python")
    with pytest.raises(EngineError, match="cannot start a child process"):
        sandbox.probe(bundle, "onnx-fp32")


def test_no_child_is_left_behind(bundle: Bundle) -> None:
    def children() -> set[str]:
        return set(" ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split())

    before = children()
    sandbox.probe(bundle, "onnx-fp32")
    with pytest.raises(BundleError):
        sandbox.probe(bundle, "none")
    assert children() == before


def test_a_report_is_a_plain_value() -> None:
    report = sandbox.ProbeReport(variant="v", outcome="ok")
    assert dataclasses.asdict(report)["outcome"] == "ok"
