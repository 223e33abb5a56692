"""The surroundings of networks in their graphs: the scaling of channels in front, probabilities at the end."""

from __future__ import annotations

from collections.abc import Sequence

import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain


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


class Calibrated(nn.Module):  # type: ignore[misc]
    """Networks whose mean answer is given as probabilities, at a temperature.

    Args:
        members: networks that answer with logits; more than one form an ensemble.
        temperature: above 1 makes answers less certain (`edge_export.choose.evaluation.calibration.fit_temperature`).

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
