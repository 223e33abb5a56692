"""Measured once on this machine, remembered, and used at load: and whatever happens to the file, something runs."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import logging
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime import manifest
from edge_runtime.base.hardware import EngineChoice, Evidence, Profile
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import BundleError, EngineError, IncompatibleError
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle import archive, npy
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.sandbox import ProbeReport
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.fallback_chain import start
from edge_runtime.model.serving.loading import load_model
from edge_runtime.model.tuning import benchmark as tune
from edge_runtime.model.tuning import results as tuning_file
from edge_runtime.model.tuning.results import Figure, Setting, Tuning
from edge_runtime.model.tuning.timing import Machine, TimedModel, Timing, TimingPlan, child
from edge_runtime.tools.cli import main
from tests import models

BOTH = ("onnx-fp32", "tflite-int8")
HERE = Machine(
    architecture="x86_64", processor="p", cores=2, memory_mb=1, flags=("avx2",), system="Linux 6", versions={"a": "1"}
)
needs_both = pytest.mark.skipif(
    not (models.usable("onnxruntime") and models.usable("litert")), reason="onnxruntime or LiteRT is not installed"
)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.tiny_bundle(tmp_path_factory.mktemp("bundle") / "watch.edge", variants=BOTH)


def figure(variant: str = "onnx-fp32", p50_us: float = 10.0, threads: int = 1, ratio: float | None = None) -> Figure:
    engine = "litert" if variant.startswith("tflite") else "onnxruntime"
    ratio = p50_us / 10.0 if ratio is None else ratio
    return Figure(
        variant=variant, engine=engine, threads=threads, p50_us=p50_us, p95_us=p50_us, cpu_us=p50_us * threads,
        ratio=ratio, ratio_low=ratio, ratio_high=ratio,
    )  # fmt: skip


def tuning(*figures: Figure, **more: Any) -> Tuning:
    return Tuning(
        model="tiny/1", machine="p", versions={"a": "1"}, measured="2026-11-21", figures=figures or (figure(),), **more
    )


def remembered(path: Path, bundle: Path, *figures: Figure, machine: Machine | None = None) -> Tuning:
    """What a file holds from an earlier time."""
    found = tuning(*figures)
    with open_bundle(bundle) as opened:
        tuning_file.save_tuning(found, opened, path, machine)
    return found


def load_tuning(path: Path, bundle: Path, machine: Machine | None = HERE) -> Tuning | None:
    with open_bundle(bundle) as opened:
        return tuning_file.load_tuning(opened, path, machine)


# -- choosing --------------------------------------------------------------------------------------------------------


def test_times_that_are_as_good_as_equal_leave_the_choice_to_the_exporter() -> None:
    assert tuning(figure("a", 10.4), figure("b", 10.0)).choose().variant == "a"
    assert tuning(figure("a", 10.6), figure("b", 10.0)).choose().variant == "b"


def test_more_threads_are_taken_where_they_are_allowed_and_worth_their_cores() -> None:
    found = tuning(figure("a", 10.0), figure("a", 7.0, threads=2), figure("a", 6.5, threads=4))
    assert found.setting(1).threads == 1
    assert found.setting(2).threads == 2
    assert found.setting(4).threads == 2
    assert tuning(figure("a", 7.0, threads=4)).setting(1) == Setting("a", "onnxruntime", 1)


@given(
    st.lists(
        st.builds(figure, st.sampled_from(["a", "b", "c"]), st.floats(1, 1000), st.integers(1, 4), st.floats(0.1, 10)),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 5),
)
def test_what_is_chosen_is_the_fastest_of_those_with_as_many_threads(figures: list[Figure], most: int) -> None:
    chosen = tuning(*figures).choose(most)
    assert chosen in figures
    group = [one for one in figures if one.threads == chosen.threads]
    assert chosen.ratio <= min(one.ratio for one in group) * tuning_file.EQUAL
    if any(one.threads <= most for one in figures):
        assert chosen.threads <= most


@given(
    st.lists(st.builds(figure, st.sampled_from(["a", "b", "c"]), st.floats(1, 1000), st.integers(1, 4))),
    st.integers(1, 5),
)
def test_the_order_of_variants_is_that_of_choosing_again_without_those_before(figures: list[Figure], most: int) -> None:
    """Broken once by sorting by the median alone: one thread and four were mixed, and equal ones lost their order."""
    left = [figure("b"), *figures]
    for one in tuning(*left).ranked(most):
        assert tuning(*left).choose(most) == one
        left = [other for other in left if other.variant != one.variant]
    assert not left


# -- measuring -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_both
def test_every_variant_is_timed_in_every_engine_and_every_refusal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken once by not probing: the wrong variant was timed, and here `refused` lacked it."""
    monkeypatch.setattr(tune, "_plan", lambda *_: TimingPlan(rounds=3, block_s=0.001))
    elsewhere = dataclasses.replace(models.variant("onnx-int8"), targets=("riscv64",))
    path = models.tiny_bundle(tmp_path, variants=[*BOTH, elsewhere, _copy("wrong")])
    spoil_golden(path, "wrong")
    with open_bundle(path) as opened:
        found = tune.tune(opened, threads=(2, 1))
    assert [(one.variant, one.engine, one.threads) for one in found.figures] == [
        ("onnx-fp32", "onnxruntime", 1),
        ("tflite-int8", "litert", 1),
        ("onnx-fp32", "onnxruntime", 2),
        ("tflite-int8", "litert", 2),
    ]
    assert all(one.p50_us > 0 and one.cpu_us > 0 for one in found.figures)
    assert found.figures[0].ratio == 1.0
    assert "riscv64" in found.refused["onnx-int8"]
    assert "golden" in found.refused["wrong on onnxruntime"]
    assert found.model == "tiny/1"


