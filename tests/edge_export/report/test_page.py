"""The report: shows what is there, invents nothing, runs nothing, and says the same for the same figures."""

from __future__ import annotations

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from edge_export.cli import main
from edge_export.cli.build import headline
from edge_export.report import page, write_report

from edge_runtime.errors import ConfigError
from tests.edge_export.report import figures
from tests.edge_export.report.reader import Reader


def test_every_section_has_its_figures() -> None:
    seen = Reader(page(figures.full()))
    assert seen.headings == [
        "The data",
        "slow",
        "fast",
        "Who and what is confused",
        "Confusion matrix",
        "Calibration curve",
        "Wrong windows by group",
        "Group p4: 36 of 700 wrong",
        "Learning curves",
        "student, SeparableCnn1d",
        "Size and speed beside fixed peers",
        "What to type next",
        "How often it is right",
        "What was tried, what ships, what lost",
        "Pareto front: accuracy against latency",
        "Pareto front: accuracy against bytes",
        "Time per window",
        "What the cloud adds",
        "Integers",
        "Sensitivity of each layer",
        "Pruning",
        "Streaming",
        "Teacher and student",
        "The cloud's model",
        "The device's network",
        "Bundles",
        "Where the data comes from",
        "Made with",
    ]
    for said in (
        "Too few test groups to say how good it is: 89.7 % right on 2 groups (94.9 % to 96.6 % by group).",
        "fast taken for slow : 37 of 500, 33 of them from group p4",
        "slow taken for fast : 20 of 500, all of them from group p5",
        "fast , answered slow , 91 % sure",
        "p4.csv, from 12.5 s",
        "group p5, 24 of 700 wrong.",
        "Best after 4.50 epochs, 93.0 %: fewer steps, or more augmentation, may do better.",
        "0.500 at the end",  # loss of training
        "onnx-fp32: the same in float 90.0 % 20.0 kB –",  # noqa: RUF001 - a dash: it was not timed in those turns
        "edge-runtime replay waves-x86_64.edge test.npz --out answers.jsonl",
        "89.7 %",  # accuracy on the device
        "87.7 % to 91.2 %",  # its interval
        "17.0 kB",  # bytes on disk
        "12.0 kB",  # compressed
        "25.0 µs",  # latency
        "0.521 (0.500 to 0.543)",  # ratio to the reference
        "ships for x86_64",
        "x86_64: it loses 3.00 points & more",
        "onnx-int4: no layer gains",
        "at most 0.5 points of accuracy lost, at most 30.0 kB, at most 1.5 ms per window",
        "fast (20)",  # what slow is most often taken for
        "Expected calibration error: 2.30 %",
        "/stem/Conv",
        "it loses 1.2 points",
        "mse (taken)",
        "3, taken back",
        "An update takes 5.60 µs, the whole window 33.1 µs: 5.91 times less",
        "1.28 kB",
        "61.0 kB",
        "60.0 times faster on one thread. Best known for this task: the cloud's model, 94.0 % (92.0 % to 95.5 %)",
        "2.4e-07",
        "CC0",
        "p4, p5",
        "numpy 2.4.6",
        "LiteRT 2.3.0",
        "onnx-int8-u8s8 is 89.7 % right, 274 times smaller",
        "89.7 % right (87.7 % to 91.2 %) at 17.0 kB and 25.0 µs a window",
        "a random forest on simple features, 85.0 % (83.0 % to 86.5 %), 2.10 MB",
        "4.66 MB. Best known for this task: the cloud's model, 94.0 %. Intervals are over groups, of one",
    ):
        assert said in seen.text, said


def test_what_a_report_does_not_have_leaves_its_section_out() -> None:
    seen = Reader(page(figures.small()))
    for absent in ("Calibration curve", "Integers", "Pruning", "Streaming", "Bundles", "Data origin"):
        assert absent not in seen.headings
    assert "Pareto front: accuracy against bytes" not in seen.headings
    assert "Pareto front: accuracy against latency" in seen.headings


def test_how_much_smaller_never_stands_without_the_best_that_is_known() -> None:
    whole = figures.full()
    for name in ("teacher", "random-forest"):
        del whole["test"]["judged"][name]
    assert "times smaller" not in Reader(page(whole)).text
    whole["best_known"] = {"accuracy": 0.97, "source": "somebody, doi 10.1/2"}
    text = Reader(page(whole)).text
    assert "60.0 times faster on one thread. Best known for this task: somebody, doi 10.1/2" in text


def test_a_published_figure_is_the_best_known_only_if_it_is() -> None:
    whole = figures.full() | {"best_known": {"accuracy": 0.9, "source": "somebody"}}
    assert "Best known for this task: the cloud's model, 94.0 %" in Reader(page(whole)).text
    whole["best_known"]["accuracy"] = 0.95
    assert "Best known for this task: somebody, 95.0 %" in Reader(page(whole)).text


