"""Guess of a card's task from the last operators and the shapes of a file's answers.

1. Several answers with 4 or more numbers a candidate, or one for each pair of candidate and label: detection.
2. An answer as large as the input: a reconstruction, whose score is how far it is off; with a state, a filtered signal.
3. Of several answers, one that ends in probabilities goes before others of its sizes.
4. Softmax: classification. Sigmoid: several labels at once. A dense layer without either: scores before the softmax.
   An objective in the file's metadata: scores of trees before it is applied.
5. One number without either: a measured value. 96 to 1024 numbers, a power of two or its half: an embedding.
6. Anything else: plain numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edge_export.card.facts import Facts, Tensor
from edge_export.card.guess import Ends, Front
from edge_export.card.short_forms import different
from edge_runtime.listen.table import plain

_EMBEDDINGS = (96, 128, 192, 256, 512, 768, 1024, 2048)
_MOST_LABELS = 100_000
_CANDIDATES = 100
_GRID_AXES = 4
_ROW_AXES = 3
_YOLO = {8: [10, 13, 16, 30, 33, 23], 16: [30, 61, 62, 45, 59, 119], 32: [116, 90, 156, 198, 373, 326]}
"""Anchors by stride. Source: https://arxiv.org/abs/1804.02767, section 2.3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Guessed task.

    Attributes:
        keys: of ``[task]``.
        why: of the guess.
        fill: what a person must write.
        outputs: of the model, where the card must name them.
    """

    keys: Mapping[str, Any]
    why: str
    fill: tuple[str, ...] = ()
    outputs: tuple[Mapping[str, Any], ...] = ()


def guess_task(facts: Facts, ends: Ends, front: Front) -> Task:
    """Guess what a file's answers mean."""
    if front.frame is not None and (found := _detection(facts, ends, front.frame)):
        return found
    numbers = [one for one in ends.answers if one.dtype is not None and one.dtype.kind == "f"]
    answer = (numbers or ends.answers)[0]  # scikit-learn's converter puts the number of the label first
    if not answer.end or answer.end == "dense":
        sure = [one for one in numbers if one.end in ("softmax", "sigmoid") and one.shape == answer.shape]
        answer = sure[0] if sure else answer
    named = [{"name": answer.name}] if len(ends.answers) > 1 else []
    outputs = tuple([{**one, **_rows(answer)} for one in named] or ([_rows(answer)] if _rows(answer) else []))
    others = [f"the answer among {', '.join(one.name for one in ends.answers)}"] if named else []
    task = _single(facts, ends, answer)
    return Task(keys=task.keys, why=task.why, fill=(*others, *task.fill), outputs=outputs if task.outputs == () else ())


def _rows(answer: Tensor) -> dict[str, Any]:
    """Return rows of an answer that has several."""
    return {"rows": answer.row[0]} if len(answer.row) == 2 and answer.row[0] > 1 else {}


def labels_of(facts: Facts, count: int) -> tuple[Any, tuple[str, ...]]:
    """Return a card's labels, and what to fill in."""
    if facts.labels and len(facts.labels) == count:
        return different(list(facts.labels)), ()
    more = f"; the {len(facts.labels)} of {facts.labels_from} are not as many" if facts.labels else ""
    return max(1, count), (f"names of the labels, in the order of the answer, or the path of a file of them{more}",)


def _single(facts: Facts, ends: Ends, answer: Tensor) -> Task:
    numbers = answer.row[-1] if answer.row else 1
    if scores := _scores(facts, answer, numbers):
        return scores
    if answer.row == ends.main.row and answer.row and math.prod(answer.row) > 1:
        return _like_input(facts, ends, answer)
    if answer.end == "softmax" and len(answer.row) <= 1 and 1 < numbers <= _MOST_LABELS:
        labels, fill = labels_of(facts, numbers)
        return Task(keys={"type": "classification", "labels": labels}, why="it ends in a softmax", fill=fill)
    if answer.end == "sigmoid" and len(answer.row) <= 1 and (numbers > 0 or len(answer.shape) == 1):
        labels, fill = labels_of(facts, numbers)
        one = "one number" if numbers in (-1, 1) else f"{numbers} numbers"
        return Task(keys={"type": "multi-label", "labels": labels}, why=f"{one} of a sigmoid", fill=fill)
    if answer.end == "index" or len(answer.row) > 1 or not 0 < numbers <= _MOST_LABELS:
        return Task(keys={"type": "vector", "publish": "none"}, why="numbers of a shape of their own",
                    fill=("names of the numbers of a row, if they have any",))  # fmt: skip
    return _bare(facts, ends, answer, numbers)


def _scores(facts: Facts, answer: Tensor, numbers: int) -> Task | None:
    """Guess scores of trees, to which the objective in the file's metadata is not yet applied."""
    if answer.end in ("softmax", "sigmoid") or not facts.objective.startswith(("binary", "multi", "softmax")):
        return None
    labels, fill = labels_of(facts, max(2, numbers))
    keys = {"type": "classification", "values": "logits" if numbers > 1 else "logit", "labels": labels}
    return Task(keys=keys, why=f"scores of trees before their objective, {plain(facts.objective)}", fill=fill)


