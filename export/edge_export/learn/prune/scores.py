"""Importance scores of each number of a network, by three criteria."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain
from torch.nn import functional  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Float32, Int64
from edge_runtime.errors import ConfigError

Criterion = Literal["magnitude_l1", "magnitude_l2", "taylor", "fisher"]
Scores: TypeAlias = dict[nn.Parameter, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringWindows:
    """Windows by whose loss numbers are judged; some hundred of training groups are enough.

    Attributes:
        x: (n, n_channels, samples).
        y: (n,) class indices.
    """

    x: Float32 = field(repr=False)
    y: Int64 = field(repr=False)

    def __post_init__(self) -> None:
        if not len(self.y) or len(self.x) != len(self.y):
            raise ConfigError(f"{len(self.x)} windows and {len(self.y)} labels to prune by; need some, one for each")


def parameter_scores(network: nn.Module, criterion: Criterion, evidence: ScoringWindows | None) -> Scores:
    """Score each number, in the shape of each parameter.

    1. ``magnitude_l1`` and ``magnitude_l2`` are the number's size and its square.
    2. ``taylor`` is the first-order change of the loss when the number becomes zero, by batches of 32 (Molchanov et al.
       2019, arXiv:1906.10771).
    3. ``fisher`` is the second-order change with the diagonal of the empirical Fisher matrix, window by window, in
       place of the Hessian (LeCun et al. 1989, "Optimal brain damage"; Theis et al. 2018, arXiv:1801.05787).
    4. Statistics are as they are used: in training mode a window's gradient would depend on its neighbours.

    Own and not torch-pruning's: 1.6.1's Hessian keeps the last window's gradient only, and its Taylor criterion leaves
    batch normalisation out.

    Args:
        network: answers with logits.
        criterion: the kind of score.
        evidence: needed for ``taylor`` and ``fisher``.

    Raises:
        ConfigError: no evidence where it is needed.
    """
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    if criterion == "magnitude_l1":  # rule 1
        return {parameter: parameter.detach().abs() for parameter in trained}
    if criterion == "magnitude_l2":  # rule 1
        return {parameter: parameter.detach() ** 2 for parameter in trained}
    if evidence is None:
        raise ConfigError(f"pruning by {criterion} needs labelled windows; give evidence, or prune by magnitude")
    network.eval()  # rule 4
    size = 32 if criterion == "taylor" else 1  # rules 2 and 3
    totals = {parameter: torch.zeros_like(parameter) for parameter in trained}
    for begin in range(0, len(evidence.y), size):
        network.zero_grad()
        logits = network(torch.from_numpy(evidence.x[begin : begin + size]))
        functional.cross_entropy(logits, torch.from_numpy(evidence.y[begin : begin + size])).backward()
        for parameter in trained:
            if parameter.grad is None:
                continue
            change = parameter.detach() * parameter.grad
            totals[parameter] += change.abs() if criterion == "taylor" else change**2  # rules 2 and 3
    network.zero_grad()
    return totals
