"""An accelerator that has won on this machine answers unasked, and nothing that a file says is loaded."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base import hardware as devices
from edge_runtime.base.hardware import CACHE, EngineChoice, Evidence, Profile
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.model.engines.config import Isolate
from edge_runtime.model.engines.subprocess_engine import WorkerEngine
from edge_runtime.model.serving.choice import automatic, expected
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.failover import FallbackChain
from edge_runtime.model.serving.fallback_chain import ProvenVariant, start
from edge_runtime.model.serving.loading import Model
from edge_runtime.model.tuning import benchmark as tune
from edge_runtime.model.tuning import compile_cache
from edge_runtime.model.tuning.compile_cache import folder_for, kept
from edge_runtime.model.tuning.results import WORTH_AN_ACCELERATOR, Figure, Tuning, save_tuning
from edge_runtime.model.tuning.timing import TimingPlan
from tests import models

pytestmark = pytest.mark.skipif(
    not (models.usable("onnxruntime") and models.usable("litert")), reason="onnxruntime or LiteRT is not installed"
)

TWIN = EngineChoice(
    name="twin", engine="onnxruntime", providers={"CPUExecutionProvider": {"cache_dir": CACHE, "cached": "1"}},
    caching=("cached",), precisions=("fp32",),
)  # fmt: skip
"""The processor under another name, which a real onnxruntime runs in any process."""
PROFILE = Profile(
    family="x",
    model="a board",
    evidence=Evidence(tier="simulated", detail="a test"),
    choices=(
        TWIN,
        EngineChoice(name="npu", engine="litert", providers={"libnpu.so": {}}, compiled="a compiler"),
        EngineChoice(name="onnxruntime", engine="onnxruntime"),
    ),
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("bundle") / "watch.edge"
    return models.tiny_bundle(path, variants=("tflite-int8", "onnx-fp32", "onnx-int8")).read_bytes()


@pytest.fixture
def bundle(tmp_path: Path, made: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bundle]:
    monkeypatch.setattr(devices, "this_device", lambda: PROFILE)
    path = tmp_path / "watch.edge"
    path.write_bytes(made)
    with open_bundle(path) as opened:
        yield opened


def figure(variant: str, p50_us: float, accelerator: str = "", **more: Any) -> Figure:
    engine = "litert" if variant.startswith("tflite") else "onnxruntime"
    ratio = p50_us / 10.0
    return Figure(
        variant=variant, engine=engine, threads=1, p50_us=p50_us, p95_us=p50_us, cpu_us=p50_us, ratio=ratio,
        ratio_low=ratio, ratio_high=ratio, accelerator=accelerator, **more,
    )  # fmt: skip


def tuning(*figures: Figure, round_trip_us: float = 100.0) -> Tuning:
    return Tuning(
        model="tiny/1", machine="p", versions={}, measured="2026-11-21", figures=figures, round_trip_us=round_trip_us
    )


WON = tuning(figure("tflite-int8", 900.0), figure("onnx-fp32", 1000.0), figure("onnx-fp32", 50.0, "twin"))
"""The fastest variant of the processor is another than that of the accelerator."""


def config(bundle: Bundle, **more: Any) -> ModelConfig:
    return ModelConfig(bundle=bundle.path, unsigned="allow", **more)


Begin = Callable[..., tuple[Model, FallbackChain]]


@pytest.fixture
def begin(bundle: Bundle) -> Iterator[Begin]:
    """Start with what is remembered and a configuration, and close what was started."""
    open_now: list[tuple[Model, FallbackChain]] = []

    def begin(
        found: Tuning = WON, handed_over: Mapping[str, Any] | None = None, **more: Any
    ) -> tuple[Model, FallbackChain]:
        save_tuning(found, bundle, bundle.path.with_name("watch.edge.tuned.json"))
        chosen = config(bundle, **more)
        open_now.append(start(chosen, clock=SimulatedClock(), metrics=Metrics(), handed_over=handed_over))
        return open_now[-1]

    yield begin
    for model, up in open_now:
        up.close()
        model.close()


def names(up: FallbackChain) -> list[str]:
    return [backend.name for backend in up.backends]


# -- what answers ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_won_answers_first_and_the_processors_best_stands_in(begin: Begin) -> None:
    """In a process of its own, as it was measured; when that dies, the same windows are answered again.

    Broken once by taking the accelerator for the processor's variant: tflite-int8 was given to onnxruntime's provider.
    """
    model, up = begin()
    assert names(up) == ["onnx-fp32 on CPUExecutionProvider", "tflite-int8", "onnx-fp32", "onnx-int8"]
    assert (up.current, up.variant.name) == (0, "onnx-fp32")
    assert model.variant.name == "tflite-int8"
    loaded = up._states[0].loaded
    assert isinstance(loaded, ProvenVariant)
    assert isinstance(loaded.engine, WorkerEngine)
    before = up.predict(models.completed(5)).rows.copy()
    os.kill(loaded.engine.pid, 9)
    after = up.predict(models.completed(5)).rows
    assert (up.current, up.variant.name) == (1, "tflite-int8")
    assert abs(after - before).max() < 0.1


@pytest.mark.slow
def test_one_that_works_no_more_leaves_the_processor(begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = dataclasses.replace(TWIN, providers={"NoSuchExecutionProvider": {}})
    monkeypatch.setattr(devices, "this_device", lambda: dataclasses.replace(PROFILE, choices=(gone,)))
    _, up = begin()
    assert names(up)[0] == "onnx-fp32 on NoSuchExecutionProvider"
    assert (up.current, up.variant.name) == (1, "tflite-int8")
    assert "NoSuchExecutionProvider" in up.status()["failed"][names(up)[0]]


@pytest.mark.slow
def test_after_a_hang_the_processors_best_is_still_the_first_of_the_processor(begin: Begin) -> None:
    """Broken once by handing over the accelerator's variant."""
    _, before = begin(isolate="none")
    told = before.hand_over(7.0)
    assert told is not None
    assert told["first"] == "tflite-int8"
    _, up = begin(handed_over=told, isolate="none")
    assert names(up) == names(before)
    assert up.current == 1
    assert up.backends[0].apart, "what hung comes back in a process of its own"


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({"accelerators": {}}, "tflite-int8"),
        ({"accelerators": {"libmine.so": {"a": "b"}}}, "tflite-int8 on libmine.so"),
        ({"variant": "tflite-int8"}, "tflite-int8"),
        ({"variant": "onnx-fp32"}, "onnx-fp32 on CPUExecutionProvider"),
    ],
)
def test_what_the_operator_says_comes_before_what_was_measured(begin: Begin, more: Any, first: str) -> None:
    _, up = begin(**more)
    assert names(up)[0] == first


