"""Fusion: one answer of the device's and the cloud's, where a correction would else be the cloud's alone.

A weighted sum of log-probabilities, the logarithmic opinion pool: two models that err on different windows can be
right together more often than either. Sources: Genest and Zidek 1986 (Statistical Science 1); Hinton 2002 (products
of experts). Figures: docs/guide.md.
"""

from __future__ import annotations

import numpy as np

from edge_runtime.manifest.surround import Fusion
from edge_runtime.types import Float32, Float64

_SMALLEST = 1e-7
"""Floor under probabilities before a logarithm: answers are written down with seven decimals."""


def fuse(fusion: Fusion, device: Float32, cloud: Float32) -> Float32:
    """Fuse answers to the same windows.

    Args:
        fusion: the weights.
        device: (windows, labels) probabilities, as predictions have them.
        cloud: the same of the cloud's.

    Returns:
        (windows, labels), rows that sum to one.
    """
    logits = fusion.device * logarithms(device) + fusion.cloud * logarithms(cloud)
    if fusion.bias:
        logits += fusion.bias
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    fused: Float32 = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return fused


def logarithms(probabilities: Float32) -> Float64:
    """Return the terms that the weights belong to, (windows, labels)."""
    terms: Float64 = np.log(np.maximum(probabilities.astype(np.float64), _SMALLEST))
    return terms
