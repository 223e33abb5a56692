"""Mixed precision: the fewest layers in float that keep the accuracy.

A few layers usually do most of the damage.

1. Each is quantised alone to see what it costs; the worst are put back into float one by one until the promise holds.
2. If it never does, the float model is the answer.
3. The layer put back last was needed; any before it may not be, and is then quantised again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

import numpy as np
import onnx

from edge_export.data.dataset import Float32
from edge_export.graph.onnx_graph.examples import Windows
from edge_export.graph.onnx_graph.model import change, from_proto, to_proto
from edge_export.graph.onnx_graph.run import answers
from edge_export.graph.quantize.checks import check_windows
from edge_export.graph.quantize.layers import layers
from edge_export.graph.quantize.ranges import Ranges
from edge_export.graph.quantize.scheme import OPERATORS, Scheme
from edge_export.graph.quantize.write import WeightSteps, write
from edge_runtime.errors import ConfigError

Evaluate = Callable[[onnx.ModelProto], float]
"""How good a model is, higher is better: accuracy or macro F1 on validation groups, on the target's own engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """Cost of one layer in integers.

    Attributes:
        layer: name of its node.
        alone_db: signal to quantisation noise of the model's answers, in dB, when only this layer is quantised;
            infinite where nothing changes.
        without_db: the same when only this layer is left in float.
        drop: what quantising this layer alone takes from `evaluate`; None where it was not asked.
    """

    layer: str
    alone_db: float
    without_db: float
    drop: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A layer that stays in float.

    Attributes:
        layer: name of its node.
        reason: one sentence with the figures.
    """

    layer: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixed:
    """A model with as many integer layers as its accuracy allows.

    Attributes:
        model: with integers where they are harmless; all float if nothing else holds the promise.
        float_score: `evaluate` of the float model.
        integer_score: of the model with every layer quantised.
        score: of `model`.
        kept: layers that stay in float, the worst first, and why.
        scheme: what `model` was written with.
    """

    model: onnx.ModelProto
    float_score: float
    integer_score: float
    score: float
    kept: tuple[Kept, ...]
    scheme: Scheme


def sensitivities(
    model: onnx.ModelProto,
    ranges: Ranges,
    scheme: Scheme,
    windows: Windows,
    *,
    evaluate: Evaluate | None = None,
    steps: WeightSteps | None = None,
) -> tuple[Sensitivity, ...]:
    """Quantise each layer alone, and all but each.

    Args:
        model: the model, as for `edge_export.graph.quantize.write.write`.
        ranges: its activations' ranges.
        scheme: layers that it excludes are not looked at.
        windows: (n, ...) inputs whose answers are compared; a few hundred.
        evaluate: also asked for each layer alone, where given.
        steps: the weights' steps.

    Returns:
        One entry per layer with constant weights, in graph order.
    """
    check_windows(windows)
    names = _names(model, scheme)
    expected = answers(model, windows)
    before = evaluate(model) if evaluate is not None else None
    result = []
    for name in names:
        alone = write(model, ranges, _only(model, scheme, name), steps=steps)
        without = write(model, ranges, replace(scheme, exclude=(*scheme.exclude, name)), steps=steps)
        drop = None
        if evaluate is not None and before is not None:
            drop = before - evaluate(alone)
        result.append(
            Sensitivity(
                layer=name,
                alone_db=sqnr_db(expected, answers(alone, windows)),
                without_db=sqnr_db(expected, answers(without, windows)),
                drop=drop,
            )
        )
    return tuple(result)


