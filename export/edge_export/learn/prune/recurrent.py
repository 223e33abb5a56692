"""Units out of a GRU: dependency graphs know no recurrent layers and leave them as they are, without a word."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass

import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.learn.networks.blocks import Classifier
from edge_export.learn.networks.students import Recurrent
from edge_export.learn.prune.scores import Scores

_GATES = 3


@dataclass(frozen=True, slots=True)
class RecurrentPart:
    """The layers of a recurrent classifier.

    Attributes:
        conv: in front.
        norm: behind it.
        holder: of the GRU.
        head: that answers.
    """

    conv: nn.Conv1d
    norm: nn.BatchNorm1d
    holder: Recurrent
    head: nn.Linear


def recurrent_part(network: nn.Module) -> RecurrentPart | None:
    """Find the layers of a network that is one GRU layer between a convolution and a dense layer, else None."""
    if not isinstance(network, Classifier) or not isinstance(network.body, nn.Sequential) or len(network.body) != 2:
        return None
    stem, holder = network.body
    if not isinstance(holder, Recurrent) or holder.gru.num_layers != 1:
        return None
    return RecurrentPart(conv=stem[0], norm=stem[1], holder=holder, head=network.head)


def prune_recurrent(
    part: RecurrentPart, scores: Scores, ratio: float, round_to: int, first: MutableMapping[str, int]
) -> dict[str, int]:
    """Take channels of the convolution and units of the GRU out, in place.

    A unit's score is the mean over the weights that lead into it, by all gates, and out of it.

    Args:
        part: result of `recurrent_part`.
        scores: the parameters' scores.
        ratio: share of the original channels and units to be gone.
        round_to: widths become multiples of it.
        first: original widths; filled on the first call.

    Returns:
        Widths left, by layer.
    """
    gru = part.holder.gru
    inputs, units = gru.input_size, gru.hidden_size
    into, back = scores[gru.weight_ih_l0], scores[gru.weight_hh_l0]
    per_unit = (
        into.view(_GATES, units, inputs).sum(dim=(0, 2))
        + back.view(_GATES, units, units).sum(dim=(0, 2))
        + back.sum(dim=0)
        + scores[part.head.weight].sum(dim=0)
    )
    per_input = scores[part.conv.weight].sum(dim=(1, 2)) + scores[part.norm.weight] + into.sum(dim=0)
    first.setdefault("body.0.0", inputs)
    first.setdefault("body.1.gru", units)
    some = _staying(per_input, first["body.0.0"] * (1 - ratio), round_to)
    kept = _staying(per_unit, first["body.1.gru"] * (1 - ratio), round_to)
    rows = torch.cat([gate * units + kept for gate in range(_GATES)])
    smaller = nn.GRU(len(some), len(kept), batch_first=True)
    with torch.no_grad():
        smaller.weight_ih_l0.copy_(gru.weight_ih_l0[rows][:, some])
        smaller.weight_hh_l0.copy_(gru.weight_hh_l0[rows][:, kept])
        smaller.bias_ih_l0.copy_(gru.bias_ih_l0[rows])
        smaller.bias_hh_l0.copy_(gru.bias_hh_l0[rows])
    part.holder.gru = smaller
    part.conv.weight = nn.Parameter(part.conv.weight.detach()[some].clone())
    part.conv.out_channels = part.norm.num_features = len(some)
    for name in ("weight", "bias"):
        setattr(part.norm, name, nn.Parameter(getattr(part.norm, name).detach()[some].clone()))
    for name in ("running_mean", "running_var"):
        setattr(part.norm, name, getattr(part.norm, name)[some].clone())
    part.head.weight = nn.Parameter(part.head.weight.detach()[:, kept].clone())
    part.head.in_features = len(kept)
    return {"body.0.0": len(some), "body.1.gru": len(kept)}


def _staying(importance: torch.Tensor, width: float, round_to: int) -> torch.Tensor:
    left = min(len(importance), max(round_to, round_to * int(width / round_to + 0.5)))
    order = torch.argsort(importance, stable=True)
    return order[len(order) - left :].sort().values
