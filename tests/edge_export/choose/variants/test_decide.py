"""The rule: what is written of measured files, and what is said of the others."""

from __future__ import annotations

import math
from dataclasses import replace

from edge_export.choose.variants import report
from edge_export.choose.variants.decide import Rule, decide, fastest
from edge_export.choose.variants.measured import Measured, MeasuredFile, Results

from edge_runtime.model.tuning.timing import Timing, this_machine

FLOAT = Measured(
    file=MeasuredFile(name="float", family="float", format="onnx", model=b"x" * 1000, how=""),
    db=math.inf,
    timing=Timing(
        name="float", engine="e", threads=1, p50_us=100, p95_us=110, min_us=90, cpu_us=100, ratio=1, ratio_low=1,
        ratio_high=1, rounds=9, calls=99,
    ),
)  # fmt: skip


def measured(
    name: str, ratio: float, *, db: float = 40, size: int = 300, family: str = "", accuracy: float | None = None
) -> Measured:
    assert FLOAT.timing is not None
    timing = replace(FLOAT.timing, name=name, ratio=ratio, ratio_low=ratio - 0.01, ratio_high=ratio + 0.01)
    file = MeasuredFile(name=name, family=family or name, format="onnx", model=b"x" * size, how="somehow")
    return Measured(file=file, db=db, accuracy=accuracy, changed=None if accuracy is None else 0.0, timing=timing)


def results(*files: Measured, accuracy: float | None = None) -> Results:
    given = replace(FLOAT, accuracy=accuracy, changed=None if accuracy is None else 0.0)
    return Results(
        float_file=given, files=files, noise=1.02, machine=this_machine(), calls=50,
        labelled=0 if accuracy is None else 50,
    )  # fmt: skip


def reasons(found: Results, rule: Rule | None = None) -> dict[str, str]:
    return {each.measured.file.name: each.reason for each in decide(found, rule or Rule())}


def test_a_faster_smaller_file_within_the_loss_is_written() -> None:
    assert reasons(results(measured("int8", 0.5))) == {"int8": ""}


def test_each_refusal_is_named() -> None:
    broken = replace(measured("broken", 1), timing=None, reason="onnxruntime refuses it")
    found = reasons(
        results(broken, measured("noisy", 0.5, db=24.9), measured("slow", 1.5), measured("same", 1.0, size=990))
    )
    assert found["broken"] == "does not run: onnxruntime refuses it"
    assert found["noisy"] == "24.9 dB of signal over noise (25 asked)"
    assert found["slow"] == "slower than float: 1.50 times its time (noise up to 1.02)"
    assert found["same"] == "gains nothing: 1.00 times the time of float, and about its bytes"


def test_labels_count_where_there_are_some_and_noise_does_not() -> None:
    found = results(measured("int8", 0.5, db=5, accuracy=0.897), measured("other", 0.5, accuracy=0.8), accuracy=0.9)
    assert reasons(found) == {"int8": "", "other": "loses 10.00 points of accuracy (0.5 allowed)"}


def test_a_family_writes_one_file_the_best_of_those_as_fast() -> None:
    found = results(
        measured("plain", 0.50, db=30, family="int8"),
        measured("rounded", 0.51, db=35, family="int8"),
        measured("best", 0.60, db=50, family="int8"),
    )
    assert reasons(found) == {"plain": "rounded answers better", "rounded": "", "best": "rounded is faster"}


def test_the_page_names_the_fastest_file_and_every_refusal() -> None:
    found = results(measured("int8", 0.5), measured("fp16", 1.0, size=500), measured("slow", 2))
    decisions = decide(found, Rule())
    best = fastest(decisions)
    assert best is not None
    assert best.measured.file.name == "int8"
    page = report.markdown(
        "net", found, decisions, {"int4-weights": "no product"}, Rule(), ["Data: two files."], {"int8": "net-int8.onnx"}
    )
    assert "Fastest: `net-int8.onnx`, 0.50 times the time and 30 % of the bytes" in page
    assert "| slow | 300 | 30 % | 40.0 | 100.0 | 2.00 | 1.99 to 2.01 | refused: slower than float" in page
    assert "- int4-weights: no product" in page
    assert "at least 25 dB on 50 calls" in page


def test_with_nothing_written_the_page_says_to_keep_the_float_file() -> None:
    found = results(measured("slow", 2))
    decisions = decide(found, Rule())
    assert fastest(decisions) is None
    assert "keep the float file" in report.markdown("net", found, decisions, {}, Rule(), [], {})


def test_the_terminal_table_lines_up() -> None:
    found = results(measured("int8", 0.5, accuracy=0.9), accuracy=0.9)
    lines = report.text(report.rows(found, decide(found, Rule()))).splitlines()
    assert (
        len({line.index("result") if "result" in line else line.index("written") for line in (lines[0], lines[2])}) == 1
    )
