"""Rules put into an application's TOML: the rest of the file stays, comments included."""

from __future__ import annotations

import pytest
from hypothesis import given

from edge_runtime import schema
from edge_runtime.answer.events.toml_table import as_table, with_rule
from edge_runtime.base.system import toml
from edge_runtime.errors import ConfigError
from edge_runtime.event_rule import EventRule
from tests.edge_runtime.answer.events.streams import rules

APP = """# kitchen
name = "k"
[[events]]
name = "cry" # of the baby
label = "baby-cry"
on = 0.9   # too often at 0.8
off = 0.5
# refractory_s = 3.0

[[events]]
name = 'bell'
label = "bell"

[gate]
threshold = 0.5  # see [[events]]
"""


def test_values_change_in_their_place_and_comments_stay() -> None:
    rule = EventRule(name="cry", label="baby-cry", on=0.75, of=(2, 3), expected={"missed": 0.25})
    assert with_rule(APP, rule) == APP.replace("on = 0.9   #", "on = 0.75   #").replace(
        "off = 0.5\n", "of = [2, 3]\nexpected = { missed = 0.25 }\n"
    )


def test_a_new_rule_comes_last() -> None:
    rule = EventRule(name="door", label="door")
    assert with_rule(APP, rule) == APP + '\n[[events]]\nname = "door"\nlabel = "door"\non = 0.5\n'
    assert with_rule("", rule) == as_table(rule)


@pytest.mark.parametrize("text", ['events = [{ name = "cry", label = "a" }]', "events = []"])
def test_events_that_are_written_otherwise_are_left_to_the_user(text: str) -> None:
    rule = EventRule(name="cry", label="b")
    if text.endswith("[]"):
        with pytest.raises(ConfigError, match="put this in by hand"):
            with_rule(text, rule)
    else:
        with pytest.raises(ConfigError, match=r"write its events as \[\[events\]\] tables first"):
            with_rule(text, rule)


@pytest.mark.slow
@given(rules())
def test_any_rules_come_back_as_they_were(of: list[EventRule]) -> None:
    text = APP
    for rule in [*of, *reversed(of)]:
        text = with_rule(text, rule)
    found = [schema.load(EventRule, one) for one in toml.loads(text)["events"]]
    assert sorted(found[2:], key=lambda one: one.name) == sorted(of, key=lambda one: one.name)
    assert text.startswith(APP)
