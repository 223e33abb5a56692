"""Pruning: channels that matter least are taken out, in steps with training between them; zeros are only counted.

A pruned network is an ordinary smaller one: it exports, quantises and runs as such.
"""

from __future__ import annotations

from edge_export.learn.prune.scores import Criterion, ScoringWindows, parameter_scores
from edge_export.learn.prune.structured import Pruned, PruneStep, Pruning, prune
from edge_export.learn.prune.unstructured import Zeroed, zero_smallest

__all__ = [
    "Criterion",
    "PruneStep",
    "Pruned",
    "Pruning",
    "ScoringWindows",
    "Zeroed",
    "parameter_scores",
    "prune",
    "zero_smallest",
]
