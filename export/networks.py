"""The networks: a small one for the device, a larger one for the cloud, and what surrounds both in their graphs.

Everything between physical units and probabilities is inside: the scaling of the channels at the front, softmax and
temperature at the end. Training and serving therefore cannot differ in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain


class ChannelScale(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """Bring channels of different units to a common range by a fixed factor each.

    The factor is part of the graph in front of the first quantisation: with one int8 step for all channels, a
    gyroscope that reaches 29 rad/s would leave an accelerometer within 2 g only nine steps.

    Args:
        scale: factor per channel.
    """

    def __init__(self, scale: Sequence[float]) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32).view(1, -1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) in physical units to the same shape, scaled."""
        return x * self.scale


class DeviceNet(nn.Module):  # type: ignore[misc]
    """Depthwise-separable 1-D convolutions, mean over time, one dense layer: a few thousand parameters.

    Args:
        scale: factor per channel, see `ChannelScale`.
        classes: number of labels.
        widths: channels after the first convolution and after each separable block.
        kernel: samples a convolution sees.
        dropout: share of features dropped in training.

    Source: depthwise-separable blocks as in MobileNets, Howard et al. 2017 (arXiv:1704.04861).
    """

    def __init__(
        self,
        *,
        scale: Sequence[float],
        classes: int,
        widths: Sequence[int] = (16, 32, 32, 48),
        kernel: int = 7,
        dropout: float = 0.1,
    ) -> None:
        super().__init__()
        self.scale = ChannelScale(scale)
        layers: list[nn.Module] = [_conv(len(scale), widths[0], kernel + 1, stride=2)]
        for index, (before, after) in enumerate(itertools.pairwise(widths)):
            stride = 2 if index == 0 else 1
            # One sample longer where it halves the rate: then symmetric padding is what TensorFlow calls SAME, and the
            # TensorFlow Lite file needs no padding of its own.
            layers += [
                _conv(before, before, kernel + stride - 1, stride=stride, groups=before),
                _conv(before, after, 1),
            ]
        self.body = nn.Sequential(*layers)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) in physical units to (batch, classes) logits."""
        return self.head(self.dropout(self.body(self.scale(x)).mean(dim=2)))


class ContextNet(nn.Module):  # type: ignore[misc]
    """A residual 1-D network over a longer context, blind to the filling in front of a short one.

    What precedes the first change of value is filling (`export.data.cut_windows`); it is set to zero, and left out of
    the pooling over time. So a window at the start of a stream is judged by what was measured alone.

    Args:
        scale: factor per channel, see `ChannelScale`.
        classes: number of labels.
        widths: channels of each residual block.
        dropout: share of features dropped in training.

    Source: residual networks for time series, Wang et al. 2017 (arXiv:1611.06455).
    """

    def __init__(
        self,
        *,
        scale: Sequence[float],
        classes: int,
        widths: Sequence[int] = (32, 48, 64),
        dropout: float = 0.3,
    ) -> None:
        super().__init__()
        self.scale = ChannelScale(scale)
        self.stem = _conv(len(scale), widths[0], 11, stride=4)
        blocks, before = [], widths[0]
        for index, width in enumerate(widths):
            blocks.append(_Residual(before, width, stride=1 if index == 0 else 2))
            before = width
        self.body = nn.Sequential(*blocks)
        self.stride = 4 * 2 ** (len(widths) - 1)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(2 * before, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) in physical units to (batch, classes) logits."""
        changed = (x[:, :, 1:] - x[:, :, :-1]).abs().amax(dim=1, keepdim=True) > 0
        measured = functional.pad(changed.to(x.dtype).cumsum(dim=2).clamp(max=1.0), (1, 0))
        features = self.body(self.stem(self.scale(x) * measured))
        # One weight per feature: that of the last sample under its stride, since filling lies in front only.
        last = functional.pad(measured, (0, -x.shape[2] % self.stride), value=1.0)[:, :, self.stride - 1 :: self.stride]
        mean = (features * last).sum(dim=2) / last.sum(dim=2).clamp(min=1.0)
        # Features are never negative, so a zeroed one cannot become the largest.
        peak = (features * last).amax(dim=2)
        return self.head(self.dropout(torch.cat([mean, peak], dim=1)))


class _Residual(nn.Module):  # type: ignore[misc]
    def __init__(self, before: int, after: int, *, stride: int) -> None:
        super().__init__()
        self.first = _conv(before, after, 5, stride=stride)
        self.second = nn.Sequential(nn.Conv1d(after, after, 5, padding=2, bias=False), nn.BatchNorm1d(after))
        shortcut: list[nn.Module] = []
        if stride > 1:
            shortcut.append(nn.AvgPool1d(stride, ceil_mode=True))
        if stride > 1 or before != after:
            shortcut.append(nn.Conv1d(before, after, 1))
        self.shortcut = nn.Sequential(*shortcut)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.second(self.first(x)) + self.shortcut(x))


class Calibrated(nn.Module):  # type: ignore[misc]
    """Networks whose mean answer is given as probabilities, at a temperature.

    Args:
        members: networks that answer with logits; more than one form an ensemble.
        temperature: above 1 makes answers less certain (`export.calibrate.fit_temperature`).

    Source: temperature scaling, Guo et al. 2017 (arXiv:1706.04599); deep ensembles, Lakshminarayanan et al. 2017
    (arXiv:1612.01474).
    """

    def __init__(self, members: Sequence[nn.Module], temperature: float = 1.0) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.sharpness = 1.0 / temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) in physical units to (batch, classes) probabilities."""
        answers = [member(x) for member in self.members]
        if len(answers) == 1:
            return torch.softmax(answers[0] * self.sharpness, dim=1)
        mean = torch.stack([torch.softmax(answer, dim=1) for answer in answers]).mean(dim=0)
        # The floor keeps the logarithm finite where every member rounds a class to zero.
        return torch.softmax(mean.clamp(min=1e-12).log() * self.sharpness, dim=1)


def _conv(before: int, after: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(before, after, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm1d(after),
        nn.ReLU(),
    )
