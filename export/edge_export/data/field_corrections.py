"""Field corrections as soft labels: the cloud's answers from a log, matched to the windows they are about.

A correction names its window by key and slot (`edge_runtime.signal.windowing.window.Window.id`), so the recording of
the same stream, cut by the same code, gives the window back. Such windows are the hard ones, and no person has labelled
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from edge_export.data.dataset import UNLABELLED, Dataset, Float32, Int64
from edge_export.data.labels import cut, stamps
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import InputContract
from edge_runtime.signal.windowing.batch import with_context

_LEAST = 1e-7
"""Scores are logged to seven decimals (`edge_runtime.types.Correction.scores`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldCorrection:
    """One correction from a log of the device.

    Attributes:
        id: of the window.
        label: the cloud's answer.
        scores: one probability per label.
        model: the cloud's model and version.
        hard: whether the device had asked; False for an audit.
    """

    id: str
    label: str
    scores: tuple[float, ...]
    model: str
    hard: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchedCorrections:
    """Windows of recordings with the cloud's answers to them.

    Attributes:
        x: (n, n_channels, history) float32, the window being its end.
        y: (n,) `UNLABELLED`: only the cloud has answered them.
        teacher: (n, classes) the cloud's log-probabilities.
        unmatched: answers whose window no recording holds.
    """

    x: Float32
    y: Int64
    teacher: Float32
    unmatched: int


def read_answers(path: Path, labels: Sequence[str]) -> list[FieldCorrection]:
    """Read corrections from lines of JSON, as the runtime's jsonl sink writes them.

    The device's own predictions may stand among them and are passed over. A correction that is of both, the device's
    answer and the cloud's, counts as it was published. Of two answers to the same window, the later
    line counts.

    Args:
        path: the file.
        labels: names in the order of the scores: those of the device's bundle.

    Raises:
        ConfigError: the file cannot be read, a line is no answer, or its labels are others; names the line.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise ConfigError(f"{path.name} cannot be read: {error.strerror}") from error
    answers: dict[str, FieldCorrection] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
            if record["route"] != "cloud":
                continue
            answer = _answer(record)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{path.name}:{number}: not an answer of the runtime ({error})") from error
        if len(answer.scores) != len(labels):
            raise ConfigError(
                f"{path.name}:{number}: {len(answer.scores)} scores for {len(labels)} labels; another model's log?"
            )
        if answer.label != labels[int(np.argmax(answer.scores))]:
            raise ConfigError(
                f"{path.name}:{number}: answers {answer.label!r}, and its highest score stands where "
                f"{labels[int(np.argmax(answer.scores))]!r} does; give the labels in the bundle's order"
            )
        answers[answer.id] = answer
    if not answers:
        raise ConfigError(f'{path.name} holds no answer of the cloud (route "cloud")')
    return list(answers.values())


def match(
    answers: Sequence[FieldCorrection], labels: Sequence[str], dataset: Dataset, contract: InputContract
) -> MatchedCorrections:
    """Find the windows that answers are about.

    Args:
        answers: answers from `read_answers`.
        labels: names in the order of the scores.
        dataset: recordings of the same streams; a recording's name is the stream's key.
        contract: the device's contract.

    Raises:
        ConfigError: no window is found, or a class of the data set is none of the labels.
    """
    if unknown := sorted(set(dataset.classes) - set(labels)):
        raise ConfigError(f"the log knows no class {unknown[0]!r}; it knows {', '.join(labels)}")
    order = [list(labels).index(name) for name in dataset.classes]
    wanted = {answer.id: answer for answer in answers}
    contexts, scores = [], []
    for recording in dataset.recordings:
        for window in cut(contract, recording, stamps(recording, dataset.rate_hz)):
            if (answer := wanted.pop(window.id, None)) is not None:
                contexts.append(with_context(window, contract.history))
                scores.append([answer.scores[place] for place in order])
    if not contexts:
        raise ConfigError(
            f"none of {len(answers)} logged answers is about a window of {dataset.name!r}; recordings must bear the "
            f"keys and stamps of the streams, for example {answers[0].id!r}"
        )
    table = np.maximum(np.array(scores), _LEAST)
    return MatchedCorrections(
        x=np.stack(contexts).astype(np.float32),
        y=np.full(len(contexts), UNLABELLED, np.int64),
        teacher=np.log(table / table.sum(axis=1, keepdims=True)).astype(np.float32),
        unmatched=len(wanted),
    )


def _answer(record: dict[str, Any]) -> FieldCorrection:
    scores = tuple(float(value) for value in record["scores"])
    if not scores or not np.isfinite(scores).all() or min(scores) < 0 or abs(sum(scores) - 1) > 1e-2:
        raise ValueError("scores are no probabilities")
    if not isinstance(record["id"], str) or not isinstance(record["label"], str):
        raise TypeError("id and label must be text")
    return FieldCorrection(
        id=record["id"],
        label=record["label"],
        scores=scores,
        model=str(record["model"]),
        hard=bool(record["hard"]),
    )
