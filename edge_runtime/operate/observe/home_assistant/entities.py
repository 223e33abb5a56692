"""Entities: what a bundle's answers become in Home Assistant, by task; pure functions of what the bundle says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import AnyOutput
from edge_runtime.operate.observe.home_assistant.names import MAX_STATE, identifier, readable
from edge_runtime.operate.observe.home_assistant.states import MOST_VALUES
from edge_runtime.operate.observe.home_assistant.units import class_of, unit_of

MANY_LABELS: Final = 10
"""With as many labels or more, only those that an event names get a binary sensor."""
_PERSONS: Final = ("person", "people", "human")


class Entity(NamedTuple):
    """One entity of a device, as the ``cmps`` of a discovery message have it, but for topics and ids."""

    name: str
    """Identifier within the key or the application."""
    platform: str
    title: str
    fields: Mapping[str, Any]
    state: str = "state"
    """Level of the topic that it listens to."""
    command: str = ""
    """Level of the topic that it publishes to, below ``set``; empty: none."""


class Shown(NamedTuple):
    """All that the entities of a key depend on."""

    output: AnyOutput
    rules: Sequence[EventRule]
    labels: Sequence[str]
    """Labels that an answer may have."""
    classes: Mapping[str, str]
    commands: Sequence[str]
    cloud: bool
    off_delay_s: int
    """A binary sensor of an event goes off when nothing has come for so long."""


def entities_of(shown: Shown) -> list[Entity]:
    """List the entities of a key."""
    found = [*_answers(shown), *_events(shown), *_diagnostics()]
    if shown.cloud:
        kinds = {"evt_typ": ["changed", "agreed"], "ent_cat": "diagnostic"}
        found.append(Entity("correction", "event", "Correction", kinds, "correction"))
    if "reset" in shown.commands:
        button = {"ent_cat": "config", "pl_prs": "reset"}
        found.append(Entity("reset", "button", "Reset", button, state="", command="reset"))
    if "label" in shown.commands:
        text = {"ent_cat": "config", "max": MAX_STATE, "min": 1}
        found.append(Entity("said", "text", "This was", text, "said", "label"))
    return found


def _answers(shown: Shown) -> Iterator[Entity]:
    """Yield what an answer is shown as; the table is in docs/home-assistant.md."""
    kind = shown.output.kind
    yield from _OF_TASK[kind](shown, shown.output)
    if kind not in ("regression", "vector"):
        percent = {"unit_of_meas": "%", "sug_dsp_prc": 0, "ent_cat": "diagnostic"}
        yield _number("confidence", "Confidence", "{{ value_json.confidence }}", **percent)


def _label(shown: Shown, _output: Any) -> Iterator[Entity]:
    options = list(dict.fromkeys(filter(None, (readable(label, MAX_STATE) for label in shown.labels))))
    fields = {"dev_cla": "enum", "ops": options, "val_tpl": "{{ value_json.label }}"}
    yield Entity("label", "sensor", "Label", fields | _attributes("confidence", "route", "id", "model"))


def _text(_shown: Shown, _output: Any) -> Iterator[Entity]:
    fields = {"val_tpl": "{{ value_json.label }}"}
    yield Entity("text", "sensor", "Text", fields | _attributes("confidence", "route", "id", "model"))


def _quantities(_shown: Shown, output: Any) -> Iterator[Entity]:
    for i, quantity in enumerate(output.quantities[:MOST_VALUES]):
        unit = unit_of(quantity.unit)
        more: dict[str, Any] = {"unit_of_meas": unit} if unit else {}
        if kind := class_of(quantity.kind, unit):
            more["dev_cla"] = kind
        given = f"value_json.quantities[{i}]"
        more["json_attr_tpl"] = f"{{{{ {{'low': {given}.low, 'high': {given}.high}} | tojson }}}}"
        name, title = identifier(quantity.name), readable(quantity.name)
        yield _number(f"value-{name}", title, f"{{{{ {given}.value }}}}", **more)


def _labels(shown: Shown, output: Any) -> Iterator[Entity]:
    named = {rule.label for rule in shown.rules}
    for i, label in enumerate(output.labels[:MOST_VALUES]):
        if len(output.labels) < MANY_LABELS or label in named:
            yield _binary(
                f"on-{identifier(label)}", readable(label), f"value_json.on[{i}]", shown.classes.get(label, "")
            )


def _anomaly(_shown: Shown, _output: Any) -> Iterator[Entity]:
    yield _binary("anomalous", "Anomaly", "value_json.anomalous", "problem")
    yield _number("score", "Anomaly score", "{{ value_json.score }}")
    yield _number("threshold", "Anomaly threshold", "{{ value_json.threshold }}", ent_cat="diagnostic")


def _counts(_shown: Shown, output: Any) -> Iterator[Entity]:
    for i, label in enumerate(output.labels[:MOST_VALUES]):
        title, count = readable(label), f"{{{{ value_json.counts[{i}] }}}}"
        yield _number(f"count-{identifier(label)}", title, count)
        if label.lower() in _PERSONS:
            yield _binary(f"seen-{identifier(label)}", title, f"value_json.counts[{i}] > 0", "occupancy")


def _numbers(_shown: Shown, output: Any) -> Iterator[Entity]:
    unit = unit_of(output.unit)
    more = {"unit_of_meas": unit} if unit else {}
    for i, name in enumerate(output.names[:MOST_VALUES] if output.publish == "rows" else ()):
        yield _number(f"number-{identifier(name)}", readable(name), f"{{{{ value_json.numbers[{i}] }}}}", **more)


_OF_TASK: Final[Mapping[str, Callable[[Shown, Any], Iterator[Entity]]]] = {
    "anomaly": _anomaly,
    "detection": _counts,
    "embedding": _label,
    "multi-label": _labels,
    "probabilities": _label,
    "regression": _quantities,
    "text": _text,
    "vector": _numbers,
}
"""By the kind of the output; `test_entities.py` finds one that is missing."""


def _events(shown: Shown) -> Iterator[Entity]:
    for rule in shown.rules:
        name, title = identifier(rule.name), readable(rule.name)
        yield Entity(f"event-{name}", "event", f"{title} event", {"evt_typ": ["start", "end"]}, f"events/{name}")
        fields: dict[str, Any] = {"off_dly": shown.off_delay_s}
        if kind := shown.classes.get(rule.name, ""):
            fields["dev_cla"] = kind
        yield Entity(f"during-{name}", "binary_sensor", title, fields, f"during/{name}")


def _diagnostics() -> Iterator[Entity]:
    suspect = _binary("suspect", "Suspect readings", "value_json.suspect is defined", "problem")
    fields = {**suspect.fields, "ent_cat": "diagnostic"}
    yield suspect._replace(fields=fields | _attributes("suspect"))


def application_entities(*, commands: Sequence[str], updates: bool, cloud: bool, governor: bool) -> list[Entity]:
    """List the entities of the application."""
    diagnostic = {"ent_cat": "diagnostic"}
    found = [
        Entity("model", "sensor", "Model", {"val_tpl": "{{ value_json.model }}", **diagnostic}
               | _attributes("variant", "engine"), "stats"),
        _number("keys", "Keys", "{{ value_json.shown }}", **diagnostic)._replace(state="stats"),
        Entity("dropped", "sensor", "Dropped", {"stat_cla": "total_increasing",
               "val_tpl": "{{ value_json.dropped }}", **diagnostic}, "stats"),
    ]  # fmt: skip
    if cloud:
        share = {"unit_of_meas": "%", "sug_dsp_prc": 1, **diagnostic}
        found.append(_number("share", "Share sent to cloud", "{{ value_json.share }}", **share)._replace(state="stats"))
    if governor:
        heat = {"unit_of_meas": "°C", "dev_cla": "temperature", **diagnostic}
        value = "{{ value_json.temperature }}"
        found.append(_number("temperature", "Board temperature", value, **heat)._replace(state="stats"))
    if updates:
        press = {"payload_install": "install"} if "install" in commands else {}
        command = "install" if press else ""
        found.append(Entity("update", "update", "Bundle", {"ent_cat": "config", **press}, "update", command))
    if "restart" in commands:
        button = {"dev_cla": "restart", "ent_cat": "config", "pl_prs": "restart"}
        found.append(Entity("restart", "button", "Restart", button, state="", command="restart"))
    return found


def _number(name: str, title: str, template: str, **more: Any) -> Entity:
    return Entity(name, "sensor", title, {"stat_cla": "measurement", "val_tpl": template, **more})


def _binary(name: str, title: str, condition: str, kind: str) -> Entity:
    """Make a binary sensor; a null where the value should be makes it unknown."""
    value = condition.partition(" ")[0]
    template = f"{{{{ 'None' if {value} is none else 'ON' if {condition} else 'OFF' }}}}"
    return Entity(name, "binary_sensor", title, {"val_tpl": template, **({"dev_cla": kind} if kind else {})})


def _attributes(*names: str) -> dict[str, str]:
    """Take these fields of the state as attributes, those that are there."""
    inner = ", ".join(f"'{name}': value_json.{name} | default(none)" for name in names)
    return {"json_attr_tpl": f"{{{{ {{{inner}}} | tojson }}}}"}
