"""Networks made to be right, from their stated families."""

from __future__ import annotations

import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.learn.networks.blocks import Attention, Planes, conv1d, conv2d, rounded
from edge_export.recipe.feature_spec import FeatureShape
from edge_export.recipe.network_spec import InceptionTime, ResNet1d, ResNet2d


def resnet_1d(family: ResNet1d, shape: FeatureShape) -> tuple[nn.Module, int]:
    """Build the body; return it with its width."""
    halvings = family.reduction.bit_length() - 1
    before = rounded(64 * family.width)
    stem = conv1d(shape.rows, before, family.kernel, stride=2 if halvings else 1, stretch=False)
    layers: list[nn.Module] = [stem]
    for block in range(family.depth):
        after = rounded(64 * family.width * (1 if block == 0 else 2))
        stride = 2 if block + 1 < halvings else 1
        branch = [
            conv1d(before, after, family.kernel, stride=stride, stretch=False),
            conv1d(after, after, 5),
            conv1d(after, after, 3, relu=False),
        ]
        if family.attention:
            branch.append(Attention(after, axes=1))
        layers.append(Residual(nn.Sequential(*branch), _shortcut_1d(before, after, stride)))
        before = after
    return nn.Sequential(*layers), before


def resnet_2d(family: ResNet2d, shape: FeatureShape) -> tuple[nn.Module, int]:
    """Build the body; return it with its width."""
    bands = shape.rows // shape.planes
    before = rounded(32 * family.width)
    layers: list[nn.Module] = [Planes(shape.planes, bands, shape.frames), conv2d(shape.planes, before, (5, 5))]
    for block in range(family.depth):
        after = rounded(32 * family.width * min(4, 2**block))
        stride = (1, 1) if block == 0 else (2, 2)
        branch = [conv2d(before, after, (3, 3), stride=stride, stretch=False), conv2d(after, after, (3, 3), relu=False)]
        if family.attention:
            branch.append(Attention(after, axes=2))
        shortcut = conv2d(before, after, (1, 1), stride=stride, relu=False) if block else nn.Identity()
        layers.append(Residual(nn.Sequential(*branch), shortcut))
        before = after
    return nn.Sequential(*layers), before


def inception_time(family: InceptionTime, shape: FeatureShape) -> tuple[nn.Module, int]:
    """Build the body; return it with its width."""
    branch = rounded(32 * family.width)
    layers: list[nn.Module] = [nn.AvgPool1d(family.reduction)] if family.reduction > 1 else []
    before = shape.rows
    for first in range(0, family.depth, 3):
        modules = [
            Inception(before if i == first else 4 * branch, branch, family.kernel)
            for i in range(first, min(first + 3, family.depth))
        ]
        layers.append(Residual(nn.Sequential(*modules), conv1d(before, 4 * branch, 1, relu=False)))
        before = 4 * branch
    return nn.Sequential(*layers), 4 * branch


class Residual(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """A branch beside a shortcut, added; Relu.

    Args:
        branch: the layers that learn.
        shortcut: brings the input to the branch's shape.
    """

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch, self.shortcut = branch, shortcut

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """To the branch's shape."""
        return functional.relu(self.branch(x) + self.shortcut(x))


class Inception(nn.Module):  # type: ignore[misc]
    """Three convolutions of different lengths behind a bottleneck, and a max pool, side by side.

    Args:
        before: channels of the input.
        branch: channels of each of the four parts.
        kernel: samples the longest convolution sees.
    """

    def __init__(self, before: int, branch: int, kernel: int) -> None:
        super().__init__()
        self.bottleneck = nn.Conv1d(before, branch, 1, bias=False)
        lengths = [max(3, kernel // divisor) | 1 for divisor in (1, 2, 4)]
        self.lengths = nn.ModuleList([nn.Conv1d(branch, branch, n, padding=n // 2, bias=False) for n in lengths])
        self.peak = nn.Conv1d(before, branch, 1, bias=False)
        self.norm = nn.BatchNorm1d(4 * branch)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, before, frames) to (batch, 4 * branch, frames)."""
        narrow = self.bottleneck(x)
        peaks = self.peak(functional.max_pool1d(x, 3, stride=1, padding=1))
        return functional.relu(self.norm(torch.cat([*(conv(narrow) for conv in self.lengths), peaks], dim=1)))


def _shortcut_1d(before: int, after: int, stride: int) -> nn.Module:
    if before == after and stride == 1:
        return nn.Identity()
    return conv1d(before, after, 1, stride=stride, relu=False)
