"""Output contracts: what the numbers of an answer are. One class for each task, told apart by `kind`.

Every one of them has `labels`, names that the answer may give (empty where it gives none), and `shape`, that of one
answer. An answer of several tracks is one row of numbers, the tracks' one after another. `edge_runtime.model.tasks`
reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edge_runtime import schema


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputContract:
    """One label of several, from probabilities."""

    labels: tuple[str, ...]
    kind: Literal["probabilities"] = "probabilities"
    """Softmax and temperature are part of the graph: the output sums to one."""

    def __post_init__(self) -> None:
        if len(self.labels) < 2 or len(set(self.labels)) != len(self.labels):
            raise ValueError("needs two or more labels, all different")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window's answer."""
        return (len(self.labels),)


@dataclass(frozen=True, slots=True, kw_only=True)
class MultiLabelOutput:
    """Any number of labels at once, from a probability for each."""

    labels: tuple[str, ...]
    kind: Literal["multi-label"] = "multi-label"
    values: Literal["probability", "logit"] = "probability"
    """Numbers of the model; of a logit, the sigmoid is the probability."""
    thresholds: tuple[float, ...] = (0.5,)
    """Probability from which on a label is given: one for all, or one for each."""
    rows: int = 1
    """Rows of one answer; the probability of a label is the highest of its column."""

    def __post_init__(self) -> None:
        _check_labels(self.labels)
        if len(self.thresholds) not in (1, len(self.labels)) or not all(0 < one < 1 for one in self.thresholds):
            raise ValueError("thresholds must be one number for all labels, or one for each, between 0 and 1")
        if self.rows < 1:
            raise ValueError("rows must be 1 or more")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window's answer."""
        return _rows(self.rows, len(self.labels))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One value of a regression."""

    name: str
    unit: str = "1"
    """As in UCUM, for example ``Cel``, ``kW``; ``1`` for none."""
    kind: str = ""
    """What is measured, as Home Assistant's device classes name it: ``temperature``, ``power``, ...; empty: unsaid."""
    offset: float = 0.0
    scale: float = 1.0
    """The value is (number of the model - offset) * scale."""
    half_width: float = 0.0
    """The interval is the value plus and minus this, in the unit; 0: none is known. With `RegressionOutput.spread`, a
    factor of the model's own spread."""
    widest: float = 0.0
    """Width of an interval that is of no use any more, in the unit: trust falls to 0 there; 0: width does not count."""
    low: float | None = None
    """Least value that can be; an answer below it has no trust."""
    high: float | None = None
    """Greatest value that can be."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("a quantity needs a name")
        if not self.scale:
            raise ValueError(f"quantity {self.name!r}: scale must not be 0")
        if self.half_width < 0 or self.widest < 0:
            raise ValueError(f"quantity {self.name!r}: half_width and widest must be 0 or more")
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError(f"quantity {self.name!r}: low must be below high")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegressionOutput:
    """Values with a unit, each with the interval that holds the true one in a stated share of cases."""

    quantities: tuple[Quantity, ...]
    kind: Literal["regression"] = "regression"
    coverage: float = 0.9
    """Share of windows whose true value lies in the interval (split conformal prediction)."""
    spread: bool = False
    """After the values, the model gives a spread for each, above 0, in the same numbers."""

    def __post_init__(self) -> None:
        names = [quantity.name for quantity in self.quantities]
        if not names or len(set(names)) != len(names):
            raise ValueError("needs one or more quantities, all with different names")
        if not 0 < self.coverage < 1:
            raise ValueError("coverage must be between 0 and 1")

    @property
    def labels(self) -> tuple[str, ...]:
        """None: values are no labels."""
        return ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window's answer."""
        return (len(self.quantities) * (2 if self.spread else 1),)


