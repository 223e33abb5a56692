"""What ships and what does not, on figures made up so that each rule decides once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
from edge_export.choose.selection.limits import SLOWER, Choice, choose, compressed_size
from edge_export.graph.quantize.int8_type import targets_for
from edge_export.metrics import REFERENCE, Evaluation
from edge_export.package.pack import VariantSource
from edge_export.recipe.limits import Limits
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError
from edge_runtime.model.tuning.timing import Measurement, Timing, this_machine


class Bench:
    """Candidates with their figures; the reference is 1000 bytes, 100 us and 90 % right."""

    def __init__(self) -> None:
        self.candidates: list[VariantSource] = []
        self.timings: list[Timing] = []
        self.judged: list[Evaluation] = []
        self.add("onnx-fp32", size=1000, ratio=1, accuracy=0.9)

    def add(
        self,
        name: str,
        *,
        size: int = 500,
        ratio: float | None = 0.5,
        accuracy: float | None = 0.9,
        f1: float | None = None,
        threads: int = 1,
        targets: tuple[str, ...] = (),
    ) -> Bench:
        format_: Literal["onnx", "tflite"] = "tflite" if name.startswith("tflite") else "onnx"
        self.candidates.append(
            VariantSource(
                name=name,
                model=bytes(size),
                format=format_,
                precision="fp32" if "fp32" in name else "int8",
                targets=targets,
            )
        )
        if ratio is not None:
            self.timings.append(timing(name, ratio, threads))
        if accuracy is not None:
            self.judged.append(evaluation(name, accuracy, accuracy if f1 is None else f1))
        return self

    def choose(
        self,
        limits: Limits | None = None,
        *,
        target: str = "x86_64",
        timed_on: str = "",
        failed: dict[str, str] | None = None,
    ) -> Choice:
        """Choose for a target; the times are its own unless `timed_on` names another architecture."""
        machine = replace(this_machine(), architecture=timed_on or target)
        measured = Measurement(machine=machine, reference=REFERENCE, timings=tuple(self.timings), failed=failed or {})
        return choose(self.candidates, measured, self.judged, limits or Limits(), target)


def timing(name: str, ratio: float, threads: int = 1) -> Timing:
    us = 100 * ratio
    return Timing(
        name=name, engine="fake", threads=threads, p50_us=us, p95_us=us, min_us=us, cpu_us=us, ratio=ratio,
        ratio_low=ratio, ratio_high=ratio, rounds=15, calls=100,
    )  # fmt: skip


def evaluation(name: str, accuracy: float, f1: float) -> Evaluation:
    return Evaluation(
        name=name, windows=1000, groups=10, accuracy=accuracy, low=accuracy, high=accuracy, macro_f1=f1, f1_low=f1,
        f1_high=f1, drop=0.9 - accuracy, drop_low=0, drop_high=0, f1_drop=0.9 - f1, flips=0,
    )  # fmt: skip


def names(choice: Choice) -> list[str]:
    return [source.name for source in choice.shipped]


def test_what_is_better_in_everything_ships_alone_for_its_format() -> None:
    choice = Bench().add("onnx-int8").choose()
    assert names(choice) == ["onnx-int8"]
    assert choice.lost == {
        "onnx-fp32": "onnx-int8 is 2.00 times as fast and 500 bytes smaller, and worse in nothing",
    }


def test_the_fastest_comes_first_and_what_it_costs_in_accuracy_keeps_the_other() -> None:
    choice = Bench().add("onnx-int8", accuracy=0.897).add("tflite-int8", ratio=0.2, accuracy=0.897).choose()
    assert names(choice) == ["tflite-int8", "onnx-int8", "onnx-fp32"]
    assert choice.lost == {}


def test_a_slower_one_is_never_shipped_however_small() -> None:
    choice = Bench().add("onnx-int8", size=10, ratio=1.3).choose()
    assert names(choice) == ["onnx-fp32"]
    assert choice.lost["onnx-int8"] == "it takes 1.30 times as long as onnx-fp32 (1.30 to 1.30)"


def test_a_worse_one_is_never_shipped_however_fast() -> None:
    choice = Bench().add("onnx-int8", size=10, ratio=0.1, accuracy=0.89).choose()
    assert names(choice) == ["onnx-fp32"]
    assert choice.lost["onnx-int8"] == "it loses 1.00 points of accuracy against onnx-fp32; 0.50 are allowed"


def test_the_metric_decides_what_is_worse() -> None:
    bench = Bench().add("onnx-int8", accuracy=0.9, f1=0.85)
    assert names(bench.choose()) == ["onnx-int8"]
    choice = bench.choose(Limits(metric="macro_f1"))
    assert names(choice) == ["onnx-fp32"]
    assert "5.00 points of macro F1" in choice.lost["onnx-int8"]


def test_limits_hold_for_the_reference_too() -> None:
    bench = Bench().add("onnx-int8", accuracy=0.896)
    choice = bench.choose(Limits(max_bytes=600))
    assert choice.lost == {"onnx-fp32": "it has 1000 bytes; 600 are allowed"}
    choice = bench.choose(Limits(max_latency_ms=0.06))
    assert choice.lost == {"onnx-fp32": "it takes 0.1 ms per window; 0.06 are allowed"}


def test_when_nothing_is_within_the_limits_each_says_why() -> None:
    with pytest.raises(
        ConfigError, match=r"no candidate is within the limits: onnx-fp32: it has 1000 bytes.*; onnx-int8"
    ):
        Bench().add("onnx-int8").choose(Limits(max_bytes=5))


def test_a_target_takes_its_own_integers() -> None:
    bench = Bench().add("onnx-int8-u8s8", targets=targets_for("onnx", "u8s8"))
    bench.add("onnx-int8-s8s8", ratio=0.4, targets=targets_for("onnx", "s8s8")).add("tflite-int8", ratio=0.3)
    assert names(bench.choose(target="x86_64")) == ["tflite-int8", "onnx-int8-u8s8"]
    choice = bench.choose(target="arm64")
    assert names(choice) == ["tflite-int8", "onnx-int8-s8s8"]
    assert choice.lost["onnx-int8-u8s8"] == "it is for x86_64 and the target is aarch64"


def test_for_any_architecture_only_what_runs_wherever_it_does_pushes_a_file_out() -> None:
    bench = Bench().add("onnx-int8-u8s8", targets=targets_for("onnx", "u8s8"))
    bench.add("onnx-int8-s8s8", targets=targets_for("onnx", "s8s8"), size=400)
    bench.add("tflite-int8", size=300).add("tflite-int8-large", size=600)
    choice = bench.choose(target="any")
    assert names(choice) == ["tflite-int8", "onnx-int8-s8s8", "onnx-int8-u8s8", "onnx-fp32"]
    assert choice.lost["tflite-int8-large"].startswith("tflite-int8 is 300 bytes smaller")


def test_a_target_needs_no_engine_of_this_workstation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_runtime.model.engines.available", lambda _format: ())
    bench = Bench().add("tflite-int8", ratio=0.3, targets=("aarch64",))
    assert "tflite-int8" in names(bench.choose(target="aarch64"))
    assert "tflite-int8" not in names(bench.choose(target="x86_64"))


def test_what_was_not_measured_does_not_ship() -> None:
    bench = Bench().add("a", ratio=None).add("b", accuracy=None).add("c", ratio=None)
    choice = bench.choose(failed={"c": "it ended a child process of SIGABRT"})
    assert choice.lost == {
        "a": "it was not timed",
        "b": "its answers were not evaluated",
        "c": "it could not be timed: it ended a child process of SIGABRT",
    }


def test_the_reference_must_be_there_and_measured() -> None:
    bench = Bench()
    reference = bench.candidates.pop()
    with pytest.raises(ConfigError, match="one of them 'onnx-fp32'"):
        bench.add("a").choose()
    bench.candidates.append(reference)
    bench.timings = [timing(REFERENCE, 1, threads=4)]
    with pytest.raises(ConfigError, match="was not timed on one thread"):
        bench.choose()
    with pytest.raises(ConfigError, match="different names"):
        Bench().add("a").add("a").choose()


def test_no_format_pushes_the_other_out() -> None:
    assert names(Bench().add("tflite-int8", ratio=0.2).choose()) == ["tflite-int8", "onnx-fp32"]


def test_times_within_noise_are_the_same_time() -> None:
    choice = Bench().add("a", size=400, ratio=0.505).add("b", size=500, ratio=0.5).choose()
    assert names(choice) == ["a"]
    assert names(Bench().add("a", ratio=1.01).choose()) == ["a"]


def test_figures_tell_all_for_the_report() -> None:
    choice = Bench().add("onnx-int8", accuracy=0.5, ratio=0.1).add("untimed", ratio=None).choose()
    by_name = {row.name: row for row in choice.metrics}
    assert by_name["onnx-fp32"].shipped
    assert by_name["onnx-fp32"].reason == ""
    assert by_name["onnx-int8"].on_front
    assert not by_name["onnx-int8"].shipped
    assert by_name["onnx-int8"].reason == choice.lost["onnx-int8"]
    assert not by_name["untimed"].on_front
    assert by_name["onnx-fp32"].size == 1000
    assert by_name["onnx-fp32"].zlib_size == compressed_size(bytes(1000)) < 50


candidate = st.tuples(st.integers(1, 2000), st.floats(0.05, 3), st.floats(0.85, 0.95), st.booleans())


@given(st.lists(candidate, max_size=8))
def test_whatever_the_figures_nothing_worse_or_slower_ships_and_something_does(
    figures: list[tuple[int, float, float, bool]],
) -> None:
    bench = Bench()
    for i, (size, ratio, accuracy, tflite) in enumerate(figures):
        bench.add(f"{'tflite' if tflite else 'onnx'}-{i}", size=size, ratio=ratio, accuracy=accuracy)
    choice = bench.choose()
    assert choice.shipped
    times = {t.name: t.ratio for t in bench.timings}
    drops = {j.name: j.drop for j in bench.judged}
    for source in choice.shipped:
        assert times[source.name] <= SLOWER
        assert drops[source.name] <= 0.005
    assert [times[name] for name in names(choice)] == sorted(times[name] for name in names(choice))
    assert set(names(choice)) | set(choice.lost) == {source.name for source in bench.candidates}
    assert not set(names(choice)) & set(choice.lost)
    fastest = min((s for s in bench.candidates if drops[s.name] <= 0.005), key=lambda s: times[s.name])
    assert times[choice.shipped[0].name] <= times[fastest.name] * SLOWER


@pytest.mark.parametrize(
    "wrong", [{"max_accuracy_drop": -0.1}, {"max_accuracy_drop": 5}, {"max_bytes": 0}, {"max_latency_ms": 0}]
)
def test_limits_make_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Limits(**wrong)


def test_times_of_another_machine_refuse_nothing_and_push_nothing_out() -> None:
    bench = (
        Bench().add("onnx-int8-s8s8", ratio=1.7).add("tflite-int8", ratio=3.0).add("tflite-fp32", size=1100, ratio=0.9)
    )
    assert [source.name for source in bench.choose().shipped] == ["tflite-fp32", "onnx-fp32"]
    there = bench.choose(Limits(max_latency_ms=0.001), timed_on="aarch64")
    assert [source.name for source in there.shipped] == ["onnx-int8-s8s8", "tflite-int8", "onnx-fp32", "tflite-fp32"]
    worse = bench.add("onnx-int8-u8s8", accuracy=0.8).choose(timed_on="aarch64")
    assert list(worse.lost) == ["onnx-int8-u8s8"]
