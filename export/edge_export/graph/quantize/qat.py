"""Quantisation-aware training: weights and steps learn together, with the rounding in the forward pass.

Learned step size quantisation on a network whose batch normalisations are folded first, so that what is trained is
what is written: each convolution and dense layer rounds its weights per output and its input per tensor. Ranges behind
a ReLU are learned unsigned, with the zero point at the bottom: a symmetric one would make onnxruntime's writer drop a
ReLU that nothing else replaces.

1. `fake_quantized` gives a network to train on, with any of `edge_export.learn.training.loop`'s functions.
2. `harvest` gives back a float network whose weights lie on their grid, and what was learned.
3. `write_learned` finds the layers again in the exported ONNX file by their weights and writes them with their steps.

Worth its time with 4-bit weights; with 8 bits the gain over calibration is mostly within noise.

Source: Esser et al. 2020, "Learned Step Size Quantization" (arXiv:1902.08153); the fixed zero point of signed inputs
after Bhalgat et al. 2020 (arXiv:2004.09576), their offset rounded and frozen.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import onnx
import onnx_ir as ir
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn.utils.fusion import fuse_conv_bn_eval  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Float32
from edge_export.graph.onnx_graph.model import Array, from_proto, name_of
from edge_export.graph.quantize.checks import check_windows
from edge_export.graph.quantize.layers import layers
from edge_export.graph.quantize.ranges import affine, calibrate
from edge_export.graph.quantize.scheme import Scheme
from edge_export.graph.quantize.write import prepare, write
from edge_runtime.errors import ConfigError

_LAYERS = (nn.Conv1d, nn.Conv2d, nn.Linear)
_NORMALISATIONS = (nn.BatchNorm1d, nn.BatchNorm2d)
_SAME_STEP = frozenset({"Flatten", "MaxPool", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Operators whose output takes its input's step in an integer graph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LearnedLayer:
    """Weights, steps and input range that one layer learned.

    Attributes:
        name: of the module.
        weights: as torch stores them, multiples of the steps.
        steps: (outputs,) float32.
        low, high: range of its input.
    """

    name: str
    weights: Array = field(repr=False)
    steps: Array = field(repr=False)
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A trained network, ready for export.

    Attributes:
        network: float, weights on the grid, no normalisations left.
        layers: in the order of the modules.
    """

    network: nn.Module
    layers: tuple[LearnedLayer, ...]


def fake_quantized(network: nn.Module, windows: Float32, scheme: Scheme, *, bits: int | None = None) -> nn.Module:
    """Copy a trained network into one that rounds as the integer one will, and can be trained on.

    Args:
        network: trained; every BatchNorm follows its convolution within an nn.Sequential.
        windows: (n, ...) inputs from training groups, whose ranges are where learning starts.
        scheme: the integer network's scheme; per channel and asymmetric.
        bits: bits of the weights, 2 to 8; None takes the scheme's.

    Raises:
        ConfigError: the scheme is per layer or symmetric, a normalisation cannot be folded, or there is no layer.
    """
    check_windows(windows)
    if not scheme.per_channel or scheme.symmetric:
        raise ConfigError("quantisation-aware training learns steps per channel and unsigned ranges; change the scheme")
    if bits is not None and not 2 <= bits <= 8:
        raise ConfigError(f"weights are trained with 2 to 8 bits, not {bits}")
    largest = scheme.weight_max if bits is None else min(scheme.weight_max, 2 ** (bits - 1) - 1)
    copied = copy.deepcopy(network).eval()
    _fold(copied)
    for name, module in copied.named_modules():
        if isinstance(module, _NORMALISATIONS):
            raise ConfigError(
                f"{name!r} does not follow a convolution within an nn.Sequential; put it there to fold it"
            )
    found = {name: module for name, module in copied.named_modules() if isinstance(module, _LAYERS)}
    if not found:
        raise ConfigError("the network has no convolution and no linear layer to quantise")
    inputs = _inputs(copied, found, windows)
    for name, module in found.items():
        if name not in inputs:
            continue  # a layer that the windows do not reach
        place, _, last = name.rpartition(".")
        setattr(copied.get_submodule(place), last, _Rounding(module, inputs[name], largest))
    return copied


def harvest(network: nn.Module) -> Learned:
    """Take the float network and what was learned out of a trained copy of `fake_quantized`.

    Raises:
        ConfigError: the network rounds nothing.
    """
    result = copy.deepcopy(network).eval()
    found = [(name, module) for name, module in result.named_modules() if isinstance(module, _Rounding)]
    if not found:
        raise ConfigError("the network has no layer that rounds; train what fake_quantized gave")
    learned = []
    for name, module in found:
        layer = module.layer
        with torch.no_grad():
            layer.weight.copy_(module.rounded_weights())
        low, high = module.source.range()
        learned.append(
            LearnedLayer(
                name=name,
                weights=layer.weight.detach().numpy().copy(),
                steps=module.step.detach().abs().numpy().reshape(-1).copy(),
                low=low,
                high=high,
            )
        )
        place, _, last = name.rpartition(".")
        setattr(result.get_submodule(place), last, layer)
    return Learned(network=result, layers=tuple(learned))


