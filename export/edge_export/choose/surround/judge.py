"""Judgement of what surrounds a network, part by part, on groups that nothing was fitted to.

The device's own code decides: the filter, the gate with its threshold for every key, the fusion. Each stream is a key
that the device has never met.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_export.choose.evaluation.calibration import scores
from edge_export.choose.surround.hold import FittedThreshold, decide
from edge_export.choose.surround.over_time import filtered, streams_of
from edge_export.data.dataset import Float32, Int64, Windows
from edge_export.metrics import paired
from edge_runtime.io.recordings.score import table_accuracy, table_macro_f1
from edge_runtime.manifest import GateSpec
from edge_runtime.manifest.surround import Surround, SurroundGate
from edge_runtime.model.tasks.classification import Gate
from edge_runtime.model.tasks.fusion import fuse

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One way to answer, in the order of the streams.

    Attributes:
        name: for the report.
        answers: (n,) class indices that stand in the end.
        asked: (n,) windows that the cloud was asked about.
    """

    name: str
    answers: Int64
    asked: Bools


def rows(
    surround: Surround | None, gate: GateSpec, windows: Windows, device: Float32, cloud: Float32, *, hop: int
) -> tuple[list[Row], Int64, npt.NDArray[np.str_]]:
    """Answer windows in every way.

    Args:
        surround: the bundle's surround; None for none.
        gate: the network's own.
        windows: windows of groups that nothing was fitted to.
        device: (n, classes) probabilities of the file that ships.
        cloud: the same of the cloud's.
        hop: samples from a window to the next.

    Returns:
        The ways; labels and groups of the windows, in the order of the streams.
    """
    streams = streams_of(windows, hop)
    own, remote = device[streams.order], cloud[streams.order]
    alone, nothing = own.argmax(axis=1), np.zeros(len(own), np.bool_)
    hard = scores(own, gate.score) < np.float32(gate.threshold)
    found = [
        Row(name="device", answers=alone, asked=nothing),
        Row(name="with cloud", answers=np.where(hard, remote.argmax(axis=1), alone), asked=hard),
    ]
    if surround is not None:
        spec = surround.over_time
        published = own if spec is None else filtered(spec, streams, own)
        best = published.argmax(axis=1)
        if spec is not None:
            found.append(Row(name="over time", answers=best, asked=nothing))
        asked = _asked(surround.gate, published, streams.stream)
        fusion = surround.fusion
        joined = remote if fusion is None else fuse(fusion, published, remote)
        found.append(Row(name="all", answers=np.where(asked, joined.argmax(axis=1), best), asked=asked))
    return found, streams.y, windows.group[streams.order]


def _asked(gate: SurroundGate, published: Float32, stream: Int64) -> Bools:
    """Return which windows are hard, each stream being a key."""
    decision = Gate(gate).decide(published)
    if not gate.share:
        return np.array(decision.hard, np.bool_)
    trust = np.array(decision.trust, np.float32)
    asked = np.zeros(len(trust), np.bool_)
    for number in np.unique(stream):
        of = stream == number
        asked[of] = decide(trust[of], FittedThreshold(gate.threshold, gate.spread), gate.share, str(number))
    return asked


def summary(found: list[Row], y: Int64, group: npt.NDArray[np.str_], *, classes: int) -> Mapping[str, Any]:
    """Return the scores of each way, and what it gains over the device alone, for the report."""
    alone = found[0].answers
    out: dict[str, Any] = {}
    for row in found:
        table = np.zeros((classes, classes))
        np.add.at(table, (y, row.answers), 1)
        gained = paired(alone, row.answers, y, group)
        out[row.name] = {
            "accuracy": float(table_accuracy(table)),
            "macro_f1": float(table_macro_f1(table)),
            "gain": gained.gain,
            "gain_low": gained.low,
            "gain_high": gained.high,
            "forwarded": float(row.asked.mean()),
            "by_group": {str(one): float((row.answers == y)[group == one].mean()) for one in np.unique(group)},
            "forwarded_by_group": {str(one): float(row.asked[group == one].mean()) for one in np.unique(group)},
        }
    return out
