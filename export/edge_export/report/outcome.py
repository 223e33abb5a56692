"""How right it is: on its own, with the cloud, and class by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge_export.report import charts
from edge_export.report.figures import BASELINE, TEACHER, BuildMetrics, Interval
from edge_export.report.markup import (
    NONE,
    Content,
    Markup,
    digits3,
    joined,
    percent,
    points,
    table,
    tag,
    thousands,
)
from edge_export.report.parts import section

_FEW = 5
"""Groups below which drawing them again and again shows no more than themselves."""


def accuracy(known: BuildMetrics) -> Markup:
    """Every file, the teacher and the plain baseline on test groups."""
    scores = _ranked(known)
    if not scores:
        return Markup("")
    other = "macro F1" if known.metric == "accuracy" else "accuracy"
    others = known.judged("test", other)
    judged = known.test["judged"]
    rows = [
        (
            tag("b", name) if name == known.device else name,
            percent(score.value, 2),
            f"{percent(score.low)} to {percent(score.high)}",
            percent(others[name].value, 2) if name in others else NONE,
            points(judged[name].get("drop" if known.metric == "accuracy" else "f1_drop")),
            percent(judged[name].get("flips"), 2),
        )
        for name, score in scores.items()
    ]
    return section(
        "How often it is right",
        tag("p", f"{known.device} is what the device runs. {_doubt(known)}"),
        charts.legend(
            ("mark device", "the device's file"),
            ("mark cloud", "the cloud's model"),
            ("mark baseline", "a random forest on simple features"),
            ("mark other", "other candidates"),
        ),
        charts.intervals(scores, known.device, known.metric),
        table(
            ("", known.metric, "95 % interval", other, "points lost to fp32", "answers that differ from fp32"),
            rows,
            numbers=(1, 2, 3, 4, 5),
        ),
    )


def _doubt(known: BuildMetrics) -> str:
    """What the intervals are, and when there is little to be had from them."""
    if known.metric == "accuracy":
        said = "Intervals hold 95 %: the wider ends of a bootstrap over whole groups and of Wilson's over windows."
    else:
        said = "Intervals hold 95 %, by a bootstrap over whole groups."
    groups = len(known.table("groups").get("test", ()))
    if 0 < groups < _FEW:
        said += f" With {groups} groups they say little about further ones."
    return said


def _ranked(known: BuildMetrics) -> dict[str, Interval]:
    """The device's file, what it is held against, then the other candidates, best first."""
    first = {known.device: 0, TEACHER: 1, BASELINE: 2}
    scores = known.judged("test")
    return dict(sorted(scores.items(), key=lambda item: (first.get(item[0], 3), -item[1].value, item[0])))


def gate(known: BuildMetrics) -> Markup:
    """What the cloud's answers add, and what the threshold promised."""
    curve, found, spec = known.test.get("curve") or [], known.test.get("gate") or {}, known.table("gate")
    if not curve or not found:
        return Markup("")
    promise = spec.get("promise", {})
    before = promise.get("validation", {})
    rows = [
        ("windows answered by the cloud", percent(before.get("forwarded")), percent(found.get("forwarded"))),
        (
            "right among answers that stay local",
            percent(before.get("local_accuracy"), 2),
            percent(found.get("local_accuracy"), 2),
        ),
        (
            "right in the end, device and cloud",
            percent(before.get("combined_accuracy"), 2),
            percent(found.get("combined_accuracy"), 2),
        ),
        ("right, device alone", percent(before.get("device_accuracy"), 2), percent(found.get("device_accuracy"), 2)),
        ("right, cloud alone", percent(before.get("cloud_accuracy"), 2), percent(found.get("cloud_accuracy"), 2)),
    ]
    bound = promise.get("bound")
    said = (
        "Asking the cloud does not pay, so only windows less sure than all of validation's are forwarded: "
        f"{promise['useless']}."
        if "withheld" in promise
        else f"The gate forwards windows whose {spec.get('score', 'score')} lies below "
        f"{digits3(spec.get('threshold', 0.0))}. The threshold was set on validation groups, after quantisation, at "
        f"temperature {known.plain.get('temperature', 1):g}."
    )
    said += _warnings(promise, before, found)
    if bound is not None:
        said += f" It promises at most {percent(bound)} wrong among local answers."
    return section(
        "What the cloud adds",
        tag("p", said),
        tag(
            "div",
            tag(
                "div",
                charts.legend(
                    ("series device line", "in the end"),
                    ("series baseline line", "local answers only"),
                    ("cloud dashed line", "cloud alone"),
                    ("mark ring device", "the gate"),
                ),
                charts.cascade(curve, found),
            ),
            tag("div", table(("", "when set", "on test groups"), rows, numbers=(1, 2))),
            class_="pair",
        ),
    )


