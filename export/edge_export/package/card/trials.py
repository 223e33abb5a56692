"""Trials of a chain in a child process: its answers to golden steps, and how many keys may share a call."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from edge_export.data.dataset import Float32
from edge_export.package.card.answer import ManifestTask
from edge_export.package.child import in_child
from edge_export.package.pack import VariantSource
from edge_runtime.errors import ConfigError, EdgeError, EngineError, InputError
from edge_runtime.manifest import InputContract
from edge_runtime.model.bundle.together import ROUNDING
from edge_runtime.model.chain.load import join_variant
from edge_runtime.model.engines.base import Array, Engine
from edge_runtime.model.engines.batch_trial import LEVELS, SIZES, largest_batch

_LONGEST_S = 10.0
"""A batch whose trial would take longer is not tried."""
_STEPS = 64
"""Golden steps that are played for a trial of batches."""


def open_chain(source: VariantSource, task: ManifestTask, contract: InputContract) -> Engine:
    """Load a variant's chain in a child process.

    Raises:
        ConfigError: an engine refuses a file, or the stages do not fit each other.
    """
    try:
        return in_child(source.format, join_variant(task.stages, task.answer, contract, source, source.contents))
    except EngineError as error:
        raise ConfigError(f"{source.name}: {error}") from error


def answers(engine: Engine, windows: Iterable[Float32]) -> Iterable[Float32]:
    """Play steps of one stream as `answered` does; yields the answers of those that have one."""
    return (one for one in answered(engine, windows) if one is not None)


def answered(engine: Engine, windows: Iterable[Float32]) -> Iterable[Float32 | None]:
    """Play steps of one stream from a reset; yields the answer of each, None where it has none yet.

    Args:
        engine: the chain's engine.
        windows: (samples, channels) each.

    Raises:
        EngineError, InputError: as the engine does.
    """
    states: list[Array] = [np.zeros((1, *spec.shape[1:]), spec.dtype) for spec in engine.inputs[1:]]
    for window in windows:
        if not states:
            yield np.array(engine.run(window[None])[0][0], np.float32)
            continue
        answer, whole, *new = engine.run(window[None], *states)
        states = [np.array(one) for one in new]
        yield np.array(answer[0], np.float32) if whole[0] else None


def golden_answers(engine: Engine, golden: Float32, name: str) -> Float32:
    """Answers to golden steps (n, channels, samples), those that have one.

    Raises:
        ConfigError: the engine fails, or no step has an answer.
    """
    try:
        found = list(answers(engine, np.ascontiguousarray(golden.transpose(0, 2, 1))))
    except (EngineError, InputError) as error:
        raise ConfigError(f"{name}: {error}") from error
    if not found:
        raise ConfigError(f"{name}: not one of {len(golden)} golden steps has an answer; give a longer --recording")
    return np.stack(found)


def with_batch(source: VariantSource, task: ManifestTask, contract: InputContract, golden: Float32) -> VariantSource:
    """Say for each file of a variant how many keys may share a call: 0 for any number, 1 where rows touch each other.

    The golden steps are played for keys of unlike levels, alone and together. All answers and states must be equal, but
    for the rounding that other numbers of rows bring. Where they are not for all files at once, each file is tried with
    the others one key at a time.
    """
    every = [*(other.stage for other in source.others), ""]
    best = _largest(_batched(source, every, 0), task, contract, golden)
    if best != 1 or len(every) == 1:
        return _batched(source, every, best)
    good = [stage for stage in every if _largest(_batched(source, [stage], 0), task, contract, golden) == 0]
    return _batched(source, good, 0) if good else source


def _batched(source: VariantSource, stages: Sequence[str], batch: int) -> VariantSource:
    """Set the batch of the files of these stages; "" is the last one's."""
    others = tuple(replace(one, batch=batch if one.stage in stages else one.batch) for one in source.others)
    return replace(source, batch=batch if "" in stages else source.batch, others=others)


def _largest(source: VariantSource, task: ManifestTask, contract: InputContract, golden: Float32) -> int:
    try:
        engine = open_chain(source, task, contract)
    except EdgeError:
        return 1
    windows = np.ascontiguousarray(golden.transpose(0, 2, 1))
    stateful = len(engine.inputs) > 1
    try:
        started = time.monotonic()
        steps = min(len(windows), _STEPS) if stateful else 1
        found = largest_batch(engine, [windows], sizes=(), steps=steps, rounding=ROUNDING)
        each_s = (time.monotonic() - started) / 2 / len(LEVELS)
        if found:
            return found
        sizes = [size for size in SIZES if size * each_s < _LONGEST_S]
        return largest_batch(engine, [windows], sizes=sizes, steps=steps, rounding=ROUNDING) if sizes else 1
    except (EngineError, InputError):
        return 1
    finally:
        engine.close()
