"""Closed-form training of the last layer: ridge regression, its strength chosen by leaving one window out.

Source: Rifkin and Lippert 2007, "Notes on regularized least squares" (all leave-one-out errors from one
eigendecomposition).
"""

from __future__ import annotations

import numpy as np
import torch  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Float32, Int64
from edge_export.learn.networks.blocks import Classifier
from edge_export.learn.networks.rocket import RocketBody
from edge_export.learn.training.loop import answer

STRENGTHS = tuple(float(each) for each in np.logspace(-3, 4, 8))
SHARPNESS = tuple(float(each) for each in np.logspace(-1, 2, 61))


def fit_rocket(network: Classifier, x: Float32, y: Int64 | Float32, *, seed: int) -> Classifier:
    """Take a MiniRocket network's biases and last layer from windows, in place.

    The layer's answers are scaled so that a softmax of them, each of a window left out, explains the labels best.

    Args:
        network: its body is a `RocketBody`.
        x: (n, channels, samples) windows.
        y: (n,) class indices, or (n, classes) probabilities.
        seed: seed of the biases' windows, and of the channels.
    """
    body = network.body
    assert isinstance(body, RocketBody), "built from the family"
    network.eval()
    body.take_biases(answer(network.front, x), seed)
    shares = torch.from_numpy(answer(network.features, x)).double()
    mean, spread = shares.mean(dim=0), shares.std(dim=0, correction=0)
    spread[spread == 0] = 1
    labels = torch.from_numpy(y)
    wanted = labels if y.ndim == 2 else functional.one_hot(labels, network.head.out_features)
    weights, level, sharpness = _ridge((shares - mean) / spread, wanted.double())
    weights /= spread[:, None]
    with torch.no_grad():
        network.head.weight.copy_((sharpness * weights).T)
        network.head.bias.copy_(sharpness * (level - mean @ weights))
    return network


def _ridge(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Weights (features, classes) and level (classes,) of the best strength, and what to multiply answers with.

    Args:
        x: (n, features), each of mean 0.
        y: (n, classes) probabilities.
    """
    targets = 2 * y - 1
    level = targets.mean(dim=0)
    values, vectors = torch.linalg.eigh(x @ x.T)
    projected = vectors.T @ (targets - level)
    best_error = torch.inf
    for strength in STRENGTHS:
        inverse = 1 / (values.clamp(min=0) + strength)
        dual = vectors @ (inverse[:, None] * projected)
        # The level is fitted too: 1/n of each window's own target is in it.
        own = (vectors**2) @ inverse - 1 / (strength * len(x))
        residual = dual / own[:, None]
        error = float((residual**2).mean())
        if error < best_error:
            best_error, best, left_out = error, dual, targets - residual
    losses = [float(functional.cross_entropy(sharpness * left_out, y)) for sharpness in SHARPNESS]
    return x.T @ best, level, SHARPNESS[int(np.argmin(losses))]
