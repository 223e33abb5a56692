"""Every kind of answer has entities, and every state has what they take."""

from __future__ import annotations

import re
from typing import Any

import pytest

from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import AnyOutput
from edge_runtime.manifest.outputs import DetectionOutput, MultiLabelOutput, OutputContract
from edge_runtime.operate.observe.home_assistant.entities import Shown, application_entities, entities_of
from edge_runtime.operate.observe.home_assistant.states import state_of
from tests.edge_runtime.operate.observe.home_assistant.bridges import prediction
from tests.task_bundles import OUTPUTS

EVERY: dict[str, AnyOutput] = {"classification": OutputContract(labels=("rest", "walk")), **OUTPUTS}


def shown(output: AnyOutput, **more: Any) -> Shown:
    settings: dict[str, Any] = {"rules": (), "classes": {}, "commands": (), "cloud": False, "off_delay_s": 60}
    return Shown(output=output, labels=output.labels, **settings | more)


@pytest.mark.parametrize("task", EVERY)
def test_each_task_has_entities_and_its_state_has_all_that_they_take_even_unanswered(task: str) -> None:
    output = EVERY[task]
    unanswered = state_of(prediction(label="", scores=[], confidence=0.0, variant="none"), output)
    entities = entities_of(shown(output))
    assert len({one.name for one in entities}) == len(entities) >= 2
    for entity in entities:
        for field in re.findall(r"value_json\.(\w+)", entity.fields.get("val_tpl", "")):
            assert field in {*unanswered, "suspect"}
            assert not hasattr(dict, field), "a template would find the method first"


def test_with_many_labels_only_those_that_an_event_names_get_a_binary_sensor() -> None:
    output = MultiLabelOutput(labels=tuple("abcdefghij"))
    rule = EventRule(name="x", label="c")
    names = [one.name for one in entities_of(shown(output, rules=(rule,), classes={"c": "sound", "x": "smoke"}))]
    assert [name for name in names if name.startswith("on-")] == ["on-c"]
    (entity,) = [
        one for one in entities_of(shown(output, rules=(rule,), classes={"x": "smoke"})) if "during" in one.name
    ]
    assert entity.fields["dev_cla"] == "smoke"


def test_persons_in_a_picture_are_an_occupancy_too() -> None:
    output = DetectionOutput(labels=("person", "dog"), height=9, width=9, candidates=3, values="logit")
    found = {one.name: one for one in entities_of(shown(output))}
    assert found["seen-person"].fields["dev_cla"] == "occupancy"
    assert "seen-dog" not in found


def test_commands_and_figures_are_shown_where_there_are_any() -> None:
    bare = application_entities(commands=(), updates=False, cloud=False, governor=False)
    assert {one.name for one in bare} == {"model", "keys", "dropped"}
    full = {one.name: one for one in application_entities(
        commands=("restart", "install"), updates=True, cloud=True, governor=True)}  # fmt: skip
    assert {"share", "temperature", "update", "restart"} <= set(full)
    assert full["update"].command == "install"
    looked_at = {one.name: one for one in application_entities(commands=(), updates=True, cloud=False, governor=False)}
    assert looked_at["update"].command == ""
    of_key = {one.name for one in entities_of(shown(EVERY["classification"], commands=("reset", "label"), cloud=True))}
    assert {"reset", "said", "correction"} <= of_key
