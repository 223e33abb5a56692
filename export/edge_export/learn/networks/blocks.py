"""The pieces families of networks are made of. Batch normalisation follows every convolution, and folds away."""

from __future__ import annotations

from typing import Literal

import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_runtime.errors import ConfigError

ROUND_TO = 4
"""Widths are multiples of it: int8 kernels compute four channels at once, and fill up what is missing."""


def rounded(channels: float) -> int:
    """Round a number of channels to what kernels like, at least `ROUND_TO`."""
    return max(ROUND_TO, ROUND_TO * round(channels / ROUND_TO))


def stretched(kernel: int, stride: int) -> int:
    """Make an odd kernel even where it halves the rate.

    Symmetric padding is then what TensorFlow calls SAME for inputs of even length, and the TensorFlow Lite file needs
    no padding of its own.
    """
    return kernel + stride - 1 if kernel > 1 and kernel % 2 else kernel


def conv1d(
    before: int,
    after: int,
    kernel: int,
    *,
    stride: int = 1,
    groups: int = 1,
    padding: Literal["same", "valid"] = "same",
    relu: bool = True,
    stretch: bool = True,
) -> nn.Sequential:
    """Convolution over time, batch normalisation, Relu.

    Args:
        before: channels of the input.
        after: channels of the output.
        kernel: frames it sees.
        stride: frames between outputs.
        groups: 1, or the number of inputs for a filter per channel.
        padding: ``same`` fills both ends, ``valid`` none.
        relu: whether one follows.
        stretch: see `stretched`.
    """
    kernel = stretched(kernel, stride) if stretch else kernel
    margin = (kernel - 1) // 2 if padding == "same" else 0
    layers: list[nn.Module] = [
        nn.Conv1d(before, after, kernel, stride, margin, groups=groups, bias=False),
        nn.BatchNorm1d(after),
    ]
    return nn.Sequential(*layers, nn.ReLU()) if relu else nn.Sequential(*layers)


def conv2d(
    before: int,
    after: int,
    kernel: tuple[int, int],
    *,
    stride: tuple[int, int] = (1, 1),
    groups: int = 1,
    padding: Literal["same", "valid"] = "same",
    relu: bool = True,
    stretch: bool = True,
) -> nn.Sequential:
    """Build the same over bands and time; ``valid`` concerns time, since bands are no stream."""
    sizes = [stretched(n, step) if stretch else n for n, step in zip(kernel, stride, strict=True)]
    margins = ((sizes[0] - 1) // 2, (sizes[1] - 1) // 2 if padding == "same" else 0)
    layers: list[nn.Module] = [
        nn.Conv2d(before, after, (sizes[0], sizes[1]), stride, margins, groups=groups, bias=False),
        nn.BatchNorm2d(after),
    ]
    return nn.Sequential(*layers, nn.ReLU()) if relu else nn.Sequential(*layers)


class Attention(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """Squeeze and excitation: each channel weighted by what all of them say on average.

    Args:
        channels: number of the features' channels.
        axes: 1 for (batch, channels, frames), 2 for (batch, channels, bands, frames).
        squeeze: channels per hidden unit.
    """

    def __init__(self, channels: int, *, axes: Literal[1, 2], squeeze: int = 8) -> None:
        super().__init__()
        conv = nn.Conv1d if axes == 1 else nn.Conv2d
        self.over = tuple(range(2, 2 + axes))
        self.squeeze = conv(channels, max(4, channels // squeeze), 1)
        self.excite = conv(max(4, channels // squeeze), channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Weigh the channels; the shape stays."""
        weight = functional.relu(self.squeeze(x.mean(dim=self.over, keepdim=True)))
        return x * torch.sigmoid(self.excite(weight))


class Planes(nn.Module):  # type: ignore[misc]
    """Rows of features seen as pictures: (batch, planes * bands, frames) to (batch, planes, bands, frames).

    Args:
        planes: pictures.
        bands: rows of each.
        frames: along time.
    """

    def __init__(self, planes: int, bands: int, frames: int) -> None:
        super().__init__()
        self.sizes = (planes, bands, frames)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """See the class."""
        return x.unsqueeze(1) if self.sizes[0] == 1 else x.reshape(-1, *self.sizes)


class Classifier(nn.Module):  # type: ignore[misc]
    """Front end, body, pooling over what is left of the axes, one dense layer.

    Args:
        front: (batch, channels, samples) to (batch, rows, frames).
        body: (batch, rows, frames) to features, time on the last axis; or to (batch, width) outright.
        pool: how features become one vector.
        width: channels of the body's features.
        sizes: the axes of the features behind the channels; empty where the body gives vectors.
        classes: number of labels.
        dropout: share of features dropped in training.
        reach: samples between the features of neighbouring frames, and samples that one feature depends on; 0 where it
            depends on all that came before.
    """

    def __init__(
        self,
        *,
        front: nn.Module,
        body: nn.Module,
        pool: Literal["mean", "max", "mean_max", "last"],
        width: int,
        sizes: tuple[int, ...],
        classes: int,
        dropout: float,
        reach: tuple[int, int],
    ) -> None:
        super().__init__()
        if classes < 2:
            raise ConfigError(f"{classes} classes; need at least 2")
        self.front, self.body = front, body
        self.pool, self.sizes = pool, sizes
        self.stride, self.memory = reach
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(2 * width if pool == "mean_max" and sizes else width, classes)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) in physical units to what the pooling sees."""
        return self.body(self.front(x))

    def classify(self, features: torch.Tensor) -> torch.Tensor:
        """Features to (batch, classes) logits."""
        return self.head(self.dropout(self.pooled(features)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) in physical units to (batch, classes) logits."""
        return self.classify(self.features(x))

    def pooled(self, x: torch.Tensor) -> torch.Tensor:
        """Features to the (batch, width) vector that the dense layer sees."""
        if not self.sizes:
            return x
        if self.pool == "last":
            return x[..., -1:].squeeze(-1)
        axes = tuple(range(2, 2 + len(self.sizes)))
        means = x.mean(dim=axes) if "mean" in self.pool else None
        if self.pool == "mean":
            return means
        peaks = functional.max_pool1d(x, self.sizes) if len(self.sizes) == 1 else functional.max_pool2d(x, self.sizes)
        # Squeezed and not flattened: dependency graphs (`edge_export.learn.prune`) lose track of channels in a reshape.
        peaks = peaks.squeeze(axes)
        return peaks if means is None else torch.cat([means, peaks], dim=1)
