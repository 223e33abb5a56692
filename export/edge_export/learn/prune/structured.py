"""Whole channels out of a network, together with everything that depends on them.

Which layers belong together is found by torch-pruning's dependency graph (Fang et al. 2023, arXiv:2301.12900); how many
channels go, and which, is decided here, so that widths come out as kernels like them and nothing is skipped unsaid.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch  # noqa: TID251 - this is the export toolchain
import torch_pruning
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.learn.networks import Size, count
from edge_export.learn.prune.recurrent import prune_recurrent, recurrent_part
from edge_export.learn.prune.scores import Criterion, Scores, ScoringWindows, parameter_scores
from edge_runtime.errors import ConfigError, one_line


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruning:
    """Settings of structured pruning.

    Attributes:
        ratio: share of channels to take out.
        steps: number of steps, with training between them.
        criterion: what makes a channel matter little, see `edge_export.learn.prune.parameter_scores`.
        scope: ``layer`` takes the share out of every group of coupled layers; ``global`` takes the least of all
            channels wherever they are, each group's scores divided by their mean.
        ratios: share for layers named here (as `nn.Module.named_modules` names them), and those coupled to them.
        most: share that no group loses more than, where the scope is global.
        round_to: widths become multiples of it; where layers are concatenated, their widths together.
    """

    ratio: float
    steps: int = 3
    criterion: Criterion = "magnitude_l2"
    scope: Literal["layer", "global"] = "layer"
    ratios: Mapping[str, float] = field(default_factory=dict)
    most: float = 0.8
    round_to: Literal[1, 2, 4, 8, 16] = 4

    def __post_init__(self) -> None:
        if not all(0 <= ratio < 1 for ratio in (self.ratio, self.most, *self.ratios.values())) or self.steps < 1:
            raise ConfigError("pruning: ratios must be at least 0 and below 1, and steps at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneStep:
    """The network after one step of pruning.

    Attributes:
        ratio: share of channels aimed at.
        size: afterwards.
        widths: channels left, by the layer that gives them.
        before: score before training goes on; None without `evaluate`.
        after: score after it; None without `evaluate`.
    """

    ratio: float
    size: Size
    widths: Mapping[str, int]
    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """A smaller network, and how it came to be.

    Attributes:
        network: ready to answer. The one given is left as it was.
        original: size of the one given.
        score: of the one given; None without `evaluate`.
        steps: those taken and kept.
        refused: the step that lost more than allowed, and was taken back; None where all were kept.
    """

    network: nn.Module
    original: Size
    score: float | None
    steps: tuple[PruneStep, ...]
    refused: PruneStep | None = None


def prune(
    network: nn.Module,
    pruning: Pruning,
    *,
    channels: int,
    samples: int,
    evidence: ScoringWindows | None = None,
    tune: Callable[[nn.Module], object] | None = None,
    evaluate: Callable[[nn.Module], float] | None = None,
    max_drop: float | None = None,
    keep: tuple[str, ...] = (),
) -> Pruned:
    """Prune a network of convolutions and dense layers, or of one GRU behind a convolution.

    The layer that gives the answer keeps its outputs, and a front end is not touched.

    1. Each step takes a further share of the first widths, by scores of what the step before left.
    2. One that loses more of the original score than is allowed is taken back, and ends it.
    3. Nothing taken out where something was asked for is an error: the widths leave no room.

    Args:
        network: answers (batch, channels, samples) with logits.
        pruning: how much goes, and how.
        channels: number of the window's channels.
        samples: number of the window's samples.
        evidence: windows that ``taylor`` and ``fisher`` judge by.
        tune: trains a network in place after each step; None leaves it as pruned.
        evaluate: how good a network is, higher being better.
        max_drop: how much of the original score may be lost (rule 2).
        keep: names of layers whose outputs stay.

    Raises:
        ConfigError: a layer's kind cannot be pruned here, a named layer does not exist, nothing would go, or `max_drop`
            is given without `evaluate`.
    """
    if max_drop is not None and evaluate is None:
        raise ConfigError("pruning with max_drop needs someone who evaluates")
    smaller = copy.deepcopy(network).eval()
    names = {name for name, _ in smaller.named_modules()}
    if unknown := sorted({*pruning.ratios, *keep} - names):
        raise ConfigError(f"the network has no layer {unknown[0]!r}; see named_modules()")
    _check_kinds(smaller)
    original = count(smaller, channels=channels, samples=samples)
    score = evaluate(smaller) if evaluate is not None else None
    first: dict[str, int] = {}
    steps: list[PruneStep] = []
    for number in range(1, pruning.steps + 1):
        previous, tried = smaller, copy.deepcopy(smaller)
        share = number / pruning.steps  # rule 1
        scores = parameter_scores(tried, pruning.criterion, evidence)
        if (part := recurrent_part(tried)) is not None:
            widths = prune_recurrent(part, scores, pruning.ratio * share, pruning.round_to, first)
        else:
            widths = _step(tried, scores, pruning, share, first, example=(channels, samples), keep=keep)
        size = count(tried, channels=channels, samples=samples)
        before = evaluate(tried.eval()) if evaluate is not None else None
        if tune is not None:
            tune(tried)
        after = evaluate(tried.eval()) if evaluate is not None else None
        step = PruneStep(ratio=pruning.ratio * share, size=size, widths=widths, before=before, after=after)
        if max_drop is not None and score is not None and after is not None and after < score - max_drop:  # rule 2
            return Pruned(network=previous, original=original, score=score, steps=tuple(steps), refused=step)
        steps.append(step)
        smaller = tried
    if steps[-1].size.parameters == original.parameters and (pruning.ratio or pruning.ratios):  # rule 3
        kinds = sorted({type(module).__name__ for module in network.modules() if not list(module.children())})
        raise ConfigError(
            f"pruning took nothing out: widths of {sorted(set(first.values()))} in multiples of {pruning.round_to} "
            f"leave no room at a ratio of {pruning.ratio}, or no layer of {', '.join(kinds)} can be pruned"
        )
    return Pruned(network=smaller.eval(), original=original, score=score, steps=tuple(steps))


def _check_kinds(network: nn.Module) -> None:
    """Refuse what the dependency graph would pass over without a word."""
    for name, module in network.named_modules():
        if isinstance(module, nn.RNNBase) and recurrent_part(network) is None:
            raise ConfigError(
                f"layer {name!r} ({type(module).__name__}) cannot be pruned here: only a single GRU layer between a "
                f"convolution and the dense layer; train a narrower one"
            )
        if isinstance(module, nn.Conv1d | nn.Conv2d) and 1 < module.groups < module.in_channels:
            raise ConfigError(f"layer {name!r} has {module.groups} groups, which pruning would tear apart; leave it")


@dataclass(frozen=True, slots=True)
class _Group:
    """Coupled layers.

    Attributes:
        name: of the first of them.
        layer: one of them, whose outputs are counted.
        names: of all convolutions and dense layers whose outputs go together.
        importance: per channel.
    """

    name: str
    layer: nn.Module
    names: frozenset[str]
    importance: torch.Tensor


def _step(
    network: nn.Module,
    scores: Scores,
    pruning: Pruning,
    share: float,
    first: dict[str, int],
    *,
    example: tuple[int, int],
    keep: tuple[str, ...],
) -> dict[str, int]:
    window = torch.zeros(1, *example)
    layers = dict(network.named_modules())
    kept = [_answering_layer(network, window), *(layers[name] for name in keep)]
    widths = {}
    try:
        graph = _dependencies(network, window)
        groups = list(_groups(graph, network, scores, kept))
        for group in groups:
            first.setdefault(group.name, len(group.importance))
        for group, going in zip(groups, _going(groups, pruning, share, first), strict=True):
            outputs = graph.get_pruner_of_module(group.layer).prune_out_channels
            while going:
                # For each group again: taking channels out of one moves the places of those behind a concatenation.
                coupled = graph.get_pruning_group(group.layer, outputs, sorted(going))
                if graph.check_pruning_group(coupled):
                    coupled.prune()
                    break
                going.pop()  # a branch of a concatenation would be left with nothing: its best channel stays
            widths[group.name] = len(group.importance) - len(going)
        with torch.no_grad():
            network(window)
    except (IndexError, RuntimeError) as error:
        raise ConfigError(
            f"the layers of this {type(network).__name__} could not be told apart by what depends on them: "
            f"{one_line(error)}; prune with its layers of doubt in `keep`, or train a narrower one"
        ) from error
    network.zero_grad()
    return widths


def _dependencies(network: nn.Module, window: torch.Tensor) -> Any:
    """Find the layers whose channels depend on each other."""
    graph = torch_pruning.DependencyGraph().build_dependency(network, example_inputs=window, verbose=False)
    kinds = torch_pruning.ops.OPTYPE
    for node in graph.module2node.values():
        # A cut along time leaves all channels; torch-pruning 1.6.1 takes the last of three axes for the channels.
        if node.type == kinds.SLICE and node.module.dim != 1:
            node.type = kinds.ELEMENTWISE
            for dependency in (*node.dependencies, *(d for n in (*node.inputs, *node.outputs) for d in n.dependencies)):
                if node in (dependency.source, dependency.target):
                    dependency.index_mapping = [None, None]
    return graph


def _going(groups: list[_Group], pruning: Pruning, share: float, first: Mapping[str, int]) -> list[list[int]]:
    """Channels to take out of each group, by their present places, those that matter least first.

    1. Layers that are named have ratios of their own; the highest counts for what is coupled to them.
    2. In scope ``global`` the others share one bar, and each of them loses at most the share `most`.
    """
    limits = []
    for group in groups:
        named = [ratio for name, ratio in pruning.ratios.items() if name in group.names]
        limits.append(max(named) if named else None)  # rule 1
    free = [group for group, limit in zip(groups, limits, strict=True) if limit is None]
    bar = -1.0
    if pruning.scope == "global" and free:  # rule 2
        pooled = torch.cat([_relative(group.importance) for group in free]).sort().values
        total = sum(first[group.name] for group in free)
        count_going = len(pooled) - round(total * (1 - pruning.ratio * share))
        bar = float(pooled[count_going - 1]) if count_going > 0 else -1.0
    going = []
    for group, limit in zip(groups, limits, strict=True):
        whole, now = first[group.name], len(group.importance)
        if limit is None and pruning.scope == "global":  # rule 2
            stay = float((_relative(group.importance) > bar).sum())
            stay = max(stay, whole * (1 - pruning.most))
        else:
            stay = whole * (1 - (pruning.ratio if limit is None else limit) * share)
        left = min(now, _rounded(stay, pruning.round_to))
        order = torch.argsort(group.importance, stable=True)
        going.append([int(place) for place in order[: now - left]])
    return going


def _groups(graph: Any, network: nn.Module, scores: Scores, kept: list[nn.Module]) -> Iterator[_Group]:
    """Yield layers that lose channels together, with the mean score of each channel over them.

    1. Convolutions and dense layers whose outputs these are give it its names; a layer without scores does not count.
    2. A depthwise filter or a normalisation has one axis for what goes in and what comes out.
    """
    names = {module: name for name, module in network.named_modules()}
    order = {name: place for place, name in enumerate(names.values())}
    for group in graph.get_all_groups(ignored_layers=kept, root_module_types=[nn.Conv1d, nn.Conv2d, nn.Linear]):
        root = group[0].dep.target.module
        total, parts, coupled = torch.zeros(len(group[0].idxs)), 0, set()
        for item in group:
            layer, handler = item.dep.target.module, item.dep.handler
            out = graph.is_out_channel_pruning_fn(handler)
            if out and isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Linear):  # rule 1
                coupled.add(names[layer])
            weight = getattr(layer, "weight", None)
            if weight is None or weight not in scores:  # rule 1
                continue
            own = scores[weight]
            axis = 0 if out or own.dim() == 1 or (getattr(layer, "groups", 1) == own.shape[0] > 1) else 1  # rule 2
            per_channel = own.sum(dim=[d for d in range(own.dim()) if d != axis]) if own.dim() > 1 else own
            total.index_add_(0, torch.tensor(item.root_idxs), per_channel[torch.tensor(item.idxs)])
            parts += 1
        if parts:
            yield _Group(min(coupled, key=order.__getitem__), root, frozenset(coupled), total / parts)


def _answering_layer(network: nn.Module, window: torch.Tensor) -> nn.Module:
    """Find the last convolution or dense layer that runs."""
    seen: list[nn.Module] = []
    kinds = (nn.Conv1d, nn.Conv2d, nn.Linear)
    hooks = [
        module.register_forward_hook(lambda layer, *_: seen.append(layer))
        for module in network.modules()
        if isinstance(module, kinds)
    ]
    with torch.no_grad():
        network(window)
    for hook in hooks:
        hook.remove()
    if not seen:
        raise ConfigError("the network has no convolution and no dense layer to prune")
    return seen[-1]


def _relative(importance: torch.Tensor) -> torch.Tensor:
    return importance / importance.mean().clamp(min=1e-30)


def _rounded(width: float, to: int) -> int:
    return max(to, to * int(np.floor(width / to + 0.5)))
