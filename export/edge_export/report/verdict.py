"""Verdict of a build: a sentence with its figures for each rule that applies, and where to go from there.

1. *few*: fewer than five test groups say little about further ones.
2. *peer*: the accuracy of a known peer lies above the interval of the device's file.
3. *integers*: they lose more against float than the recipe allows, on test groups.
4. *cloud*: its answers make test groups no better than without.
5. *gate*: it forwards over one and a half times the share, or errs more, than it promised.
6. *fine*: none of the rules before found fault.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from edge_export.report.figures import FOREST, BuildMetrics
from edge_export.report.markup import percent, points

FEWEST = 5
"""Test groups from on which a verdict is given without rule 1."""
MORE = 1.5
"""Times the promised share that a gate may forward."""
ALLOWED = 0.005
"""Loss to integers that is allowed where the recipe states none."""
GROW = 'Give the device a small forest, by network = { type = "forest" } under [student], and statistics in front:'
"""What to do where the baseline is better."""
KEYS = 9
"""Labels that ``edge-runtime record`` has keys for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFinding:
    """Finding of one rule.

    Attributes:
        rule: its name.
        good: nothing needs to be done.
        says: one sentence with the figures.
        then: what to do, up to a colon.
        command: that does it; empty where a page is named.
        page: of the documentation, or a place of this one; empty where a command is named.
    """

    rule: str
    good: bool
    says: str
    then: str
    command: str = ""
    page: str = ""


def verdict(known: BuildMetrics) -> list[RuleFinding]:
    """Apply the rules, in their order; what needs doing comes first.

    Args:
        known: figures of the build. A rule whose figures are missing finds nothing.
    """
    found = [finding for rule in (_few, _peer, _integers, _cloud, _gate) for finding in rule(known)]
    bad = [finding for finding in found if not finding.good]
    return [*(bad or _fine(known)), *(finding for finding in found if finding.good)]


def _few(known: BuildMetrics) -> Iterator[RuleFinding]:
    """Rule 1."""
    own, groups = known.own_accuracy(), known.test_groups
    if own is None or not 0 < groups < FEWEST:
        return
    shares = [1 - each["wrong"] / each["windows"] for each in known.table("mistakes").get("groups", ())]
    apart = f" ({percent(min(shares))} to {percent(max(shares))} by group)" if len(shares) > 1 else ""
    of = "1 group" if groups == 1 else f"{groups} groups"
    labels = " ".join(f"--label {shlex.quote(name)}" for name in known.classes[:KEYS])
    yield RuleFinding(
        rule="few",
        good=False,
        says=f"Too few test groups to say how good it is: {percent(own.value)} right on {of}{apart}.",
        then=f"Record {FEWEST - groups} or more further people, machines or rooms, and test on them:",
        command=f"edge-runtime record app.toml --out new.csv --person new {labels}",
    )


def _peer(known: BuildMetrics) -> Iterator[RuleFinding]:
    """Rule 2."""
    own, best = known.own_accuracy(), known.best_known()
    if own is None or best is None or best.value <= own.high:
        return
    then, page = "See which parts of a recipe bring accuracy:", "docs/accuracy.md"
    if best.name == FOREST and known.table("student").get("family") != "Forest":
        then, page = GROW, "docs/export.md"
    yield RuleFinding(
        rule="peer",
        good=False,
        says=(
            f"Others do better: {best.name} has {percent(best.value)}, the device's file {percent(own.value)} "
            f"({percent(own.low)} to {percent(own.high)})."
        ),
        then=then,
        page=page,
    )


def _integers(known: BuildMetrics) -> Iterator[RuleFinding]:
    """Rule 3."""
    score = known.test.get("judged", {}).get(known.device, {})
    plain = known.metric == "accuracy"
    drop, low = (score.get("drop"), score.get("drop_low")) if plain else (score.get("f1_drop"), 0.0)
    if "int8" not in known.device or drop is None or low is None:
        return
    limit = known.table("limits").get("max_accuracy_drop")
    limit = ALLOWED if limit is None else limit
    if drop > limit and low >= 0:
        yield RuleFinding(
            rule="integers",
            good=False,
            says=(
                f"Integers cost more than they may: {points(drop)} points of {known.metric} against float on test "
                f"groups, {points(limit)} are allowed."
            ),
            then='Train with the rounding, by "training" under [quantise] in the recipe:',
            page="docs/export.md",
        )
    else:
        change = f"cost {points(drop).lstrip('+')}" if drop >= 0 else f"gain {points(-drop).lstrip('+')}"
        yield RuleFinding(
            rule="integers",
            good=True,
            says=f"Integers {change} points of {known.metric} against float.",
            then="See every file that was tried:",
            page="report.html#candidates",
        )


def _cloud(known: BuildMetrics) -> Iterator[RuleFinding]:
    """Rule 4."""
    both, alone, forwarded = known.with_cloud()
    if both is None or alone is None or forwarded is None:
        return
    without = "by answers over time alone" if "over time" in known.table("ways") else "without"
    figures = (
        f"{percent(both)} right with it, {percent(alone)} {without}, {percent(forwarded)} of the windows forwarded"
    )
    device, _ = known.bundle_names()
    bundle = f" --bundle {shlex.quote(device)}" if device else ""
    if both > alone:
        yield RuleFinding(
            rule="cloud",
            good=True,
            says=f"The cloud helps: {figures}.",
            then="See the curve of accuracy against the share forwarded:",
            page="report.html#cloud",
        )
    else:
        yield RuleFinding(
            rule="cloud",
            good=False,
            says=f"The cloud does not help on test groups: {figures}.",
            then="Run the device without one:",
            command=f"edge-runtime init app.toml{bundle} --cloud none",
        )


def _gate(known: BuildMetrics) -> Iterator[RuleFinding]:
    """Rule 5."""
    promise = known.table("gate").get("promise", {})
    gate, before = known.test.get("gate") or {}, promise.get("validation") or {}
    _, _, forwarded = known.with_cloud()
    if "withheld" in promise or not gate or not before:
        return
    bound, error = promise.get("bound"), 1 - gate.get("local_accuracy", 1.0)
    if bound is not None:
        kept = error <= bound
        says = f"{percent(error)} of the answers that stay local are wrong, at most {percent(bound)} were promised"
    elif forwarded is not None and "forwarded" in before:
        kept = forwarded <= MORE * before["forwarded"]
        says = f"{percent(forwarded)} of the windows are forwarded, {percent(before['forwarded'])} were promised"
    else:
        return
    yield RuleFinding(
        rule="gate",
        good=kept,
        says=f"The gate {'keeps' if kept else 'breaks'} its word: {says}.",
        then="Read how the share is kept for every key:" if kept else "Bound it on the device, by [gate]:",
        page="docs/guide.md",
    )


def _fine(known: BuildMetrics) -> Iterator[RuleFinding]:
    """Rule 6."""
    own, (device, _) = known.own_accuracy(), known.bundle_names()
    if own is None:
        return
    over = f" on {known.test_groups} test groups" if known.test_groups else ""
    best = known.best_known()
    beside = f"; the best known peer has {percent(best.value)}" if best else ""
    yield RuleFinding(
        rule="fine",
        good=True,
        says=f"Fine as it is: {percent(own.value)} right ({percent(own.low)} to {percent(own.high)}){over}{beside}.",
        then="Make an application of it:",
        command=f"edge-runtime init app.toml{f' --bundle {shlex.quote(device)}' if device else ''}",
    )