def test_without_failover_nothing_could_stand_in_so_there_is_no_accelerator(bundle: Bundle) -> None:
    with pytest.raises(ValueError, match="accelerators need failover"):
        config(bundle, accelerators={"libmine.so": {}}, failover="off")
    save_tuning(WON, bundle, bundle.path.with_name("watch.edge.tuned.json"))
    assert expected(config(bundle)) == {"CPUExecutionProvider": {}}
    assert expected(config(bundle, failover="off")) == {}
    assert expected(config(bundle, accelerators={})) == {}
    assert expected(config(bundle, accelerators={"libmine.so": {}})) == {"libmine.so": {}}
    assert expected(dataclasses.replace(config(bundle), bundle=bundle.path.with_name("none"))) == {}
    assert not folder_for(bundle.path).exists(), "looking makes nothing"


# -- whether it is worth it --------------------------------------------------------------------------------------------

times = st.floats(1, 1e6)


@given(times, times, st.floats(0, 1e6), st.sampled_from(["accelerators", "all", "none"]))
def test_it_is_worth_it_where_it_saves_half_of_the_time_with_the_way_there(
    here: float, there: float, way: float, isolate: Isolate
) -> None:
    (gain,) = tuning(figure("a", here), figure("b", there, "x"), round_trip_us=way).gains(isolate=isolate)
    here += way if isolate == "all" else 0.0
    there += way if isolate != "none" else 0.0
    assert gain.worth == (there <= here * WORTH_AN_ACCELERATOR)