def write_learned(model: onnx.ModelProto, learned: Learned, windows: Float32, scheme: Scheme) -> onnx.ModelProto:
    """Write the exported float network in integers, with the steps that were learned.

    Args:
        model: `Learned.network` as ONNX, with whatever surrounds it.
        learned: what `harvest` gave.
        windows: (n, ...) inputs; they set the ranges that no layer learned (answers, both sides of an addition).
        scheme: types.

    Raises:
        ConfigError: a layer's weights are not in the model.
    """
    prepared = prepare(model)
    ranges = dict(calibrate(prepared, windows, scheme.calibration, percentile=scheme.percentile))
    waiting = list(layers(from_proto(prepared).graph))
    steps = {}
    for layer in learned.layers:
        rows = layer.weights.reshape(len(layer.weights), -1)
        for match in waiting:
            given = match.matrix()
            if given.shape[0] * given.shape[1] == len(rows) and np.array_equal(given.reshape(len(rows), -1), rows):
                break
        else:
            raise ConfigError(f"the model holds no layer with the weights of {layer.name!r}; export what harvest gave")
        waiting.remove(match)
        steps[name_of(match.weight)] = layer.steps
        for name in _upstream(match.source):
            if name in ranges:
                ranges[name] = (layer.low, layer.high)
    return write(prepared, MappingProxyType(ranges), scheme, steps=MappingProxyType(steps))


class _Step(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """Rounds a tensor to unsigned 8 bits with a learned step and a fixed zero point."""

    def __init__(self, low: float, high: float) -> None:
        super().__init__()
        step, zero = affine(low, high)
        self.step = nn.Parameter(torch.tensor(step, dtype=torch.float32))
        self.zero = zero

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _round(x, self.step, -self.zero, 255 - self.zero, x.numel() // max(1, len(x)))

    def range(self) -> tuple[float, float]:
        step = float(self.step.detach().abs())
        return -self.zero * step, (255 - self.zero) * step


class _Rounding(nn.Module):  # type: ignore[misc]
    """A layer with rounded weights on rounded input."""

    def __init__(self, layer: nn.Module, source: _Step, largest: int) -> None:
        super().__init__()
        self.layer, self.source, self.largest = layer, source, largest
        weights = layer.weight.detach().reshape(len(layer.weight), -1)
        reach = weights.abs().amax(dim=1) / largest
        if largest < 64:
            # Few levels: clip from the start (their section 2.1); with many, cover everything.
            reach = torch.minimum(reach, 2 * weights.abs().mean(dim=1) / math.sqrt(largest))
        shape = (-1, *[1] * (layer.weight.ndim - 1))
        self.step = nn.Parameter(torch.where(reach > 0, reach, torch.ones_like(reach)).reshape(shape))

    def rounded_weights(self) -> torch.Tensor:
        weight = self.layer.weight
        return _round(weight, self.step, -self.largest, self.largest, weight.numel() // len(weight))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        replaced = {"weight": self.rounded_weights()}
        return torch.func.functional_call(self.layer, replaced, (self.source(x),))


def _round(x: torch.Tensor, step: torch.Tensor, low: int, high: int, count: int) -> torch.Tensor:
    """Round to multiples of a step, gradients passing straight through, the step's scaled (their eqs. 3 and 4)."""
    scale = 1 / math.sqrt(max(1, count) * high)
    step = step.abs().clamp(min=torch.finfo(torch.float32).tiny)
    step = (step * scale) + (step * (1 - scale)).detach()
    inside = torch.clamp(x / step, low, high)
    return (inside + (torch.round(inside) - inside).detach()) * step


def _fold(network: nn.Module) -> None:
    for module in list(network.modules()):
        if not isinstance(module, nn.Sequential):
            continue
        names = list(module._modules)  # noqa: SLF001 - the only place that keeps the order of names
        for before, after in itertools.pairwise(names):
            one, other = module._modules[before], module._modules[after]  # noqa: SLF001
            if isinstance(one, (nn.Conv1d, nn.Conv2d)) and isinstance(other, _NORMALISATIONS):
                module._modules[before] = fuse_conv_bn_eval(one, other)  # noqa: SLF001
                module._modules[after] = nn.Identity()  # noqa: SLF001


def _inputs(network: nn.Module, found: dict[str, nn.Module], windows: Float32) -> dict[str, _Step]:
    """One step per tensor that layers read; those that read the same tensor share it."""
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    same: dict[str, str] = {}
    seen: list[tuple[torch.Tensor, str]] = []

    def watch(name: str) -> object:
        def hook(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
            x = given[0]
            low[name] = min(low.get(name, 0.0), float(x.min()))
            high[name] = max(high.get(name, 0.0), float(x.max()))
            same[name] = next((other for tensor, other in seen if tensor is x), name)
            seen.append((x, name))  # keeps the tensor alive, so that no other can take its place

        return hook

    hooks = [module.register_forward_pre_hook(watch(name)) for name, module in found.items()]
    with torch.no_grad():
        for begin in range(0, len(windows), 64):
            network(torch.from_numpy(np.ascontiguousarray(windows[begin : begin + 64])))
            seen.clear()
    for hook in hooks:
        hook.remove()
    steps = {name: _Step(low[name], high[name]) for name in low if same[name] == name}
    return {name: steps[same[name]] for name in low}


def _upstream(value: ir.Value | None) -> Iterator[str]:
    """List a tensor, and those before it that take the same step."""
    while value is not None:
        yield name_of(value)
        node = value.producer()
        value = node.inputs[0] if node is not None and node.op_type in _SAME_STEP else None
