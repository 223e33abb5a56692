"""Mistakes on test groups: pairs of classes that are confused, and by whom; wrong windows of each group."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from edge_export.choose.evaluation.overview import drawn
from edge_export.data.dataset import Dataset, Float32, Int64, Windows
from edge_runtime.manifest import InputContract

PAIRS = 5
SHOWN = 3
"""Wrong windows kept of each group."""
SHOWN_GROUPS = 6
"""Groups that wrong windows are kept of: those with the most wrong windows."""


def mistakes(probabilities: Float32, windows: Windows, recordings: Dataset, contract: InputContract) -> dict[str, Any]:
    """Collect the report's figures of wrong answers, each window alone.

    Args:
        probabilities: (n, classes) of the file that the device runs, calibrated.
        windows: windows of test groups.
        recordings: the recordings that they were cut from.
        contract: what a window is.
    """
    answers: Int64 = probabilities.argmax(axis=1)
    classes, wrong = recordings.classes, answers != windows.y
    counted = [(str(one), windows.group == one) for one in np.unique(windows.group)]
    ranked = sorted(counted, key=lambda group: (-int(wrong[group[1]].sum()), group[0]))
    groups = [
        {
            "group": name,
            "windows": int(own.sum()),
            "wrong": int((own & wrong).sum()),
            "shown": [
                {
                    "label": classes[int(windows.y[place])],
                    "answer": classes[int(answers[place])],
                    "confidence": round(float(probabilities[place].max()), 4),
                    **drawn(windows, place, recordings, contract),
                }
                for place in (surest(probabilities, windows.y, own & wrong) if rank < SHOWN_GROUPS else ())
            ],
        }
        for rank, (name, own) in enumerate(ranked)
    ]
    return {"pairs": confused_pairs(answers, windows, classes), "groups": groups}


def confused_pairs(answers: Int64, windows: Windows, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the pairs of label and answer that are confused most, by the number of windows.

    Args:
        answers: (n,) class indices.
        windows: windows with their labels and groups.
        classes: their names.
    """
    wrong = answers != windows.y
    pairs, counts = np.unique(np.stack([windows.y[wrong], answers[wrong]], axis=1), axis=0, return_counts=True)
    found = []
    for place in np.argsort(-counts, kind="stable")[:PAIRS]:
        label, answer = (int(each) for each in pairs[place])
        of = windows.group[(windows.y == label) & (answers == answer)]
        names, by_group = np.unique(of, return_counts=True)
        found.append(
            {
                "label": classes[label],
                "answer": classes[answer],
                "count": int(counts[place]),
                "of": int((windows.y == label).sum()),
                "by_group": {str(name): int(count) for name, count in zip(names, by_group, strict=True)},
            }
        )
    return found


def surest(probabilities: Float32, y: Int64, wrong: npt.NDArray[np.bool_]) -> list[int]:
    """Choose at most `SHOWN` wrong windows: the surest of each pair of classes first, then the surest of the rest."""
    confidence, answers = probabilities.max(axis=1), probabilities.argmax(axis=1)
    order = sorted(np.flatnonzero(wrong).tolist(), key=lambda place: (-float(confidence[place]), place))
    first: dict[tuple[int, int], int] = {}
    for place in order:
        first.setdefault((int(y[place]), int(answers[place])), place)
    chosen = [*first.values(), *(place for place in order if place not in first.values())]
    return chosen[:SHOWN]