_FAR = 1.5
"""Times as many windows forwarded as on validation groups from on which it is pointed out."""


def _warnings(promise: Mapping[str, Any], before: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Describe where the gate does other than was asked; sentences that follow another one."""
    lines = []
    if promise.get("useless") and "withheld" not in promise:
        lines.append(f"Asking the cloud does not pay: {promise['useless']}.")
    if found["combined_accuracy"] < found["device_accuracy"]:
        lines.append("On test groups the answers are worse with the cloud than without: run the device without one.")
    if found["forwarded"] > _FAR * before.get("forwarded", 1.0):
        lines.append(
            f"On test groups {percent(found['forwarded'])} of the windows are forwarded, {percent(before['forwarded'])}"
            " on validation groups: other people may be as unlike; [gate] max_share bounds it on the device."
        )
    shares = promise.get("forwarded_by_group", {}).values()
    if len(shares) > 1 and "withheld" not in promise:
        lines.append(f"By validation group it is {percent(min(shares))} to {percent(max(shares))}.")
    return "".join(f" {line}" for line in lines)


def errors(known: BuildMetrics) -> Markup:
    """Which class is taken for which, and what a confidence is worth."""
    counts = known.test.get("confusion") or []
    bins = [each for each in (known.test.get("calibration") or known.rows("calibration")) if each.get("count")]
    panels = []
    if counts:
        note = "Rows are labels, columns answers; counts of windows."
        panels.append(
            tag(
                "div",
                tag("h3", "Confusion matrix"),
                charts.confusion(counts, known.classes),
                tag("p", note, class_="note"),
            )
        )
    if bins:
        total = sum(each["count"] for each in bins)
        error = sum(each["count"] * abs(each["accuracy"] - each["confidence"]) for each in bins) / total
        note = (
            "On the dotted line answers are as often right as they claim. "
            f"Expected calibration error: {percent(error, 2)}."
        )
        panels.append(
            tag("div", tag("h3", "Calibration curve"), charts.calibration(bins), tag("p", note, class_="note"))
        )
    if not panels:
        return Markup("")
    crowded = len(known.classes) > 12
    parts: list[Content] = [joined(panels) if crowded else tag("div", joined(panels), class_="pair")]
    if counts:
        parts.append(_per_class(known, counts))
    return section("Where it errs", *parts)


def _per_class(known: BuildMetrics, counts: Sequence[Sequence[int]]) -> Markup:
    rows = []
    for i, name in enumerate(known.classes):
        labelled, answered = sum(counts[i]), sum(row[i] for row in counts)
        mistaken = max((j for j in range(len(counts)) if j != i), key=lambda j, i=i: counts[i][j], default=i)  # type: ignore[misc]
        rows.append(
            (
                name,
                thousands(labelled),
                percent(counts[i][i] / labelled if labelled else None),
                percent(counts[i][i] / answered if answered else None),
                f"{known.classes[mistaken]} ({counts[i][mistaken]})" if counts[i][mistaken] else NONE,
            )
        )
    head = ("class", "windows", "found (recall)", "right when named (precision)", "most often taken for")
    return table(head, rows, numbers=(1, 2, 3))
