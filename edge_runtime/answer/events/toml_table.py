"""Event rules as tables ``[[events]]`` of an application's TOML, put in without touching the rest of the file."""

from __future__ import annotations

import dataclasses
import json
import re
from itertools import pairwise
from typing import Any, Final

from edge_runtime import schema
from edge_runtime.base.system import toml
from edge_runtime.errors import ConfigError
from edge_runtime.event_rule import EventRule

_HEADER: Final = re.compile(r"^\s*\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY: Final = re.compile(
    r"""^(?P<key>\s*(?P<name>[\w-]+)\s*=\s*)(?P<value>"(?:[^"\\]|\\.)*"|'[^']*'|\[.*?\]|\{.*?\}|[^#\s]+)(?P<rest>\s*(?:#.*)?)$"""
)


def as_table(rule: EventRule) -> str:
    """Write a rule as a table, without fields that have their default."""
    lines = [f"{name} = {_literal(value)}" for name, value in _settings(rule).items()]
    return "\n".join(["[[events]]", *lines, ""])


def with_rule(text: str, rule: EventRule) -> str:
    """Put a rule into the text of an application.

    Args:
        text: the file's text; comments and everything else stay.
        rule: takes the place of the one of its name, or is added behind everything.

    Raises:
        ConfigError: the file writes its events in a way that is not changed here; the line says what to do.
    """
    try:
        before = toml.loads(text).get("events", [])
    except toml.TOMLDecodeError as error:
        raise ConfigError(f"not valid TOML: {error}") from error
    lines = text.splitlines()
    blocks = _blocks(lines)
    if len(blocks) != len(before):
        raise ConfigError(f"write its events as [[events]] tables first, or put this in by hand:\n{as_table(rule)}")
    place = next((i for i, one in enumerate(before) if one.get("name") == rule.name), None)
    if place is None:
        changed = [*lines, *([""] if lines and lines[-1].strip() else []), *as_table(rule).splitlines()]
    else:
        begin, end = blocks[place]
        changed = [*lines[:begin], *_block(lines[begin:end], rule), *lines[end:]]
    out = "\n".join(changed) + "\n"
    expected = [schema.load(EventRule, one) for one in before]
    if place is None:
        expected.append(rule)
    else:
        expected[place] = rule
    if _rules(out) != expected:
        raise ConfigError(f"put this in by hand, in place of what it has:\n{as_table(rule)}")
    return out


def _rules(text: str) -> list[EventRule]:
    try:
        return [schema.load(EventRule, one) for one in toml.loads(text)["events"]]
    except (toml.TOMLDecodeError, ValueError):  # what was changed is no application any more
        return []


def _settings(rule: EventRule) -> dict[str, Any]:
    """Collect what differs from the defaults; name, label and `on` in any case."""
    plain = EventRule(name=rule.name, label=rule.label)
    always = {"name", "label", "on"}
    return {
        field.name: value
        for field in dataclasses.fields(rule)
        if (value := getattr(rule, field.name)) != getattr(plain, field.name) or field.name in always
    }


def _literal(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_literal(one)}" for name, one in value.items()) + " }"
    return json.dumps(list(value) if isinstance(value, tuple) else value)  # of texts and numbers also TOML


def _blocks(lines: list[str]) -> list[tuple[int, int]]:
    """Find the lines of each ``[[events]]`` table, header included, without empty and comment lines behind it."""
    heads = [(i, match[1]) for i, line in enumerate(lines) if (match := _HEADER.match(line))]
    blocks = []
    for (begin, name), (end, _) in pairwise([*heads, (len(lines), "")]):
        if name == "events" and lines[begin].lstrip().startswith("[["):
            last = max((i for i in range(begin, end) if _KEY.match(lines[i])), default=begin)
            blocks.append((begin, last + 1))
    return blocks


def _block(lines: list[str], rule: EventRule) -> list[str]:
    settings = _settings(rule)
    known = {field.name for field in dataclasses.fields(rule)}
    out = []
    for line in lines:
        match = _KEY.match(line)
        if match is None or match["name"] not in known:
            out.append(line)
        elif match["name"] in settings:
            out.append(f"{match['key']}{_literal(settings.pop(match['name']))}{match['rest']}")
        # else it has its default now, and the line goes
    return [*out, *(f"{name} = {_literal(value)}" for name, value in settings.items())]
