"""Front ends as torch modules that become plain ONNX operators: the features are computed inside the model's graph.

Convolutions, products, sums, clipping, roots, logarithms, pooling over time; nothing is padded and nothing is learned.
A front end is therefore the same numbers in training, in ONNX, in TensorFlow Lite, and on a stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.learn.features import filters
from edge_export.recipe.feature_spec import (
    Centre,
    Chain,
    FeatureShape,
    Filter,
    FilterBankSpec,
    FirstDifference,
    FrontEnd,
    LogMelSpec,
    MfccSpec,
    Raw,
    SpectrogramSpec,
    Standardise,
    Statistic,
    StatisticsSpec,
    feature_shape,
)

Array = npt.NDArray[Any]


class FixedConv(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """A convolution over time with given weights, which training leaves alone.

    Args:
        weight: (outputs, inputs / groups, kernel).
        stride: samples between outputs.
        groups: 1, or the number of inputs for a filter per channel.
    """

    def __init__(self, weight: Array, *, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor(weight, dtype=torch.float32))
        self.stride, self.groups = stride, groups

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, inputs, samples) to (batch, outputs, frames)."""
        return functional.conv1d(x, self.weight, stride=self.stride, groups=self.groups)


class Standardised(nn.Module):  # type: ignore[misc]
    """(x - offset) * scale, row by row.

    Args:
        spec: offsets and scales.
    """

    def __init__(self, spec: Standardise) -> None:
        super().__init__()
        offset = torch.tensor(spec.offset, dtype=torch.float32).view(1, -1, 1) if any(spec.offset) else None
        self.register_buffer("offset", offset)
        self.register_buffer("scale", torch.tensor(spec.scale, dtype=torch.float32).view(1, -1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, rows, frames) to the same shape."""
        # Subtracted first: a large offset folded behind the product would cost the small differences their digits.
        return (x if self.offset is None else x - self.offset) * self.scale


class Centred(nn.Module):  # type: ignore[misc]
    """Less what the rows have in common over the window.

    Args:
        spec: what that is.
    """

    def __init__(self, spec: Centre) -> None:
        super().__init__()
        self.spec = spec

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, rows, frames) to the same shape."""
        if self.spec.by == "peak":
            below = x - x.amax(dim=2, keepdim=True).amax(dim=1, keepdim=True)
            return below.clamp(min=-self.spec.span) if self.spec.span else below
        mean = x.mean(dim=2, keepdim=True)
        return x - (mean.mean(dim=1, keepdim=True) if self.spec.by == "window" else mean)


class Spectrogram(nn.Module):  # type: ignore[misc]
    """Framing, window and discrete Fourier transform as two strided convolutions; their squares' sum.

    Args:
        spec: frames and bins.
        channels: number of the input's channels; each gets its own bins, one channel's after the other's.
    """

    def __init__(self, spec: SpectrogramSpec, *, channels: int) -> None:
        super().__init__()
        stored, self.factor = _held_pair(spec)
        self.cosine, self.sine = (
            FixedConv(np.tile(table[:, None], (channels, 1, 1)), stride=spec.hop, groups=channels) for table in stored
        )
        self.log = _Log(spec.floor, self.factor**2) if spec.log else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) to (batch, channels * bins, frames)."""
        power = self.power(x)
        return power * (1 / self.factor**2) if self.log is None else self.log(power)

    def power(self, x: torch.Tensor) -> torch.Tensor:
        """Power, too large by the square of `factor`."""
        real, imaginary = self.cosine(x), self.sine(x)
        return real * real + imaginary * imaginary


class LogMel(nn.Module):  # type: ignore[misc]
    """Log-power in mel bands; the bands' triangles are a convolution of one frame's length.

    Args:
        spec: frames and bands.
        channels: number of the input's channels.
    """

    def __init__(self, spec: LogMelSpec, *, channels: int) -> None:
        super().__init__()
        self.spectrogram = Spectrogram(spec.spectrogram, channels=channels)
        bands, factor = filters.held(filters.mel_bands(spec), spec.coefficients)
        self.bands = FixedConv(np.kron(np.eye(channels), bands)[:, :, None])
        self.log = _Log(spec.floor, factor * self.spectrogram.factor**2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) to (batch, channels * bands, frames)."""
        return self.log(self.bands(self.spectrogram.power(x)))


