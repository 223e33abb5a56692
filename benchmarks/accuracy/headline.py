"""Headline of a set: accuracy at the device's bytes and microseconds, beside peers and the best that is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.accuracy.cost import Cost
from benchmarks.accuracy.sets import Set
from benchmarks.accuracy.table import DEVICE, Line

HEAD = "| set | bytes | us | today | all | best known | gap closed | peers |\n|---|---|---|---|---|---|---|---|"


def best_known(one: Set, lines: Sequence[Line], ours: Sequence[str]) -> tuple[float, str]:
    """Return the highest accuracy for the task and whose it is: published, a peer's, or the teacher's.

    Args:
        one: the set.
        lines: of its table.
        ours: names of the rows with the device's network.
    """
    rows = [(line.accuracy.mean, line.name) for line in lines if line.name not in ours]
    if one.published is not None:
        rows.append((one.published.accuracy, one.published.source))
    return max(rows)


def closed(today: float, now: float, best: float) -> str:
    """Return the share of the gap to the best that is closed, in words where there is none."""
    if best <= today:
        return "no gap"
    return f"{(now - today) / (best - today):.0%}"


def row(
    one: Set,
    lines: Sequence[Line],
    ours: Sequence[str],
    costs: Mapping[str, Cost],
    seeds: Mapping[str, Sequence[float]],
) -> str:
    """Return the row of a set in the headline's table.

    Args:
        one: the set.
        lines: of its table.
        ours: names of the rows with the device's network, today's first, the last one with all.
        costs: by row.
        seeds: accuracies of several trainings, by row.
    """
    by_name = {line.name: line for line in lines}

    def told(name: str) -> str:
        found = f"{by_name[name].accuracy.mean:.3f}"
        spread = seeds.get(name, ())
        return f"{found} ({min(spread):.3f} to {max(spread):.3f})" if len(spread) > 1 else found

    today, now = by_name[ours[0]].accuracy.mean, by_name[ours[-1]].accuracy.mean
    best, whose = best_known(one, lines, ours)
    peers = "; ".join(
        f"{line.name} {told(line.name)}"
        + (f", {times(costs[line.name].size / costs[DEVICE].size)}" if line.name in costs else "")
        for line in lines
        if line.name not in ours
    )
    device = costs[DEVICE]
    return (
        f"| {one.name} | {device.size:,} | {device.us:,.0f} | {told(ours[0])} | {told(ours[-1])} "
        f"| {best:.3f} ({whose}) | {closed(today, now, best)} | {peers} |"
    )


def times(ratio: float) -> str:
    """Return how many times the device's bytes another model has."""
    return f"{ratio:.3g} x the bytes"
