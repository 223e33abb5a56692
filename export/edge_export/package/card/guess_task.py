"""Guess of a card's task from the last operators and the shapes of a file's answers.

1. Several answers with 4 or more numbers a candidate, or one for each pair of candidate and label: detection. Rows of
   scores for a picture twice as wide as high, or for one whose file has a list of characters: text.
2. An answer as large as the input: a reconstruction, whose score is how far it is off; with a state, a filtered signal.
3. Of several answers, one that ends in probabilities goes before others of its sizes.
4. Softmax: classification. Sigmoid: several labels at once. A dense layer without either: scores before the softmax.
   An objective in the file's metadata: scores of trees before it is applied.
5. One number without either: a measured value. 96 to 1024 numbers, a power of two or its half: an embedding.
6. Several answers to a picture, none of them with as many numbers as the file has labels: landmarks, plain numbers.
7. Anything else: plain numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edge_export.package.card.facts import Facts, Tensor
from edge_export.package.card.guess import Ends, GuessedFront
from edge_export.package.card.short_forms import different
from edge_runtime.tools.listen.table import plain

_EMBEDDINGS = (96, 128, 192, 256, 512, 768, 1024, 2048)
_MOST_LABELS = 100_000
_CANDIDATES = 100
_GRID_AXES = 4
_ROW_AXES = 3
_PLACES = 4
"""Pixels from left to right for which a model of text has a row of scores, at least."""
_FEWEST_CHARACTERS = 10
_MOST_CHOSEN = 1000
_MEDIAPIPE = ((8, 16, 16, 16), (16, 32, 32, 32), (8, 16, 32, 32, 32))
"""Strides of the layers of MediaPipe's SSD detectors, two anchors in each cell of each: BlazeFace for the front and the
back camera (palms as the former), poses. Source: google-ai-edge/mediapipe, the SsdAnchorsCalculator of the modules."""
_YOLO = {8: [10, 13, 16, 30, 33, 23], 16: [30, 61, 62, 45, 59, 119], 32: [116, 90, 156, 198, 373, 326]}
"""Anchors by stride. Source: https://arxiv.org/abs/1804.02767, section 2.3."""