class FilterBank(nn.Module):  # type: ignore[misc]
    """Log-power in mel bands, by a pair of strided convolutions each.

    Args:
        spec: frames and bands.
        channels: number of the input's channels; each gets its own bands, one channel's after the other's.
        samples: number of the input's samples.
    """

    def __init__(self, spec: FilterBankSpec, *, channels: int, samples: int) -> None:
        super().__init__()
        self.channels = channels
        self.frames = (samples - spec.frame) // spec.hop + 1
        pairs = filters.filter_pairs(spec)
        largest = max(float(np.abs(each.table).max()) for each in pairs)
        # One factor for all tables, so that it leaves the logarithm as one number.
        held = [filters.held(each.table, spec.coefficients, largest=largest) for each in pairs]
        self.pairs = nn.ModuleList(
            FixedConv(table[:, None], stride=spec.hop // each.parts)
            for each, (table, _) in zip(pairs, held, strict=True)
        )
        self.parts = tuple(each.parts for each in pairs)
        # A product with ones and zeros: one operator, where halves of every table would have to be cut out and added.
        both = np.concatenate([np.tile(np.arange(len(each.table) // 2), 2) + first for each, first in _firsts(pairs)])
        self.sums = FixedConv(np.kron(np.eye(channels), both == np.arange(spec.bands)[:, None])[:, :, None])
        self.log = _Log(spec.floor, held[0][1] ** 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) to (batch, channels * bands, frames)."""
        squares = [
            self._squares(x if self.channels == 1 else x[:, channel : channel + 1], pair, parts)
            for channel in range(self.channels)
            for pair, parts in zip(self.pairs, self.parts, strict=True)
        ]
        return self.log(self.sums(torch.cat(squares, dim=1) if len(squares) > 1 else squares[0]))

    def _squares(self, x: torch.Tensor, pair: nn.Module, parts: int) -> torch.Tensor:
        """(batch, 1, samples) to (batch, 2 * bands, frames): what each cosine and each sine hears."""
        heard = pair(x)
        squared = heard * heard
        return squared if parts == 1 else functional.avg_pool1d(squared, parts)[..., : self.frames]


class Mfcc(nn.Module):  # type: ignore[misc]
    """Cepstral coefficients of log-mel bands.

    Args:
        spec: bands and coefficients.
        channels: number of the input's channels.
    """

    def __init__(self, spec: MfccSpec, *, channels: int) -> None:
        super().__init__()
        self.mel = LogMel(spec.mel, channels=channels)
        matrix = filters.cosine_transform(spec.coefficients, spec.mel.bands)
        self.transform = FixedConv(np.kron(np.eye(channels), matrix)[:, :, None])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) to (batch, channels * coefficients, frames)."""
        return self.transform(self.mel(x))


class Statistics(nn.Module):  # type: ignore[misc]
    """Numbers that sum up a window, channel by channel.

    Args:
        spec: the numbers to compute.
        channels: number of the input's channels.
        samples: number of the window's samples.
    """

    def __init__(self, spec: StatisticsSpec, *, channels: int, samples: int) -> None:
        super().__init__()
        self.which, self.samples = spec.which, samples
        self.change = FixedConv(np.tile([[[-1.0, 1.0]]], (channels, 1, 1)), groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) to (batch, channels * statistics, 1)."""
        return torch.cat([self._one(name, x) for name in self.which], dim=1)

    def _one(self, name: Statistic, x: torch.Tensor) -> torch.Tensor:
        match name:
            case "mean":
                return x.mean(dim=2, keepdim=True)
            case "std":
                # Around the mean first: the difference of two large squares would have few digits left.
                centred = x - x.mean(dim=2, keepdim=True)
                return torch.sqrt((centred * centred).mean(dim=2, keepdim=True))
            case "min":
                # As a pool, which every engine has; a reduction by its smallest value not.
                return -functional.max_pool1d(-x, self.samples)
            case "max":
                return functional.max_pool1d(x, self.samples)
            case "rms":
                return torch.sqrt((x * x).mean(dim=2, keepdim=True))
            case "mean_abs_change":
                change = self.change(x)
                # |v| as two Relu: known to every engine, in integers too.
                return (functional.relu(change) + functional.relu(-change)).mean(dim=2, keepdim=True)


class _Log(nn.Module):  # type: ignore[misc]
    """log(max(x / factor, floor)), the factor taken out behind the logarithm."""

    def __init__(self, floor: float, factor: float) -> None:
        super().__init__()
        self.least, self.shift = floor * factor, float(np.log(factor))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logarithm = torch.log(x.clamp(min=self.least))
        return logarithm - self.shift if self.shift else logarithm


def build_front_end(spec: FrontEnd, *, channels: int, samples: int) -> tuple[nn.Module, FeatureShape]:
    """Build a front end for windows of (channels, samples), and tell the shape of what it gives.

    Args:
        spec: what to compute.
        channels: number of the window's channels.
        samples: number of the window's samples.

    Returns:
        A module from (batch, channels, samples) to (batch, rows, frames) without trainable parameters, and that shape.

    Raises:
        ConfigError: the window is too short for it, or a stage is made for another number of channels.
    """
    shape = feature_shape(spec, channels=channels, samples=samples)
    match spec:
        case Raw():
            return nn.Identity(), shape
        case Standardise():
            return Standardised(spec), shape
        case Centre():
            return Centred(spec), shape
        case Filter():
            response = np.tile(filters.impulse_response(spec)[None, None], (channels, 1, 1))
            return FixedConv(response, groups=channels), shape
        case FirstDifference():
            kernels = [[0.0, 1.0], [-1.0, 1.0]] if spec.keep else [[-1.0, 1.0]]
            return FixedConv(np.tile(np.array(kernels)[:, None], (channels, 1, 1)), groups=channels), shape
        case SpectrogramSpec():
            return Spectrogram(spec, channels=channels), shape
        case LogMelSpec():
            return LogMel(spec, channels=channels), shape
        case FilterBankSpec():
            return FilterBank(spec, channels=channels, samples=samples), shape
        case MfccSpec():
            return Mfcc(spec, channels=channels), shape
        case StatisticsSpec():
            return Statistics(spec, channels=channels, samples=samples), shape
        case Chain():
            stages, before = [], FeatureShape(rows=channels, frames=samples)
            for stage in spec.stages:
                module, before = build_front_end(stage, channels=before.rows, samples=before.frames)
                stages.append(module)
            return nn.Sequential(*stages), shape


def _firsts(pairs: tuple[filters.Pairs, ...]) -> Iterator[tuple[filters.Pairs, int]]:
    """Tables of pairs, each with the number of its first band."""
    first = 0
    for each in pairs:
        yield each, first
        first += len(each.table) // 2


def _held_pair(spec: SpectrogramSpec) -> tuple[list[npt.NDArray[np.float32]], float]:
    """Cosines and sines with one common factor, so that their squares may be added."""
    cosine, sine = filters.fourier(spec)
    both, factor = filters.held(np.stack([cosine, sine]), spec.coefficients)
    return [both[0], both[1]], factor
