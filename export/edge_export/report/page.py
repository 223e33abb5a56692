"""The page: its head, its sections in order, and its style."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from edge_export.report import contest, making, origin, outcome
from edge_export.report.figures import BuildMetrics
from edge_export.report.markup import Markup, joined, micros, percent, size, tag, thousands

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Browsers fetch nothing and run nothing, whatever a label or a name may hold."""


def page(figures: Mapping[str, Any]) -> str:
    """The whole file.

    Args:
        figures: as `edge_export.build.build` returns them.

    Raises:
        ConfigError: these are no figures of a build.
    """
    known = BuildMetrics(figures)
    name = str(known.plain["recipe"])
    sections = (
        _head(known),
        outcome.accuracy(known),
        contest.candidates(known),
        outcome.gate(known),
        outcome.errors(known),
        making.quantisation(known),
        making.pruning(known),
        making.streaming(known),
        making.teacher(known),
        origin.bundles(known),
        origin.data(known),
        origin.made_with(known),
    )
    style = files("edge_export.report").joinpath("style.css").read_text("utf-8")
    head = joined(
        (
            Markup('<meta charset="utf-8">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            tag("title", f"{name}: report"),
            tag("style", Markup(style)),
        )
    )
    html = tag("html", tag("head", head), tag("body", joined(sections)), lang="en")
    return f"<!doctype html>\n{html.text}\n"


def _head(known: BuildMetrics) -> Markup:
    accuracy = known.judged("test").get(known.device)
    device = next((each for each in known.candidates() if each.name == known.device), None)
    gate, windows = known.test.get("gate", {}), known.table("windows")
    tiles: list[Markup] = []
    if accuracy is not None:
        tiles.append(
            _tile(
                percent(accuracy.value),
                f"{known.metric} on the device, {percent(accuracy.low)} to {percent(accuracy.high)}",
            )
        )
    if gate:
        tiles.append(
            _tile(
                percent(gate["combined_accuracy"]),
                f"accuracy with {percent(gate['forwarded'])} of windows answered by the cloud",
            )
        )
    if device is not None and device.p50_us is not None:
        tiles.append(_tile(micros(device.p50_us), f"per window, one thread of the build machine ({device.name})"))
    if device is not None and device.size is not None:
        tiles.append(_tile(size(device.size), f"on disk, {size(device.zlib_size)} compressed ({device.name})"))
    elif known.table("student").get("parameters"):
        tiles.append(_tile(thousands(known.table("student")["parameters"]), "parameters of the device's network"))
    described = str(known.plain.get("description") or "")
    counted = f"{thousands(windows.get('test'))} windows" if windows else "the windows"
    groups = known.table("groups").get("test", [])
    return joined(
        (
            tag("h1", str(known.plain["recipe"])),
            tag("p", described, class_="lead") if described else Markup(""),
            tag(
                "p",
                f"Figures on test groups are of {counted} from {len(groups)} groups that nothing was trained on and "
                "nothing was chosen by.",
                class_="lead",
            ),
            tag("div", joined(tiles), class_="tiles"),
        )
    )


def _tile(number: str, meaning: str) -> Markup:
    return tag("div", tag("b", number), tag("span", meaning), class_="tile")
