"""Two networks that no recipe makes: plain convolutions, and a residual net over a context that may be filling."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch  # noqa: TID251 - tests of the export toolchain
from edge_export.learn.networks.surround import ChannelScale
from torch import nn  # noqa: TID251 - tests of the export toolchain
from torch.nn import functional  # noqa: TID251 - tests of the export toolchain


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

    What precedes the first change of value is filling (`edge_export.data.dataset.cut_windows`); it is set to zero, and
    left out of the pooling over time. So a window at the start of a stream is judged by what was measured alone.

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


def _conv(before: int, after: int, kernel: int, *, stride: int = 1, groups: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv1d(before, after, kernel, stride, (kernel - 1) // 2, groups=groups, bias=False),
        nn.BatchNorm1d(after),
        nn.ReLU(),
    )
