"""The fallback chain of real bundles: its order, its proofs, and real engines that take over from each other."""

from __future__ import annotations

import math
import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from edge_export.package.pack import VariantSource

from edge_runtime.base.system import subprocess_job
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import BundleError, ConfigError, EngineError
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle import sandbox
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.engines.providers import Placement
from edge_runtime.model.engines.subprocess_engine import WorkerEngine
from edge_runtime.model.serving import fallback_chain as backends
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.failover import FallbackChain
from edge_runtime.model.serving.fallback_chain import ProvenVariant, backends_of, start
from edge_runtime.model.serving.loading import Model
from edge_runtime.model.tuning.results import Figure, Tuning, save_tuning
from edge_runtime.tools.cli import main
from tests.models import completed, tiny_bundle, usable, variant

pytestmark = pytest.mark.skipif(not usable("litert"), reason="LiteRT is not installed")

VARIANTS = ("tflite-int8", "onnx-fp32", "onnx-int8")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "watch.edge", variants=VARIANTS)


Start = Callable[..., tuple[Model, FallbackChain]]


@pytest.fixture
def begin(bundle: Path) -> Iterator[Start]:
    """Start with a configuration, and close what was started."""
    made: list[tuple[Model, FallbackChain]] = []

    def begin(handed_over: Mapping[str, Any] | None = None, **more: Any) -> tuple[Model, FallbackChain]:
        config = replace(ModelConfig(bundle=bundle, unsigned="allow"), **more)
        made.append(start(config, clock=SimulatedClock(), metrics=Metrics(), handed_over=handed_over))
        return made[-1]

    yield begin
    for model, up in made:
        up.close()
        model.close()


def names(up: FallbackChain) -> list[str]:
    return [backend.name for backend in up.backends]


def loaded(up: FallbackChain, position: int) -> ProvenVariant:
    place = up._states[position].loaded
    assert isinstance(place, ProvenVariant)
    return place


@pytest.mark.slow
def test_an_engine_that_fails_hands_its_windows_to_the_other_one(begin: Start) -> None:
    """From LiteRT to ONNX Runtime, with real models; the same windows, and answers as near as int8 is to floats."""
    _, up = begin()
    assert names(up)[0] == "tflite-int8"
    before = up.predict(completed(5)).rows.copy()
    assert up.variant.name == "tflite-int8"
    loaded(up, 0).engine.close()  # every call raises from now on
    after = up.predict(completed(5)).rows.copy()
    assert up.variant.format == "onnx"
    assert up.status()["failed"] == {"tflite-int8": "raised: this engine is closed; load the model again"}
    assert np.abs(after - before).max() < 0.1
    assert (after.argmax(axis=1) == before.argmax(axis=1)).mean() >= 0.8


@pytest.mark.slow
def test_a_rung_apart_is_replaced_when_its_process_dies(begin: Start) -> None:
    _, up = begin(isolate="all")
    engine = loaded(up, 0).engine
    assert isinstance(engine, WorkerEngine)
    assert "process of its own" in engine.name
    before = up.predict(completed(5)).rows.copy()
    assert up.hand_over(10.0) is None, "a worker has a deadline of its own"
    os.kill(engine.pid, signal.SIGKILL)
    after = up.predict(completed(5)).rows.copy()
    assert up.current == 1
    assert up.status()["failed"]["tflite-int8"].startswith("died: ")
    assert np.abs(after - before).max() < 0.1


