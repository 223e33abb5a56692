"""The answer cache: how many windows it answers at each distance, how far off these answers are, and what is saved.

Two streams: the exercises of the demo's people, who move all the time; and one of their watches as it would lie on a
table: the mean of its quietest two seconds, noise of 0.2 % of each channel's range, and a drift of 2 % of it that goes
up and down in ten minutes. The bundle is the demo's, with the ranges of its recordings as references.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.report import Cell, Report, spread
from edge_runtime.manifest import REFERENCE_LEVELS, Manifest, Reference
from edge_runtime.metrics import Metrics
from edge_runtime.model import engines
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.variants import engine_for
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.serving.cache import CachedModel, ranges
from edge_runtime.model.serving.loading import LoadedVariant
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Float32, Reading

_DEMO = Path(__file__).parents[1] / "examples" / "exercise-watch"
_DISTANCES = (0.0, 0.01, 0.02, 0.05, 0.1)
_KEPT = 1000
_TURNS = 5


def answer_cache(quick: bool) -> Iterator[Report]:
    """Hits, error and CPU by distance, for the device's small network and the cloud's ensemble."""
    recordings = _recordings()
    bounds = [np.quantile(np.concatenate(recordings), level, axis=0) for level in REFERENCE_LEVELS]
    for file in ("watch.edge", "teacher.edge"):
        with open_bundle(_DEMO / file) as bundle:
            references = tuple(
                Reference(channels=(channel.name,), quantiles=tuple(float(each[k]) for each in bounds), span_s=1.0)
                for k, channel in enumerate(bundle.manifest.input.channels)
            )
            manifest = replace(bundle.manifest, schema_version=2, references=references)
            variant = manifest.variants[-1]
            engine = engines.load(engine_for(variant), bundle.read_variant(variant.name), EngineOptions())
        model = LoadedVariant(manifest, variant, engine)
        report = Report(
            f"answers given again: {file}, {variant.name}, {manifest.input.window} samples every {manifest.input.hop}",
            ("stream", "distance", "windows", "again %", "of them another label %", "largest difference", "us/window"),
        )
        streams = {"exercises": recordings, "at rest": [_rest(recordings, manifest, 60 if quick else 1200)]}
        for name, stream in streams.items():
            report.rows += _rows(name, _windows(manifest, stream), model)
        report.notes += [
            "distance: share of each channel's range, 1 % to 99 % of its values",
            f"us: CPU, one by one; least / median / most of {_TURNS} turns",
        ]
        model.close()
        yield report


def _rows(name: str, windows: list[Window], model: LoadedVariant) -> Iterator[tuple[Cell, ...]]:
    true = np.concatenate([np.array(model.predict([window]).rows) for window in windows])
    yield name, "no cache", len(windows), None, None, None, _us(lambda: model, windows)
    for distance in _DISTANCES:
        metrics = Metrics()
        cached = CachedModel(model, _KEPT, distance, metrics)
        given = np.concatenate([np.array(cached.predict([window]).rows) for window in windows])
        again = sum(n for kind, n in metrics.counts.items() if kind.startswith("cache_hits_total"))
        labels = int((given.argmax(axis=1) != true.argmax(axis=1)).sum())
        yield (
            name,
            f"{distance:.0%}" if distance else "same only",
            len(windows),
            100 * again / len(windows),
            100 * labels / again if again else None,
            float(np.abs(given - true).max()),
            _us(partial(CachedModel, model, _KEPT, distance, Metrics()), windows),
        )


def _us(make: Callable[[], LoadedVariant | CachedModel], windows: list[Window]) -> str:
    found = []
    for _ in range(_TURNS):
        model = make()
        began = time.thread_time_ns()
        for window in windows:
            model.predict([window])
        found.append((time.thread_time_ns() - began) / 1e3 / len(windows))
    return spread(found, 1)


def _recordings() -> list[Float32]:
    with np.load(_DEMO / "recordings.npz") as data:
        values = data["x"] * data["scale"]
        return [values[a:b].astype(np.float32) for a, b in itertools.pairwise(data["offset"])]


def _rest(recordings: list[Float32], manifest: Manifest, seconds: int) -> Float32:
    n = manifest.input.window
    pieces = [one[at : at + n] for one in recordings for at in range(0, len(one) - n, n)]
    quiet = min(pieces, key=lambda piece: float(piece.std(axis=0).sum())).mean(axis=0)
    steps = int(seconds * manifest.input.rate_hz)
    random = np.random.default_rng(0)
    drift = 0.02 * np.sin(2 * np.pi * np.arange(steps) / (600 * manifest.input.rate_hz))
    noise = 0.002 * random.standard_normal((steps, len(quiet)))
    return np.asarray(quiet + ranges(manifest) * (noise + drift[:, None]), np.float32)


def _windows(manifest: Manifest, streams: list[Float32]) -> list[Window]:
    windower = Windower(manifest.input)
    found: list[Window] = []
    for number, samples in enumerate(streams):
        found += windower.push([Reading(f"k{number}", 1000.0, samples, 1 / manifest.input.rate_hz)])
    return found
