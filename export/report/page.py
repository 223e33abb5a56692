"""The report's sections: what each says in words, its drawings and its tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from export.report import charts
from export.report.figures import BASELINE, TEACHER, Candidate, Figures, Interval
from export.report.markup import (
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
    thousands,
)

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Browsers fetch nothing and run nothing, whatever a label or a name may hold."""


def page(figures: Mapping[str, Any]) -> str:
    """The whole file.

    Args:
        figures: as `export.build.build` returns them.

    Raises:
        ConfigError: these are no figures of a build.
    """
    known = Figures(figures)
    name = str(known.plain["recipe"])
    sections = (
        _head(known),
        _accuracy(known),
        _candidates(known),
        _gate(known),
        _errors(known),
        _sensitivity(known),
        _pruning(known),
        _streaming(known),
        _teacher(known),
        _data(known),
        _made_with(known),
    )
    style = files("export.report").joinpath("style.css").read_text("utf-8")
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


def _head(known: Figures) -> Markup:
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


def _section(title: str, *parts: Content) -> Markup:
    return tag("section", tag("h2", title), joined(parts))


def _accuracy(known: Figures) -> Markup:
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
    return _section(
        "How often it is right",
        tag(
            "p",
            f"{known.device} is what the device runs. Intervals hold 95 %: the wider ends of a bootstrap over whole "
            "groups and of Wilson's interval over windows.",
        ),
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


def _ranked(known: Figures) -> dict[str, Interval]:
    """The device's file, what it is held against, then the other candidates, best first."""
    first = {known.device: 0, TEACHER: 1, BASELINE: 2}
    scores = known.judged("test")
    return dict(sorted(scores.items(), key=lambda item: (first.get(item[0], 3), -item[1].value, item[0])))


# -- candidates --------------------------------------------------------------------------------------------------------


def _candidates(known: Figures) -> Markup:
    candidates = known.candidates()
    if not candidates:
        return Markup("")
    panels = [
        tag("div", tag("h3", f"Pareto front: {known.metric} against {by}"), drawn)
        for by in ("latency", "bytes")
        if (drawn := charts.pareto(candidates, by, known.metric)).text
    ]
    return _section(
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
        charts.latencies(candidates) if any(each.p50_us is not None for each in candidates) else Markup(""),
        _candidate_table(known, candidates),
        _limits(known),
    )


def _candidate_table(known: Figures, candidates: Sequence[Candidate]) -> Markup:
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


def _limits(known: Figures) -> Markup:
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


# -- gate and errors ---------------------------------------------------------------------------------------------------


def _gate(known: Figures) -> Markup:
    curve, found, gate = known.test.get("curve") or [], known.test.get("gate") or {}, known.table("gate")
    if not curve or not found:
        return Markup("")
    promise = gate.get("promise", {})
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
        f"The gate forwards windows whose {gate.get('score', 'score')} lies below "
        f"{digits3(gate.get('threshold', 0.0))}. The threshold was set on validation groups, after quantisation, at "
        f"temperature {known.plain.get('temperature', 1):g}."
    )
    if bound is not None:
        said += f" It promises at most {percent(bound)} wrong among local answers."
    return _section(
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


def _errors(known: Figures) -> Markup:
    counts = known.test.get("confusion") or []
    bins = [each for each in known.rows("calibration") if each.get("count")]
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
    return _section("Where it errs", *parts)


def _per_class(known: Figures, counts: Sequence[Sequence[int]]) -> Markup:
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


# -- what was done to the network --------------------------------------------------------------------------------------


def _sensitivity(known: Figures) -> Markup:
    layers = [each for each in known.rows("sensitivity") if each.get("drop") is not None]
    if not layers:
        return Markup("")
    kept = known.rows("kept")
    said = "What is lost when this layer alone is made of integers. Bytes are those of its weights."
    return _section(
        "Which layers suffer from integers",
        tag("p", said),
        charts.sensitivity(layers, known.metric),
        table(("kept in float", "because"), [(each["layer"], each["reason"]) for each in kept]) if kept else Markup(""),
    )


def _pruning(known: Figures) -> Markup:
    pruning = known.table("pruning")
    steps = [each for each in pruning.get("steps", ()) if each.get("size")]
    if not steps:
        return Markup("")
    original, refused = pruning.get("original") or {}, pruning.get("refused")
    rows = [
        (
            "before",
            thousands(original.get("parameters")),
            thousands(original.get("macs")),
            NONE,
            percent(pruning.get("score"), 2),
        ),
        *(_prune_row(f"{step}", each) for step, each in enumerate(steps, start=1)),
        *([_prune_row("refused", refused)] if refused else []),
    ]
    places = [
        (int(each["size"]["parameters"]), each["after"], each.get("before"))
        for each in steps
        if each.get("after") is not None
    ]
    if places and original.get("parameters") and pruning.get("score") is not None:
        places.insert(0, (int(original["parameters"]), pruning["score"], None))
    said = "Channels were cut in steps, and the network was tuned after each one"
    said += "; the last step lost more than the recipe allows and was taken back." if refused else "."
    return _section(
        "Pruning",
        tag("p", said),
        tag(
            "div",
            tag("div", charts.pruning(places, known.metric)) if len(places) > 1 else Markup(""),
            tag("div", table(("step", "parameters", "MACs", "when cut", "when tuned"), rows, numbers=(1, 2, 3, 4))),
            class_="pair",
        ),
    )


def _prune_row(name: str, step: Mapping[str, Any]) -> tuple[str, ...]:
    left = step.get("size", {})
    return (
        name,
        thousands(left.get("parameters")),
        thousands(left.get("macs")),
        percent(step.get("before"), 2),
        percent(step.get("after"), 2),
    )


def _streaming(known: Figures) -> Markup:
    found = known.table("streaming")
    return _section("Streaming", _facts(found)) if found else Markup("")


def _facts(values: Mapping[str, Any]) -> Markup:
    """A table of figures whose names say what they are, ``window_us`` for instance."""
    rows: list[Content] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += [tag("dt", _words(key)), tag("dd", _facts(value))]
        elif value is not None:
            rows += [tag("dt", _words(key)), tag("dd", _said(key, value))]
    return tag("dl", joined(rows))


def _words(key: str) -> str:
    return key.removesuffix("_us").replace("_", " ")


def _said(key: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(str(each) for each in value)
    if isinstance(value, int | float):
        if key.endswith("_us"):
            return micros(value)
        if key.endswith("bytes"):
            return size(value)
        if isinstance(value, float):
            return f"{value:.1e}" if 0 < abs(value) < 1e-3 else digits3(value)
        return thousands(value)
    return str(value)


def _teacher(known: Figures) -> Markup:
    teacher, student = known.table("teacher"), known.table("student")
    if not teacher and not student:
        return Markup("")
    on_disk, compressed = known.teacher_bytes
    facts: dict[str, dict[str, Any]] = {}
    if teacher:
        tried = ", ".join(percent(score, 2) for score in teacher.get("tried", ()))
        facts["The cloud's model"] = {
            "networks": teacher.get("members"),
            "bytes": on_disk,
            "compressed_bytes": compressed,
            "temperature": teacher.get("temperature"),
            f"{known.metric} of the candidates, smallest first": tried or None,
        }
    if student:
        facts["The device's network"] = {**student}
    found = known.candidates()
    device = next((each for each in found if each.name == known.device), None)
    smallest = min((each.size for each in found if each.size and each.shipped), default=None)
    said: list[Content] = []
    if on_disk and device is not None and device.size and smallest:
        said.append(
            f"The device's file is {digits3(on_disk / device.size)} times smaller than the cloud's model; the smallest "
            f"that ships, {digits3(on_disk / smallest)} times."
        )
    halves = [tag("div", tag("h3", name), _facts(own)) for name, own in facts.items()]
    return _section(
        "Teacher and student", *(tag("p", text) for text in said), tag("div", joined(halves), class_="pair")
    )


# -- where it comes from -----------------------------------------------------------------------------------------------


def _data(known: Figures) -> Markup:
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
                meaning.get(name, name),
                thousands(windows.get(name)),
                thousands(len(members)),
                tag("span", _listed(members), class_="names"),
            )
            for name, members in groups.items()
        ]
        parts += [
            tag("p", "No group (person, machine, recording) is in two sets."),
            table(("set", "windows", "groups", "which"), rows, numbers=(1, 2)),
        ]
    return _section("Data", *parts)


def _listed(names: Sequence[str], most: int = 40) -> str:
    shown = ", ".join(str(name) for name in names[:most])
    return shown if len(names) <= most else f"{shown}, and {len(names) - most} more"


def _made_with(known: Figures) -> Markup:
    versions = {**known.table("versions")}
    engines = dict.fromkeys(str(timing["engine"]) for timing in known.rows("timings") if timing.get("engine"))
    if not versions and not engines:
        return Markup("")
    facts: dict[str, Any] = {"versions": ", ".join(f"{name} {number}" for name, number in versions.items())}
    if engines:
        facts["engines timed"] = ", ".join(engines)
    if known.table("machine"):
        facts["machine"] = known.table("machine")
    return joined(
        (
            _section("Made with", _facts(facts)),
            tag("footer", "The same figures as numbers: report.json, beside this file."),
        )
    )
