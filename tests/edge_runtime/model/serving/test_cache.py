"""The answer cache gives a model's own answers again, within its bound, and within its memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.manifest import REFERENCE_LEVELS, Channel, Manifest, Reference, Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model.engines.base import TensorSpec
from edge_runtime.model.serving.cache import CachedModel, ranges
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import Answers
from edge_runtime.model.serving.states import StateStore
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32
from tests.edge_runtime.manifests import manifest


class Sum:
    """Answers the sum of a window, and counts what it was asked."""

    def __init__(self, m: Manifest) -> None:
        self.max_batch = 8
        self.manifest = m
        self.variant: Variant = m.variants[0]
        self.states: StateStore | None = None
        self.asked = 0
        self.fails_over = False

    def predict(self, windows: Sequence[Window]) -> Answers:
        self.asked += len(windows)
        if self.fails_over:
            self.fails_over = False
            self.variant = replace(self.variant, name="other")
        if any(not np.isfinite(window.samples).all() for window in windows):
            raise InputError("not_finite", "no")
        factor = 2 if self.variant.name == "other" else 1
        return Answers(np.array([[factor * window.samples.sum()] for window in windows], np.float32), windows)


def bundle(low: float = 0.0, high: float = 10.0) -> Manifest:
    """A manifest whose channels have references from `low` to `high`."""
    m = manifest()
    quantiles = tuple(np.linspace(low, high, len(REFERENCE_LEVELS)))
    span = (quantiles[REFERENCE_LEVELS.index(0.01)], quantiles[REFERENCE_LEVELS.index(0.99)])
    assert span[0] < span[1]
    found = tuple(Reference(channels=(one.name,), quantiles=quantiles, span_s=1.0) for one in m.input.channels)
    return replace(m, schema_version=2, references=found)


def window(samples: Float32, key: str = "k", slot: int = 0) -> Window:
    return Window(key, slot, slot / 10, samples, samples, 0.0)


def cached(model: Sum, windows: int = 10, distance: float = 0.0) -> tuple[CachedModel, Metrics]:
    metrics = Metrics()
    return CachedModel(model, windows, distance, metrics), metrics


def still(level: float) -> Float32:
    return np.full((4, 2), level, np.float32)


def test_the_same_window_of_any_key_is_answered_once() -> None:
    model = Sum(bundle())
    cache, metrics = cached(model)
    first = cache.predict([window(still(1)), window(still(2), "m")])
    again = cache.predict([window(still(2), "k"), window(still(3), "k"), window(still(1), "n")])
    assert first.rows.ravel().tolist() == [8, 16]
    assert again.rows.ravel().tolist() == [16, 24, 8]
    assert model.asked == 3
    assert metrics.counts['cache_hits_total{how="same"}'] == 2
    assert metrics.counts["cache_misses_total"] == 3


def test_without_a_distance_a_window_that_differs_in_one_bit_is_asked() -> None:
    model = Sum(bundle())
    cache, _ = cached(model)
    other = still(1)
    other[2, 1] = np.nextafter(np.float32(1), np.float32(2))
    cache.predict([window(still(1))])
    cache.predict([window(other)])
    assert model.asked == 2


@given(steps=st.lists(st.floats(-0.02, 0.02), min_size=1, max_size=40))
def test_no_answer_is_of_a_window_further_than_the_bound(steps: list[float]) -> None:
    m = bundle()
    bound = 0.05 * ranges(m)
    model = Sum(m)
    cache, _ = cached(model, distance=0.05)
    level = 5.0
    for slot, step in enumerate(steps):
        level += 10 * step
        (row,) = cache.predict([window(still(level), slot=slot)]).rows
        assert abs(float(row[0]) / 8 - level) <= bound[0] * 1.001


def test_a_window_near_that_of_another_key_is_asked() -> None:
    model = Sum(bundle())
    cache, metrics = cached(model, distance=0.05)
    cache.predict([window(still(1), "k")])
    cache.predict([window(still(1.1), "m")])
    cache.predict([window(still(1.1), "k")])
    assert model.asked == 2
    assert metrics.counts['cache_hits_total{how="same"}'] == 1


def test_another_variant_answers_all_windows_itself() -> None:
    model = Sum(bundle())
    cache, _ = cached(model)
    cache.predict([window(still(1)), window(still(2))])
    model.fails_over = True
    rows = cache.predict([window(still(1)), window(still(3))]).rows
    assert rows.ravel().tolist() == [16, 48]
    assert cache.predict([window(still(1))]).rows.ravel().tolist() == [16]


def test_memory_is_bounded_and_the_oldest_answer_goes() -> None:
    model = Sum(bundle())
    cache, _ = cached(model, windows=3, distance=0.01)
    for level in range(8):
        cache.predict([window(still(level), f"k{level}")])
    cache.predict([window(still(7), "k7"), window(still(5), "k5")])
    assert model.asked == 8
    cache.predict([window(still(0), "k0")])
    assert model.asked == 9


def test_a_window_that_the_engine_refuses_is_kept_by_nothing() -> None:
    model = Sum(bundle())
    cache, _ = cached(model)
    for _ in range(2):
        with pytest.raises(InputError):
            cache.predict([window(still(np.nan))])
    assert model.asked == 2


def test_a_triad_is_measured_by_its_norm_and_a_mask_must_be_equal() -> None:
    m = bundle(2.0, 10.0)
    a, b = (channel.name for channel in m.input.channels)
    alone = ranges(m)
    triad = replace(m.references[0], channels=(a, b))
    both = ranges(replace(m, references=(triad,)))
    assert (both > alone).all()
    masked = replace(
        m.input, channels=(replace(m.input.channels[0], missing="last"), Channel(name="m", unit="1", mask_of=a))
    )
    assert ranges(replace(m, input=masked, references=(m.references[0],))).tolist() == [alone[0], 0]


def test_a_distance_without_ranges_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"does not state for .*build it with \[references\]"):
        cached(Sum(manifest()), distance=0.01)


def test_a_model_with_states_is_refused() -> None:
    model = Sum(bundle())
    model.states = StateStore([TensorSpec("step", np.dtype(np.int32), (-1,))], 1)
    with pytest.raises(ConfigError, match="leave cache_windows out"):
        cached(model)


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [({"cache_distance": 0.1}, "needs cache_windows"), ({"cache_windows": 5, "cache_distance": 0.6}, "0 to 0.5")],
    ids=["alone", "far"],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        ModelConfig(bundle="x.edge", **settings)  # type: ignore[arg-type]
