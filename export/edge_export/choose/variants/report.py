"""The report of a run: a Markdown page with one table, and the same table for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from edge_export.choose.variants.decide import FileDecision, Rule, fastest
from edge_export.choose.variants.measured import SLOWER, Measured, Results

NAME = "quantize-report.md"


def rows(results: Results, decisions: Sequence[FileDecision]) -> list[tuple[str, ...]]:
    """Cells of the table, the heading first."""
    labelled = results.labelled > 0
    head = ("file", "bytes", "of float", "SNR dB", *(("accuracy %", "changed %") if labelled else ()), "median us",
            "time by float's", "95 % interval", "result")  # fmt: skip
    table = [head, _row(results.float_file, results, "the file given", labelled=labelled)]
    for each in decisions:
        result = "written" if each.written else f"refused: {each.reason}"
        table.append(_row(each.measured, results, result, labelled=labelled))
    return table


def _row(one: Measured, results: Results, result: str, *, labelled: bool) -> tuple[str, ...]:
    time = one.timing
    label = ("", "") if one.accuracy is None else (f"{100 * one.accuracy:.2f}", f"{100 * (one.changed or 0):.2f}")
    decibels = "" if one.reason else "equal" if one.db == math.inf else f"{one.db:.1f}"
    return (
        one.file.name,
        f"{len(one.file.model):,}",
        f"{100 * len(one.file.model) / len(results.float_file.file.model):.0f} %",
        decibels,
        *(label if labelled else ()),
        "" if time is None else f"{time.p50_us:.1f}",
        "" if time is None else f"{time.ratio:.2f}",
        "" if time is None else f"{time.ratio_low:.2f} to {time.ratio_high:.2f}",
        result,
    )


def text(table: Sequence[Sequence[str]]) -> str:
    """Arrange the table for a terminal; the last column is as long as it is."""
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]) - 1)]
    lines = []
    for row in table:
        cells = [
            cell.ljust(width) if not i else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return "\n".join(lines)


def markdown(
    name: str,
    results: Results,
    decisions: Sequence[FileDecision],
    missing: Mapping[str, str],
    rule: Rule,
    notes: Sequence[str],
    written: Mapping[str, str],
) -> str:
    """Write the page.

    Args:
        name: the model's name.
        results: what was measured.
        decisions: the decision on each file.
        missing: why an algorithm made no file, by name.
        rule: the rule that was applied.
        notes: sentences on data and machine settings.
        written: name of the file on disk, by variant.
    """
    table = rows(results, decisions)
    best = fastest(decisions)
    versions = ", ".join(f"{package} {version}" for package, version in sorted(results.machine.versions.items()))
    lines = [
        f"# Variants of {name}",
        "",
        _summary(results, best, written),
        "",
        f"| {' | '.join(table[0])} |",
        f"| {' | '.join(['---', *['---:'] * (len(table[0]) - 2), '---'])} |",
        *(f"| {' | '.join(row)} |" for row in table[1:]),
        "",
        "## Not made",
        "",
        *(f"- {what}: {reason}" for what, reason in missing.items()),
        *(() if missing else ("- nothing: every algorithm made a file",)),
        "",
        "## How",
        "",
        *(f"- {each.measured.file.name}: {each.measured.file.how}" for each in decisions),
        "",
        "## Rule and noise",
        "",
        f"- {_rule(results, rule)}",
        f"- {_time(results)}",
        "- SNR: power of the float file's answers over power of the difference, worst output, on held-out calls only.",
        *(f"- {note}" for note in notes),
        f"- Machine: {results.machine.label}; {versions}.",
    ]
    return "\n".join(lines) + "\n"


def _time(results: Results) -> str:
    least, seen = (100 * (value - 1) for value in (SLOWER, results.noise))
    noise = f"{seen:.1f} % are noise (two loads of the float file, {least:.0f} % at least)"
    return f"Time: one thread, one call after the other, all files in turns in one process; {noise}."


def _rule(results: Results, rule: Rule) -> str:
    limit = f"at least {rule.min_snr:g} dB on {results.calls} calls (not all have labels)"
    if results.labelled:
        limit = f"at most {rule.max_loss:g} points of accuracy lost on {results.labelled} labelled calls"
    return f"Written: {limit}, and not slower than float."


def _summary(results: Results, best: FileDecision | None, written: Mapping[str, str]) -> str:
    if best is None or best.measured.timing is None:
        return "No variant is within the loss, not slower than the float file and a gain: keep the float file."
    one, ratio = best.measured, best.measured.timing.ratio
    size = 100 * len(one.file.model) / len(results.float_file.file.model)
    name = written[one.file.name]
    return f"Fastest: `{name}`, {ratio:.2f} times the time and {size:.0f} % of the bytes of the float file."
