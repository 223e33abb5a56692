"""Choice of asking the cloud or not, about which windows, and how its answer counts: judged on groups left out.

1. Ways of asking are compared at the same shares of each group's windows, the least trusted first: the cloud's answer
   in place of the device's, both fused, and both fused where the *gain* of asking is expected to be highest. Random
   windows, fused, show what the choice of windows is worth.
2. What a way needs is fitted without a fold and judged on it; gains are paired: both answer the same windows.
3. The way whose gain is surest is taken: whose 95 % interval over groups, of the gain over the device alone at the
   share asked for, has the highest lower end. The next person counts, and not the mean of those who were there.
4. Where that is not above 0, the bundle ships without the cloud, and says why.

Source: Narasimhan et al. 2022 (post-hoc estimators for learning to defer); Jitkrittum et al. 2023 (arXiv:2307.02764).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge_export.choose.evaluation.calibration import scores
from edge_export.choose.surround.fusion import choose_fusion
from edge_export.choose.surround.gain import fit_gain
from edge_export.choose.surround.prior import out_of_fold
from edge_export.data.dataset import Float32, Int64
from edge_export.metrics import Paired, paired
from edge_runtime.manifest.surround import Fusion, Gain, SurroundGate
from edge_runtime.model.tasks.classification import Gate
from edge_runtime.model.tasks.fusion import fuse

Metric = Literal["accuracy", "macro_f1"]
Way = Literal["replaced", "fused", "fused, by gain"]
WAYS: tuple[Way, ...] = ("replaced", "fused", "fused, by gain")
"""From the simplest."""
RANDOM = "fused, at random"
SHARES = (0.02, 0.05, 0.08, 0.1, 0.2)
_DRAWS = 11


Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedAnswers:
    """Calibrated answers to windows of groups that neither model has seen.

    Attributes:
        device: (n, classes) probabilities, as the device's predictions have them.
        cloud: the same of the cloud's.
        y: (n,) class indices.
        group: (n,).
        fold: (n,) numbers of folds, each of whole groups.
    """

    device: Float32
    cloud: Float32
    y: Int64
    group: npt.NDArray[np.str_]
    fold: Int64

    def where(self, asked: Bools, joined: Float32) -> Int64:
        """Return the classes that stand, (n,): the joined answers' where the cloud was asked, else the device's."""
        stands: Int64 = np.where(asked, joined.argmax(axis=1), self.device.argmax(axis=1))
        return stands

    def paired(self, before: Int64, after: Int64, metric: Metric) -> Paired:
        """Compare classes to these windows."""
        return paired(before, after, self.y, self.group, metric=metric)

    def only(self, rows: Bools) -> CalibratedAnswers:
        """Return those of some windows."""
        return CalibratedAnswers(
            device=self.device[rows],
            cloud=self.cloud[rows],
            y=self.y[rows],
            group=self.group[rows],
            fold=self.fold[rows],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Way of asking the cloud, and what it is worth.

    Attributes:
        way: how; None: it is not asked.
        why: for people, a line.
        fusion: of the ways that fuse.
        gain: of the way by gain.
        measured: what each way, and random windows, add to the device alone, by share.
    """

    way: Way | None
    why: str
    fusion: Fusion | None
    gain: Gain | None
    measured: Mapping[float, Mapping[str, Paired]]


