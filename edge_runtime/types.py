"""Values that travel through the pipeline: readings in, predictions, corrections and final answers out.

A `Reading` is what a codec makes of one message. A `Prediction` is the device's answer for one window, a `Correction`
the cloud's later answer for the same window, a `FinalAnswer` the word that none will come. An `Event` is what
predictions come to over time. Each becomes a JSON object, and its field names are public.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]

Route = Literal["local", "provisional", "cloud"]


class Reading(NamedTuple):
    """One decoded message from a sensor.

    A tuple and not a dataclass, because one is made for every message: 0.2 us against 0.9 us.
    """

    key: str
    """Device or stream that the reading belongs to. All state is held per key."""
    t: float | Float64
    """Seconds: the stamp of the first sample, or one stamp for each sample, shape (n_samples,)."""
    values: Float32
    """(n_samples, n_channels), in the physical units of the bundle's input contract, all finite."""
    period_s: float = 0.0
    """Seconds between samples where `t` is one stamp; 0 means the model's own rate."""
    channels: tuple[int, ...] | None = None
    """Columns of the contract that `values` holds, in that order; None: all of them, in the contract's order."""


class Decision(NamedTuple):
    """Decision about a batch: lists with one entry for each window."""

    best: list[Any]
    """Value that the task makes the answer of; of a classification the index of the most probable label."""
    trust: list[float]
    """The gate's score, 0 to 1."""
    hard: list[bool]
    """True where the score lies below the threshold."""


class JsonLine:
    """Base of all that is written as a line of JSON, answers first of all."""

    def to_json(self) -> bytes:
        """Return one line of UTF-8 JSON without a line end."""
        return orjson.dumps(self)


@dataclass
class WindowAnswer(JsonLine):
    """Base of the answers for one window.

    Neither frozen nor slotted, because one is built for every window: freezing makes construction four times slower,
    and slots make orjson two and a half times slower (1.6 us against 0.6 us), since it then asks for each field.
    """

    id: str
    """Names the window: the same window of the same stream has the same id after a retry or a restart."""
    key: str
    start: float
    """Stamp of the window's first sample, seconds."""
    end: float
    """`start` plus the window's length: the stamp that the next sample after the window has, seconds."""
    label: str
    """Empty where nothing on the device could answer; `scores` is then empty too, and `confidence` 0."""
    confidence: float
    """Probability of `label`, calibrated by the bundle; of another task the trust in the answer, 0 to 1."""
    scores: list[float]
    """One probability per label, in the bundle's order, rounded to 7 decimals. Of another task its numbers
    (`edge_runtime.model.tasks.answers`)."""
    route: Route
    """``local``: final. ``provisional``: the case is on the disk, and a correction or a final message with the same id
    follows. ``cloud``: is that correction."""
    hard: bool
    """The gate does not trust this answer. Hard and ``local`` together: budget or outbox said no, or it is a
    `SuspectPrediction`."""
    model: str
    """Bundle name and version, for example ``exercise-watch/3``."""
    variant: str
    """Variant of the bundle that answered; ``none`` if nothing did."""
    latency_ms: float
    """Of a prediction from the arrival of the reading that completed the window to the hand-over to the sinks; of what
    comes later from the device's own answer, waiting in the outbox included; wall clock over a restart."""


@dataclass
class Prediction(WindowAnswer):
    """The device's own answer for one window, published at once."""


@dataclass
class SuspectPrediction(Prediction):
    """An answer that is hard because of its readings. The cloud is not asked: it would see the same ones."""

    suspect: str
    """Checks that the key fails (``orientation``, ``rate``, ``stuck``, ``unit``), with commas between them."""


@dataclass
class Correction(WindowAnswer):
    """The cloud's answer for a hard case. Carries the prediction's id and supersedes it.

    `route` and `variant` are ``cloud``, `model` is the cloud's; `hard` is false when this was an audit of an answer
    that the gate trusted.
    """

    supersedes: str
    """The label that the device had given; empty if it had none."""
    late: bool
    """The answer came after the case's deadline; it is published all the same."""
    context_short: bool = False
    """The cloud saw fewer samples than the bundle's context: the stream had just begun, or had a gap."""
    context_samples: int = 0
    """Samples that the cloud saw, the window's own included."""


@dataclass
class FinalAnswer(WindowAnswer):
    """The device's answer once more, when no correction will come. Carries the prediction's id and closes it.

    `route` is ``local``, and `hard` true. What the outbox could not read of a damaged case is empty, 0 or None here.
    """

    start: float | None  # type: ignore[assignment]  # of a damaged case
    end: float | None  # type: ignore[assignment]
    final: bool
    """Always true; no other message has this field."""
    reason: str
    """Why there is no correction: ``expired``, ``evicted``, ``damaged``; a dead letter: ``rejected``, ``attempts``,
    ``context_short`` (`CloudModel` learned too late that the cloud takes whole contexts only)."""


@dataclass
class Event(JsonLine):
    """The beginning or the end of an event: what the predictions of a key come to over time, by an event rule."""

    id: str
    """Names the event: its beginning and its end have the same, also after a retry or a restart."""
    key: str
    event: str
    """Name of the rule."""
    kind: Literal["start", "end"]
    label: str
    """Label of the rule."""
    start: float
    """Stamp of the first sample of the first window that counted, seconds."""
    end: float | None
    """End of the last window, seconds; None while it is open."""
    peak: float
    """Highest smoothed score so far, rounded to 7 decimals."""
    windows: int
    """Windows so far, from the first that counted."""
    evidence: list[str]
    """Ids of the predictions that began it, and of the one with the peak; at most 16."""
    reason: str
    """Empty at the start. Ended by ``off`` (its score fell), ``gap`` (the stream broke off), ``clock`` (set back),
    ``evicted`` (too many keys), ``rules`` (its rule is gone, or another one), ``stopped``."""
    route: Route
    """Always ``local``: corrections change no event."""
    model: str
    """Bundle name and version."""


Answer = Prediction | Correction | FinalAnswer | Event


Done = Callable[[], None]


@dataclass(slots=True)
class Hard:
    """A window on its way to the cloud, with the device's own answer."""

    prediction: Prediction
    tensor: Float32
    """(channels, at most history), the window and its context, oldest sample first; shorter where the context is."""
    trust: float
    """The gate's score; the lower, the more there is to gain."""
    audit: bool
    """Sent to check an answer that the gate trusted."""
    explanation: dict[str, Any] | None = None
    """Which parts of the window moved the answer (`edge_runtime.model.serving.explain`); None: it was not asked for."""
    digest: int | None = None
    """Of the window's samples; tells another window with the same id."""
