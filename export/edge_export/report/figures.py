"""``report.json`` as the report reads it: figures by name, and nothing invented for those that are missing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edge_export.report.markup import digits3, micros, percent, size
from edge_runtime.errors import ConfigError

TEACHER = "teacher"
BASELINE = "random-forest"
FOREST = "a random forest on simple features"
REFERENCE = "onnx-fp32"
_FIXED = {"Rocket": "MiniRocket", "Embedding": "a given embedding, and a logistic regression"}
"""What the cloud's model is called where all its networks are of one family that is not trained by gradient."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A share that was measured, and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another way to do the task: a baseline's, the cloud's, or one that was published.

    Attributes:
        name: in words.
        accuracy: on test groups; None: as its source says.
        value: the accuracy's middle.
        size: bytes; None where unknown.
        p50_us: median time per window; None where it was not timed.
    """

    name: str
    accuracy: Interval | None
    value: float
    size: int | None = None
    p50_us: float | None = None

    def __str__(self) -> str:
        """Write it: ``the cloud's model, 94.0 % (92.0 % to 95.5 %), 4.66 MB``."""
        found = [self.name, percent(self.value)]
        if self.accuracy is not None:
            found[-1] += f" ({percent(self.accuracy.low)} to {percent(self.accuracy.high)})"
        return ", ".join([*found, *([size(self.size)] if self.size else [])])


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateFile:
    """A file that could have shipped.

    Attributes:
        name: of the candidate.
        format: ``onnx`` or ``tflite``; empty where unknown.
        size: bytes on disk.
        zlib_size: bytes compressed.
        timing: with one thread, as `edge_runtime.model.tuning.timing.Timing`; empty where it was not timed.
        threaded: with more threads, one each.
        validation: score on groups not trained on, which the choice was made by.
        drop: of that score against the reference.
        shipped: targets it ships for.
        lost: why not, by target.
    """

    name: str
    format: str
    size: int | None
    zlib_size: int | None
    timing: Mapping[str, Any]
    threaded: Sequence[Mapping[str, Any]]
    validation: Interval | None
    drop: float | None
    shipped: tuple[str, ...]
    lost: Mapping[str, str]

    @property
    def p50_us(self) -> float | None:
        """Median time per window, one thread."""
        return self.timing.get("p50_us")