ANOMALOUS = "anomalous"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnomalyOutput:
    """A score that is higher the less a window is like normal data.

    Where it is made of a reconstruction, stages of the chain do so: `Difference`, `Smooth`.
    """

    kind: Literal["anomaly"] = "anomaly"
    false_alarm_rate: float = 0.05
    """Share of normal windows that may be called anomalous."""
    threshold: float | None = None
    """Anomalous above it; None: the score that keeps `false_alarm_rate` on `normal`."""
    normal: str = ""
    """.npy file of the bundle: float32 (n,), scores of normal windows that the model was not trained on, rising."""
    adapt: Literal["none", "quantile"] = "none"
    """``quantile``: each key gets a threshold of its own, of its first 20 / `false_alarm_rate` scores."""

    def __post_init__(self) -> None:
        if not 0 < self.false_alarm_rate < 0.5:
            raise ValueError("false_alarm_rate must be above 0 and below 0.5")
        if self.threshold is None and not self.normal:
            raise ValueError("needs a threshold, or the file with the scores of normal windows")

    @property
    def labels(self) -> tuple[str, ...]:
        """The one that an event can name."""
        return (ANOMALOUS,)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window's answer."""
        return (1,)


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectionOutput:
    """Objects in a picture: boxes with a label and a score.

    The answer holds the boxes of all candidates and then their scores (tracks ``answer = ["boxes", "scores"]``), or one
    track with a row for each candidate, or with ``decode = "grid"`` the heads, in the order of `strides`.
    """

    labels: tuple[str, ...]
    kind: Literal["detection"] = "detection"
    height: int
    width: int
    """Of the picture that the model sees, pixels."""
    decode: Literal["corners", "centre", "offsets", "priors", "grid"] = "corners"
    """What the numbers of a box are. ``corners``: left, top, right, bottom. ``centre``: of the box, then its width and
    height. ``offsets``: the same, the centre counted from that of the candidate's cell (MediaPipe). ``priors``: shifts
    and logarithms to priors, divided by `variances` (SSD). ``grid``: YOLO heads, version 3."""
    rows: Literal["apart", "joined", "listed", "chosen"] = "apart"
    """``apart``: all boxes, then the scores of all. ``joined``: a row holds box and scores. ``listed``: all boxes, then
    the number of the label of each, then its score. ``chosen``: a row holds box, score and number of the label, of a
    model that chooses its boxes itself (YOLO 10 and 26)."""
    candidates: int = 0
    """Boxes that the model gives; 0: as many as `strides` and `anchors` make."""
    order: Literal["xy", "yx"] = "xy"
    """``yx``: the vertical number comes before the horizontal one, as TensorFlow has it."""
    unit: Literal["share", "pixels"] = "share"
    """Of ``corners`` and ``centre``; ``offsets`` are pixels."""
    box_numbers: int = 4
    """Numbers of a box in the answer, of which the first four are read; the others are landmarks."""
    values: Literal["probability", "logit", "logits"] = "probability"
    """Scores: of a logit the sigmoid is taken, of logits the softmax. A ``grid`` has logits always."""
    objectness: bool = False
    """A score before those of the labels that multiplies them. A ``grid`` has it always."""
    background: bool = False
    """The first score of a candidate is that of no object."""
    strides: tuple[int, ...] = ()
    """Pixels from cell to cell, of each grid of candidates."""
    anchors: tuple[tuple[float, ...], ...] = ()
    """For each stride, pixels: the sides of its square priors; with ``grid``, width and height of each anchor."""
    priors: str = ""
    """.npy file of the bundle in place of `strides` and `anchors`: float32 (candidates, 4), centre, width and height of
    each prior as shares of the picture."""
    priors_at: Literal["middle", "corner"] = "middle"
    """Of its cell, where the centre of a prior lies. ``corner``: the upper left one, as YOLOX has it."""
    variances: tuple[float, float] = (0.1, 0.2)
    score: float = 0.5
    """Boxes below it are not given."""
    iou: float = 0.3
    """Of two boxes of a label that overlap by more than this, the one with the lower score is not given."""
    most: int = 20
    """Boxes that are given, those with the highest scores."""

    def __post_init__(self) -> None:
        _check_labels(self.labels)
        if not 1 <= self.height <= 10_000 or not 1 <= self.width <= 10_000:
            raise ValueError("height and width must be 1 to 10,000 pixels")
        if not 0 < self.score < 1 or not 0 < self.iou <= 1 or self.most < 1 or self.box_numbers < 4:
            raise ValueError("score and iou must be between 0 and 1, most 1 or more, and box_numbers 4 or more")
        self._check_grids()
        made = sum(self.cells)
        if self.candidates and made and self.candidates != made:
            raise ValueError(f"strides and anchors make {made} candidates, not {self.candidates}; correct one of them")
        if not self.count:
            raise ValueError("candidates is missing: how many boxes the model gives")

    def _check_grids(self) -> None:
        known = bool(self.strides) + (bool(self.priors) and self.decode != "grid")
        if known != (self.decode in ("offsets", "priors", "grid")) or len(self.strides) != len(self.anchors):
            raise ValueError(
                "decode = offsets, priors or grid needs strides and anchors, an entry in both for each grid, or (but "
                "for grid) a file of priors; other boxes need neither"
            )
        if min(self.strides, default=1) < 1 or not all(self.anchors) or min(map(min, self.anchors), default=1) <= 0:
            raise ValueError("strides must be 1 or more pixels, and every stride needs anchors above 0 pixels")
        if self.decode == "grid" and (any(len(sizes) % 2 for sizes in self.anchors) or self.rows != "apart"):
            raise ValueError("a grid's anchors are pairs, width and height; leave rows out")
        if not all(map(math.isfinite, self.variances)) or min(self.variances) <= 0:
            raise ValueError("variances must be above 0")

    @property
    def cells(self) -> tuple[int, ...]:
        """Candidates of each grid; empty without strides."""
        anchors = (len(sizes) // (2 if self.decode == "grid" else 1) for sizes in self.anchors)
        return tuple(
            -(-self.height // stride) * -(-self.width // stride) * of
            for stride, of in zip(self.strides, anchors, strict=True)
        )

    @property
    def count(self) -> int:
        """Candidates in all."""
        return self.candidates or sum(self.cells)

    @property
    def columns(self) -> int:
        """Scores of a candidate."""
        return len(self.labels) + self.background + (self.objectness or self.decode == "grid")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window's answer."""
        if self.decode == "grid" and len(self.strides) == 1:
            anchors = len(self.anchors[0]) // 2
            return (self.count // anchors, anchors * (self.box_numbers + self.columns))
        if self.rows == "joined":
            return (self.count, self.box_numbers + self.columns)
        if self.rows == "chosen":
            return (self.count, self.box_numbers + 2)
        return (self.count * (self.box_numbers + (2 if self.rows == "listed" else self.columns)),)


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingOutput:
    """The label of the nearest examples."""

    size: int
    """Numbers of a row."""
    rows: int = 1
    """Rows of one answer; distances are those of all of them together."""
    kind: Literal["embedding"] = "embedding"
    labels: tuple[str, ...] = ()
    """Of the examples in the bundle."""
    distance: Literal["cosine", "l2"] = "cosine"
    """``cosine``: one minus the cosine of the angle, 0 to 2."""
    examples: str = ""
    """.npy file of the bundle: float32 (n, 1 + rows * size), of each example its place in `labels` and its numbers."""
    k: int = 3
    """Nearest examples that vote, each by its nearness."""
    farthest: float = 0.0
    """Nothing nearer than this: the label is unknown; 0: there is always one."""

    def __post_init__(self) -> None:
        if self.size < 1 or self.rows < 1 or self.k < 1:
            raise ValueError("size, rows and k must be 1 or more")
        if self.labels:
            _check_labels(self.labels)
        if bool(self.labels) != bool(self.examples):
            raise ValueError("labels and examples go together; leave both out for a bundle that learns on the device")
        if not 0 <= self.farthest < math.inf:
            raise ValueError("farthest must be 0 or more")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window's answer."""
        return _rows(self.rows, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextOutput:
    """Text, from the scores of characters in rows, as a model trained with CTC gives them."""

    characters: tuple[str, ...]
    """In the order of a row, without the blank; an empty one stands for nothing."""
    rows: int
    """Places from left to right, each with a score for every character and for the blank."""
    kind: Literal["text"] = "text"
    blank: Literal["first", "last"] = "first"
    """Where the blank stands in a row: before the characters, or behind them."""
    values: Literal["probability", "logits"] = "probability"
    """Scores; of logits the softmax is taken."""

    def __post_init__(self) -> None:
        if self.rows < 1 or not self.characters:
            raise ValueError("needs 1 row or more, and characters in the order of a row, without the blank")

    @property
    def labels(self) -> tuple[str, ...]:
        """None: a text may be any."""
        return ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one window's answer."""
        return _rows(self.rows, len(self.characters) + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorOutput:
    """Numbers, or a signal, as they are."""

    shape: tuple[int, ...]
    """Of one answer: (numbers,), or (rows, numbers)."""
    kind: Literal["vector"] = "vector"
    unit: str = "1"
    names: tuple[str, ...] = ()
    """Of the numbers of a row; empty where they have none."""
    publish: Literal["rows", "pcm16", "none"] = "rows"
    """``rows``: the numbers. ``pcm16``: sound, -1 to 1 made int16, in base64. ``none``: nothing of them."""
    rate_hz: float = 0.0
    """Rows a second, where they are a signal; needed for ``pcm16``."""

    def __post_init__(self) -> None:
        if not 1 <= len(self.shape) <= 3 or min(self.shape) < 1:
            raise ValueError("shape must be one to three numbers, each 1 or more")
        if self.names and len(self.names) != self.shape[-1]:
            raise ValueError(f"names must be {self.shape[-1]}, one for each number of a row, or be left out")
        if self.publish == "pcm16" and self.rate_hz <= 0:
            raise ValueError("publish = 'pcm16' needs rate_hz, samples of the sound a second")
        if not 0 <= self.rate_hz < math.inf:
            raise ValueError("rate_hz must be 0 or more")

    @property
    def labels(self) -> tuple[str, ...]:
        """None: numbers are no labels."""
        return ()


def _check_labels(labels: Sequence[str]) -> None:
    if not labels or len(set(labels)) != len(labels):
        raise ValueError("needs one or more labels, all different")


def _rows(rows: int, numbers: int) -> tuple[int, ...]:
    """Return the shape of rows; a single one is given without the axis of rows."""
    return (numbers,) if rows == 1 else (rows, numbers)


def meaning(output: AnyOutput) -> tuple[object, ...]:
    """Return what users of the answers rely on: kind, labels, quantities with their units; no threshold or interval."""
    if isinstance(output, RegressionOutput):
        return output.kind, *((one.name, one.unit, one.kind) for one in output.quantities)
    if isinstance(output, VectorOutput):
        return output.kind, output.shape, output.unit, output.names, output.publish, output.rate_hz
    return output.kind, output.labels


def files_of(output: AnyOutput) -> dict[str, str]:
    """Return the files of the bundle that an output needs, by the field that names them."""
    named = {field: getattr(output, field, "") for field in ("normal", "examples", "priors")}
    return {field: file for field, file in named.items() if file}


if TYPE_CHECKING:
    AnyOutput = (
        OutputContract
        | MultiLabelOutput
        | RegressionOutput
        | AnomalyOutput
        | DetectionOutput
        | EmbeddingOutput
        | TextOutput
        | VectorOutput
    )
else:
    AnyOutput = schema.OneOf(
        "kind",
        "probabilities",
        **{
            "probabilities": f"{__name__}:OutputContract",
            "multi-label": f"{__name__}:MultiLabelOutput",
            "regression": f"{__name__}:RegressionOutput",
            "anomaly": f"{__name__}:AnomalyOutput",
            "detection": f"{__name__}:DetectionOutput",
            "embedding": f"{__name__}:EmbeddingOutput",
            "text": f"{__name__}:TextOutput",
            "vector": f"{__name__}:VectorOutput",
        },
    )
