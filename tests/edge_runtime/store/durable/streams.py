"""Streams of readings with jitter and gaps, and the comparison of windows."""

from __future__ import annotations

import numpy as np

from edge_runtime.manifest import Channel, InputContract
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Reading


def contract(resample: str = "linear", hop: int = 3, context: int = 0) -> InputContract:
    return InputContract(
        channels=(Channel(name="a", unit="1"), Channel(name="b", unit="1")),
        rate_hz=10.0,
        window=8,
        hop=hop,
        resample=resample,  # type: ignore[arg-type]
        context=context,
    )


def stream(seed: int, messages: int, keys: int = 2, *, arrays: bool = True) -> list[Reading]:
    """Readings with jitter, a gap now and then, some late, of several keys."""
    rng = np.random.default_rng(seed)
    at = dict.fromkeys(range(keys), 1000.0)
    made = []
    for _ in range(messages):
        key = int(rng.integers(keys))
        n = int(rng.integers(1, 6))
        t = at[key] + np.arange(n) / 10.0 + rng.uniform(-0.03, 0.03, n)
        at[key] += n / 10.0 + (1.5 if rng.random() < 0.03 else 0.0)
        values = rng.normal(size=(n, 2)).astype(np.float32)
        single = not arrays or rng.random() < 0.3
        made.append(Reading(f"k{key}", float(t[0]) if single else np.sort(t), values))
    for i in range(0, len(made) - 1, 7):  # neighbours change places
        made[i], made[i + 1] = made[i + 1], made[i]
    return made


def same(found: list[Window], expected: list[Window]) -> None:
    assert [window.id for window in found] == [window.id for window in expected]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a.samples, b.samples)
        np.testing.assert_array_equal(a.context, b.context)
        assert a.start == b.start
