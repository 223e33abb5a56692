"""Prometheus exposition: the text format 0.0.4 and OpenMetrics 1.0, from `Metrics`.

Names get the prefix ``edge_``. A name may carry labels already, as in ``state_resets_total{reason="gap"}``; drop
reasons become ``edge_dropped_total{reason="late"}``, stages ``edge_stage_seconds{stage="engine"}``.

Sources: prometheus.io/docs/instrumenting/exposition_formats; the OpenMetrics specification, version 1.0.0.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from edge_runtime._version import __version__
from edge_runtime.metrics import BOUNDS_S, Metrics
from edge_runtime.operate.observe.catalogue import DROPPED, STAGE, described

if TYPE_CHECKING:
    from edge_runtime.operate.server.server import ServerStats

PREFIX: Final = "edge_"
_BOUNDS: Final = tuple(f"{bound:g}" for bound in BOUNDS_S)


class Figures(NamedTuple):
    """Figures that an exporter shows besides `Metrics`."""

    counts: Mapping[str, float]
    gauges: Mapping[str, float]
    info: Mapping[str, str]
    """Labels of ``edge_build_info``."""


def render(
    metrics: Metrics,
    *,
    openmetrics: bool = False,
    counts: Mapping[str, float] | None = None,
    gauges: Mapping[str, float] | None = None,
    info: Mapping[str, str] | None = None,
) -> bytes:
    """Render all figures; from any thread.

    Args:
        metrics: the application's metrics.
        openmetrics: OpenMetrics' format, else Prometheus' own.
        counts: further counters, by name.
        gauges: further levels, by name.
        info: labels of ``edge_build_info``.
    """
    lines: list[str] = []
    _families(lines, {**dict(metrics.counts), **(counts or {})}, "counter", openmetrics=openmetrics)
    _head(lines, DROPPED, "counter", openmetrics=openmetrics)
    for reason, count in sorted(dict(metrics.dropped).items()):
        lines.append(f'{PREFIX}{DROPPED}{{reason="{escape(reason)}"}} {count}')
    _families(lines, {**dict(metrics.gauges), **(gauges or {})}, "gauge", openmetrics=openmetrics)
    if info:
        labels = ",".join(f'{name}="{escape(value)}"' for name, value in info.items())
        _head(lines, "build_info", "gauge", openmetrics=openmetrics)
        lines.append(f"{PREFIX}build_info{{{labels}}} 1")
    if metrics.stages:
        _head(lines, STAGE, "histogram", openmetrics=openmetrics)
    for stage, histogram in metrics.stages.items():
        totals = list(itertools.accumulate(histogram.counts))
        for bound, total in zip((*_BOUNDS, "+Inf"), totals, strict=True):
            lines.append(f'{PREFIX}{STAGE}_bucket{{stage="{stage}",le="{bound}"}} {total}')
        lines.append(f'{PREFIX}{STAGE}_count{{stage="{stage}"}} {totals[-1]}')
        lines.append(f'{PREFIX}{STAGE}_sum{{stage="{stage}"}} {histogram.total_s:.9g}')
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


class Family(NamedTuple):
    """Samples of one name, which were rendered already."""

    kind: str
    """``counter``, ``gauge`` or ``histogram``."""
    samples: dict[str, float]
    """By name, labels included."""


def render_families(families: Mapping[str, Family], *, openmetrics: bool) -> bytes:
    """Render samples that carry their names already, as those of several processes do.

    Args:
        families: kind and samples of each family, by its name.
        openmetrics: OpenMetrics' format, else Prometheus' own.
    """
    lines: list[str] = []
    for name in sorted(families):
        one = families[name]
        _head(lines, name.removeprefix(PREFIX), one.kind, openmetrics=openmetrics)
        lines += [f"{sample} {_plain(value)}" for sample, value in one.samples.items()]
    if openmetrics:
        lines.append("# EOF")
    return ("\n".join(lines) + "\n").encode()


def render_server(stats: ServerStats, openmetrics: bool) -> bytes:
    """Render the figures of ``edge-runtime serve``."""
    metrics = Metrics(stages={})
    for status, answers in stats.answers.items():
        metrics.counts[f'serve_answers_total{{status="{status}"}}'] = answers
    metrics.counts["serve_batches_total"] = stats.batches
    metrics.counts["serve_windows_total"] = stats.windows
    metrics.counts["serve_model_failures_total"] = stats.model_failures
    metrics.counts["serve_connections_refused_total"] = stats.refused_connections
    metrics.counts["serve_connections_dropped_total"] = stats.dropped_connections
    metrics.counts["serve_connections_evicted_total"] = stats.evicted_connections
    metrics.counts["serve_sequences_evicted_total"] = stats.evicted_sequences
    metrics.gauges["serve_connections"] = stats.connections
    return render(metrics, openmetrics=openmetrics, info={"version": __version__})


def _families(lines: list[str], values: Mapping[str, float], kind: str, *, openmetrics: bool) -> None:
    """Append samples, those of one name together, as both formats want it."""
    for name, group in itertools.groupby(sorted(values), key=_base):
        _head(lines, name, kind, openmetrics=openmetrics)
        lines += [f"{PREFIX}{one} {_number(values[one])}" for one in group]


def _base(name: str) -> str:
    return name.partition("{")[0]


def _head(lines: list[str], name: str, kind: str, *, openmetrics: bool) -> None:
    family = name.removesuffix("_total") if openmetrics and kind == "counter" else name
    lines.append(f"# HELP {PREFIX}{family} {described(name)}")
    lines.append(f"# TYPE {PREFIX}{family} {kind}")


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.10g}"


def _plain(value: float) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < 2**53 else f"{value:.10g}"


def escape(text: str) -> str:
    r"""Escape a label's value: ``\``, ``"`` and line ends."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