def test_other_answers_than_the_golden_ones_are_noticed(begin: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever vector it is, within as many checks as it takes to replay all of them.

    Mutation that this finds: `ProvenVariant.check` that always replays the same vectors, or none.
    """
    monkeypatch.setattr(backends, "_CHECKED", 1)
    _, up = begin()
    proven = loaded(up, 0)
    n = len(proven._expected)
    for _ in range(2 * n):
        proven.check()
    proven._expected = proven._expected.copy()
    proven._expected[-1] += 0.5
    for _ in range(n - 1):
        proven.check()
    with pytest.raises(BundleError, match="does not reproduce"):
        proven.check()
    for _ in range(n):
        up.check()
    assert up.current == 1
    assert up.status()["failed"]["tflite-int8"].startswith("wrong: ")


def test_the_order_is_first_then_what_costs_no_more_then_the_rest_by_cost(bundle: Path) -> None:
    with open_bundle(bundle) as opened:
        sizes = {one.name: one.size for one in opened.manifest.variants}
        config = ModelConfig(bundle=bundle, unsigned="allow")
        first = opened.variant("onnx-int8")
        found = backends_of(opened, first, config, {})
        assert found[0].name == "onnx-int8"
        assert {one.name for one in found} == set(VARIANTS)
        costs = [max(one.cost, found[0].cost) for one in found]
        assert costs == sorted(costs)
        assert [one.cost for one in found] == [sizes[one.name] for one in found]
        chosen = backends_of(opened, first, replace(config, fallbacks=("onnx-fp32", "onnx-int8")), {})
        assert [one.name for one in chosen] == ["onnx-int8", "onnx-fp32"]
        with pytest.raises(ConfigError, match="no variant 'tiny'"):
            backends_of(opened, first, replace(config, fallbacks=("tiny",)), {})


def figure(variant: str, p50_us: float, threads: int = 1, cpu_us: float | None = None, **more: Any) -> Figure:
    engine = "litert" if variant.startswith("tflite") else "onnxruntime"
    ratio = p50_us / 10.0
    return Figure(
        variant=variant, engine=engine, threads=threads, p50_us=p50_us, p95_us=p50_us, cpu_us=cpu_us or p50_us,
        ratio=ratio, ratio_low=ratio, ratio_high=ratio, **more,
    )  # fmt: skip


def measured(*figures: Figure, **more: Any) -> Tuning:
    return Tuning(model="tiny/1", machine="p", versions={}, measured="2026-11-21", figures=figures, **more)


def test_the_order_and_the_costs_are_this_machines_own_where_it_has_measured(bundle: Path) -> None:
    """Broken twice: by ordering by cost, and by leaving out what was refused here."""
    found = measured(
        figure("tflite-int8", 9.0), figure("onnx-int8", 20.0, cpu_us=30.0), figure("onnx-int8", 15.0, threads=2)
    )
    config = ModelConfig(bundle=bundle, unsigned="allow")
    with open_bundle(bundle) as opened:
        up = backends_of(opened, opened.variant("tflite-int8"), config, {}, found)
        assert [one.name for one in up] == ["tflite-int8", "onnx-int8", "onnx-fp32"], "what was refused is the last"
        assert [one.cost for one in up] == [9.0, 30.0, math.inf]
        assert [(one.engine, one.threads) for one in up] == [("litert", 1), ("onnxruntime", 1), ("", 0)]
        second = replace(config, threads=4)
        assert backends_of(opened, opened.variant("tflite-int8"), second, {}, found)[1].threads == 2
        asked = replace(config, fallbacks=("onnx-fp32", "onnx-int8"))
        up = backends_of(opened, opened.variant("tflite-int8"), asked, {}, found)
        assert [one.name for one in up] == ["tflite-int8", "onnx-fp32", "onnx-int8"], "the operator's order"
        hot = measured(figure("onnx-fp32", 30.0, cpu_us=25.0), figure("onnx-int8", 20.0, cpu_us=300.0))
        up = backends_of(opened, opened.variant("tflite-int8"), config, {}, hot)
        assert [one.name for one in up] == ["tflite-int8", "onnx-int8", "onnx-fp32"], "by time, whatever it costs"
        slow = backends_of(opened, opened.variant("onnx-fp32"), config, {}, found)
        assert [one.name for one in slow] == ["onnx-fp32", "tflite-int8", "onnx-int8"]


@pytest.mark.slow
def test_the_governor_steps_down_to_what_is_lighter_on_this_machine(begin: Start, tmp_path: Path) -> None:
    """By size the order of these two is the other way round. Broken once by costs of the manifest."""
    path = tmp_path / "tuned.json"
    figures = (figure("onnx-fp32", 10.0, cpu_us=90.0), figure("onnx-int8", 20.0, cpu_us=20.0))
    with open_bundle(begin()[0].bundle.path) as opened:
        save_tuning(measured(*figures), opened, path)
    _, up = begin(tuned=path)
    assert names(up) == ["onnx-fp32", "onnx-int8", "tflite-int8"]
    assert up.step_down("hot")
    assert up.backends[up.limit].name == "onnx-int8"
    assert not up.step_down("hot"), "nothing is known to be lighter"


def test_a_rung_is_loaded_as_it_was_measured(begin: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tuned.json"
    with open_bundle(begin()[0].bundle.path) as opened:
        save_tuning(measured(figure("tflite-int8", 5.0), figure("onnx-int8", 20.0, threads=2)), opened, path)
    _, up = begin(tuned=path, threads=3)
    asked: list[tuple[Any, ...]] = []

    def tried(_bundle: object, name: str, options: EngineOptions, *, engine: str, **_: object) -> Any:
        asked.append((name, engine, options.threads))
        return SimpleNamespace(require=lambda: None)

    monkeypatch.setattr(backends, "probe", tried)
    for backend in up.backends:
        up._load(backend).close()
    assert asked == [("tflite-int8", "litert", 1), ("onnx-int8", "onnxruntime", 2), ("onnx-fp32", "onnxruntime", 3)]


@pytest.mark.slow
def test_memory_is_bounded_on_the_processor_alone(
    begin: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A child that tries a backend on an accelerator may map what it likes: CUDA maps more than the bound.

    Broken once by bounding every child alike. The stub stands in for onnxruntime and says what it was given.
    """
    _, up = begin(fallbacks=("onnx-fp32",))
    plain = next(backend for backend in up.backends if backend.name == "onnx-fp32")
    package = tmp_path / "onnxruntime"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import resource\nraise ImportError(f'bound {resource.getrlimit(resource.RLIMIT_DATA)[0]}.')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(EngineError, match=r"bound \d+") as caught:
        up._load(plain)
    assert 0 < int(str(caught.value).partition("bound ")[2].split(".")[0]) <= subprocess_job.MEMORY_BYTES
    free = resource.getrlimit(resource.RLIMIT_DATA)[0]
    with pytest.raises(EngineError, match=f"bound {free}"):
        up._load(replace(plain, accelerators={"CUDAExecutionProvider": {}}))


def test_accelerators_come_first_and_in_a_process_of_their_own(bundle: Path) -> None:
    config = ModelConfig(bundle=bundle, unsigned="allow", accelerators={"libnpu.so": {"cache": "x"}})
    with open_bundle(bundle) as opened:
        first, second, *_ = backends_of(opened, opened.variant("tflite-int8"), config, {})
        assert (first.name, first.apart) == ("tflite-int8 on libnpu.so", True)
        assert first.accelerators == {"libnpu.so": {"cache": "x"}}
        assert (second.name, second.apart) == ("tflite-int8", False)
        (first, *_) = backends_of(opened, opened.variant("tflite-int8"), replace(config, isolate="none"), {})
        assert not first.apart
        assert all(backend.apart for backend in backends_of(opened, first.variant, replace(config, isolate="all"), {}))


def test_an_accelerator_that_is_not_there_leaves_the_cpu(begin: Start) -> None:
    _, up = begin(accelerators={"libno-such-delegate.so": {}})
    assert names(up)[:2] == ["tflite-int8 on libno-such-delegate.so", "tflite-int8"]
    assert up.current == 1
    assert "cannot load a delegate" in up.status()["failed"]["tflite-int8 on libno-such-delegate.so"]
    up.predict(completed(2))


@pytest.mark.slow
def test_a_variant_that_does_not_start_is_replaced_by_the_next(
    begin: Start,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its golden vectors are somebody else's; nothing of it is used. Asked for by name, it is the same.

    Mutation that this finds: `start` without the `failed` that lets `load_model` go on.
    """
    from edge_export.package import pack  # noqa: PLC0415 - patched below

    real = pack.golden_outputs

    def golden(source: VariantSource, *rest: Any) -> pack.Floats:
        answer = real(source, *rest)
        return answer[:, ::-1].copy() if source.name == "tflite-int8" else answer

    monkeypatch.setattr("edge_export.package.pack.golden_outputs", golden)
    drifted = tiny_bundle(tmp_path / "drifted.edge", variants=[variant(name) for name in VARIANTS])
    for how in ("auto", "tflite-int8"):
        caplog.clear()
        model, up = begin(bundle=drifted, variant=how)
        assert model.variant.name == up.variant.name != "tflite-int8"
        assert names(up)[0] == "tflite-int8"
        assert up.current > 0
        assert up.status()["failed"]["tflite-int8"].startswith("wrong: ")
        assert "variant failed to start: name=tflite-int8 next=" in caplog.text
    app = tmp_path / "app.toml"
    app.write_text(
        '[model]\nbundle = "drifted.edge"\nunsigned = "allow"\n[[source]]\ntype = "stdin"\n[[sink]]\ntype = "stdout"\n'
    )
    assert main(["run", "--check", str(app)]) == 1, "it runs, and is not fine"
    assert "tflite-int8 does not work here (wrong: " in capsys.readouterr().out
    _, up = begin(bundle=drifted, fallbacks=("onnx-int8",))
    assert names(up) == ["tflite-int8", "onnx-int8"]
    assert up.variant.name == "onnx-int8"


def test_if_nothing_starts_the_last_reason_is_given(begin: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> sandbox.ProbeReport:
        return sandbox.ProbeReport(variant="x", outcome="refused", reason="the board is on fire")

    monkeypatch.setattr("edge_runtime.model.serving.loading.probe", refuse)
    with pytest.raises(EngineError, match="the board is on fire"):
        begin()


@pytest.mark.slow
def test_what_hung_in_the_process_before_comes_back_in_one_of_its_own(begin: Start) -> None:
    """Mutation that this finds: `backends_of` without the backends that hung."""
    _, before = begin()
    before.predict(completed(1))
    told = before.hand_over(7.25)
    assert told == {"first": "tflite-int8", "failed": {"tflite-int8": "hung: no answer within 7.2 s"}}
    model, up = begin(handed_over=told)
    assert model.variant.name == up.variant.name != "tflite-int8"
    assert names(up) == names(before)
    assert up.backends[0].apart
    assert not up.backends[1].apart
    assert up.status()["failed"] == told["failed"]
    back = up._load(up.backends[0])
    assert isinstance(back, ProvenVariant)
    assert isinstance(back.engine, WorkerEngine)
    back.close()


def test_how_much_of_the_model_an_accelerator_took_is_a_metric(begin: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation that this finds: not looking where the nodes went."""
    real = load_engine

    def load(*arguments: Any, provider_options: Any = None, **named: Any) -> Any:
        engine = real(*arguments, **named)
        if provider_options:
            engine.placement = Placement(nodes={"VendorExecutionProvider": 5, "CPUExecutionProvider": 2})  # type: ignore[attr-defined]
        return engine

    monkeypatch.setattr(backends, "load_engine", load)
    monkeypatch.setattr(backends, "probe", lambda *_, **__: SimpleNamespace(require=lambda: None))
    _, up = begin(accelerators={"VendorExecutionProvider": {}}, isolate="none")
    assert up.backend is not None
    assert up.backend.accelerators
    gauges = up._metrics.gauges
    assert (gauges["model_nodes_accelerated"], gauges["model_nodes_on_cpu"]) == (5, 2)
