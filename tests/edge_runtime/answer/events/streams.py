"""Streams of answers and rules that meet the bounds of the rules often."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import Manifest
from edge_runtime.types import Prediction
from tests.edge_runtime.answer.events.reference import Win
from tests.edge_runtime.manifests import manifest

EPOCH = 1_700_000_000
LENGTH_MS = 400
"""Of a window of `manifest`: 4 samples at 10 Hz."""
JUMP_MS = 60_000
LEVELS = (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0)
STEPS_MS = (200, 200, 200, 200, 400, 800, 801, 5_000, 0, -200, -JUMP_MS, -JUMP_MS - 1)
SECONDS = st.sampled_from((0.0, 0.2, 0.4, 0.6, 0.8, 1.2))


@st.composite
def rules(draw: st.DrawFn, most: int = 3) -> list[EventRule]:
    """Rules for ``low`` or ``high``; each may come after one of those before it."""
    made: list[EventRule] = []
    for i in range(draw(st.integers(1, most))):
        n = draw(st.integers(1, 3))
        on = draw(st.sampled_from(LEVELS[2:]))
        lead = draw(st.sampled_from(["", *(one.name for one in made)]))
        made.append(
            EventRule(
                name=f"r{i}",
                label=draw(st.sampled_from(["low", "high"])),
                on=on,
                off=draw(st.sampled_from([None, 0.0, 0.2, on])),
                of=(n, draw(st.integers(n, 4))),
                smooth=draw(st.sampled_from(["mean", "median", "max", "exponential"])),
                smooth_windows=draw(st.integers(1, 4)),
                hold_s=draw(SECONDS),
                refractory_s=draw(SECONDS),
                after=lead,
                within_s=draw(st.sampled_from((0.2, 0.4, 0.8))) if lead else 0.0,
            )
        )
    return draw(st.permutations(made))


def levels() -> st.SearchStrategy[list[tuple[int, float]]]:
    """Steps of the clock in milliseconds, each with the probability of ``high``."""
    return st.lists(st.tuples(st.sampled_from(STEPS_MS), st.sampled_from(LEVELS)), min_size=1, max_size=40)


def windows(of: list[EventRule], steps: list[tuple[int, float]]) -> list[Win]:
    """The reference's windows."""
    ms, out = 100_000_000, []
    for step, high in steps:
        ms += step
        out.append(Win(ms, tuple(high if rule.label == "high" else 1.0 - high for rule in of)))
    return out


def prediction(ms: int, high: float, key: str = "k", **fields: Any) -> Prediction:
    """The answer to a window that starts then."""
    start = round((EPOCH + ms / 1000) * 1e6) / 1e6
    end = round((EPOCH + (ms + LENGTH_MS) / 1000) * 1e6) / 1e6
    answer = Prediction(
        f"{key}@{ms}", key, start, end, "high", high, [1.0 - high, high], "local", False, "bench/3", "v", 0.1
    )
    return replace(answer, **fields)


def with_rules(*of: EventRule, **fields: Any) -> Manifest:
    """A bundle with these rules."""
    return replace(manifest(), schema_version=2, events=of, **fields)
