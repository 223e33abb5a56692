"""Every candidate, what it costs, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence

from edge_export.report import charts
from edge_export.report.figures import BuildMetrics, Candidate
from edge_export.report.markup import (
    NONE,
    Content,
    Markup,
    digits3,
    joined,
    micros,
    percent,
    points,
    size,
    table,
    tag,
)
from edge_export.report.parts import section


def candidates(known: BuildMetrics) -> Markup:
    """What was tried: accuracy, bytes and time of each, and which of them ship where."""
    found = known.candidates()
    if not found:
        return Markup("")
    panels = [
        tag("div", tag("h3", f"Pareto front: {known.metric} against {by}"), drawn)
        for by in ("latency", "bytes")
        if (drawn := charts.pareto(found, by, known.metric)).text
    ]
    return section(
        "What was tried, what ships, what lost",
        tag(
            "p",
            "Every candidate was timed on the build machine, in turns with all others, and judged on validation "
            "groups. The recipe's limits decide, for each architecture by itself.",
        ),
        charts.legend(
            ("mark onnx", "ONNX, ships"),
            ("mark onnx lost", "ONNX, lost"),
            ("mark tflite", "TensorFlow Lite, ships"),
            ("mark tflite lost", "TensorFlow Lite, lost"),
            ("front line", "no candidate is both cheaper and better"),
        ),
        tag("div", joined(panels), class_="pair") if panels else Markup(""),
        tag("h3", "Time per window") if known.rows("timings") else Markup(""),
        tag(
            "p",
            "Sorted by the ratio to the reference. It is taken round by round, so that other work on the machine, "
            "which bends the times themselves, touches it little.",
            class_="note",
        )
        if known.rows("timings")
        else Markup(""),
        charts.latencies(found) if any(each.p50_us is not None for each in found) else Markup(""),
        _candidate_table(known, found),
        _limits(known),
    )


def _candidate_table(known: BuildMetrics, candidates: Sequence[Candidate]) -> Markup:
    threads = sorted({int(timing["threads"]) for each in candidates for timing in each.threaded})
    more = [f"{count} threads" for count in threads]
    head: tuple[str, ...] = (
        "",
        known.metric,
        "points lost",
        "on disk",
        "compressed",
        "median",
        *more,
        "of the reference",
        "",
    )
    rows: list[tuple[Content, ...]] = []
    for each in candidates:
        timing = each.timing
        ratio = (
            f"{digits3(timing['ratio'])} ({digits3(timing['ratio_low'])} to {digits3(timing['ratio_high'])})"
            if timing
            else NONE
        )
        rows.append(
            (
                each.name,
                percent(each.validation.value, 2) if each.validation else NONE,
                points(each.drop),
                size(each.size),
                size(each.zlib_size),
                micros(each.p50_us),
                *(_with_threads(each, count) for count in threads),
                ratio,
            )
        )
    dropped = tag(
        "p",
        "Never became a candidate: "
        + "; ".join(f"{name}: {why}" for name, why in known.table("left_out").items())
        + ".",
        class_="note",
    )
    fates = [(each.name, _fate(each)) for each in candidates if each.shipped or each.lost]
    return joined(
        (
            table(head, rows, numbers=range(1, 7 + len(threads))),
            table(("", "what became of it"), fates) if fates else Markup(""),
            dropped if known.table("left_out") else Markup(""),
        )
    )


def _with_threads(candidate: Candidate, threads: int) -> str:
    return micros(next((each["p50_us"] for each in candidate.threaded if each["threads"] == threads), None))


def _fate(candidate: Candidate) -> Markup:
    """Where it ships, and why not elsewhere; one sentence for targets that say the same."""
    parts: list[Markup] = []
    if candidate.shipped:
        parts.append(tag("div", f"ships for {', '.join(candidate.shipped)}", class_="ships"))
    reasons: dict[str, list[str]] = {}
    for target, why in candidate.lost.items():
        reasons.setdefault(why, []).append(target)
    parts += [tag("div", f"{', '.join(targets)}: {why}", class_="names") for why, targets in reasons.items()]
    return joined(parts) if parts else Markup(NONE)


def _limits(known: BuildMetrics) -> Markup:
    limits = known.table("limits")
    if not limits:
        return Markup("")
    said = []
    if limits.get("max_accuracy_drop") is not None:
        said.append(f"at most {100 * limits['max_accuracy_drop']:g} points of {known.metric} lost")
    if limits.get("max_bytes"):
        said.append(f"at most {size(limits['max_bytes'])}")
    if limits.get("max_latency_ms"):
        said.append(f"at most {limits['max_latency_ms']:g} ms per window")
    return tag("p", f"The recipe's limits: {', '.join(said)}; and nothing slower than fp32 ships.", class_="note")
