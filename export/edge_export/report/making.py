"""What was done to the network on its way to the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge_export.report import charts
from edge_export.report.figures import TEACHER, BuildMetrics
from edge_export.report.markup import (
    NONE,
    Content,
    Markup,
    digits3,
    joined,
    micros,
    percent,
    points,
    table,
    tag,
    thousands,
)
from edge_export.report.parts import facts, section


def quantisation(known: BuildMetrics) -> Markup:
    """How integers were found, and which layers suffer from them."""
    found, layers = known.table("quantisation"), known.rows("sensitivity")
    if not found and not layers:
        return Markup("")
    parts: list[Content] = []
    if found:
        float_score, tried = found.get("float_score"), found.get("tried") or {}
        rows: list[tuple[Content, ...]] = [("float", percent(float_score, 2), NONE)]
        rows += [
            (
                tag("b", f"{way} (taken)") if way == found.get("ranges") else way,
                percent(score, 2),
                points(float_score - score) if float_score is not None else NONE,
            )
            for way, score in tried.items()
        ]
        parts += [
            tag("p", "How the ranges of the integers were found, and what validation groups say of each way."),
            table(("ranges", known.metric, "points lost"), rows, numbers=(1, 2)),
        ]
        kept = found.get("kept_in_float") or []
        parts.append(
            table(("layer kept in float", "because"), [(each["layer"], each["reason"]) for each in kept])
            if kept
            else tag("p", "No layer had to stay in float.")
        )
        if in_float := found.get("operators_in_float"):
            parts.append(table(("operator in float", "because"), list(in_float.items())))
    measured = [each for each in layers if each.get("drop") is not None]
    noisy = [each for each in layers if each.get("alone_db") is not None]
    if measured:
        said = "What is lost when this layer alone is made of integers. Bytes are those of its weights."
        parts += [tag("h3", "Sensitivity of each layer"), tag("p", said), charts.losses(measured, known.metric)]
    elif noisy:
        said = (
            "How far the answers stand above the rounding noise when this layer alone is made of integers: the "
            "shortest bars suffer most, and 6 dB are one bit. Bytes are those of its weights."
        )
        parts += [tag("h3", "Sensitivity of each layer"), tag("p", said), charts.noises(noisy)]
    return section("Integers", *parts)


def pruning(known: BuildMetrics) -> Markup:
    """Channels that were taken out, step by step."""
    found = known.table("pruning")
    before, steps = found.get("before") or {}, [each for each in found.get("steps", ()) if "parameters" in each]
    if not steps:
        return Markup("")
    refused = [each for each in steps if not each.get("kept", True)]
    rows = [("before", *_sizes(before), NONE, percent(before.get("score"), 2))]
    for count, each in enumerate(steps, start=1):
        name = str(count) if each.get("kept", True) else f"{count}, taken back"
        rows.append((name, *_sizes(each), percent(each.get("before_training"), 2), percent(each.get("score"), 2)))
    places = [
        (int(each["parameters"]), each["score"], each.get("before_training"))
        for each in (before, *steps)
        if each.get("score") is not None and "parameters" in each
    ]
    said = "Channels were cut in steps, and the network was tuned after each one"
    said += "; a step that lost more than the recipe allows was taken back." if refused else "."
    return section(
        "Pruning",
        tag("p", said),
        tag(
            "div",
            tag("div", charts.pruning(places, known.metric)) if len(places) > 1 else Markup(""),
            tag("div", table(("step", "parameters", "MACs", "when cut", "when tuned"), rows, numbers=(1, 2, 3, 4))),
            class_="pair",
        ),
    )


def _sizes(step: Mapping[str, Any]) -> tuple[str, str]:
    return thousands(step.get("parameters")), thousands(step.get("macs"))


def streaming(known: BuildMetrics) -> Markup:
    """The student as a graph that computes only what a hop brings."""
    found = dict(known.table("streaming"))
    if not found:
        return Markup("")
    update, window = found.get("update_us"), found.get("window_us")
    said: list[Content] = []
    if update and window:
        ratio = window / update
        said_of = (
            f"{digits3(ratio)} times less" if ratio > 1 else f"{digits3(1 / ratio)} times as much, so it does not pay"
        )
        sentence = (
            f"An update takes {micros(update)}, the whole window {micros(window)}: {said_of}, on one thread, both "
            "taking turns."
        )
        said.append(tag("p", sentence))
    told = ("update_us", "window_us", "times_less") if said else ()
    return section("Streaming", *said, facts({key: value for key, value in found.items() if key not in told}))


def teacher(known: BuildMetrics) -> Markup:
    """The cloud's model and the device's network side by side."""
    large, small, times = known.table("teacher"), known.table("student"), known.table("against_teacher")
    if not large and not small:
        return Markup("")
    on_disk, compressed = known.teacher_bytes
    halves: dict[str, dict[str, Any]] = {}
    if large:
        tried = ", ".join(percent(score, 2) for score in large.get("tried", ()))
        halves["The cloud's model"] = {
            "networks": large.get("members"),
            "bytes": on_disk,
            "compressed_bytes": compressed,
            "window_us": times.get(TEACHER, {}).get("p50_us"),
            "temperature": large.get("temperature"),
            f"{known.metric} of the candidates, smallest first": tried or None,
        }
    if small:
        halves["The device's network"] = dict(small)
    candidates = known.candidates()
    said = []
    for each in candidates:
        ratios = []
        if on_disk and each.size and (each.shipped or each.name == known.device):
            ratios.append(f"{digits3(on_disk / each.size)} times smaller")
        if faster := times.get(each.name, {}).get("times_faster"):
            ratios.append(f"{digits3(faster)} times faster on one thread")
        if ratios:
            said.append(f"{each.name} is {' and '.join(ratios)}")
    sentence = f"Against the cloud's model, {'; '.join(said)}." if said else ""
    columns = [tag("div", tag("h3", name), facts(own)) for name, own in halves.items()]
    return section(
        "Teacher and student",
        tag("p", sentence) if sentence else Markup(""),
        tag("div", joined(columns), class_="pair"),
    )