@dataclass(frozen=True, slots=True)
class BuildMetrics:
    """The figures of one build.

    Raises:
        ConfigError: the keys that every build writes are missing.
    """

    plain: Mapping[str, Any]

    def __post_init__(self) -> None:
        for key in ("recipe", "classes", "metric", "test"):
            if key not in self.plain:
                raise ConfigError(f"not a report of edge-export build: {key!r} is missing")

    def table(self, key: str) -> Mapping[str, Any]:
        """Return a table; empty where it is missing."""
        found = self.plain.get(key)
        return found if isinstance(found, Mapping) else {}

    def rows(self, key: str) -> list[Mapping[str, Any]]:
        """Return a list of tables; empty where it is missing."""
        found = self.plain.get(key)
        return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []

    @property
    def classes(self) -> list[str]:
        """Labels in the model's order."""
        return list(self.plain["classes"])

    @property
    def metric(self) -> str:
        """Metric that decided, in words."""
        return "macro F1" if self.plain["metric"] == "macro_f1" else "accuracy"

    @property
    def other_metric(self) -> str:
        """Metric that did not decide, in words."""
        return "accuracy" if self.metric == "macro F1" else "macro F1"

    @property
    def test(self) -> Mapping[str, Any]:
        """Figures on test groups."""
        return self.table("test")

    @property
    def channels(self) -> list[Mapping[str, str]]:
        """Name and unit of each channel; empty where they are not known."""
        return list(self.table("overview").get("channels", ()))

    @property
    def test_groups(self) -> int:
        """Number of test groups."""
        return len(self.table("groups").get("test", ()))

    @property
    def device(self) -> str:
        """Name of the candidate that the test figures are of."""
        return str(self.test.get("device", ""))

    def scores(self, where: str, metric: str | None = None) -> dict[str, Interval]:
        """Return scores with their intervals by name, of ``test`` or ``validation`` groups.

        Args:
            where: the set of groups.
            metric: ``accuracy`` or ``macro F1``; None for the one that decided.
        """
        found = self.test.get("judged", {}) if where == "test" else self.table(where)
        plain = (metric or self.metric) == "accuracy"
        keys = ("accuracy", "low", "high") if plain else ("macro_f1", "f1_low", "f1_high")
        rows = {name: [each.get(key) for key in keys] for name, each in found.items()}
        return {
            name: Interval(value=row[0], low=row[1], high=row[2])
            for name, row in rows.items()
            if all(isinstance(value, int | float) and math.isfinite(value) for value in row)
        }

    def own_accuracy(self) -> Interval | None:
        """Return the accuracy of the device's file on test groups."""
        return self.scores("test", "accuracy").get(self.device)

    def bundle_names(self) -> tuple[str, str]:
        """Return the files of the device's and the cloud's bundle; empty where they are not known."""
        names = sorted(name for name in self.table("bundles") if not name.endswith("-streaming.edge"))
        cloud = next((name for name in names if name.endswith("-teacher.edge")), "")
        own = [name for name in names if name != cloud]
        here = [name for name in own if name.endswith(("-x86_64.edge", "-any.edge"))]
        return next(iter([*here, *own]), ""), cloud

    def ranked(self) -> dict[str, Interval]:
        """Return scores on test groups: the device's file, those it is held against, then the others, best first."""
        first = {self.device: 0, TEACHER: 1, BASELINE: 2}
        scores = self.scores("test").items()
        return dict(sorted(scores, key=lambda item: (first.get(item[0], 3), -item[1].value, item[0])))

    def candidates(self) -> list[CandidateFile]:
        """Return every file that could have shipped, in the order in which they were evaluated."""
        choice = self.table("choice")
        details: dict[str, Mapping[str, Any]] = {}
        for each in self.rows("candidates"):
            details.setdefault(each["name"], each)
        names = dict.fromkeys((*details, *self.table("validation"), *(t["name"] for t in self.rows("timings"))))
        scores, evaluated = self.scores("validation"), self.table("validation")
        drop = "drop" if self.metric == "accuracy" else "f1_drop"
        found = []
        for name in names:
            if name == TEACHER:
                continue
            times = [timing for timing in self.rows("timings") if timing["name"] == name]
            detail = details.get(name, {})
            found.append(
                CandidateFile(
                    name=name,
                    format=detail.get("format") or name.split("-")[0],
                    size=detail.get("size"),
                    zlib_size=detail.get("zlib_size"),
                    timing=next((timing for timing in times if timing["threads"] == 1), {}),
                    threaded=[timing for timing in times if timing["threads"] != 1],
                    validation=scores.get(name),
                    drop=evaluated.get(name, {}).get(drop),
                    shipped=tuple(target for target, own in choice.items() if name in own.get("shipped", ())),
                    lost={target: own["lost"][name] for target, own in choice.items() if name in own.get("lost", {})},
                )
            )
        return found

    def beside_peers(self) -> list[Peer]:
        """Return the device's file, the same in float, the fixed peer and the cloud's model, as far as measured."""
        scores, times = self.scores("test", "accuracy"), self.table("against_teacher")
        sizes = {each.name: each.size for each in self.candidates()}
        own = [
            Peer(
                name=said,
                accuracy=scores[name],
                value=scores[name].value,
                size=sizes.get(name),
                p50_us=times.get(name, {}).get("p50_us"),
            )
            for name, said in {REFERENCE: f"{REFERENCE}: the same in float", self.device: self.device}.items()
            if name in scores
        ]
        return [*own[::-1], *self.peers()]

    def peers(self) -> list[Peer]:
        """Return what the device's file is to be seen beside on test groups: the fixed peer, and the cloud's model."""
        scores, sizes = self.scores("test", "accuracy"), self.test.get("peers", {})
        cloud, time = self.table("teacher"), self.table("against_teacher").get(TEACHER, {}).get("p50_us")
        families = set(cloud.get("families", ()))
        kind = _FIXED.get(next(iter(families)), "") if len(families) == 1 else ""
        said = f"the cloud's model ({kind})" if kind else "the cloud's model"
        known = (
            (BASELINE, FOREST, sizes.get(BASELINE, {}).get("bytes"), None),
            (TEACHER, said, cloud.get("bytes"), time),
        )
        return [
            Peer(name=said, accuracy=scores[name], value=scores[name].value, size=weight, p50_us=p50_us)
            for name, said, weight, p50_us in known
            if name in scores
        ]

    def best_known(self) -> Peer | None:
        """Return the highest accuracy of a peer and of what the recipe states; None where there is neither."""
        found = self.peers()
        if stated := self.table("best_known"):
            found.append(Peer(name=stated["source"], accuracy=None, value=stated["accuracy"]))
        return max(found, key=lambda peer: peer.value, default=None)

    def headline(self) -> str:
        """Return accuracy at bytes and microseconds, in a sentence; empty where it is not known."""
        own = self.own_accuracy()
        if own is None:
            return ""
        file = next((each for each in self.candidates() if each.name == self.device), None)
        costs = [size(file.size)] if file and file.size else []
        costs += [f"{micros(file.p50_us)} a window"] if file and file.p50_us else []
        at = f" at {' and '.join(costs)}" if costs else ""
        return f"{percent(own.value)} right ({percent(own.low)} to {percent(own.high)}){at}"

    def confused(self, most: int = 5) -> list[Mapping[str, Any]]:
        """Return the pairs of label and answer that are confused most; of earlier reports without their groups.

        Args:
            most: pairs.
        """
        found = self.table("mistakes").get("pairs")
        if found is None:
            counts, names = self.test.get("confusion") or [], self.classes
            found = [
                {"label": names[i], "answer": names[j], "count": count, "of": sum(row), "by_group": {}}
                for i, row in enumerate(counts)
                for j, count in enumerate(row)
                if count and i != j
            ]
        return sorted(found, key=lambda pair: -pair["count"])[:most]

    def with_cloud(self) -> tuple[float | None, float | None, float | None]:
        """Return accuracy with the cloud and without, and the share forwarded, by what ships around the network."""
        ways = self.table("ways")
        if "device" in ways:
            both = ways.get("all") or ways.get("with cloud") or {}
            alone = ways.get("over time") or ways["device"]
            return both.get("accuracy"), alone.get("accuracy"), both.get("forwarded")
        gate = self.test.get("gate") or {}
        return gate.get("combined_accuracy"), gate.get("device_accuracy"), gate.get("forwarded")

    def gain(self) -> str:
        """Return how much smaller and faster than the cloud's model the device's file is; empty where not known."""
        large, times = self.table("teacher").get("bytes"), self.table("against_teacher")
        file = next((each for each in self.candidates() if each.name == self.device), None)
        own, ratios = self.own_accuracy(), []
        if large and file and file.size:
            ratios.append(f"{digits3(large / file.size)} times smaller")
        if faster := times.get(self.device, {}).get("times_faster"):
            ratios.append(f"{digits3(faster)} times faster on one thread")
        right = f"{percent(own.value)} right, " if own else ""
        return f"{self.device} is {right}{' and '.join(ratios)}" if ratios else ""


def front(places: Sequence[tuple[float, float]]) -> list[int]:
    """Find places that no other one beats: less of the first number, more of the second.

    Returns:
        Their indices, by rising first number; of equal places the first.

    >>> front([(2.0, 0.9), (1.0, 0.8), (3.0, 0.85), (1.0, 0.7)])
    [1, 0]
    """
    kept: list[int] = []
    for i in sorted(range(len(places)), key=lambda i: (places[i][0], -places[i][1])):
        if not kept or places[i][1] > places[kept[-1]][1]:
            kept.append(i)
    return kept
