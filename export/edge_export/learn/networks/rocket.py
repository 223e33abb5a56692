"""MiniRocket: fixed convolutions whose outputs are compared with biases; a linear layer on the shares above them.

84 kernels of nine taps, dilated; of each output, the share of samples that are above a bias. Nothing is learnt by
gradient: biases are quantiles of training windows' outputs, and `learn.training.ridge` gives the linear layer.

Source: Dempster, Schmidt and Webb 2021 (arXiv:2012.08791), section 3; for several channels, a random set of them is
summed for each kernel and dilation, as in the authors' code for multivariate series.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Float32, Int64

KERNELS = 84
TAPS = 9
MOST_DILATIONS = 32
BIASES = 119
"""Of one kernel over all dilations at width 1: 9,996 features, as in the paper."""


class RocketBody(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """The transform, as a graph of ordinary operators.

    Args:
        rows: number of its input's rows.
        frames: number of its input's frames, at least nine.
        biases: number of one kernel's biases, over all dilations.
    """

    def __init__(self, rows: int, frames: int, biases: int = BIASES) -> None:
        super().__init__()
        dilations, counts = _dilations(frames, biases)
        self.parts = nn.ModuleList(
            [
                _Part(rows, frames, int(each), int(count), (number + 1) % 2)
                for number, (each, count) in enumerate(zip(dilations, counts, strict=True))
            ]
        )
        self.width = KERNELS * int(counts.sum())
        self.frames = frames

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def take_biases(self, x: Float32, seed: int) -> None:
        """Draw each kernel's channels, and take biases from quantiles of outputs, each of a window drawn at random.

        Args:
            x: (n, rows, frames) to draw from.
            seed: the seed of both.
        """
        random = np.random.default_rng(seed)
        # Low-discrepancy quantiles, in the order of their use, as in the paper.
        quantiles = np.arange(1, self.width + 1) * ((np.sqrt(5) + 1) / 2) % 1
        used = 0
        for part in self.parts:
            count = part.biases.shape[1]
            part.channels.copy_(torch.from_numpy(_channels(x.shape[1], random)))
            drawn = torch.from_numpy(x[random.integers(0, len(x), KERNELS)])
            halves = [part.convolve(drawn, half, part.padding).numpy() for half in (0, 1)]
            for kernel in range(KERNELS):
                wanted = quantiles[used : used + count]
                used += count
                outputs = halves[kernel % 2][kernel, kernel // 2]
                part.biases[kernel] = torch.from_numpy(np.quantile(outputs, wanted))

    def cost(self) -> tuple[int, int, int]:
        """Return its learnt numbers, multiplications with addition, and bytes, all of them in float."""
        chosen = sum(part.channels.numel() for part in self.parts if part.channels.shape[1] > 1)
        taps = len(self.parts) * KERNELS * TAPS
        return self.width, self.frames * (chosen + taps + self.width), 4 * (self.width + chosen + KERNELS * TAPS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, rows, frames) to (batch, width) shares of frames above each bias."""
        return torch.cat([share for part in self.parts for share in part.shares(x)], dim=1)


class _Part(nn.Module):  # type: ignore[misc]
    """One dilation: which channels each kernel sees, and the biases that its outputs are compared with.

    Args:
        rows: number of its input's rows.
        frames: number of its input's frames.
        dilation: samples between two taps.
        biases: number of each kernel's biases.
        trimmed: 0 or 1: the kernels of even or odd number that count without the padded ends.
    """

    def __init__(self, rows: int, frames: int, dilation: int, biases: int, trimmed: int) -> None:
        super().__init__()
        self.dilation = dilation
        self.padding = (TAPS - 1) * dilation // 2
        self.paddings = [self.padding, self.padding]
        if frames > 2 * self.padding:
            self.paddings[trimmed] = 0
        self.register_buffer("channels", torch.ones(KERNELS, rows))
        self.register_buffer("biases", torch.zeros(KERNELS, biases))
        self.register_buffer("kernels", _kernels(), persistent=False)

    def convolve(self, x: torch.Tensor, half: int, padding: int) -> torch.Tensor:
        """(batch, rows, frames) to (batch, 42, frames): outputs of the kernels of even or odd number."""
        kernels, channels = self.kernels[half::2], self.channels[half::2]
        if x.shape[1] == 1:  # every kernel sees it; engines convolve in groups at a third of the speed
            return functional.conv1d(x, kernels, padding=padding, dilation=self.dilation)
        # A sum of outputs is the output of a sum.
        summed = torch.matmul(channels, x)
        return functional.conv1d(summed, kernels, padding=padding, dilation=self.dilation, groups=KERNELS // 2)

    def shares(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Compute (batch, 42) shares for each bias, of every other kernel without the padded ends."""
        found = []
        for half, padding in enumerate(self.paddings):
            outputs, biases = self.convolve(x, half, padding), self.biases[half::2]
            # One bias at a time: all at once would hold a hundred times the outputs.
            found += [(outputs > biases[:, at : at + 1]).float().mean(dim=2) for at in range(biases.shape[1])]
        return found


def _kernels() -> torch.Tensor:
    """(84, 1, 9): all ways to put three 2 among nine -1: their sum is 0, so a level does not count."""
    kernels = torch.full((KERNELS, 1, TAPS), -1.0)
    for row, places in enumerate(itertools.combinations(range(TAPS), 3)):
        kernels[row, 0, list(places)] = 2.0
    return kernels


def _channels(rows: int, random: np.random.Generator) -> Float32:
    """(84, rows) of 0 and 1."""
    chosen = np.zeros((KERNELS, rows), np.float32)
    for row in chosen:
        size = int(2 ** random.uniform(0, np.log2(min(rows, TAPS) + 1)))
        row[random.choice(rows, size, replace=False)] = 1
    return chosen


def _dilations(frames: int, per_kernel: int) -> tuple[Int64, Int64]:
    """Dilations that a window has room for, and how many biases each gets."""
    most = min(per_kernel, MOST_DILATIONS)
    largest = np.log2((frames - 1) / (TAPS - 1))
    dilations, counts = np.unique(np.logspace(0, largest, most, base=2).astype(np.int64), return_counts=True)
    counts = (counts * per_kernel / most).astype(np.int64)
    counts[: max(0, per_kernel - int(counts.sum()))] += 1
    return dilations, counts