def fit_asking(
    given: CalibratedAnswers,
    *,
    share: float,
    metric: Metric = "accuracy",
    shares: Sequence[float] = SHARES,
) -> Asking:
    """Choose how the cloud is asked, and fit it to all groups.

    Args:
        given: answers by folds.
        share: share of its windows that a device may ask about.
        metric: what is to become better.
        shares: further ones that are measured.
    """
    left_out = _cross_fitted(given)
    alone = given.device.argmax(axis=1)
    measured: dict[float, Mapping[str, Paired]] = {}
    for one in sorted({*shares, share}):
        standing = _standing(given, left_out, one)
        gains: dict[str, Paired] = {way: given.paired(alone, after, metric) for way, after in standing.items()}
        measured[one] = gains | {RANDOM: _at_random(given, left_out.fused, one, metric)}
    best = max(WAYS, key=lambda way: measured[share][way].low)  # rule 3
    gained = measured[share][best]
    figures = (
        f"{best} at {share:.0%}: {metric} {gained.score:.4f}, alone {gained.score - gained.gain:.4f}, "
        f"gain {gained.gain:+.4f} ({gained.low:+.4f} to {gained.high:+.4f} over {gained.groups} groups)"
    )
    if gained.low <= 0:
        return Asking(
            way=None,
            why=f"ship without the cloud: asking it does not help for sure on groups left out; {figures}",
            fusion=None,
            gain=None,
            measured=measured,
        )
    fusion = _fusion(given) if best != "replaced" else None
    gain = _gain(given, fusion) if fusion is not None and best == "fused, by gain" else None
    return Asking(way=best, why=f"ask the cloud: {figures}", fusion=fusion, gain=gain, measured=measured)


def trust_by(gain: Gain, device: Float32) -> Float32:
    """Return the gate's trust by the expected gain of asking, as the device computes it."""
    return np.array(Gate(SurroundGate(score="gain", gain=gain)).decide(device).trust, np.float32)


def _fusion(given: CalibratedAnswers) -> Fusion:
    return choose_fusion(given.device, given.cloud, given.y, given.fold, given.group)


def _gain(given: CalibratedAnswers, fusion: Fusion) -> Gain:
    return fit_gain(given.device, fuse(fusion, given.device, given.cloud), given.y, given.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CrossFitted:
    """Answers, (n, classes), and trust, (n,), by what was fitted without the fold of the window."""

    fused: Float32
    by_confidence: Float32
    by_gain: Float32


def _cross_fitted(given: CalibratedAnswers) -> _CrossFitted:
    def judge(fit: Bools, left: Bools) -> npt.NDArray[np.float64]:
        seen, unseen = given.only(fit), given.only(left)
        fusion = _fusion(seen)
        trust = trust_by(_gain(seen, fusion), unseen.device)
        return np.column_stack([fuse(fusion, unseen.device, unseen.cloud), trust]).astype(np.float64)

    filled = out_of_fold(judge, given.fold).astype(np.float32)
    return _CrossFitted(fused=filled[:, :-1], by_confidence=scores(given.device, "confidence"), by_gain=filled[:, -1])


def _standing(given: CalibratedAnswers, left_out: _CrossFitted, share: float) -> dict[Way, Int64]:
    """Return the classes that stand once a share was asked about, (n,), by way (rule 1)."""
    least_sure, most_gain = (least(trust, given.group, share) for trust in (left_out.by_confidence, left_out.by_gain))
    return {
        "replaced": given.where(least_sure, given.cloud),
        "fused": given.where(least_sure, left_out.fused),
        "fused, by gain": given.where(most_gain, left_out.fused),
    }


def _at_random(given: CalibratedAnswers, fused: Float32, share: float, metric: Metric) -> Paired:
    """Measure windows drawn at random: the draw in the middle of several."""
    random, alone = np.random.default_rng(0), given.device.argmax(axis=1)
    asked = [least(random.random(len(given.y)), given.group, share) for _ in range(_DRAWS)]
    drawn = [given.paired(alone, given.where(one, fused), metric) for one in asked]
    return sorted(drawn, key=lambda one: one.gain)[_DRAWS // 2]


def least(trust: npt.NDArray[np.floating], group: npt.NDArray[np.str_], share: float) -> Bools:
    """Return the windows of the least trust: this share of each group's, rounded to whole windows."""
    chosen = np.zeros(len(trust), bool)
    for each in np.unique(group):
        rows = np.flatnonzero(group == each)
        chosen[rows[np.argsort(trust[rows], kind="stable")[: round(share * len(rows))]]] = True
    return chosen