@given(st.lists(st.builds(figure, st.sampled_from("ab"), times, st.sampled_from(["", "x", "y"])), min_size=1))
def test_every_accelerator_is_compared_with_the_best_of_the_processor(figures: list[Figure]) -> None:
    found = tuning(*figures)
    gains = found.gains()
    assert [gain.us for gain in gains] == sorted(one.p50_us + 100.0 for one in figures if one.accelerator)
    for gain in gains:
        assert gain.processor == (found.choose() if any(not one.accelerator for one in figures) else None)
        assert gain.worth or gain.processor is not None


def test_one_that_saves_too_little_is_not_used_and_no_device_is_asked(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "this_device", lambda: pytest.fail("the machine was looked at"))
    _, up = begin(tuning(figure("tflite-int8", 900.0), figure("onnx-fp32", 400.0, "twin")))
    assert names(up)[0] == "tflite-int8"


# -- what a file may say -----------------------------------------------------------------------------------------------


def test_only_a_name_is_taken_from_the_file(bundle: Bundle, tmp_path: Path) -> None:
    """Broken once by taking `Figure.providers`: a library of the file's choice was loaded."""
    theirs = {"evil.so": {"library": str(tmp_path / "evil.so")}, "CPUExecutionProvider": {"library": "/tmp/evil.so"}}
    found = tuning(figure("tflite-int8", 900.0), figure("onnx-fp32", 50.0, "twin", providers=theirs))
    won = automatic(bundle, found, config(bundle))
    assert won is not None
    assert won.providers == {"CPUExecutionProvider": won.providers["CPUExecutionProvider"]}
    assert "library" not in won.providers["CPUExecutionProvider"]


@pytest.mark.parametrize(
    "one",
    [
        figure("onnx-fp32", 50.0, "from elsewhere"),
        figure("onnx-fp32", 50.0, "onnxruntime"),
        figure("onnx-int8", 50.0, "twin"),
        figure("tflite-int8", 50.0, "npu"),
        figure("tflite-int8", 50.0, "twin"),
    ],
    ids=["unknown", "no accelerator", "another precision", "needs a compiler", "another engine"],
)
def test_a_name_that_the_machine_does_not_offer_is_refused(
    begin: Begin, caplog: pytest.LogCaptureFixture, one: Figure
) -> None:
    _, up = begin(tuning(figure("tflite-int8", 900.0), one))
    assert names(up)[0] == "tflite-int8"
    assert f"{one.accelerator} is not used: a board offers no accelerator of this name for {one.variant}" in caplog.text


# -- what is compiled --------------------------------------------------------------------------------------------------


def test_what_is_compiled_has_a_folder_for_each_variant_and_accelerator(bundle: Bundle, tmp_path: Path) -> None:
    """Broken once by one folder for all: TensorRT tells models apart by the names of their nodes."""
    other = dataclasses.replace(TWIN, name="../../up")
    folder = tmp_path / "compiled"
    places = {kept(folder, bundle, variant, one) for variant in ("a", "../b") for one in (TWIN, other)}
    assert len(places) == 4
    for place in places:
        assert place is not None
        assert place.is_dir()
        assert place.parent.parent == folder
    won = automatic(bundle, WON, config(bundle, compiled=folder))
    assert won is not None
    options = won.providers["CPUExecutionProvider"]
    assert options == {"cache_dir": str(kept(folder, bundle, "onnx-fp32", TWIN)), "cached": "1"}
    assert not folder_for(bundle.path).exists()