@pytest.mark.slow
@needs_both
def test_accelerators_of_the_board_are_tried_and_are_the_operators_to_choose(
    bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that works (the processor under another name), one that is not there, one that needs another compiler."""
    monkeypatch.setattr(tune, "_plan", lambda *_: TimingPlan(rounds=3, block_s=0.001))
    profile = Profile(
        family="x",
        model="a board",
        evidence=Evidence(tier="simulated", detail="a test"),
        choices=(
            EngineChoice(name="twin", engine="onnxruntime", providers={"CPUExecutionProvider": {}}),
            EngineChoice(name="absent", engine="onnxruntime", providers={"NoSuchExecutionProvider": {}}),
            EngineChoice(name="tpu", engine="litert", providers={"libtpu.so": {}}, compiled="a compiler"),
            EngineChoice(name="plain", engine="onnxruntime"),
        ),
    )
    with open_bundle(bundle) as opened:
        found = tune.tune(opened, profile=profile)
    assert [(one.variant, one.place) for one in found.figures] == [
        ("onnx-fp32", "onnxruntime"),
        ("tflite-int8", "litert"),
        ("onnx-fp32", "twin"),
    ]
    assert "NoSuchExecutionProvider" in found.refused["onnx-fp32 on absent"]
    assert "a compiler" in found.refused["tflite-int8 on tpu"]
    (gain,) = found.gains()
    fast = gain.figure
    assert fast.providers == {"CPUExecutionProvider": {}}
    slow = dataclasses.replace(found.figures[0], ratio=9.0, p50_us=900.0)
    assert dataclasses.replace(found, figures=(fast, slow)).choose() == slow
    assert dataclasses.replace(found, figures=(fast,)).choose() == fast


def test_nothing_that_runs_here_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    elsewhere = dataclasses.replace(models.variant("onnx-fp32"), targets=("riscv64",))
    with (
        open_bundle(models.tiny_bundle(tmp_path, variants=[elsewhere])) as opened,
        pytest.raises(IncompatibleError, match=r"runs here \(onnx-fp32: it is for riscv64"),
    ):
        tune.tune(opened)


@pytest.mark.parametrize(
    ("each_s", "within_s", "said"),
    [(10.0, 25.0, r"2 variants .* about \d+ s, and 25 s are allowed; .*: edge-runtime tune .*watch\.edge"),
     (10.0, 5.0, "5 s are not enough")],
)  # fmt: skip
@needs_both
def test_too_little_time_is_said_before_it_is_spent(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, each_s: float, within_s: float, said: str
) -> None:
    """Broken once by leaving the estimate out: everything was measured all the same."""
    clock = SimulatedClock()
    proven: list[str] = []

    def prove(_bundle: object, variant: str, **_more: object) -> ProbeReport:
        proven.append(variant)
        clock.advance(each_s)
        return ProbeReport(variant=variant, outcome="ok", total_s=each_s, replay_s=0.01)

    monkeypatch.setattr("edge_runtime.model.bundle.sandbox.probe", prove)
    with open_bundle(bundle) as opened, pytest.raises(EngineError, match=said):
        tune.tune(opened, within_s=within_s, clock=clock)
    assert len(proven) == 1


def test_less_time_means_fewer_rounds(bundle: Path) -> None:
    reports = [ProbeReport(variant="a", outcome="ok", total_s=1.0, replay_s=0.1)] * 2
    plans = [tune._plan(reports, 1, seconds) for seconds in (6.0, 12.0, 1000.0, math.inf)]
    rounds = [plan.rounds for plan in plans]
    assert rounds == sorted(rounds)
    assert rounds[0] < rounds[1] < rounds[2] == rounds[3] == TimingPlan().rounds


@pytest.mark.slow
@pytest.mark.parametrize("bad", ["onnx-fp32 on onnxruntime", "tflite-int8 on litert"])
@needs_both
def test_one_that_takes_the_others_down_is_refused_alone(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    def time_interleaved(
        some: Sequence[TimedModel], *, reference: str, threads: int, plan: TimingPlan, timeout_s: float
    ) -> tuple[Timing, ...]:
        assert plan.rounds > 0
        assert timeout_s > 0
        if bad in [one.name for one in some]:
            raise EngineError("died of SIGSEGV")
        assert reference == some[0].name
        return tuple(
            Timing(
                name=one.name, engine="e", threads=threads, p50_us=5.0, p95_us=6.0, min_us=4.0, cpu_us=5.0, ratio=1.0,
                ratio_low=1.0, ratio_high=1.0, rounds=1, calls=1,
            )
            for one in some
        )  # fmt: skip

    monkeypatch.setattr(child, "time_in_child", time_interleaved)
    with open_bundle(bundle) as opened:
        found = tune.tune(opened)
    assert list(found.refused) == [bad]
    assert "SIGSEGV" in found.refused[bad]
    assert len(found.figures) == 1


# -- remembering -----------------------------------------------------------------------------------------------------


def test_what_was_measured_is_recalled_as_it_was(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    found = remembered(path, bundle, figure(), figure("tflite-int8", 3.25), machine=HERE)
    assert load_tuning(path, bundle) == found
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    "other",
    [
        dataclasses.replace(HERE, processor="another board"),
        dataclasses.replace(HERE, cores=1),
        dataclasses.replace(HERE, flags=()),
        dataclasses.replace(HERE, versions={"a": "2"}),
    ],
)
def test_another_machine_or_version_finds_nothing_and_says_so(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, other: Machine
) -> None:
    path = tmp_path / "tuned.json"
    remembered(path, bundle, machine=HERE)
    assert load_tuning(path, bundle, other) is None
    assert "edge-runtime tune" in caplog.text
    remembered(path, bundle, figure(p50_us=5.0), machine=other)
    kept, new = load_tuning(path, bundle), load_tuning(path, bundle, other)
    assert kept is not None
    assert new is not None
    assert (kept.figures[0].p50_us, new.figures[0].p50_us) == (10.0, 5.0)


def test_another_bundle_finds_nothing_but_a_signature_changes_nothing(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    remembered(path, bundle, machine=HERE)
    other = models.tiny_bundle(tmp_path / "other.edge", variants=BOTH, version=2)
    assert load_tuning(path, other) is None
    with open_bundle(bundle) as a, open_bundle(other) as b:
        assert tuning_file.key_of(a, HERE) != tuning_file.key_of(b, HERE)
        assert tuning_file.key_of(a, dataclasses.replace(HERE, memory_mb=9, system="Linux 7")) == tuning_file.key_of(
            a, HERE
        )


DAMAGES = {
    "empty": b"",
    "torn": b'{"version": 1, "records": {"',
    "binary": b"\xff\x00\xfe",
    "another kind": b'["a list"]',
    "a later version": b'{"version": 2, "records": {}}',
    "deep": b"[" * 100_000,
    "huge": b" " * 300_000 + b"{}",
}


@pytest.mark.parametrize("data", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_ignored_with_a_line_and_written_anew(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, data: bytes
) -> None:
    path = tmp_path / "tuned.json"
    path.write_bytes(data)
    assert load_tuning(path, bundle) is None
    assert caplog.text.count("damaged and ignored") == 1
    remembered(path, bundle, machine=HERE)
    assert load_tuning(path, bundle) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"figures": []},
        {"figures": "none"},
        {"surprise": 1},
        {"figures": [dataclasses.asdict(figure()) | {"p50_us": -1}]},
        {"figures": [dataclasses.asdict(figure()) | {"p50_us": math.nan}]},
        {"figures": [dataclasses.asdict(figure()) | {"threads": 0}]},
        {"figures": [dataclasses.asdict(figure()) | {"variant": "from elsewhere"}]},
        {"figures": [dataclasses.asdict(figure()) | {"engine": "null"}]},
        {"figures": [dataclasses.asdict(figure()) | {"engine": "litert"}]},
        {"figures": [dataclasses.asdict(figure()) | {"cpu_us": -1}]},
        {"round_trip_us": -1},
    ],
)
def test_a_record_that_makes_no_sense_is_ignored_with_a_line(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, Any]
) -> None:
    path = tmp_path / "tuned.json"
    remembered(path, bundle, machine=HERE)
    document = json.loads(path.read_text())
    for record in document["records"].values():
        record.update(change)
    path.write_text(json.dumps(document))
    assert load_tuning(path, bundle) is None
    assert "damaged and ignored" in caplog.text


def test_a_folder_in_its_place_is_ignored_with_a_line(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert load_tuning(tmp_path, bundle) is None
    assert "damaged and ignored" in caplog.text


def test_a_write_that_fails_leaves_what_was_there(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken once by writing in place: the old figures were gone."""
    path = tmp_path / "tuned.json"
    before = remembered(path, bundle, machine=HERE)

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("edge_runtime.model.tuning.results.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        remembered(path, bundle, figure(p50_us=1.0), machine=HERE)
    assert load_tuning(path, bundle) == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_remembers_so_many_and_drops_the_oldest(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    machines = [dataclasses.replace(HERE, processor=f"board {i}") for i in range(20)]
    for machine in machines:
        remembered(path, bundle, machine=machine)
    assert load_tuning(path, bundle, machines[0]) is None
    assert load_tuning(path, bundle, machines[-1]) is not None
    assert len(json.loads(path.read_text())["records"]) == 16


def test_forgetting_strikes_out_this_machine_alone(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "tuned.json"
    other = dataclasses.replace(HERE, processor="another")
    remembered(path, bundle, machine=HERE)
    remembered(path, bundle, machine=other)
    with open_bundle(bundle) as opened:
        assert tuning_file.delete_tuning(opened, path, HERE)
        assert not tuning_file.delete_tuning(opened, path, HERE)
        assert tuning_file.load_tuning(opened, path, other) is not None
        assert tuning_file.delete_tuning(opened, path, other)
        assert not path.exists()
        assert not tuning_file.delete_tuning(opened, path, other)
        path.write_bytes(b"{")
        assert tuning_file.delete_tuning(opened, path, HERE)
        assert not path.exists()


# -- at load ---------------------------------------------------------------------------------------------------------


def config(bundle: Path, path: Path, **more: Any) -> ModelConfig:
    return ModelConfig(bundle=bundle, unsigned="allow", tuned=path, **more)


@pytest.mark.slow
@needs_both
def test_what_is_remembered_is_what_runs_unless_a_variant_is_named(bundle: Path, tmp_path: Path) -> None:
    """Broken once by not asking in `load_model`: the exporter's first variant ran."""
    path = tmp_path / "tuned.json"
    remembered(path, bundle, figure("onnx-fp32", 10.0), figure("tflite-int8", 3.0))
    model = load_model(config(bundle, path))
    assert (model.variant.name, model.engine.name.split()[0]) == ("tflite-int8", "LiteRT")
    model.close()
    named = load_model(config(bundle, path, variant="onnx-fp32"))
    assert named.variant.name == "onnx-fp32"
    named.close()


@pytest.mark.slow
@needs_both
def test_a_choice_that_runs_no_more_is_said_and_the_next_best_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without anything that stands in, too. Broken once by going back to the bundle's order: onnx-fp32 ran."""
    bundle = models.tiny_bundle(tmp_path / "w.edge", variants=[models.variant("onnx-fp32"), _copy("b"), _copy("c")])
    spoil_golden(bundle, "c")
    path = tmp_path / "tuned.json"
    remembered(path, bundle, figure("onnx-fp32", 10.0), figure("b", 5.0), figure("c", 2.0))
    model = load_model(config(bundle, path))
    assert model.variant.name == "b"
    model.close()
    assert "model: variant failed to start: name=c next=b" in caplog.text
    with pytest.raises(BundleError, match="golden"):
        load_model(config(bundle, path, variant="c"))


@needs_both
def test_a_record_that_names_an_engine_that_is_not_there_is_none(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken once by believing it: nothing could stand in for what failed, since every backend wanted that engine."""
    path = tmp_path / "tuned.json"
    remembered(path, bundle, dataclasses.replace(figure("tflite-int8"), engine="abacus"))
    model = load_model(config(bundle, path))
    assert model.variant.name == "onnx-fp32"
    assert model.tuning is None
    model.close()
    assert "damaged and ignored" in caplog.text


@needs_both
def test_the_file_is_read_once_for_a_start(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "tuned.json"
    remembered(path, bundle, figure("onnx-fp32", 10.0), figure("tflite-int8", 3.0))
    real = tuning_file.load_tuning
    read: list[Path] = []

    def counted(opened: Any, where: Path, machine: Machine | None = None) -> Tuning | None:
        read.append(where)
        return real(opened, where, machine)

    monkeypatch.setattr(tuning_file, "load_tuning", counted)
    model, fallback_chain = start(config(bundle, path), clock=SimulatedClock(), metrics=Metrics())
    assert [backend.name for backend in fallback_chain.backends] == ["tflite-int8", "onnx-fp32"]
    fallback_chain.close()
    model.close()
    assert read == [path]


@pytest.mark.slow
@needs_both
def test_the_first_start_measures_where_it_may_and_the_second_recalls(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(tune, "_plan", lambda *_: TimingPlan(rounds=3, block_s=0.001))
    path = tmp_path / "tuned.json"
    first = load_model(config(bundle, path, tune_at_start_s=300.0))
    first.close()
    assert path.exists()
    assert "tuning: started: bundle=watch.edge within_s=300" in caplog.text
    monkeypatch.setattr(tune, "tune", lambda *_args, **_more: pytest.fail("measured twice"))
    second = load_model(config(bundle, path, tune_at_start_s=300.0))
    assert second.variant == first.variant
    second.close()


@needs_both
def test_checking_a_configuration_measures_and_writes_nothing(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "app.toml").write_text(
        f'[model]\nbundle = "{bundle}"\nunsigned = "allow"\ntuned = "tuned.json"\ntune_at_start_s = 60.0\n'
        '[[source]]\ntype = "stdin"\n[[sink]]\ntype = "stdout"\n'
    )
    monkeypatch.setattr(tune, "tune", lambda *_args, **_more: pytest.fail("it measured"))
    assert main(["run", "--check", str(tmp_path / "app.toml")]) == 0
    assert "fine" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["app.toml"]


@needs_both
def test_a_first_start_without_the_time_runs_all_the_same(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "tuned.json"
    model = load_model(config(bundle, path, tune_at_start_s=0.2))
    assert model.variant.name == "onnx-fp32"
    model.close()
    assert "tuning: not measured, so the bundle's own order counts" in caplog.text
    assert not path.exists()


@needs_both
def test_a_read_only_disk_is_said_and_what_was_measured_counts_for_this_start(
    bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = tuning(figure("onnx-fp32", 10.0), figure("tflite-int8", 3.0), refused={"x on y": "it is slow"})
    monkeypatch.setattr(tune, "tune", lambda *_args, **_more: found)
    read_only(monkeypatch)
    model = load_model(config(bundle, tmp_path / "tuned.json", tune_at_start_s=10.0))
    assert model.variant.name == "tflite-int8"
    model.close()
    assert "tuning: figures not saved" in caplog.text
    assert "Read-only file system" in caplog.text
    assert "tuning: refused: backend=x on y: it is slow" in caplog.text


def test_a_bundle_that_changed_under_our_hands_does_not_start(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def changed(*_args: object, **_more: object) -> Tuning:
        raise BundleError("changed on disk")

    monkeypatch.setattr(tune, "tune", changed)
    with pytest.raises(BundleError, match="changed on disk"):
        load_model(config(bundle, tmp_path / "tuned.json", tune_at_start_s=10.0))


def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a mount with ``ro`` answers; a test that runs as root could write to anything else."""

    def refuse(*_args: object, **_more: object) -> tuple[int, str]:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)


def _copy(name: str) -> Any:
    return dataclasses.replace(models.variant("onnx-fp32"), name=name, model=models.tiny_onnx_classifier(batch=1))


def spoil_golden(path: Path, name: str) -> None:
    """Let a variant's golden answers be those of other windows; sizes and digests are right."""
    with open_bundle(path) as bundle:
        names = [v.file for v in bundle.manifest.variants] + [f.file for f in bundle.manifest.files]
        contents = {name: bundle.file(name) for name in names}
        golden = bundle.variant(name).golden
        contents[golden] = npy.dump(npy.parse(contents[golden])[::-1].copy())
        files = tuple(
            manifest.File(file=f.file, size=f.size, sha256=hashlib.sha256(contents[f.file]).hexdigest())
            for f in bundle.manifest.files
        )
        changed = dataclasses.replace(bundle.manifest, files=files)
    path.write_bytes(archive.pack({**contents, "manifest.json": manifest.dump(changed)}))