def test_the_build_says_it_at_the_terminal_too() -> None:
    assert [line.replace("\u202f", " ") for line in headline(figures.full())] == [
        "  onnx-int8-u8s8: 89.7 % right (87.7 % to 91.2 %) at 17.0 kB and 25.0 µs a window",
        "  best known: the cloud's model, 94.0 % (92.0 % to 95.5 %), 4.66 MB",
    ]


def test_streaming_that_does_not_pay_says_so() -> None:
    whole = figures.full()
    whole["streaming"]["update_us"] = 66.2
    assert "2.00 times as much, so it does not pay" in Reader(page(whole)).text


def test_intervals_of_few_groups_are_called_what_they_are() -> None:
    text = Reader(page(figures.full())).text
    assert "the wider ends of a bootstrap over whole groups and of Wilson's" in text
    assert "With 2 groups they say little about further ones" in text
    text = Reader(page(figures.full() | {"metric": "macro_f1"})).text
    assert "by a bootstrap over whole groups." in text
    assert "Wilson" not in text


def test_nothing_is_rounded_up_to_perfection() -> None:
    whole = figures.full()
    for each in whole["test"]["judged"].values():
        each["accuracy"], each["high"] = 0.9996, 1.0
    assert "99.96 %" in Reader(page(whole)).text.split("How often")[0]


def test_layers_without_a_loss_are_ranked_by_their_noise() -> None:
    whole = figures.full()
    for each in whole["sensitivity"]:
        each["drop"] = None
    text = Reader(page(whole)).text
    assert "the shortest bars suffer most" in text
    assert "/stem/Conv: 22.5 dB, 480 B" in text


@pytest.mark.parametrize("key", sorted(set(figures.full()) - {"recipe", "classes", "metric", "test"}))
def test_no_optional_key_is_needed(key: str) -> None:
    whole = figures.full()
    del whole[key]
    assert "waves" in Reader(page(whole)).text


@pytest.mark.parametrize("key", ["device", "judged", "gate", "curve", "confusion"])
def test_no_part_of_the_test_figures_is_needed(key: str) -> None:
    whole = figures.full()
    del whole["test"][key]
    assert "waves" in Reader(page(whole)).text


def test_the_metric_that_decided_is_the_one_that_is_drawn() -> None:
    text = Reader(page(figures.full() | {"metric": "macro_f1"})).text
    assert "84.7 %" in text
    assert "Pareto front: macro F1 against bytes" in text


def test_what_stands_in_the_data_cannot_become_markup() -> None:
    hostile = '</title><script>alert("1")</script>'
    whole = figures.full()

    def poison(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: poison(each) for key, each in value.items()}
        if isinstance(value, list):
            return [poison(each) for each in value]
        return value + hostile if isinstance(value, str) and value not in ("accuracy", "onnx", "tflite") else value

    poisoned = poison(whole)
    poisoned["test"]["judged"] = {f"{name}{hostile}": each for name, each in whole["test"]["judged"].items()}
    seen = Reader(page(poisoned))
    assert "script" not in {tag for tag, _ in seen.tags}
    assert 'alert("1")' in seen.text


def test_nothing_runs_and_nothing_is_fetched() -> None:
    text = page(figures.full())
    seen = Reader(text)
    assert {tag for tag, _ in seen.tags}.isdisjoint({"script", "link", "img", "iframe", "object", "form"})
    places = {found.get("id") for _, found in seen.tags}
    links = [str(found["href"]) for tag, found in seen.tags if tag == "a"]
    assert links
    assert all(link[0] == "#" and link[1:] in places for link in links), "to places of this page alone"
    attributes = {name for _, found in seen.tags for name in found}
    assert {tag for tag, found in seen.tags if "href" in found} == {"a"}
    assert attributes.isdisjoint({"src", "srcset", "action"})
    assert not any(name.startswith("on") for name in attributes)
    assert "url(" not in text
    assert "@import" not in text
    policy = next(found["content"] for tag, found in seen.tags if found.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_same_figures_give_the_same_bytes_in_another_process() -> None:
    imports = "from edge_export.report import page; from tests.edge_export.report import figures"
    code = f"{imports}; print(page(figures.full()), end='')"
    root = Path(__file__).resolve().parents[3]
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "TZ": f"UTC+{seed}", "PYTHONIOENCODING": "utf-8"},
            cwd=root,
        ).stdout
        for seed in ("0", "1")
    ]
    assert outputs[0] == outputs[1] == page(figures.full()).encode()


def test_every_class_that_is_used_for_colour_is_in_the_style() -> None:
    text = page(figures.full())
    style = text[text.index("<style>") : text.index("</style>")]
    used = {name for _, found in Reader(text).tags for name in str(found.get("class") or "").split()}
    plain = {"other", "key", "n", "line", "soft", "series"}
    missing = {name for name in used - plain if not re.search(rf"\.{name}\b", style)}
    assert missing == set()


def test_light_and_dark_name_the_same_colours() -> None:
    style = page(figures.small()).split("<style>")[1].split("</style>")[0]
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    assert set(re.findall(r"--[a-z]+(?=:)", light)) == set(re.findall(r"--[a-z]+(?=:)", dark))


