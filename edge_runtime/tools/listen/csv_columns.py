"""Columns of CSV text without names: which is the time, which says whose, and which are channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from edge_runtime.tools.listen.fields import Field, TopicFields
from edge_runtime.tools.listen.match import Match
from edge_runtime.tools.listen.stamps import keeps_time
from edge_runtime.tools.listen.table import Line

_TIME, _KEY = "t", "key"


def with_named_columns(seen: TopicFields, arrivals: Sequence[float]) -> TopicFields:
    """Name the columns of CSV text that has no header: the first that keeps time is ``t``, the first text is ``key``.

    Args:
        seen: the topic.
        arrivals: its messages' arrivals, wall-clock seconds; NaN where unknown.
    """
    if seen.dialect is None or seen.dialect.header or seen.dialect.pair:
        return seen
    fields: dict[str, Field] = {}
    for one in seen.fields.values():
        name = one.path
        if _TIME not in fields and keeps_time(one, arrivals):
            name = _TIME
        elif _KEY not in fields and one.kind == "text":
            name = _KEY
        fields[name] = replace(one, path=name)
    return replace(seen, fields=fields)


def csv_lines(seen: TopicFields, matches: Sequence[Match]) -> list[Line]:
    """State the form of CSV text; none for other formats."""
    dialect = seen.dialect
    if dialect is None:
        return []
    lines = []
    if not dialect.header and not dialect.pair:
        channel_of = {one.candidate.path: one.channel.name for one in matches} | {_TIME: _TIME, _KEY: _KEY}
        columns = [channel_of.get(path, "-") for path in seen.fields]
        lines.append(Line("columns", columns, "guess: by the order, since the columns have no names"))
    if dialect.separator != ",":
        lines.append(Line("separator", dialect.separator))
    if dialect.pair:
        lines.append(Line("pair", dialect.pair, "each cell names itself"))
    if dialect.decimal != ".":
        lines.append(Line("decimal", dialect.decimal))
    return lines