_LETTERBOX = {"fit": "pad", "padding": 114, "antialias": False}
_YOLOX = {
    "decode": "priors", "priors_at": "corner", "variances": [1.0, 1.0], "strides": list(_YOLO),
    "anchors": [[stride] for stride in _YOLO],
}  # fmt: skip
_DECODED = (
    'score and iou; if the file decodes its boxes itself, decode = "centre" and unit = "pixels" in place of decode, '
    "priors_at, variances, strides and anchors"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedTask:
    """Guessed task.

    Attributes:
        keys: of ``[task]``.
        why: of the guess.
        fill: what a person must write.
        outputs: of the model, where the card must name them.
        fit: how its pictures are fitted, where the task says so.
    """

    keys: Mapping[str, Any]
    why: str
    fill: tuple[str, ...] = ()
    outputs: tuple[Mapping[str, Any], ...] = ()
    fit: Mapping[str, Any] | None = None


def guess_task(facts: Facts, ends: Ends, front: GuessedFront) -> GuessedTask:
    """Guess what a file's answers mean."""
    if front.frame is not None and (
        found := _text(facts, ends, front.frame) or _detection(facts, ends, front.frame) or _landmarks(facts, ends)
    ):
        return found
    numbers = [one for one in ends.answers if one.dtype is not None and one.dtype.kind == "f"]
    answer = _likeliest(numbers or ends.answers)  # scikit-learn's converter puts the number of the label first
    named = [{"name": answer.name}] if len(ends.answers) > 1 else []
    outputs = tuple([{**one, **_rows(answer)} for one in named] or ([_rows(answer)] if _rows(answer) else []))
    others = [f"the answer among {', '.join(one.name for one in ends.answers)}"] if named else []
    task = _single(facts, ends, answer)
    return GuessedTask(
        keys=task.keys, why=task.why, fill=(*others, *task.fill), outputs=outputs if task.outputs == () else ()
    )


def _likeliest(answers: Sequence[Tensor]) -> Tensor:
    """Return the first answer, or the probabilities that are made of it."""
    first = answers[0]
    sure = [one for one in answers if one.end in ("softmax", "sigmoid") and one.shape == first.shape]
    return sure[0] if sure and first.end in ("", "dense") else first


def _rows(answer: Tensor) -> dict[str, Any]:
    """Return rows of an answer that has several."""
    return {"rows": answer.row[0]} if len(answer.row) == 2 and answer.row[0] > 1 else {}


def labels_of(facts: Facts, count: int) -> tuple[Any, tuple[str, ...]]:
    """Return a card's labels, and what to fill in."""
    if facts.labels and len(facts.labels) == count:
        return different(list(facts.labels)), ()
    more = f"; the {len(facts.labels)} of {facts.labels_from} are not as many" if facts.labels else ""
    return max(1, count), (f"names of the labels, in the order of the answer, or the path of a file of them{more}",)


def _single(facts: Facts, ends: Ends, answer: Tensor) -> GuessedTask:
    numbers = answer.row[-1] if answer.row else 1
    if scores := _scores(facts, answer, numbers):
        return scores
    if answer.end != "softmax" and answer.row == ends.main.row and math.prod(answer.row) > 1:
        return _like_input(facts, ends, answer)
    if answer.end == "softmax" and len(answer.row) <= 1 and 1 < numbers <= _MOST_LABELS:
        labels, fill = labels_of(facts, numbers)
        return GuessedTask(keys={"type": "classification", "labels": labels}, why="it ends in a softmax", fill=fill)
    if answer.end == "sigmoid" and len(answer.row) <= 1 and (numbers > 0 or len(answer.shape) == 1):
        labels, fill = labels_of(facts, numbers)
        one = "one number" if numbers in (-1, 1) else f"{numbers} numbers"
        return GuessedTask(keys={"type": "multi-label", "labels": labels}, why=f"{one} of a sigmoid", fill=fill)
    if answer.end == "index" or len(answer.row) > 1 or not 0 < numbers <= _MOST_LABELS:
        return GuessedTask(keys={"type": "vector", "publish": "none"}, why="numbers of a shape of their own",
                    fill=('publish: "rows" gives each answer all its numbers, which may be many',
                          "names of the numbers of a row, if they have any"))  # fmt: skip
    return _bare(facts, ends, answer, numbers)


def _scores(facts: Facts, answer: Tensor, numbers: int) -> GuessedTask | None:
    """Guess scores of trees, to which the objective in the file's metadata is not yet applied."""
    if answer.end in ("softmax", "sigmoid") or not facts.objective.startswith(("binary", "multi", "softmax")):
        return None
    labels, fill = labels_of(facts, max(2, numbers))
    keys = {"type": "classification", "values": "logits" if numbers > 1 else "logit", "labels": labels}
    return GuessedTask(keys=keys, why=f"scores of trees before their objective, {plain(facts.objective)}", fill=fill)


def _bare(facts: Facts, ends: Ends, answer: Tensor, numbers: int) -> GuessedTask:
    """Guess what a row of numbers without softmax or sigmoid means."""
    if numbers == 1:
        quantity = {"name": "value", "unit": "1"}
        return GuessedTask(keys={"type": "regression", "quantities": [quantity]}, why="one number without activation",
                    fill=("name and unit of the value, and half_width of its interval if known",))  # fmt: skip
    if numbers == len(facts.labels):
        labels, fill = labels_of(facts, numbers)
        keys = {"type": "classification", "values": "logits", "labels": labels}
        return GuessedTask(keys=keys, why="as many numbers as labels in the file, and no softmax", fill=fill)
    if numbers in _EMBEDDINGS:
        return GuessedTask(keys={"type": "embedding"}, why=f"{numbers} numbers without softmax",
                    fill=("farthest, the distance from which on nothing is known, if you know it",))  # fmt: skip
    if answer.end == "dense" and not ends.states:
        labels, fill = labels_of(facts, numbers)
        return GuessedTask(keys={"type": "classification", "values": "logits", "labels": labels},
                    why="a dense layer without softmax; else multi-label, regression or vector", fill=fill)  # fmt: skip
    return GuessedTask(keys={"type": "vector"}, why=f"{numbers} numbers without activation",
                fill=("names of the numbers, if they have any",))  # fmt: skip


def _like_input(facts: Facts, ends: Ends, answer: Tensor) -> GuessedTask:
    if ends.states or facts.inside or answer.end == "sigmoid":
        mask = "a mask of its input" if answer.end == "sigmoid" else "its input, filtered"
        return GuessedTask(keys={"type": "vector"}, why=f"{mask}: the same shape",
                    fill=("the stages behind it, such as masked and overlap-add, and the next model",))  # fmt: skip
    return GuessedTask(
        keys={"type": "anomaly", "reconstructs": ends.main.name, "false_alarm_rate": 0.05},
        why="the answer has the shape of the input", outputs=(),
        fill=("false_alarm_rate, the share of normal data that may raise an alarm; pack takes it with --normal FILE",),
    )  # fmt: skip


def _detection(facts: Facts, ends: Ends, frame: tuple[int, int]) -> GuessedTask | None:
    """Guess boxes: two answers of as many candidates, heads of grids, or one row for each candidate."""
    answers = ends.answers
    if len(answers) == 2 and all(len(one.shape) == 3 for one in answers):
        boxes, scores = sorted(answers, key=lambda one: (one.shape[-1] == 1, one.shape[-1] != 4))
        points = boxes.shape[-1] > 4 and boxes.shape[-1] % 2 == 0 and scores.shape[-1] == 1
        if boxes.shape[1] == scores.shape[1] and (boxes.shape[-1] == 4 or points):
            return _boxes(facts, boxes, scores, frame)
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


def _grid(facts: Facts, ends: Ends) -> GuessedTask:
    names = tuple({"name": one.name, "track": f"head{k}"} for k, one in enumerate(ends.answers))
    strides = [ends.main.shape[1] // one.shape[1] for one in ends.answers]
    labels, fill = labels_of(facts, ends.answers[0].shape[-1] // 3 - 5)
    keys = {
        "type": "detection", "of": [one["track"] for one in names], "decode": "grid", "strides": strides,
        "anchors": [_YOLO[stride] for stride in strides], "labels": labels,
    }  # fmt: skip
    return GuessedTask(
        keys=keys, why="heads of YOLO, version 3, with the anchors of its paper", outputs=names,
        fill=("anchors, if training chose others", *fill),
    )  # fmt: skip


def _boxes(facts: Facts, boxes: Tensor, scores: Tensor, frame: tuple[int, int]) -> GuessedTask:
    background = scores.end == "softmax" or scores.shape[-1] == 2
    labels, fill = labels_of(facts, scores.shape[-1] - background)
    grid = _mediapipe(boxes.shape[1], frame) if boxes.shape[-1] > 4 else {}
    keys: dict[str, Any] = {
        "type": "detection",
        "of": ["boxes", "scores"],
        "decode": "corners",
        "labels": labels,
        **grid,
    }
    if boxes.shape[-1] != 4:
        keys["box_numbers"] = boxes.shape[-1]
    if background:
        keys["background"] = True
    if not scores.end:
        keys["values"] = "logit"
    tracks = ({"name": boxes.name, "track": "boxes"}, {"name": scores.name, "track": "scores"})
    if grid:
        why = f"{boxes.shape[1]} boxes with {boxes.shape[-1] // 2 - 2} points, on the grids of MediaPipe's detectors"
        return GuessedTask(keys=keys, why=why, outputs=tracks, fill=fill, fit={"fit": "pad"})
    return GuessedTask(
        keys=keys, why="boxes and scores of as many candidates", outputs=tracks,
        fill=("decode: corners or centre; or offsets or priors, with strides and anchors", *fill),
    )  # fmt: skip


def _cells(frame: tuple[int, int], stride: int) -> int:
    return -(-frame[0] // stride) * -(-frame[1] // stride)


def _mediapipe(candidates: int, frame: tuple[int, int]) -> dict[str, Any]:
    """Return decode, strides and anchors, whose sizes are not read, of a MediaPipe detector; empty for others."""
    if candidates == _cells(frame, 4):  # BlazeFace, full range
        return {"decode": "offsets", "strides": [4], "anchors": [[1]]}
    for layers in _MEDIAPIPE:
        strides = sorted(set(layers))
        if candidates == sum(2 * _cells(frame, stride) for stride in layers):
            return {
                "decode": "offsets",
                "strides": strides,
                "anchors": [[1] * 2 * layers.count(one) for one in strides],
            }
    return {}


def _joined(facts: Facts, answer: Tensor, frame: tuple[int, int]) -> GuessedTask | None:
    """Guess one row for each candidate.

    1. Box, score and number of the label, rows first: the model has chosen its boxes (YOLO 10 and 26).
    2. Rows first, as many as the cells of three grids: YOLOX, which counts from a cell's corner.
    3. Rows first, three times as many: YOLO 5, with a score for any object.
    4. Else: YOLO 8 and its like.
    """
    cells = sum(_cells(frame, stride) for stride in _YOLO)
    row = tuple(cells if size < 0 else size for size in answer.row)
    few, many = sorted(row)
    if many < _CANDIDATES or few < 5 or (many < 4 * few and not facts.labels):
        return None
    rows_first = row[0] == many
    grids = many // cells if rows_first and many in (cells, 3 * cells) else 0
    if rows_first and few == 6 and many <= _MOST_CHOSEN and not grids:
        task = _chosen(facts)
    else:
        task = _scored(facts, few, grids)
    output = {"rows": many, "layout": "samples-first" if rows_first else "channels-first"}
    return replace(task, why=task.why or f"{few} numbers for each of {many} candidates", outputs=(output,))


def _chosen(facts: Facts) -> GuessedTask:
    """Write the task of a model that has chosen its boxes."""
    labels, fill = labels_of(facts, len(facts.labels) or 1)
    keys = {"type": "detection", "decode": "corners", "rows": "chosen", "unit": "pixels", "iou": 1.0, "labels": labels}
    return GuessedTask(
        keys=keys,
        why="",
        fill=("unit (pixels or share), and score from which on a box is given", *fill),
        fit=_LETTERBOX,
    )


def _scored(facts: Facts, numbers: int, grids: int) -> GuessedTask:
    """Write the task of a model that scores each candidate.

    Args:
        facts: the file's facts.
        numbers: count of a candidate's numbers.
        grids: candidates of a cell, where rows come first; 0 for other counts.
    """
    objectness = (grids > 0 and numbers > 5) or (bool(facts.labels) and numbers == 5 + len(facts.labels))
    labels, fill = labels_of(facts, numbers - 5 if objectness else numbers - 4)
    keys = {"type": "detection", "rows": "joined", "labels": labels, **({"objectness": True} if objectness else {})}
    if grids == 1 and objectness:
        fit = {**_LETTERBOX, "at": "top-left"}
        return GuessedTask(
            keys={**keys, **_YOLOX}, why="as many rows as cells, as YOLOX has them", fill=(_DECODED, *fill), fit=fit
        )
    todo = "decode, unit (pixels or share) and objectness, as the model's code has them; score and iou, too"
    return GuessedTask(keys={**keys, "decode": "centre", "unit": "pixels"}, why="", fill=(todo, *fill), fit=_LETTERBOX)


def _landmarks(facts: Facts, ends: Ends) -> GuessedTask | None:
    """Guess several rows of numbers: points, a score that they are there, and the like."""
    answers, first = ends.answers, ends.answers[0]
    plain = len(first.row) <= 1 and first.end in ("", "dense") and first.row != (len(facts.labels),)
    if len(answers) < 2 or not plain or first.row[-1:] < (4,):
        return None
    tracks = tuple({"name": one.name, "track": one.name} for one in answers if len(one.row) <= 1)
    numbers = ", ".join(f"{one.name} {one.row[-1] if one.row else 1}" for one in answers if len(one.row) <= 1)
    return GuessedTask(
        keys={"type": "vector", "of": [one["track"] for one in tracks]}, outputs=tracks,
        why=f"numbers of several answers, one after another ({numbers}): points and scores",
        fill=("which of them you need; leave the others out of outputs and of",),
    )  # fmt: skip


def _text(facts: Facts, ends: Ends, frame: tuple[int, int]) -> GuessedTask | None:
    """Guess a text: a row of scores, one for each character and the blank, for each of several places."""
    answer, width = ends.answers[0], frame[1]
    places, classes = _sizes_of_text(answer)
    listed = facts.labels_from.startswith("'character'") and classes - len(facts.labels) in (1, 2)
    line = width >= 2 * frame[0] and places <= width // _PLACES and (classes > _FEWEST_CHARACTERS or classes == -1)
    if len(ends.answers) > 1 or not places or not (listed or line):
        return None
    characters = "".join(facts.labels) if listed else ""
    if listed and classes - len(facts.labels) == 2:
        characters += " "
    keys: dict[str, Any] = {"type": "text", "characters": characters}
    if answer.end != "softmax":
        keys["values"] = "logits"
    return GuessedTask(
        keys=keys, why='rows of scores of characters; the blank is the first of them, else write blank = "last"',
        fill=() if characters else ("characters in their order, without the blank; or the path of their .txt file",),
        fit={"fit": "pad", "at": "top-left", "padding": 128, "antialias": False},
    )  # fmt: skip


def _sizes_of_text(answer: Tensor) -> tuple[int, int]:
    """Return places and classes, -1 for open ones; no places where it is no text."""
    if len(answer.shape) == _ROW_AXES:
        places_first = answer.shape[0] > 1 and answer.shape[1] in (-1, 1)
        return answer.shape[0 if places_first else 1], answer.shape[2]
    return (-1, -1) if answer.row == (-1,) else (0, 0)