def test_drawings_stay_in_their_frame() -> None:
    for tag, found in Reader(page(figures.full())).tags:
        for name in ("cx", "cy", "x1", "y1", "x2", "y2"):
            if tag in ("circle", "line") and name in found:
                assert -1 <= float(str(found[name])) <= 1000, (tag, found)


def test_the_command_writes_the_page_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "report.json").write_bytes(orjson.dumps(figures.full()))
    assert main(["report", str(tmp_path / "report.json")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").read_text("utf-8") == page(figures.full())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not JSON"),
        (b"[1]", "not a report of edge-export build"),
        (b'{"recipe": "a"}', "'classes' is missing"),
    ],
)
def test_what_is_no_report_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, message: str
) -> None:
    (tmp_path / "report.json").write_bytes(content)
    assert main(["report", str(tmp_path / "report.json")]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert str(tmp_path / "report.json") in error
    assert error.count("\n") == 1


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot write .*report\.html"):
        write_report(figures.small(), tmp_path / "none")


def test_the_figures_are_left_as_they_were() -> None:
    whole = figures.full()
    before = copy.deepcopy(whole)
    page(whole)
    assert whole == before


def test_what_is_odd_about_the_data_is_on_the_page() -> None:
    known = figures.full()
    assert "What to know of them" not in Reader(page(known)).text
    known["data_notes"] = ["18 rows of 3 files were left out, since a cell was empty"]
    assert "18 rows of 3 files were left out" in Reader(page(known)).text


def test_a_gate_that_does_not_help_or_forwards_too_much_is_named() -> None:
    known = figures.full()
    gate, tested = known["gate"], known["test"]["gate"]
    gate["promise"]["validation"]["forwarded"] = 0.1
    tested |= {"forwarded": 0.25, "combined_accuracy": 0.969, "device_accuracy": 0.979}
    said = Reader(page(known)).text
    assert "On test groups the answers are worse with the cloud than without" in said
    assert "On test groups 25.0 % of the windows are forwarded, 10.0 % on validation groups" in said
    gate["promise"] |= {"withheld": {}, "useless": "with the cloud's answers the accuracy is 0.9, without 0.95"}
    tested |= {"forwarded": 0.0, "combined_accuracy": 0.979}
    said = Reader(page(known)).text
    assert "Asking the cloud does not pay, so only windows less sure than all of validation's are forwarded" in said
    assert "accuracy is 0.9, without 0.95" in said
    assert "lies below" not in said


def test_what_surrounds_the_network_is_shown_part_by_part() -> None:
    known = figures.full()
    assert "What surrounds the network" not in Reader(page(known)).text
    way = {"accuracy": 0.9, "macro_f1": 0.88, "gain": 0.03, "gain_low": 0.01, "gain_high": 0.05, "forwarded": 0.0}
    known["ways"] = {"all": way | {"forwarded": 0.1}, "device": way | {"accuracy": 0.87}, "over time": way}
    gained = {"score": 0.9, "gain": 0.03, "groups": 7, "groups_gained": 6}
    known["surround"] = {
        "over_time": {"filter": gained},
        "asking": {"why": "ship without the cloud: <b>it</b> does not help"},
    }
    said = Reader(page(known)).text
    assert "each window alone has 0.870; of 7 groups, 6 gain. They ship. The cloud: ship without" in " ".join(
        said.split()
    )
    assert "<b>it</b>" in said, "escaped"
    shown = said[said.index("over the device") : said.index("How the ranges")]
    assert shown.index("over time") < shown.index("all")
    assert shown.count("+3.00 (+1.00 to +5.00)") == 2
    del known["ways"]["over time"]
    assert "They do not ship." in " ".join(Reader(page(known)).text.split())


def test_a_drawing_is_no_wider_than_a_telephone_and_what_is_scrolls_in_a_frame_that_keys_reach() -> None:
    """Made smaller, text would be 5 pixels high; beside the page nobody would see it."""
    whole = figures.full()
    whole["classes"] = [f"class number {number}" for number in range(30)]
    whole["test"]["confusion"] = [[1] * 30 for _ in range(30)]
    text = page(whole)
    drawings = re.findall(r'<svg viewBox="0 0 (\d+) \d+" role="img" (class="plot"|style="[^"]*")', text)
    assert len(drawings) == text.count('role="img"') > 10
    wide = [(width, style) for width, style in drawings if style != 'class="plot"']
    assert [int(width) <= 344 for width, style in drawings if style == 'class="plot"'].count(False) == 0
    assert [style for _, style in wide] == [f'style="width:{width}px"' for width, _ in wide]
    assert len(wide) == 1, "the matrix of thirty classes"
    frames = re.findall(r'<div class="wide"([^>]*)><(svg|table)', text)
    assert len(frames) == len(wide) + text.count("<table")
    assert all(re.search(r'tabindex="0" role="region" aria-label="\w', attributes) for attributes, _ in frames)
    assert ".wide { overflow-x: auto; max-width: 100%; }" in text
    assert ".pair > * { min-width: 0; }" in text  # a grid's cells are as wide as their content otherwise
