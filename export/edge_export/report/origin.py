"""Where data and tools come from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from edge_export.report.figures import BuildMetrics
from edge_export.report.markup import (
    NONE,
    Content,
    Markup,
    joined,
    size,
    table,
    tag,
    thousands,
)
from edge_export.report.parts import facts, section


def data(known: BuildMetrics) -> Markup:
    """Origin and licence of the data, and who was asked what."""
    origins, groups, windows = known.rows("data"), known.table("groups"), known.table("windows")
    if not origins and not groups:
        return Markup("")
    parts: list[Content] = []
    if origins:
        rows = [
            (each.get("name", NONE), each.get("source", NONE), each.get("licence", NONE), each.get("cite") or NONE)
            for each in origins
        ]
        parts.append(table(("data", "source", "licence", "to cite"), rows))
    if groups:
        meaning = {
            "train": "training: fits the weights",
            "validation": "validation: every choice",
            "test": "test: asked once, at the end",
        }
        rows = [
            (
                meaning[name],
                thousands(windows.get(name)),
                thousands(len(members)),
                tag("span", _listed(members), class_="names"),
            )
            for name in meaning
            if (members := groups.get(name))
        ]
        parts += [
            tag("p", "No group (person, machine, recording) is in two sets."),
            table(("set", "windows", "groups", "which"), rows, numbers=(1, 2)),
        ]
    if notes := known.plain.get("data_notes"):
        parts += [tag("h3", "What to know of them"), tag("ul", joined(tag("li", str(note)) for note in notes))]
    return section("Data", *parts)


def _listed(names: Sequence[str], most: int = 40) -> str:
    shown = ", ".join(str(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, and {len(names) - most} more"


def bundles(known: BuildMetrics) -> Markup:
    """The files that were written."""
    written = known.table("bundles")
    if not written:
        return Markup("")
    rows = [(name, size(own.get("bytes")), size(own.get("zlib_bytes"))) for name, own in sorted(written.items())]
    return section("Bundles", table(("file", "on disk", "compressed"), rows, numbers=(1, 2)))


def made_with(known: BuildMetrics) -> Markup:
    """Versions of everything that took part."""
    versions = {**known.table("versions")}
    engines = dict.fromkeys(str(timing["engine"]) for timing in known.rows("timings") if timing.get("engine"))
    if not versions and not engines:
        return Markup("")
    known_facts: dict[str, Any] = {"versions": ", ".join(f"{name} {number}" for name, number in versions.items())}
    if engines:
        known_facts["engines timed"] = ", ".join(engines)
    if known.table("machine"):
        known_facts["machine"] = known.table("machine")
    return joined(
        (
            section("Made with", facts(known_facts)),
            tag("footer", "The same figures as numbers: report.json, beside this file."),
        )
    )
