"""The page: ``templates/page.html``, filled with the figures of one build."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from edge_export.report import charts, learning, waveforms
from edge_export.report.figures import BuildMetrics
from edge_export.report.markup import NONE, digits3, joined, micros, percent, points, size, tag, thousands
from edge_export.report.next_steps import next_steps
from edge_export.report.verdict import verdict


def page(figures: Mapping[str, Any]) -> str:
    """Fill the template.

    Args:
        figures: the figures, as `edge_export.build.build` returns them.

    Raises:
        ConfigError: these are no figures of a build.
    """
    known = BuildMetrics(figures)
    text: str = (
        _templates()
        .get_template("page.html")
        .render(
            known=known,
            findings=verdict(known),
            steps=next_steps(known),
            charts=charts,
            learning=learning,
            waveforms=waveforms,
            NONE=NONE,
        )
    )
    return text


@functools.cache
def _templates() -> Environment:
    """Open ``templates/`` with the filters that its pages use."""
    found = Environment(
        loader=PackageLoader("edge_export.report"),
        autoescape=True,
        extensions=["jinja2.ext.do"],
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    filters = (by_class, calibration_error, digits3, fact, micros, percent, points, size, thousands, typed, whose)
    found.filters |= {each.__name__: each for each in filters}
    return found


def fact(value: Any, key: str) -> str:
    """Write a figure by what its name says of it: ``_us`` are microseconds, ``bytes`` bytes."""
    match value:
        case bool():
            return "yes" if value else "no"
        case list():
            return ", ".join(map(str, value))
        case int() | float() if key.endswith("_us"):
            return micros(value)
        case int() | float() if key.endswith("bytes"):
            return size(value)
        case float():
            return f"{value:.1e}" if 0 < abs(value) < 1e-3 else digits3(value)
        case int():
            return thousands(value)
    return str(value)


def by_class(counts: Sequence[Sequence[int]], classes: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Sum up a confusion matrix, a table for each class.

    Args:
        counts: rows are labels, columns answers.
        classes: their names.
    """
    for i, name in enumerate(classes):
        right, windows, answered = counts[i][i], sum(counts[i]), sum(row[i] for row in counts)
        others = [j for j in range(len(counts)) if j != i]
        mistaken = max(others, key=counts[i].__getitem__, default=i)
        yield {
            "name": name,
            "windows": windows,
            "recall": right / windows if windows else None,
            "precision": right / answered if answered else None,
            "taken_for": classes[mistaken],
            "times": counts[i][mistaken],
        }


def typed(command: str) -> Markup:
    """Write a command whose lines break between words alone, so that none is read as two."""
    return tag("code", joined(tag("span", word) + " " for word in command.split(" ")))


def whose(pair: Mapping[str, Any]) -> str:
    """Say which group a confused pair comes from most, ``, 33 of them from group 4``; empty where it is not known."""
    by_group: Mapping[str, int] = pair["by_group"]
    if not by_group:
        return ""
    group = max(by_group, key=lambda name: by_group[name])
    many = "all" if by_group[group] == pair["count"] else str(by_group[group])
    return f", {many} of them from group {group}"


def calibration_error(bins: Sequence[Mapping[str, Any]]) -> float:
    """Return the expected calibration error of bins that hold windows (Guo et al. 2017, arXiv:1706.04599)."""
    apart = sum(each["count"] * abs(each["accuracy"] - each["confidence"]) for each in bins)
    return float(apart / sum(each["count"] for each in bins))
