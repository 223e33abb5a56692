"""The size of a network before it is trained, and the largest one within a budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.learn.features.modules import FixedConv, build_front_end
from edge_export.learn.networks.blocks import ROUND_TO
from edge_export.learn.networks.build import build_network
from edge_export.learn.networks.forest import ForestBody
from edge_export.learn.networks.rocket import RocketBody
from edge_export.recipe.feature_spec import FrontEnd
from edge_export.recipe.network_spec import SizedFamily
from edge_runtime.errors import ConfigError

_BASE = {
    "SeparableCnn1d": 16,
    "SeparableCnn2d": 64,
    "Tcn": 24,
    "Gru": 32,
    "Mlp": 32,
    "ResNet1d": 64,
    "InceptionTime": 32,
    "ResNet2d": 32,
}
"""Channels at width 1, in the narrowest layer."""

LAYER_BYTES = 450
"""What a quantised layer costs in a file besides its numbers: node, tensors, scales of activations, names."""

FILE_BYTES = 1500
"""What a file costs besides its layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A network's cost for one window.

    Attributes:
        parameters: numbers that training sets, with batch normalisation folded into the layer before it.
        macs: multiplications with addition, those of the front end included.
        front_macs: those of the front end.
        int8_bytes: estimate of the file with int8 weights, its front end's tables included as they are held; a GRU
            stays float, since no engine here has it in integers.
    """

    parameters: int
    macs: int
    front_macs: int
    int8_bytes: int


def count(network: nn.Module, *, channels: int, samples: int) -> Size:
    """Count a network of convolutions, dense or recurrent layers, a forest or a rocket, by running a window through it.

    Args:
        network: maps (batch, channels, samples) to (batch, classes).
        channels: number of the window's channels.
        samples: number of the window's samples.
    """
    parameters = macs = front_macs = 0
    stored = FILE_BYTES

    def saw(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        nonlocal parameters, macs, front_macs, stored
        if isinstance(layer, FixedConv):
            work = int(layer.weight[0].numel() * output[0].numel())
            macs, front_macs = macs + work, front_macs + work
            stored += LAYER_BYTES + layer.weight.numel() * _width(layer.weight)
            return
        if isinstance(layer, nn.GRU | nn.LSTM):
            numbers = sum(p.numel() for p in layer.parameters())
            steps = int(inputs[0].shape[1 if layer.batch_first else 0])
            macs += steps * sum(p.numel() for name, p in layer.named_parameters() if name.startswith("weight"))
            parameters, stored = parameters + numbers, stored + LAYER_BYTES + 4 * numbers
            return
        if isinstance(layer, ForestBody | RocketBody):
            numbers, work, held = layer.cost()
            parameters, macs, stored = parameters + numbers, macs + work, stored + LAYER_BYTES + held
            return
        outputs = int(layer.weight.shape[0])
        if isinstance(layer, nn.Linear):
            macs += layer.weight.numel() * int(output[0].numel() // outputs)
        else:
            macs += int(layer.weight[0].numel() * output[0].numel())
        parameters += layer.weight.numel() + outputs
        # A weight is a byte; each output has a bias of four and a scale of four.
        stored += LAYER_BYTES + layer.weight.numel() + 8 * outputs

    kinds = (FixedConv, ForestBody, RocketBody, nn.Conv1d, nn.Conv2d, nn.Linear, nn.GRU, nn.LSTM)
    hooks = [m.register_forward_hook(saw) for m in network.modules() if isinstance(m, kinds)]
    training = network.training
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, channels, samples))
    finally:
        for hook in hooks:
            hook.remove()
        network.train(training)
    return Size(parameters=parameters, macs=macs, front_macs=front_macs, int8_bytes=stored)


def sized_to(
    family: SizedFamily,
    front_end: FrontEnd,
    *,
    channels: int,
    samples: int,
    classes: int,
    max_bytes: int | None = None,
    max_macs: int | None = None,
    max_parameters: int | None = None,
    widest: float = 16.0,
) -> SizedFamily:
    """Find the largest width of a family that keeps within every stated budget.

    Args:
        family: its width is ignored, everything else is kept.
        front_end: the front end, whose tables and work count too.
        channels: number of the window's channels.
        samples: number of the window's samples.
        classes: number of labels.
        max_bytes: most bytes of the estimated int8 file.
        max_macs: most multiplications with addition for one window.
        max_parameters: most parameters of the trained network.
        widest: largest width that is tried.

    Raises:
        ConfigError: no budget is given, or the narrowest network exceeds one; says what it takes.
    """
    if max_bytes is None and max_macs is None and max_parameters is None:
        raise ConfigError("no budget to size a network to; give bytes, multiplications or parameters")
    build_front_end(front_end, channels=channels, samples=samples)  # its own complaints first
    step = ROUND_TO / _BASE[type(family).__name__]

    def at(index: int) -> tuple[SizedFamily, Size]:
        sized: SizedFamily = replace(family, width=index * step)
        with torch.random.fork_rng(devices=[]):
            network = build_network(sized, front_end, channels=channels, samples=samples, classes=classes)
        return sized, count(network, channels=channels, samples=samples)

    def fits(size: Size) -> bool:
        return (
            size.int8_bytes <= (max_bytes or size.int8_bytes)
            and size.macs <= (max_macs or size.macs)
            and size.parameters <= (max_parameters or size.parameters)
        )

    narrowest, size = at(1)
    if not fits(size):
        raise ConfigError(
            f"the narrowest {type(family).__name__} takes {size.int8_bytes} bytes, {size.macs} multiplications (front "
            f"end {size.front_macs}) and {size.parameters} parameters; raise the budget or lower depth or front end"
        )
    return _largest(narrowest, at, fits, int(widest / step))


def _largest(
    narrowest: SizedFamily, at: Callable[[int], tuple[SizedFamily, Size]], fits: Callable[[Size], bool], most: int
) -> SizedFamily:
    """By bisection: every size grows with the width."""
    best, low, high = narrowest, 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        sized, size = at(middle)
        if fits(size):
            best, low = sized, middle
        else:
            high = middle
    return best


def _width(weight: torch.Tensor) -> int:
    """Bytes in which every number of a table is exact."""
    if bool((weight == weight.round()).all()) and float(weight.abs().max()) <= 127:
        return 1
    return 2 if bool((weight == weight.half().float()).all()) else 4
