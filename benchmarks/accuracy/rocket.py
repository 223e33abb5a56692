"""MiniRocket: a peer that is trained in a minute and is near the best on most sets of short series.

84 fixed kernels of nine taps, dilated; of each output, the share of samples that are above a bias. Ridge regression on
these 9,996 shares classifies.

Source: Dempster, Schmidt and Webb 2021 (arXiv:2012.08791), section 3; for several channels, a random set of them is
summed for each kernel and dilation, as in the authors' code for multivariate series.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch  # noqa: TID251 - a peer, on a workstation
from sklearn.linear_model import RidgeClassifierCV
from sklearn.preprocessing import StandardScaler

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

FEATURES = 9996
TAPS = 9
MOST_DILATIONS = 32
BATCH_VALUES = 20_000_000
"""Values of one kernel's outputs that are held at a time."""


def _kernels() -> torch.Tensor:
    """(84, 1, 9): all ways to put three 2 among nine -1: their sum is 0, so a level does not count."""
    kernels = torch.full((84, 1, TAPS), -1.0)
    for row, places in enumerate(itertools.combinations(range(TAPS), 3)):
        kernels[row, 0, list(places)] = 2.0
    return kernels


@dataclass(frozen=True, kw_only=True)
class _Part:
    """One dilation: which channels each kernel sees, and the biases that its outputs are compared with."""

    dilation: int
    channels: Float32
    """(84, channels) of 0 and 1."""
    biases: Float32
    """(84, biases)."""


class MiniRocket:
    """The transform; `fit` takes its biases from outputs of training windows.

    Args:
        seed: of the biases' windows, and of the channels.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._parts: list[_Part] = []

    def fit(self, x: Float32) -> MiniRocket:
        """Take biases from the quantiles of outputs, each of a window drawn at random.

        Args:
            x: (n, channels, samples), at least nine samples.
        """
        random = np.random.default_rng(self._seed)
        channels, samples = x.shape[1:]
        dilations, counts = _dilations(samples)
        # Low-discrepancy quantiles, in the order of their use, as in the paper.
        quantiles = iter(np.arange(1, 84 * int(counts.sum()) + 1) * ((np.sqrt(5) + 1) / 2) % 1)
        self._parts = []
        for dilation, count in zip(dilations, counts.tolist(), strict=True):
            chosen = np.zeros((84, channels), np.float32)
            for row in chosen:
                size = int(2 ** random.uniform(0, np.log2(min(channels, 9) + 1)))
                row[random.choice(channels, size, replace=False)] = 1
            drawn = x[random.integers(0, len(x), 84)]
            biases = np.empty((84, count), np.float32)
            outputs = _convolve(torch.from_numpy(drawn), dilation, torch.from_numpy(chosen)).numpy()
            for kernel in range(84):
                wanted = [next(quantiles) for _ in range(count)]
                biases[kernel] = np.quantile(outputs[kernel, kernel], wanted)
            self._parts.append(_Part(dilation=int(dilation), channels=chosen, biases=biases))
        return self

    def transform(self, x: Float32) -> Float32:
        """Return (n, features) shares of samples above each bias."""
        batch = max(1, BATCH_VALUES // (84 * x.shape[2]))
        rows = [self._shares(torch.from_numpy(x[at : at + batch])) for at in range(0, len(x), batch)]
        return np.concatenate(rows)

    @property
    def size(self) -> int:
        """Bytes: a bias is 4, which channels a kernel sees one each."""
        return sum(part.biases.size * 4 + part.channels.size for part in self._parts)

    def _shares(self, x: torch.Tensor) -> Float32:
        found = []
        for number, part in enumerate(self._parts):
            outputs = _convolve(x, part.dilation, torch.from_numpy(part.channels))
            inside = (TAPS - 1) * part.dilation // 2
            for kernel in range(84):
                own = outputs[:, kernel]
                if (number + kernel) % 2 and own.shape[1] > 2 * inside:  # every other one without the padded ends
                    own = own[:, inside:-inside]
                above = own[:, None, :] > torch.from_numpy(part.biases[kernel])[None, :, None]
                found.append(above.float().mean(dim=2))
        shares: Float32 = torch.cat(found, dim=1).numpy()
        return shares


def _dilations(samples: int) -> tuple[Int64, Int64]:
    """Dilations that a window has room for, and how many biases each gets."""
    per_kernel = FEATURES // 84
    most = min(per_kernel, MOST_DILATIONS)
    largest = np.log2((samples - 1) / (TAPS - 1))
    spread = np.logspace(0, largest, most, base=2).astype(np.int64)
    dilations, counts = np.unique(spread, return_counts=True)
    counts = (counts * per_kernel / most).astype(np.int64)
    left = per_kernel - int(counts.sum())
    counts[: max(0, left)] += 1
    return dilations, counts


def _convolve(x: torch.Tensor, dilation: int, channels: torch.Tensor) -> torch.Tensor:
    """Return (n, 84, samples): each kernel's output, summed over its channels."""
    n, count, samples = x.shape
    # A sum of outputs is the output of a sum.
    summed = torch.einsum("ncs,kc->nks", x, channels)
    padding = (TAPS - 1) * dilation // 2
    kernels = _kernels()
    outputs = torch.nn.functional.conv1d(summed, kernels, padding=padding, dilation=dilation, groups=84)
    return outputs[:, :, :samples].reshape(n, 84, samples) if count else outputs


class MiniRocketRidge:
    """The transform and a ridge regression on its shares, trained.

    Args:
        x: (n, channels, samples) to train on.
        y: (n,) class indices.
        seed: of the transform.
    """

    def __init__(self, x: Float32, y: Int64, *, seed: int) -> None:
        self._transform = MiniRocket(seed).fit(x)
        self._scale = StandardScaler(with_mean=True)
        shares = self._scale.fit_transform(self._transform.transform(x))
        self._ridge = RidgeClassifierCV(alphas=np.logspace(-3, 4, 8)).fit(shares, y)

    def answer(self, x: Float32) -> Int64:
        """(m, channels, samples) to (m,) class indices."""
        shares = self._scale.transform(self._transform.transform(x))
        answers: Int64 = self._ridge.predict(shares).astype(np.int64)
        return answers

    @property
    def size(self) -> int:
        """Bytes of biases, channels and weights, the scale folded into these."""
        return self._transform.size + 4 * int(self._ridge.coef_.size + self._ridge.intercept_.size)


def minirocket(x: Float32, y: Int64, unseen: Float32, *, seed: int) -> Int64:
    """Train on some windows, answer others: (m,) class indices."""
    return MiniRocketRidge(x, y, seed=seed).answer(unseen)
