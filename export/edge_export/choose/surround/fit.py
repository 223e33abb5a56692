"""Fit of all that surrounds a network: each part kept where it wins on groups left out, the next one fitted behind it.

1. *Over time*: answers are filtered; kept if the recipe's metric is higher than without by more than its standard error
   over groups. Answers to a fold are filtered by what the other folds say.
2. *Asking*: the cloud's answer in place of the device's, or joined with it; the least sure windows, or those with the
   highest expected gain; or not at all (`edge_export.choose.surround.asking`). It goes by what rule 1
   publishes.
3. *Gate*: its score is that of rule 2; its threshold is that of the recipe's share, which then holds for every key. A
   bound on errors, in place of a share, sets a threshold that stays. Where asking does not pay, the threshold lies
   below all that was seen.
4. Where nothing of this differs from the network's own answers and gate, there is no surround.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_export.choose.evaluation.calibration import scores
from edge_export.choose.evaluation.gate import fit_gate, just_below
from edge_export.choose.surround.asking import Asking, CalibratedAnswers, Metric, fit_asking, trust_by
from edge_export.choose.surround.cross_fit import OutOfFold
from edge_export.choose.surround.hold import fit_hold
from edge_export.choose.surround.over_time import Streams, filtered, fit_over_time, mean_of_last, streams_of
from edge_export.data.dataset import Float32
from edge_export.metrics import Paired, paired
from edge_export.recipe.recipe import GateRecipe, SurroundRecipe
from edge_runtime.errors import ConfigError
from edge_runtime.manifest.surround import Surround, SurroundGate

FEWEST_GROUPS = 3
LASTS = (2, 3, 5)
"""The filter has to beat means of this many answers; they are reported beside it."""
_ERRORS = 4.0
"""Standard errors in an interval of 95 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedSurround:
    """Parts that were kept, and figures of everything that was tried; nothing by default.

    Attributes:
        surround: as the manifest holds it; None: nothing wins.
        measured: for the report.
        said: for the user, a line each.
    """

    surround: Surround | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)
    said: tuple[str, ...] = ()


def require_groups(groups: int) -> None:
    """Check that there are enough groups to leave one out, fit to the others, and see how they differ.

    Raises:
        ConfigError: there are not.
    """
    if groups < FEWEST_GROUPS:
        raise ConfigError(
            f"[surround] needs {FEWEST_GROUPS} groups or more that the networks have not seen, and there are {groups}: "
            "name folds under [split] (folds = 5), or more groups for validation"
        )


def fit_surround(
    recipe: SurroundRecipe | None, gate: GateRecipe, unseen: OutOfFold, device: Float32, cloud: Float32, *,
    hop: int, metric: Metric,
) -> FittedSurround:  # fmt: skip
    """Fit it.

    Args:
        recipe: the parts to try; None tries none.
        gate: what the gate is to promise.
        unseen: windows, with the folds that answered them unseen.
        device: (n, classes) calibrated probabilities of the file that ships.
        cloud: the same of the cloud's.
        hop: samples from a window to the next.
        metric: what is to become better.
    """
    if recipe is None:
        return FittedSurround()
    streams = streams_of(unseen.windows, hop)
    own, group, fold = device[streams.order], unseen.windows.group[streams.order], unseen.fold[streams.order]
    said: list[str] = []
    measured: dict[str, Any] = {}
    over_time, published = None, own
    if recipe.over_time:  # rule 1
        left_out = by_folds(streams, own, fold)
        gained = _paired(own, left_out, streams, group, metric)
        means = {f"mean of {n}": _paired(own, mean_of_last(n, streams, own), streams, group, metric) for n in LASTS}
        measured["over_time"] = {"filter": asdict(gained), **{name: asdict(one) for name, one in means.items()}}
        if _wins(gained):
            over_time, published = fit_over_time(streams, own), left_out
        said.append(f"over time: {_told(gained, metric)}: {'kept' if over_time is not None else 'left out'}")
    given = CalibratedAnswers(device=published, cloud=cloud[streams.order], y=streams.y, group=group, fold=fold)
    share = gate.max_forwarded
    asking = fit_asking(given, share=share, metric=metric) if share else None  # rule 2
    if asking is not None:
        said.append(f"cloud: {asking.why}")
        measured["asking"] = {"way": asking.way, "why": asking.why, **_by_share(asking)}
    fitted = _gate(recipe, gate, unseen, streams, given, asking, metric)  # rule 3
    fusion = None if asking is None else asking.fusion
    differs = over_time is not None or fusion is not None or fitted.gain is not None or fitted.share > 0
    surround = Surround(gate=fitted, over_time=over_time, fusion=fusion) if differs else None  # rule 4
    return FittedSurround(surround=surround, measured=measured, said=tuple(said))


def by_folds(streams: Streams, answers: Float32, fold: npt.NDArray[np.int64]) -> Float32:
    """Filter each fold's answers, (n, classes), by what is fitted to the others."""
    out: Float32 = np.empty_like(answers)
    for number in np.unique(fold):
        left = fold == number
        spec = fit_over_time(streams.only(~left), answers[~left])
        out[left] = filtered(spec, streams.only(left), answers[left])
    return out


def _gate(
    recipe: SurroundRecipe, gate: GateRecipe, unseen: OutOfFold, streams: Streams, given: CalibratedAnswers,
    asking: Asking | None, metric: Metric,
) -> SurroundGate:  # fmt: skip
    if asking is None:
        windows = replace(unseen.windows, **{name: getattr(unseen.windows, name)[streams.order] for name in _COLUMNS})
        plain = fit_gate(gate, given.device, given.cloud, windows, metric=metric)
        return SurroundGate(score=plain.spec.score, threshold=plain.spec.threshold, expected=plain.spec.expected)
    trust = scores(given.device, "confidence") if asking.gain is None else trust_by(asking.gain, given.device)
    score: Any = "confidence" if asking.gain is None else "gain"
    if asking.way is None:
        return SurroundGate(score=score, threshold=just_below(float(trust.min())), gain=asking.gain)
    held = fit_hold(trust, gate.max_forwarded)
    share = gate.max_forwarded if recipe.hold else 0.0
    expected = {"forwarded": gate.max_forwarded}
    return SurroundGate(
        score=score, threshold=held.threshold, gain=asking.gain, share=share, spread=held.spread, expected=expected
    )


_COLUMNS = ("contexts", "y", "group", "recording", "start")


def _paired(before: Float32, after: Float32, streams: Streams, group: npt.NDArray[np.str_], metric: Metric) -> Paired:
    return paired(before.argmax(axis=1), after.argmax(axis=1), streams.y, group, metric=metric)


def _wins(gained: Paired) -> bool:
    return gained.gain > (gained.high - gained.low) / _ERRORS


def _told(gained: Paired, metric: Metric) -> str:
    name = "accuracy" if metric == "accuracy" else "macro F1"
    return (
        f"{name} {gained.score:.4f}, alone {gained.score - gained.gain:.4f} ({gained.low:+.4f} to {gained.high:+.4f}; "
        f"{gained.groups_gained} of {gained.groups} groups gain, {gained.groups_lost} lose)"
    )


def _by_share(asking: Asking) -> dict[str, Any]:
    return {
        f"{share:.0%}": {way: asdict(gained) for way, gained in ways.items()} for share, ways in asking.measured.items()
    }
