"""AdaRound: round each weight up or down so that its layer's answers change least, not each weight alone.

Source: Nagel et al. 2020, "Up or Down? Adaptive Rounding for Post-Training Quantization" (arXiv:2004.10568). Here as
their section 3.2 derives it, layer by layer on the answers before the activation, with the inputs that the rounded
layers before it give (their asymmetric reconstruction). Without the activation inside, the loss is a quadratic form of
the inputs' second moments: windows are read once per layer, and numpy is fast enough. No random numbers take part.

After the descent each output's rounding is polished by single flips, and compared with rounding to nearest, polished
likewise: the answer is never worse than nearest by the layer's own error.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import onnx

from edge_export.graph.onnx_graph.examples import Windows
from edge_export.graph.onnx_graph.model import Array, change, from_proto, name_of, to_proto
from edge_export.graph.onnx_graph.run import observe
from edge_export.graph.quantize.checks import check_model, check_windows
from edge_export.graph.quantize.layers import Layer, layers
from edge_export.graph.quantize.scheme import Scheme
from edge_runtime.base.system.progress import Progress
from edge_runtime.errors import ConfigError

Float64 = npt.NDArray[np.float64]

_STRETCH_LOW, _STRETCH_HIGH = -0.1, 1.1
"""Their gamma and zeta: a stretched sigmoid reaches 0 and 1."""
_FREE = 0.2
"""Share of the descent without the pull to 0 or 1."""
_HELD = 2**28
"""Bytes of inputs of several layers that are seen in one run of the float model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounding:
    """Settings of the search for a rounding.

    Attributes:
        bits: of the stored weights; None takes the scheme's.
        descents: steps of Adam per layer; 0 only polishes.
        learning_rate: of Adam.
        pull: weight of the term that pushes each weight to one of its two values (their lambda).
        positions: columns per layer and group that second moments are taken over at most.
        search_steps: choose the weight step of each output for the smallest error instead of the largest weight.
            Worth a lot with 4 bits, little with 8.
        keep: names of layers that are left to plain rounding.
    """

    bits: int | None = None
    descents: int = 400
    learning_rate: float = 0.03
    pull: float = 0.02
    positions: int = 20_000
    search_steps: bool = True
    keep: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.bits is not None and not 2 <= self.bits <= 8:
            raise ConfigError(f"AdaRound rounds to 2 to 8 bits, not {self.bits}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerError:
    """Error of one layer's answers after rounding.

    Attributes:
        layer: name of its node.
        nearest: mean squared error when every weight is rounded to nearest, relative to the answers' mean square.
        rounded: the same as rounded here.
    """

    layer: str
    nearest: float
    rounded: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounded:
    """A model whose weights are multiples of their steps.

    Attributes:
        model: float, weights on the grid.
        steps: of the weights, for `edge_export.graph.quantize.write.write`.
        errors: per layer, in graph order.
        exact: the same steps by the layer's name, (groups, outputs), before they were stored in float32.
    """

    model: onnx.ModelProto = field(repr=False)
    steps: Mapping[str, Array]
    errors: tuple[LayerError, ...]
    exact: Mapping[str, Float64] = field(repr=False)


def adaround(
    model: onnx.ModelProto,
    scheme: Scheme,
    windows: Windows,
    rounding: Rounding | None = None,
    *,
    known: Rounded | None = None,
    proceed: Callable[[], None] = lambda: None,
) -> Rounded:
    """Round the weights of every layer.

    Args:
        model: a model as `edge_export.graph.quantize.write.prepare` gives it.
        scheme: the weights' scheme; layers that it excludes stay as they are.
        windows: (n, ...) inputs, from training groups; a few hundred.
        rounding: how to search.
        known: the same with layers more or fewer to exclude. What it found is taken: all in front of the first layer
            that differs, and of the rest the steps, which hang on the float model alone.
        proceed: called before each layer; may raise to end the search.

    Raises:
        ConfigError: windows or weights are not finite.
    """
    check_windows(windows)
    check_model(model, windows)
    rounding = rounding or Rounding()
    # ONNX's 4-bit type reaches from -8 to 7; larger ones are used symmetrically, as onnxruntime does.
    largest = scheme.weight_max if rounding.bits is None else min(scheme.weight_max, 2 ** (rounding.bits - 1) - 1)
    copy = from_proto(model)
    chosen = [each for each in layers(copy.graph) if each.name not in {*scheme.exclude, *rounding.keep}]
    errors = _taken(layers(copy.graph), {each.name for each in chosen}, known)
    exact = {error.layer: known.exact[error.layer] for error in errors} if known is not None else {}
    found = known.exact if known is not None else {}
    rest = chosen[len(errors) :]
    with Progress("layers", len(rest)) as progress:
        for layer, wanted in zip(rest, _float_columns(model, rest, windows, rounding.positions), strict=True):
            proceed()
            matrix = layer.matrix().astype(np.float64)
            moments = _moments(to_proto(copy), layer, windows, wanted)
            step = found.get(layer.name)
            if step is None:
                step = _steps(matrix, moments, largest, rounding, per_channel=scheme.per_channel)
            rounded = _round(matrix, moments, step, largest, rounding)
            nearest = np.clip(np.rint(matrix / step[..., None]), -largest, largest) * step[..., None]
            power = max(float(_quadratic(matrix, moments.wanted).sum()), np.finfo(np.float64).tiny)
            errors.append(
                LayerError(
                    layer=layer.name,
                    nearest=float(moments.errors(matrix, nearest).sum()) / power,
                    rounded=float(moments.errors(matrix, rounded).sum()) / power,
                )
            )
            layer.change_matrix(rounded)
            exact[layer.name] = step
            progress.advance(detail=layer.name)
    steps: dict[str, Array] = {}
    for layer in chosen:
        flat = exact[layer.name].reshape(-1).astype(np.float32)
        steps[name_of(layer.weight)] = flat if scheme.per_channel else flat[:1].reshape(())
    return Rounded(
        model=to_proto(copy), steps=MappingProxyType(steps), errors=tuple(errors), exact=MappingProxyType(exact)
    )


def _taken(every: Sequence[Layer], chosen: Collection[str], known: Rounded | None) -> list[LayerError]:
    """Take over the layers in front of the first that only one of both rounds, and return their errors."""
    if known is None:
        return []
    weights = {layer.name: layer.weights for layer in layers(from_proto(known.model).graph)}
    errors = {error.layer: error for error in known.errors}
    same = itertools.takewhile(lambda layer: (layer.name in chosen) == (layer.name in errors), every)
    taken = [layer for layer in same if layer.name in chosen]
    for layer in taken:
        change(layer.weight, weights[layer.name])
    return [errors[layer.name] for layer in taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Columns:
    """Inputs of a layer in the float model: each `stride`-th position of each batch."""

    stride: int
    batches: list[Array] = field(default_factory=list)


def _float_columns(
    model: onnx.ModelProto, wanted: Sequence[Layer], windows: Windows, positions: int
) -> Iterator[_Columns]:
    """See what each layer is given in the float model; one run sees as many layers as `_HELD` bytes hold."""
    parts: list[list[Layer]] = []
    room = 0
    for layer in wanted:
        size = 4 * positions * layer.weights.size // layer.outputs * layer.groups
        if not parts or size > room:
            parts.append([])
            room = _HELD
        parts[-1].append(layer)
        room -= size
    for part in parts:
        yield from _seen(model, part, windows, positions)


def _seen(model: onnx.ModelProto, part: Sequence[Layer], windows: Windows, positions: int) -> list[_Columns]:
    found: dict[str, _Columns] = {}
    for values in observe(model, [name_of(layer.source) for layer in part], windows):
        for layer in part:
            x = values[name_of(layer.source)]
            if layer.name not in found:
                count, batches = layer.positions(x), -(-len(windows) // len(x))
                # With no factor in common, places in the window take turns.
                found[layer.name] = _Columns(stride=_coprime(max(1, count * batches // positions), count))
            own = found[layer.name]
            own.batches.append(layer.columns(x, own.stride))
    return [found[layer.name] for layer in part]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moments:
    """Second moments of a layer's inputs as they should be (x) and as they will be (y), (groups, inputs, inputs)."""

    wanted: Float64  # x x^T
    mixed: Float64  # x y^T
    given: Float64  # y y^T

    def errors(self, matrix: Float64, rounded: Float64) -> Float64:
        """Sum the squared errors of the answers, (groups, outputs)."""
        square = _quadratic(matrix, self.wanted) + _quadratic(rounded, self.given)
        return np.asarray(np.maximum(square - 2 * ((matrix @ self.mixed) * rounded).sum(axis=2), 0.0))


def _quadratic(rows: Float64, gram: Float64) -> Float64:
    """Compute r G r^T for each row r, (groups, outputs)."""
    return np.asarray(((rows @ gram) * rows).sum(axis=2))


def _moments(rounded: onnx.ModelProto, layer: Layer, windows: Windows, wanted: _Columns) -> _Moments:
    """From a layer's inputs in the float model, and behind the layers rounded so far, thinned evenly."""
    source = name_of(layer.source)
    sums: list[Float64] = []
    for before, values in zip(wanted.batches, observe(rounded, [source], windows), strict=True):
        x, y = (array.astype(np.float64) for array in (before, layer.columns(values[source], wanted.stride)))
        parts = [x.swapaxes(1, 2) @ x, x.swapaxes(1, 2) @ y, y.swapaxes(1, 2) @ y]
        sums = [total + part for total, part in zip(sums, parts, strict=True)] if sums else parts
    return _Moments(wanted=sums[0], mixed=sums[1], given=sums[2])


def _coprime(least: int, other: int) -> int:
    while np.gcd(least, other) > 1:
        least += 1
    return least


def _steps(matrix: Float64, moments: _Moments, largest: int, rounding: Rounding, *, per_channel: bool) -> Float64:
    """Choose weight steps (groups, outputs): the largest weight's, or shrunk where that gives the smaller error."""
    reach = np.abs(matrix).max(axis=2)
    if not per_channel:
        reach = np.full_like(reach, reach.max())
    reach = np.where(reach > 0, reach, 1.0)
    best, best_error = reach / largest, np.full(reach.shape, np.inf)
    for share in np.linspace(1.0, 0.4, 31) if rounding.search_steps else ():
        step = share * reach / largest
        nearest = np.clip(np.rint(matrix / step[..., None]), -largest, largest) * step[..., None]
        # By x alone: a step that makes up for the layers before this one would be fitted to these windows.
        error = _quadratic(matrix - nearest, moments.wanted)
        if not per_channel:
            error = np.full_like(error, error.sum())
        best, best_error = np.where(error < best_error, step, best), np.minimum(error, best_error)
    return best


def _round(matrix: Float64, moments: _Moments, step: Float64, largest: int, rounding: Rounding) -> Float64:
    """Weights on the grid.

    In units of steps from the lower neighbour, with d in {0, 1}: error = d G d^T - 2 d r^T + const.
    """
    exact = np.clip(matrix / step[..., None], -largest, largest)
    floor = np.minimum(np.floor(exact), largest - 1)
    target = (matrix / step[..., None]) @ moments.mixed - floor @ moments.given
    # In units of the mean square of an input, so that one learning rate fits all layers; a group that is always zero
    # keeps its rounding to nearest.
    size = np.trace(moments.given, axis1=1, axis2=2)[:, None, None] / matrix.shape[2]
    size = np.where(size > 0, size, 1.0)
    gram, target = moments.given / size, target / size
    tries = [_polish((exact - floor >= 0.5).astype(np.float64), gram, target)]
    if rounding.descents:
        tries.append(_polish(_descend(exact - floor, gram, target, rounding), gram, target))
    losses = np.stack([_quadratic(d, gram) - 2 * (d * target).sum(axis=2) for d in tries])
    chosen = np.take_along_axis(np.stack(tries), losses.argmin(axis=0)[None, ..., None], axis=0)[0]
    return np.asarray((floor + chosen) * step[..., None])


def _descend(fraction: Float64, gram: Float64, target: Float64, rounding: Rounding) -> Float64:
    """Adam on the soft rounding, pulled harder and harder to 0 or 1 (their eqs. 22 to 25)."""
    share = np.clip((fraction - _STRETCH_LOW) / (_STRETCH_HIGH - _STRETCH_LOW), 1e-4, 1 - 1e-4)
    v = np.log(share / (1 - share))
    first, second = np.zeros_like(v), np.zeros_like(v)
    for count in range(1, rounding.descents + 1):
        sigmoid = 1 / (1 + np.exp(-v))
        soft = sigmoid * (_STRETCH_HIGH - _STRETCH_LOW) + _STRETCH_LOW
        h = np.clip(soft, 0.0, 1.0)
        gradient = 2 * (h @ gram - target)
        progress = count / rounding.descents
        if progress > _FREE:
            # The pull's exponent falls from 20 to 2: first only what is nearly decided is pulled, then all.
            beta = 2 + 18 * 0.5 * (1 + np.cos(np.pi * (progress - _FREE) / (1 - _FREE)))
            away = 2 * h - 1
            gradient -= rounding.pull * 2 * beta * np.abs(away) ** (beta - 1) * np.sign(away)
        gradient *= (soft > 0) & (soft < 1)
        gradient *= (_STRETCH_HIGH - _STRETCH_LOW) * sigmoid * (1 - sigmoid)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * np.square(gradient)
        rate = rounding.learning_rate * np.sqrt(1 - 0.999**count) / (1 - 0.9**count)
        v -= rate * first / (np.sqrt(second) + 1e-8)
    return np.asarray((v >= 0).astype(np.float64))


def _polish(d: Float64, gram: Float64, target: Float64) -> Float64:
    """Flip the one weight of each output that helps most, until none helps."""
    groups, outputs, inputs = d.shape
    slope = (2 * (d @ gram - target)).reshape(groups * outputs, inputs)
    d = d.reshape(groups * outputs, inputs).copy()
    group = np.repeat(np.arange(groups), outputs)
    diagonal = np.diagonal(gram, axis1=1, axis2=2)
    active = np.arange(len(d))
    for _ in range(4 * inputs):
        sign = 1 - 2 * d[active]
        change = sign * slope[active] + diagonal[group[active]]
        best = change.argmin(axis=1)
        helps = change[np.arange(len(active)), best] < -1e-12
        turn = sign[np.arange(len(active)), best][helps]
        active, best = active[helps], best[helps]
        if not active.size:
            break
        d[active, best] += turn
        slope[active] += 2 * turn[:, None] * gram[group[active], best]
    return d.reshape(groups, outputs, inputs)
