"""Golden vectors: their replay on an engine, and the difference to what was packed."""

from __future__ import annotations

import numpy as np

from edge_runtime.bundle.bundle import Bundle, Floats
from edge_runtime.bundle.variants import arrange
from edge_runtime.engines.base import Engine
from edge_runtime.errors import (
    BundleError,
    EngineError,
    InputError,
)
from edge_runtime.manifest import Variant

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

    All vectors go through together and the first few once more alone, last one first: batches of one take another path
    through an engine, and a model that carries state from window to window answers differently then.
    """
    if len(engine.inputs) != 1 or not engine.outputs:
        raise EngineError(
            f"variant {variant.name} has {len(engine.inputs)} inputs and {len(engine.outputs)} outputs; "
            "a bundle's model takes one window and gives one answer",
        )
    windows = arrange(inputs, variant)
    worst = _difference(engine, variant, windows, expected)
    for i in reversed(range(min(len(windows), _ALONE))):
        worst = max(worst, _difference(engine, variant, windows[i : i + 1], expected[i : i + 1]))
    return worst


def _difference(engine: Engine, variant: Variant, windows: Floats, expected: Floats) -> float:
    try:
        answer = engine.run(windows)[0]
    except InputError as error:
        raise BundleError(f"variant {variant.name} does not take the windows of its own bundle: {error}") from error
    if answer.shape != expected.shape:
        raise BundleError(
            f"variant {variant.name} answers with shape {answer.shape[1:]} on {engine.name}, "
            f"the bundle has {expected.shape[1]} labels",
        )
    worst = float(np.abs(answer - expected).max())
    if not worst <= variant.tolerance:  # NaN too
        raise BundleError(
            f"variant {variant.name} does not reproduce its golden vectors on {engine.name}: differs by {worst:.3g}, "
            f"tolerance {variant.tolerance:.3g}, {len(windows)} at a time; do not run it on this machine",
        )
    return worst
