"""From received messages to readings, for every source of bytes: what cannot be decoded is counted and left out.

The only place where a refused message is dealt with, so that a source cannot forget to count one. The log is written
from the counters (`edge_runtime.operate.observe.drops`), so a flood of bad messages cannot flood it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import InputError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.foreign import explained
from edge_runtime.metrics import Metrics
from edge_runtime.types import Reading

logger = logging.getLogger(__name__)

SHOWN_BYTES = 24
"""How much of a refused payload a log line shows: enough to recognise the format, not enough to leak the data."""


BATCH = 4
"""Smallest number of messages that are decoded together: from there on it pays."""


@runtime_checkable
class BatchCodec(Codec, Protocol):
    """A codec that can decode messages together for less than one by one."""

    def decode_many(self, messages: Sequence[tuple[str, bytes]], received: float) -> list[Reading] | None:
        """Decode all messages, as `Codec.decode` does each; None where that cannot be done in one go."""
        ...


class Refusals:
    """Counts what cannot become a reading, and keeps the last one of each reason as an example for the log.

    Args:
        metrics: `Metrics.dropped` counts each refusal under its reason, `Metrics.examples` has the example.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def __call__(self, error: InputError, what: str = "input") -> None:
        """Count one.

        Args:
            error: why.
            what: describes it, for instance "message of 12 bytes".
        """
        self._metrics.dropped[error.reason] += 1
        self._metrics.examples[error.reason] = f"{what}: {error}"


class Notices:
    """Tells the user once of each thing that a codec had to assume, and counts how often it did.

    Args:
        metrics: ``undated_total`` and their like.
        source: name of the source, for the log.
    """

    def __init__(self, metrics: Metrics, source: str) -> None:
        self._metrics = metrics
        self._source = source
        self._told: set[str] = set()

    def __call__(self, name: str, advice: str) -> None:
        """Count one, as `edge_runtime.io.codecs.Notice`; the first one is logged."""
        self._metrics.counts[f"{name}_total"] += 1
        if name not in self._told:
            self._told.add(name)
            logger.warning("%s: %s: %s", self._source, name, advice)


class Decoder:
    """Decodes what arrived together. Never raises for the bytes of a message, whatever the codec does.

    A codec refuses a message with `InputError`. Any other exception is a defect of ours: the message is counted as
    ``internal_error`` and logged like a refusal (traceback: debug log), and the others of its batch are decoded.

    Counts ``messages_total``, ``message_bytes_total`` and the stage ``decode``; a refusal goes to `Metrics.dropped`
    under its reason. Readings are counted where they are taken, by the pipeline.

    Args:
        codec: decodes one message.
        metrics: the counters.
        clock: source of time, for the decode stage.
    """

    def __init__(self, codec: Codec, metrics: Metrics, clock: Clock | None = None) -> None:
        self.codec = codec
        self._many = codec.decode_many if isinstance(codec, BatchCodec) else None
        self._metrics = metrics
        self._monotonic = (clock or SystemClock()).monotonic
        self._refusals = Refusals(metrics)

    def __call__(self, messages: Sequence[tuple[str, bytes]], received_wall: float) -> list[Reading]:
        """Decode messages in the order given.

        Args:
            messages: key (empty where the payload names it) and payload of each.
            received_wall: wall-clock seconds of arrival.

        Returns:
            The readings of every message that could be decoded, in order.
        """
        n = len(messages)
        if not n:
            return []
        started = self._monotonic()
        readings: list[Reading] | None = None
        if n >= BATCH and self._many is not None:
            try:
                readings = self._many(messages, received_wall)
            except Exception:
                logger.debug("source: decoding a batch failed", exc_info=True)  # one by one, the culprit is counted
        if readings is None:
            readings = self._one_by_one(messages, received_wall)
        size = 0
        for _, payload in messages:
            size += len(payload)
        self.count(n, size, self._monotonic() - started)
        return readings

    def count(self, n: int, size: int, seconds: float) -> None:
        """Count messages that were decoded or refused, with their bytes and the time that they took together."""
        metrics = self._metrics
        metrics.stages["decode"].observe(seconds / n, n)
        metrics.counts["messages_total"] += n
        metrics.counts["message_bytes_total"] += size

    def refuse(self, error: InputError, key: str = "", payload: bytes = b"", size: int | None = None) -> None:
        """Count one message as refused (see `Refusals`).

        For what never reaches the codec, such as a frame that is too long; such a message is not counted as received.

        Args:
            error: why.
            key: the message's key, where known.
            payload: the message, or its start.
            size: bytes of the message, where `payload` is but its start.
        """
        whose = f" for key {key[:64]!r}" if key else ""
        length = len(payload) if size is None else size
        start = f", beginning with {bytes(payload[:SHOWN_BYTES])!r}," if payload else ""
        self._refusals(error, f"message of {length} bytes{whose}{start}")

    def _one_by_one(self, messages: Sequence[tuple[str, bytes]], received_wall: float) -> list[Reading]:
        decode = self.codec.decode
        readings: list[Reading] = []
        for key, payload in messages:
            try:
                readings += decode(key, payload, received_wall)
            except InputError as error:
                self.refuse(explained(error, payload, self.codec.name), key, payload)
            except Exception as error:
                logger.debug("source: decoding a message failed", exc_info=True)
                what = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}; please report it"
                self.refuse(InputError("internal_error", what), key, payload)
        return readings