def _bare(facts: Facts, ends: Ends, answer: Tensor, numbers: int) -> Task:
    """Guess what a row of numbers without softmax or sigmoid means."""
    if numbers == 1:
        quantity = {"name": "value", "unit": "1"}
        return Task(keys={"type": "regression", "quantities": [quantity]}, why="one number without activation",
                    fill=("name and unit of the value, and half_width of its interval if known",))  # fmt: skip
    if numbers == len(facts.labels):
        labels, fill = labels_of(facts, numbers)
        keys = {"type": "classification", "values": "logits", "labels": labels}
        return Task(keys=keys, why="as many numbers as labels in the file, and no softmax", fill=fill)
    if numbers in _EMBEDDINGS:
        return Task(keys={"type": "embedding"}, why=f"{numbers} numbers without softmax",
                    fill=("farthest, the distance from which on nothing is known, if you know it",))  # fmt: skip
    if answer.end == "dense" and not ends.states:
        labels, fill = labels_of(facts, numbers)
        return Task(keys={"type": "classification", "values": "logits", "labels": labels},
                    why="a dense layer without softmax; else multi-label, regression or vector", fill=fill)  # fmt: skip
    return Task(keys={"type": "vector"}, why=f"{numbers} numbers without activation",
                fill=("names of the numbers, if they have any",))  # fmt: skip


def _like_input(facts: Facts, ends: Ends, answer: Tensor) -> Task:
    if ends.states or facts.inside or answer.end == "sigmoid":
        mask = "a mask of its input" if answer.end == "sigmoid" else "its input, filtered"
        return Task(keys={"type": "vector"}, why=f"{mask}: the same shape",
                    fill=("the stages behind it, such as masked and overlap-add, and the next model",))  # fmt: skip
    return Task(
        keys={"type": "anomaly", "reconstructs": ends.main.name, "false_alarm_rate": 0.05},
        why="the answer has the shape of the input", outputs=(),
        fill=("false_alarm_rate, the share of normal data that may raise an alarm; pack takes it with --normal FILE",),
    )  # fmt: skip


def _detection(facts: Facts, ends: Ends, frame: tuple[int, int]) -> Task | None:
    """Guess boxes: two answers of as many candidates, heads of grids, or one row for each candidate."""
    answers = ends.answers
    if len(answers) == 2 and all(len(one.shape) == 3 for one in answers):
        boxes, scores = sorted(answers, key=lambda one: (one.shape[-1] not in (4, 16), one.shape[-1] == 1))
        if boxes.shape[1] == scores.shape[1] and boxes.shape[-1] in (4, 16):
            return _boxes(facts, boxes, scores)
    if len(answers) > 1 and all(_is_head(one, ends.main) for one in answers):
        return _grid(facts, ends)
    rows = len(answers[0].shape) == _ROW_AXES and len(answers[0].row) == 2
    if len(answers) == 1 and rows and answers[0].end != "softmax":
        return _joined(facts, answers[0], frame)
    return None


def _is_head(answer: Tensor, picture: Tensor) -> bool:
    """Return whether an answer is (batch, rows, columns, 3 anchors of 5 numbers and labels) for a stride of YOLO."""
    if len(answer.shape) != _GRID_AXES or answer.shape[-1] % 3 or answer.shape[-1] < 18 or answer.shape[1] < 1:
        return False
    return picture.shape[1] // answer.shape[1] in _YOLO


def _grid(facts: Facts, ends: Ends) -> Task:
    names = tuple({"name": one.name, "track": f"head{k}"} for k, one in enumerate(ends.answers))
    strides = [ends.main.shape[1] // one.shape[1] for one in ends.answers]
    labels, fill = labels_of(facts, ends.answers[0].shape[-1] // 3 - 5)
    keys = {
        "type": "detection", "of": [one["track"] for one in names], "decode": "grid", "strides": strides,
        "anchors": [_YOLO[stride] for stride in strides], "labels": labels,
    }  # fmt: skip
    return Task(
        keys=keys, why="heads of YOLO, version 3, with the anchors of its paper", outputs=names,
        fill=("anchors, if training chose others", *fill),
    )  # fmt: skip


def _boxes(facts: Facts, boxes: Tensor, scores: Tensor) -> Task:
    background = scores.end == "softmax" or scores.shape[-1] == 2
    labels, fill = labels_of(facts, scores.shape[-1] - background)
    keys: dict[str, Any] = {"type": "detection", "of": ["boxes", "scores"], "decode": "corners", "labels": labels}
    if boxes.shape[-1] != 4:
        keys["box_numbers"] = boxes.shape[-1]
    if background:
        keys["background"] = True
    if not scores.end:
        keys["values"] = "logit"
    tracks = ({"name": boxes.name, "track": "boxes"}, {"name": scores.name, "track": "scores"})
    return Task(
        keys=keys, why="boxes and scores of as many candidates", outputs=tracks,
        fill=("decode: corners or centre; or offsets or priors, with strides and anchors", *fill),
    )  # fmt: skip


def _joined(facts: Facts, answer: Tensor, frame: tuple[int, int]) -> Task | None:
    cells = sum((frame[0] // stride) * (frame[1] // stride) for stride in _YOLO)
    row = tuple(cells if size < 0 else size for size in answer.row)
    few, many = sorted(row)
    if many < _CANDIDATES or few < 5 or (many < 4 * few and not facts.labels):
        return None
    objectness = bool(facts.labels) and few == 5 + len(facts.labels)
    labels, fill = labels_of(facts, few - 5 if objectness else few - 4)
    keys = {"type": "detection", "decode": "centre", "rows": "joined", "unit": "pixels", "labels": labels}
    if objectness:
        keys["objectness"] = True
    first = row[0] == few
    output = {"rows": many, "layout": "channels-first" if first else "samples-first"}
    return Task(
        keys=keys, why=f"{few} numbers for each of {many} candidates", outputs=(output,),
        fill=("decode, unit (pixels or share) and objectness, as the model's code has them", *fill),
    )  # fmt: skip
