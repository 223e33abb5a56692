"""Picture: one report of several workers, in the fields of one application's, so that the page and commands show it.

Counts and rates are sums; a latency is that of the slowest worker; an answer, event or drop stands as its worker gave
it. What says that something is wrong is taken from the worker where it is; levels and the board are the first worker's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from edge_runtime.operate.observe.report import MOST_KEYS, Query

Report = dict[str, Any]

_SHOWN: Final = 20


def merged(reports: Sequence[Report], query: Query, about: Mapping[str, Any]) -> Report:
    """Merge reports of workers.

    Args:
        reports: reports, at least one, by the worker's number.
        query: keys that the caller wants to see.
        about: more about the application; each worker under ``workers``.
    """
    first = reports[0]
    counts = _added([report["counts"] for report in reports])
    app = first["app"] | {"uptime_s": max(report["app"]["uptime_s"] for report in reports), **about}
    return {
        "at": max(report["at"] for report in reports),
        "app": app,
        "backend": _worst(reports, "backend", lambda one: bool(one.get("failed"))),
        "rates": _rates(reports, counts),
        "keys": _keys(reports, min(query.keys, MOST_KEYS)),
        "keys_found": sum(report["keys_found"] for report in reports),
        "events": _latest(reports, "events", "start"),
        "corrections": _latest(reports, "corrections", "end"),
        "alarms": _all(reports, "alarms"),
        "cloud": _cloud([report["cloud"] for report in reports]),
        "governor": _worst(reports, "governor", lambda one: bool(one and one.get("level"))),
        "update": first["update"],
        "sinks": _sinks(reports),
        "brokers": _brokers(reports),
        "latency_ms": _slowest([report["latency_ms"] for report in reports]),
        "counts": counts,
        "gauges": first["gauges"],
        "drops": _drops(reports),
        "outbox": _outbox([report["outbox"] for report in reports if report["outbox"] is not None]),
        "board": first["board"],
        "process": _added([report["process"] for report in reports]),
    }


def _all(reports: Sequence[Report], name: str) -> list[dict[str, Any]]:
    return [one for report in reports for one in report[name]]


def _keys(reports: Sequence[Report], most: int) -> list[dict[str, Any]]:
    """Take the keys that answered last, by name."""
    latest = sorted(_all(reports, "keys"), key=lambda one: float(one["age_s"]))[:most]
    return sorted(latest, key=lambda one: str(one["key"]))


def _brokers(reports: Sequence[Report]) -> dict[str, bool]:
    """Count a broker as connected where it is to every worker."""
    return {name: all(report["brokers"].get(name) for report in reports) for name in reports[0]["brokers"]}


def _sinks(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """Take each sink from the worker where it is stalled for longest; what waits and was dropped is that of all."""
    found = []
    for ones in zip(*(report["sinks"] for report in reports), strict=False):
        worst = max(ones, key=lambda one: float(one["stalled_s"]))
        sums = {"waiting": sum(one["waiting"] for one in ones), "dropped": _added([one["dropped"] for one in ones])}
        found.append(worst | sums)
    return found


def _added(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: round(sum(part.get(name, 0) for part in parts), 3) for name in names}


def _worst(reports: Sequence[Report], name: str, bad: Callable[[Any], bool]) -> Any:
    """Return a part of the first report where it is bad; else of the first."""
    return next((report[name] for report in reports if bad(report[name])), reports[0][name])


def _latest(reports: Sequence[Report], name: str, by: str) -> list[dict[str, Any]]:
    return sorted(_all(reports, name), key=lambda one: float(one[by] or 0))[-_SHOWN:]


def _rates(reports: Sequence[Report], counts: Mapping[str, Any]) -> dict[str, Any]:
    rates = _added([report["rates"] for report in reports])
    answers = max(1, counts.get("predictions_total", 0))
    return rates | {
        "hard_share": round(counts.get("hard_total", 0) / answers, 4),
        "cloud_share": round(counts.get("cloud_cases_total", 0) / answers, 4),
    }


def _cloud(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    reached = [part["reachable"] for part in parts if part["reachable"] is not None]
    sums = _added([{name: part[name] for name in ("cases", "failures", "corrections", "agreed")} for part in parts])
    return {"url": parts[0]["url"], "reachable": min(reached) if reached else None, **sums}


def _slowest(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Take each stage from the worker where half of all takes longest; its count is that of all."""
    names = dict.fromkeys(name for part in parts for name in part)
    found = {name: [part[name] for part in parts if name in part] for name in names}
    return {
        name: max(ones, key=lambda one: float(one["p99"])) | {"count": sum(one["count"] for one in ones)}
        for name, ones in found.items()
    }


def _drops(reports: Sequence[Report]) -> list[dict[str, Any]]:
    by_reason: dict[str, dict[str, Any]] = {}
    for report in reports:
        for one in report["drops"]:
            known = by_reason.get(one["reason"])
            by_reason[one["reason"]] = one if known is None else known | {"count": known["count"] + one["count"]}
    return sorted(by_reason.values(), key=lambda one: -int(one["count"]))


def _outbox(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Add up the counts; those by reason, too. The oldest case is the oldest of all."""
    if not parts:
        return None
    plain = _added([{name: n for name, n in part.items() if not isinstance(n, dict)} for part in parts])
    by_reason = {name: _added([part[name] for part in parts]) for name, n in parts[0].items() if isinstance(n, dict)}
    return plain | by_reason | {"oldest_age_s": max(part["oldest_age_s"] for part in parts)}
