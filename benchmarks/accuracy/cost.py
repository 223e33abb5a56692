"""Bytes and microseconds a window of the networks and their peers.

Networks are of the recipe's shape, trained for a few steps: what they have learnt changes neither. The cloud's is one
network, also where the recipe may take several. Microseconds are of one window alone on one thread: a network's of the
device's own engine, a peer's of its Python code here. They tell orders of magnitude apart, no more.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from edge_export.choose.evaluation.teacher_comparison import against_teacher
from edge_export.choose.models import make_models
from edge_export.data.dataset import Float32
from edge_export.package.bundles import TEACHER
from edge_export.recipe.recipe import Recipe
from edge_export.recipe.splits import read_splits
from edge_export.step_cache import Say, StepCache, code_digest

from benchmarks.accuracy.answers import FILES
from benchmarks.accuracy.peers import Fitted
from edge_runtime.clock import SystemClock

STEPS = 10
TIMES = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of an answer to a device.

    Attributes:
        size: bytes of the model.
        us: microseconds a window.
    """

    size: int
    us: float


def network_costs(recipe: Recipe, folders: Mapping[str, Path], cache: Path, say: Say) -> dict[str, Cost]:
    """Return the costs of the device's file and of the teacher's, by name, measured once."""
    file = cache / "cost.json"
    if not file.exists():
        cache.mkdir(parents=True, exist_ok=True)
        file.write_text(
            json.dumps({name: asdict(cost) for name, cost in _measured(recipe, folders, cache, say).items()})
        )
    return {name: Cost(**plain) for name, plain in json.loads(file.read_text("utf-8")).items()}


def peer_cost(fitted: Fitted, x: Float32) -> Cost:
    """Return the cost of a peer; `x` are some windows."""
    took = []
    unseen = x * np.float32(1 + 1e-4)  # an embedding remembers what it was asked
    for row in range(min(TIMES, len(x))):
        began = time.perf_counter()
        fitted.answer(unseen[row : row + 1])
        took.append(time.perf_counter() - began)
    return Cost(size=fitted.size, us=1e6 * statistics.median(took))


def _measured(recipe: Recipe, folders: Mapping[str, Path], cache: Path, say: Say) -> dict[str, Cost]:
    splits = read_splits(recipe, folders, say)
    models = make_models(
        _brief(recipe), splits, StepCache(cache / "brief", {"code": code_digest()}, say, SystemClock()), say
    )
    files = {source.name: source for source in models.candidates.sources()}
    timed = against_teacher(models.cloud, files, FILES[-1], splits.validation)
    sizes = {TEACHER: len(models.cloud.model), FILES[-1]: len(files[FILES[-1]].model)}
    return {name: Cost(size=size, us=timed[name]["p50_us"]) for name, size in sizes.items()}


def _brief(recipe: Recipe) -> Recipe:
    """Keep the shapes, and train for a few steps."""
    teacher, student = recipe.teacher, recipe.student
    training = teacher.training and replace(teacher.training, steps=STEPS)  # a rocket has none, nor has a forest
    own = student.training and replace(student.training, steps=STEPS)
    return replace(
        recipe,
        prune=None,
        teacher=replace(teacher, candidates=teacher.candidates[-1:], members=1, training=training),
        student=replace(student, pool=64, training=own),
        quantise=replace(recipe.quantise, ranges=("minmax",), mixed=False, training=None),
    )