def fit_mixed(
    model: onnx.ModelProto,
    ranges: Ranges,
    scheme: Scheme,
    windows: Windows,
    evaluate: Evaluate,
    *,
    max_drop: float,
    steps: WeightSteps | None = None,
) -> Mixed:
    """Quantise as much as a maximum drop allows.

    Args:
        model: the model, as for `edge_export.graph.quantize.write.write`.
        ranges: its activations' ranges.
        scheme: how to write; what it excludes stays excluded, and is not listed.
        windows: (n, ...) inputs that rank the layers.
        evaluate: decides. It is asked twice, then about twice per layer that stays in float.
        max_drop: largest difference to the float model's score, in the unit of `evaluate`.
        steps: the weights' steps.

    Raises:
        ConfigError: the drop is negative, or a score is not finite.
    """
    if not max_drop >= 0:
        raise ConfigError(f"max_drop must not be negative, not {max_drop}")
    float_score = _finite(evaluate(model))
    best = write(model, ranges, scheme, steps=steps)
    integer_score = score = _finite(evaluate(best))
    used = scheme
    order: list[Sensitivity] = []
    kept: list[str] = []
    if float_score - score > max_drop:
        found = sensitivities(model, ranges, scheme, windows, steps=steps)
        order = sorted(found, key=lambda sensitivity: (sensitivity.alone_db, -sensitivity.without_db))  # rule 1
        for sensitivity in order:
            kept.append(sensitivity.layer)
            used = replace(scheme, exclude=(*scheme.exclude, *kept))
            best = write(model, ranges, used, steps=steps)
            score = _finite(evaluate(best))
            if float_score - score <= max_drop:  # rule 1
                break
        else:  # rule 2
            best, score = model, float_score
        for name in kept[:-1] if best is not model else ():  # rule 3
            fewer = [other for other in kept if other != name]
            tried = replace(scheme, exclude=(*scheme.exclude, *fewer))
            candidate = write(model, ranges, tried, steps=steps)
            reached = _finite(evaluate(candidate))
            if float_score - reached <= max_drop:
                kept, used, best, score = fewer, tried, candidate, reached
    return Mixed(
        model=best,
        float_score=float_score,
        integer_score=integer_score,
        score=score,
        kept=tuple(
            Kept(
                layer=found.layer, reason=_reason(found, float_score - max_drop, integer_score, all_float=best is model)
            )
            for found in order
            if found.layer in kept
        ),
        scheme=used,
    )


def round_to_halves(model: onnx.ModelProto, kept: Collection[str] | None = None) -> onnx.ModelProto:
    """Round the weights of layers that stay in float to half precision, in which a file can store them.

    They are still float32 numbers and compute as such; only the file has half the bytes
    (`edge_export.graph.onnx_graph.exact_downcast`).

    Args:
        model: the model, as for `edge_export.graph.quantize.write.write`.
        kept: names of the layers; None takes all.

    Returns:
        A new model. Weights beyond the range of half precision are left as they are.
    """
    copy = from_proto(model)
    for layer in layers(copy.graph):
        wanted = kept is None or layer.name in kept
        if wanted and np.abs(layer.weights).max(initial=0) <= np.finfo(np.float16).max:
            change(layer.weight, layer.weights.astype(np.float16))
    return to_proto(copy)


def _reason(found: Sensitivity, least: float, integer_score: float, *, all_float: bool) -> str:
    noise = f"quantised alone it leaves {found.alone_db:.1f} dB of signal over noise"
    if all_float:
        return f"{noise}; no set of integer layers reaches {least:.4g} (all integer: {integer_score:.4g})"
    return f"{noise}; as an integer layer beside the others it keeps the score below {least:.4g}"


def sqnr_db(expected: Float32, given: Float32) -> float:
    """Signal to quantisation noise ratio in decibels: power of the answers over power of their error."""
    signal = float(np.square(expected.astype(np.float64)).sum())
    noise = float(np.square(expected.astype(np.float64) - given).sum())
    return 10 * math.log10(signal / noise) if noise > 0 and signal > 0 else math.inf


def _names(model: onnx.ModelProto, scheme: Scheme) -> list[str]:
    return [layer.name for layer in layers(from_proto(model).graph) if layer.name not in scheme.exclude]


def _only(model: onnx.ModelProto, scheme: Scheme, name: str) -> Scheme:
    """Make a scheme that quantises this node and nothing else."""
    others = tuple(node.name for node in model.graph.node if node.op_type in OPERATORS and node.name != name)
    return replace(scheme, exclude=others)


def _finite(score: float) -> float:
    if not math.isfinite(score):
        raise ConfigError(f"a model was given the score {score}; evaluate must give a number")
    return score
