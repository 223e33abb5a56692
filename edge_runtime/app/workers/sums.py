"""Sums: one page of metrics out of the pages of several workers.

1. Counters and histograms are added up. A gauge means nothing as a sum, so each keeps a label ``worker``.
2. A sum never falls: what a worker had counted when it ended is kept, and one that does not answer counts as before.

Source: prometheus.io/docs/instrumenting/exposition_formats, text format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_runtime.operate.observe.exposition import Family, render_families


def parse(page: str) -> dict[str, Family]:
    """Read a page that our own exposition wrote."""
    found: dict[str, Family] = {}
    current = ""
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            _, _, current, kind = line.split(" ", maxsplit=3)
            found[current] = Family(kind, {})
        elif current and line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[current].samples[name] = float(value)
    return found


@dataclass(slots=True)
class _Counted:
    """Counters and histograms of one worker."""

    pid: int = 0
    now: dict[str, Family] = field(default_factory=dict)
    before: list[dict[str, Family]] = field(default_factory=list)
    """Of its processes that have ended, added up: at most one."""


class Sums:
    """Adds up, over restarts of workers. Belongs to one thread."""

    def __init__(self) -> None:
        self._workers: dict[int, _Counted] = {}

    def page(self, pages: Mapping[int, tuple[int, str]], own: Mapping[str, Family], *, openmetrics: bool) -> bytes:
        """Make one page.

        Args:
            pages: process id and page of each worker that answered, by its number.
            own: what the parent counts, by name.
            openmetrics: the format is OpenMetrics, else Prometheus' own.
        """
        merged: dict[str, Family] = {}
        for worker, (pid, text) in pages.items():
            found = parse(text)
            self._note(worker, pid, {name: one for name, one in found.items() if one.kind != "gauge"})
            _add(merged, {name: _labelled(one, worker) for name, one in found.items() if one.kind == "gauge"})
        for counted in self._workers.values():
            _add(merged, *counted.before, counted.now)
        _add(merged, own)
        return render_families(merged, openmetrics=openmetrics)

    def _note(self, worker: int, pid: int, families: dict[str, Family]) -> None:
        """Keep what a worker has counted (rule 2)."""
        counted = self._workers.setdefault(worker, _Counted(pid))
        if counted.pid != pid:
            ended: dict[str, Family] = {}
            _add(ended, *counted.before, counted.now)
            counted.pid, counted.before = pid, [ended]
        counted.now = families


def _add(into: dict[str, Family], *parts: Mapping[str, Family]) -> None:
    """Add samples to those of the same name, labels included."""
    for name, family in [one for part in parts for one in part.items()]:
        samples = into.setdefault(name, family._replace(samples={})).samples
        for sample, value in family.samples.items():
            samples[sample] = samples.get(sample, 0.0) + value


def _labelled(family: Family, worker: int) -> Family:
    """Add the label of a worker to each sample."""
    samples = {}
    for sample, value in family.samples.items():
        name, brace, rest = sample.partition("{")
        samples[f'{name}{{worker="{worker}"{"," if brace else "}"}{rest}'] = value
    return family._replace(samples=samples)
