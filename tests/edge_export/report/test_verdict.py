"""The verdict and the commands: each rule by figures that meet it and that do not; every command is a real one."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
from edge_export.report.figures import BuildMetrics
from edge_export.report.next_steps import next_steps
from edge_export.report.verdict import RuleFinding, verdict

from tests.edge_export.report import figures
from tests.edge_export.report.figures import judged

ROOT = Path(__file__).resolve().parents[3]
COMMANDS = (ROOT / "docs" / "commands.md").read_text("utf-8")


def enough() -> dict[str, Any]:
    """Six test groups, a device as good as its peers, a cloud that helps."""
    whole = figures.full()
    whole["groups"]["test"] = [f"p{number}" for number in range(4, 10)]
    whole["test"]["judged"]["teacher"] = judged("teacher", 0.9)
    return whole


def found(whole: dict[str, Any]) -> dict[str, RuleFinding]:
    return {each.rule: each for each in verdict(BuildMetrics(whole))}


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def test_a_build_without_a_fault_is_fine_as_it_is_and_says_so_first() -> None:
    first, *rest = verdict(BuildMetrics(enough()))
    assert first.rule == "fine"
    assert plain(first.says) == (
        "Fine as it is: 89.7 % right (87.7 % to 91.2 %) on 6 test groups; the best known peer has 90.0 %."
    )
    assert first.command == "edge-runtime init app.toml --bundle waves-x86_64.edge"
    assert all(each.good for each in rest)
    assert [each.rule for each in rest] == ["integers", "cloud", "gate"]


def test_few_test_groups_come_before_everything_else() -> None:
    first = verdict(BuildMetrics(figures.full()))[0]
    assert first.rule == "few"
    assert plain(first.says) == (
        "Too few test groups to say how good it is: 89.7 % right on 2 groups (94.9 % to 96.6 % by group)."
    )
    assert first.then.startswith("Record 3 or more")
    assert first.command.endswith("--label slow --label fast --label flat")
    whole = enough()
    whole["groups"]["test"].pop()
    assert "few" not in found(whole), "five are enough"
    whole["groups"]["test"].pop()
    assert "few" in found(whole)


def test_a_peer_is_better_only_above_the_interval_of_the_device() -> None:
    whole = enough()
    whole["test"]["judged"]["random-forest"] = judged("random-forest", 0.912)
    assert "peer" not in found(whole), "the interval ends at 91.2 %"
    whole["test"]["judged"]["random-forest"] = judged("random-forest", 0.92)
    finding = found(whole)["peer"]
    assert not finding.good
    assert "a random forest on simple features has 92.0 %, the device's file 89.7 %" in plain(finding.says)
    assert finding.page == "docs/export.md", "which says how a device gets one"
    assert "fine" not in found(whole)
    whole["student"] = {"family": "Forest"}
    assert found(whole)["peer"].page == "docs/accuracy.md", "it has one"


@pytest.mark.parametrize(("drop", "good"), [(0.003, True), (-0.004, True), (0.012, False)])
def test_integers_may_cost_what_the_recipe_allows(drop: float, good: bool) -> None:
    whole = enough()
    whole["test"]["judged"]["onnx-int8-u8s8"] |= judged("onnx-int8-u8s8", 0.897, drop=drop)
    finding = found(whole)["integers"]
    assert finding.good == good
    said = {0.003: "cost 0.30 points", -0.004: "gain 0.40 points", 0.012: "+1.20 points of accuracy against float"}
    assert said[drop] in plain(finding.says)


def test_a_loss_that_may_be_chance_is_none() -> None:
    whole = enough()
    whole["test"]["judged"]["onnx-int8-u8s8"] |= {"drop": 0.012, "drop_low": -0.001}
    assert found(whole)["integers"].good


def test_a_device_in_float_loses_nothing_to_integers() -> None:
    whole = enough()
    whole["test"]["device"] = "onnx-fp32"
    assert "integers" not in found(whole)


def test_a_cloud_that_makes_it_worse_is_left_out_of_verdict_and_commands() -> None:
    whole = enough()
    assert any("edge-runtime serve waves-teacher.edge" in step.command for step in next_steps(BuildMetrics(whole)))
    whole["test"]["gate"] |= {"combined_accuracy": 0.88}
    finding = found(whole)["cloud"]
    assert not finding.good
    assert "88.0 % right with it, 90.0 % without, 13.0 % of the windows forwarded" in plain(finding.says)
    assert finding.command == "edge-runtime init app.toml --bundle waves-x86_64.edge --cloud none"
    commands = [step.command for step in next_steps(BuildMetrics(whole))]
    assert not any("serve" in command or "teacher" in command for command in commands)
    assert sum("--cloud none" in command for command in commands) == 1


def test_what_ships_around_the_network_is_what_the_cloud_is_held_against() -> None:
    whole = enough()
    way = {"accuracy": 0.9, "forwarded": 0.0}
    whole["ways"] = {"device": way, "over time": way | {"accuracy": 0.95}, "all": way | {"accuracy": 0.94}}
    assert "94.0 % right with it, 95.0 % by answers over time alone" in plain(found(whole)["cloud"].says)


def test_a_gate_that_forwards_too_much_or_errs_too_often_breaks_its_word() -> None:
    whole = enough()
    assert "keeps its word: 13.0 % of the windows are forwarded, 10.0 %" in plain(found(whole)["gate"].says)
    whole["test"]["gate"]["forwarded"] = 0.16
    assert "breaks its word: 16.0 %" in plain(found(whole)["gate"].says)
    whole["gate"]["promise"]["bound"] = 0.06
    assert found(whole)["gate"].good, "5 % of the local answers are wrong"
    whole["gate"]["promise"]["bound"] = 0.04
    assert "breaks its word: 5.0 % of the answers that stay local are wrong" in plain(found(whole)["gate"].says)
    whole["gate"]["promise"]["withheld"] = {}
    assert "gate" not in found(whole)


def test_figures_that_are_missing_say_nothing() -> None:
    assert verdict(BuildMetrics({"recipe": "a", "classes": [], "metric": "accuracy", "test": {}})) == []
    assert next_steps(BuildMetrics(figures.small())) == []


def every_finding() -> list[RuleFinding]:
    worst = enough()
    worst["groups"]["test"] = ["p4"]
    worst["test"]["judged"]["teacher"] = judged("teacher", 0.99)
    worst["test"]["judged"]["onnx-int8-u8s8"] |= judged("onnx-int8-u8s8", 0.897, drop=0.02)
    worst["test"]["gate"] |= {"combined_accuracy": 0.8, "forwarded": 0.9}
    return [*verdict(BuildMetrics(enough())), *verdict(BuildMetrics(worst))]


def test_every_rule_names_one_command_or_one_page_that_exists() -> None:
    findings = every_finding()
    assert {each.rule for each in findings} == {"few", "peer", "integers", "cloud", "gate", "fine"}
    for each in findings:
        assert bool(each.command) != bool(each.page)
        if each.page.startswith("docs/"):
            assert (ROOT / each.page).is_file()


def test_every_command_and_each_of_its_options_is_in_the_reference() -> None:
    whole = enough()
    typed = [step.command for step in next_steps(BuildMetrics(whole))]
    typed += [each.command for each in every_finding() if each.command]
    assert len(typed) > 8
    for command in typed:
        program, name, *words = command.split()
        heading = f"{program} {name} {words[0]}" if name == "keys" else f"{program} {name}"
        section = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", COMMANDS, re.MULTILINE | re.DOTALL)
        assert section is not None, command
        for option in (word for word in words if word.startswith("--")):
            assert re.search(rf"{option}[ `]", section.group(1)), command


def test_names_of_files_are_quoted_for_the_shell() -> None:
    whole = enough()
    whole["bundles"] = {"a wave-any.edge": {}, "a wave-teacher.edge": {}}
    assert "edge-runtime bench 'a wave-any.edge'" in [step.command for step in next_steps(BuildMetrics(whole))]


def test_the_report_of_the_demo_still_loads_and_has_a_verdict() -> None:
    whole = orjson.loads((ROOT / "examples" / "exercise-watch" / "report.json").read_bytes())
    assert list(found(whole)) == ["few", "cloud", "integers", "gate"]
    assert "90.9 % right with it, 91.3 % by answers over time alone" in plain(found(whole)["cloud"].says)