def test_a_umask_that_lets_the_group_in_is_no_obstacle(bundle: Bundle, tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        place = kept(tmp_path / "compiled", bundle, "a", TWIN)
    finally:
        os.umask(before)
    assert place is not None
    assert [one.stat().st_mode & 0o777 for one in (place, *place.parents[:2])] == [0o755] * 3


@pytest.mark.parametrize("level", [0, 1, 2, 3])
def test_a_folder_that_others_may_write_to_is_not_used(
    bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture, level: int
) -> None:
    """Nor one below such a folder. What is compiled is a program: whoever puts one there would run it here."""
    folder = tmp_path / "state" / "compiled"
    place = kept(folder, bundle, "onnx-fp32", TWIN)
    assert place is not None
    open_one = [place, *place.parents][level]
    open_one.chmod(0o757)
    assert kept(folder, bundle, "onnx-fp32", TWIN) is None
    assert f"{open_one} can be written to by others" in caplog.text
    won = automatic(bundle, WON, config(bundle, compiled=folder))
    assert won is not None
    assert won.providers == {"CPUExecutionProvider": {}}, "it runs, and keeps nothing"


def test_a_group_of_one_may_write(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "compiled").mkdir()
    (tmp_path / "compiled").chmod(0o775)
    monkeypatch.setattr(compile_cache, "_own_group", lambda uid, gid: False)
    assert kept(tmp_path / "compiled", bundle, "a", TWIN) is None
    monkeypatch.setattr(compile_cache, "_own_group", lambda uid, gid: True)
    assert kept(tmp_path / "compiled", bundle, "a", TWIN) is not None


def test_whose_group_has_one_member() -> None:
    here = os.geteuid()
    assert not compile_cache._own_group(2**31 - 2, 2**31 - 2)
    assert not compile_cache._own_group(here, 2**31 - 2)
    if here == 0:
        assert compile_cache._own_group(0, 0)


def test_a_folder_of_another_user_is_not_used(
    bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)  # what belongs to root is trusted by everybody
    assert kept(tmp_path / "compiled", bundle, "a", TWIN) is not None
    os.chown(tmp_path / "compiled", 4321, -1)
    assert kept(tmp_path / "compiled", bundle, "a", TWIN) is None
    assert "belongs to another user" in caplog.text


def test_a_disk_that_takes_nothing_costs_the_folder_and_nothing_else(
    bundle: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert kept(tmp_path / "file" / "compiled", bundle, "a", TWIN) is None
    assert "each start compiles it again" in caplog.text


# -- measured and used -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_tune_compiles_is_what_runs(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handed over in both places; what was compiled for nothing is gone."""
    monkeypatch.setattr(tune, "_plan", lambda *_: TimingPlan(rounds=3, block_s=0.001))
    bad = dataclasses.replace(TWIN, name="bad", providers={"NoSuchExecutionProvider": {"cache": CACHE}})
    profile = dataclasses.replace(PROFILE, choices=(TWIN, bad))
    handed: list[Mapping[str, Mapping[str, str]]] = []
    real = tune._prove

    def prove(opened: Bundle, candidate: Any, *more: Any) -> Any:
        handed.append(candidate.providers)
        return real(opened, candidate, *more)

    monkeypatch.setattr(tune, "_prove", prove)
    folder = tmp_path / "compiled"
    found = tune.tune(bundle, profile=profile, compiled=folder)
    (one,) = [figure for figure in found.figures if figure.accelerator]
    assert (one.variant, one.place) == ("onnx-fp32", "twin")
    assert one.providers == {"CPUExecutionProvider": {}}
    assert 1.0 < found.round_trip_us < 1e6
    won = automatic(bundle, WON, config(bundle, compiled=folder))
    assert won is not None
    assert won.providers in handed
    assert len(list(folder.glob("*/*"))) == 1


@pytest.mark.slow
def test_the_first_start_measures_the_processor_alone(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An accelerator compiles for minutes, and the sensors wait."""
    monkeypatch.setattr(tune, "_plan", lambda *_: TimingPlan(rounds=3, block_s=0.001))
    found = tune.tune_at_start(bundle, tmp_path / "tuned.json", max_threads=1, within_s=300.0)
    assert found is not None
    assert not found.gains()
    assert found.round_trip_us == 0.0


def test_a_configuration_file_says_it_in_three_ways(bundle: Bundle, tmp_path: Path) -> None:
    from edge_runtime.app.config import load_config  # noqa: PLC0415

    def read(lines: str) -> Any:
        file = tmp_path / "app.toml"
        file.write_text(
            f'[model]\nbundle = "watch.edge"\nunsigned = "allow"\n{lines}\n'
            '[[source]]\ntype = "stdin"\n[[sink]]\ntype = "stdout"\n'
        )
        return load_config(file).model.accelerators

    assert read("") is None
    assert read("accelerators = {}") == {}
    assert read('[model.accelerators.X]\na = "b"') == {"X": {"a": "b"}}
    with pytest.raises(ConfigError, match="failover"):
        read('failover = "off"\naccelerators = {X = {}}')
