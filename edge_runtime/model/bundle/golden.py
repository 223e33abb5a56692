"""Golden vectors: their replay on an engine, and the difference to what was packed."""

from __future__ import annotations

import numpy as np

from edge_runtime.errors import (
    BundleError,
    EngineError,
    InputError,
)
from edge_runtime.manifest import Variant
from edge_runtime.model.bundle.bundle import Bundle, Floats
from edge_runtime.model.bundle.variants import arrange
from edge_runtime.model.chain import STEP
from edge_runtime.model.engines.base import Engine

# Golden vectors that are replayed one by one too.
_ALONE = 8


def verify_golden(engine: Engine, bundle: Bundle, variant: str) -> float:
    """Replay the golden vectors of a variant on a loaded engine.

    Returns:
        The largest absolute difference from the expected answers.

    Raises:
        BundleError: above the variant's tolerance, or not the shapes of the bundle's contract.
        EngineError: the engine failed.
    """
    chosen = bundle.variant(variant)
    inputs, expected = bundle.golden(variant)
    return replay(engine, chosen, inputs, expected)


def replay(engine: Engine, variant: Variant, inputs: Floats, expected: Floats) -> float:
    """Replay golden vectors already at hand; see `verify_golden`.

    1. A model without states: all vectors go through together and the first few once more alone, last one first:
       batches of one take another path through an engine, and a model that carries state from window to window answers
       differently then.
    2. A chain with states: the vectors are the steps of one stream. They are played from a reset, alone, and then as
       two keys in one batch, one of them a step behind: a model that mixes the keys of a batch answers differently.
    """
    windows = arrange(inputs, variant)
    if len(engine.inputs) > 1 and engine.inputs[1].name == STEP:  # rule 2
        return _replay_steps(engine, variant, windows, expected)
    if len(engine.inputs) != 1 or not engine.outputs:
        raise EngineError(
            f"variant {variant.name} has {len(engine.inputs)} inputs and {len(engine.outputs)} outputs; "
            "a bundle's model takes one window and gives one answer, or has stages that say what it takes",
        )
    worst = _difference(engine, variant, windows, expected)
    for i in reversed(range(min(len(windows), _ALONE))):
        worst = max(worst, _difference(engine, variant, windows[i : i + 1], expected[i : i + 1]))
    return worst


def play(engine: Engine, windows: Floats, keys: int = 1) -> Floats:
    """Play windows through a chain with states, from a reset, as the steps of one stream or of several alike.

    Args:
        engine: see `edge_runtime.model.chain.engine`.
        windows: (steps, samples, channels).
        keys: streams in one batch, each a step behind the one before.

    Returns:
        (keys, steps, ...) answers; zeros where a step has none.
    """
    states = [np.zeros((keys, *spec.shape[1:]), spec.dtype) for spec in engine.inputs[1:]]
    steps = len(windows)
    answers: list[list[Floats]] = [[] for _ in range(keys)]
    for turn in range(steps + keys - 1):
        here = [key for key in range(keys) if 0 <= turn - key < steps]
        batch = np.stack([windows[turn - key] for key in here])
        answer, answered, *new = engine.run(batch, *[state[here] for state in states])
        for state, changed in zip(states, new, strict=True):
            state[here] = changed
        for key, row, given in zip(here, answer, answered, strict=True):
            answers[key].append(row.copy() if given else np.zeros_like(row))
    return np.array(answers, np.float32)


def _replay_steps(engine: Engine, variant: Variant, windows: Floats, expected: Floats) -> float:
    worst = 0.0
    for keys in (1, 2):
        try:
            answers = play(engine, windows, keys)
        except InputError as error:
            raise BundleError(f"variant {variant.name} does not take the windows of its own bundle: {error}") from error
        for answer in answers:
            worst = max(worst, _compare(engine, variant, answer, expected, keys))
    return worst


def _difference(engine: Engine, variant: Variant, windows: Floats, expected: Floats) -> float:
    try:
        answer = engine.run(windows)[0]
    except InputError as error:
        raise BundleError(f"variant {variant.name} does not take the windows of its own bundle: {error}") from error
    return _compare(engine, variant, answer, expected, len(windows))


def _compare(engine: Engine, variant: Variant, answer: Floats, expected: Floats, together: int) -> float:
    if answer.shape != expected.shape:
        raise BundleError(
            f"variant {variant.name} answers with shape {answer.shape[1:]} on {engine.name}, "
            f"the bundle's labels or output call for {expected.shape[1:]}",
        )
    worst = float(np.abs(answer - expected).max())
    if not worst <= variant.tolerance:  # NaN too
        raise BundleError(
            f"variant {variant.name} does not reproduce its golden vectors on {engine.name}: differs by {worst:.3g}, "
            f"tolerance {variant.tolerance:.3g}, {together} at a time; do not run it on this machine",
        )
    return worst
