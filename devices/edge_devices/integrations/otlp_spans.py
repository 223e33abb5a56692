"""Traces of windows: which are traced, and their spans as OTLP messages.

====== ========= ===================================================================================================
span   parent    from and to
====== ========= ===================================================================================================
answer           arrival of the reading that completed the window; its answer is handed to the sinks
receive answer   arrival; decoded
window answer    decoded; cut into windows
wait   answer    cut; the model is asked
engine answer    asked; the model has answered
publish answer   answered; handed to the sinks
outbox answer    in place of ``publish``, where a hard case is committed before its answer is handed over
cloud  answer    the device has answered; its correction, or the word that none comes, is handed to the sinks
====== ========= ===================================================================================================

All ids are hashes of the window's id (RFC 7693, BLAKE2b), and what is traced follows from them. So a correction after
a restart joins the trace of its window, and nothing is kept to know that. The last 7 bytes of a trace id are compared
with the share, as in OpenTelemetry's consistent probability sampling, so a collector that thins traces by their ids
takes whole ones.

Sources: opentelemetry.io/docs/specs/otlp, version 1; W3C Trace Context, level 2, section 5.1 (random trace ids).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from edge_runtime._version import __version__
from edge_runtime.types import Correction, FinalAnswer, Prediction

SCOPE: Final = InstrumentationScope(name="edge_runtime", version=__version__)
_RANDOM_BYTES: Final = 7


class Ids:
    """Ids of traces and spans, and the choice of what is traced.

    Args:
        instance: tells this application from all others, at most 64 bytes: on two devices, two windows may have one id.
        share: share of the windows that are traced, 0 to 1.
    """

    def __init__(self, instance: str, share: float) -> None:
        self._key = instance.encode()[:64]
        self._threshold = round((1 - share) * 256**_RANDOM_BYTES)

    def trace(self, window_id: str) -> bytes:
        """Return the id of a window's trace."""
        return blake2b(_bytes(window_id), digest_size=16, key=self._key).digest()

    def span(self, window_id: str, name: str) -> bytes:
        """Return the id of a span of a window."""
        return blake2b(_bytes(window_id), digest_size=8, key=self._key, person=name.encode()).digest()

    def traced(self, trace_id: bytes) -> bool:
        """Return whether this trace is sent."""
        return int.from_bytes(trace_id[-_RANDOM_BYTES:], "big") >= self._threshold


class Begun(NamedTuple):
    """A traced window that was answered. Monotonic times, in seconds."""

    trace_id: bytes
    received: float
    cut: tuple[float, float] | None
    """None where it is not known: windows of the run before, and those that a stop completes."""
    began: float
    ended: float
    provisional: bool
    """Its answer waits for the commit of its case."""

    @property
    def spans(self) -> int:
        """Number of its spans."""
        return 4 if self.cut is None else 6


class HandedOver(NamedTuple):
    """A traced window whose answer was handed over to the sinks."""

    prediction: Prediction
    begun: Begun
    at: float
    """Monotonic time, seconds."""
    wall: float
    """Wall clock less monotonic clock at the hand-over."""

    @property
    def spans(self) -> int:
        """Number of its spans."""
        return self.begun.spans


class Closed(NamedTuple):
    """The cloud's word on a traced window."""

    answer: Correction | FinalAnswer
    trace_id: bytes
    at: float
    """Wall clock, seconds."""

    @property
    def spans(self) -> int:
        """Number of its spans."""
        return 1


Traced = HandedOver | Closed


def trace_request(items: Iterable[Traced], ids: Ids, resource: Resource) -> ExportTraceServiceRequest:
    """Make the message that a collector takes."""
    spans: list[Span] = []
    for item in items:
        spans += _window_spans(item, ids) if isinstance(item, HandedOver) else [_cloud_span(item, ids)]
    scope = ScopeSpans(scope=SCOPE, spans=spans)
    return ExportTraceServiceRequest(resource_spans=[ResourceSpans(resource=resource, scope_spans=[scope])])


def _window_spans(item: HandedOver, ids: Ids) -> list[Span]:
    prediction, begun = item.prediction, item.begun
    root = ids.span(prediction.id, "answer")
    last = "outbox" if begun.provisional else "publish"
    if begun.cut is None:
        names: Sequence[str] = ("wait", "engine", last)
        seconds = [begun.received, begun.began, begun.ended, item.at]
    else:
        names = ("receive", "window", "wait", "engine", last)
        seconds = [begun.received, *begun.cut, begun.began, begun.ended, item.at]
    stamps = [round((one + item.wall) * 1e9) for one in seconds]
    spans = [
        Span(
            trace_id=begun.trace_id,
            span_id=root,
            name="answer",
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=stamps[0],
            end_time_unix_nano=stamps[-1],
            attributes=attributes(_facts(prediction)),
            status=_failed("nothing on the device could answer") if prediction.variant == "none" else None,
        )
    ]
    for position, name in enumerate(names):
        spans.append(
            Span(
                trace_id=begun.trace_id,
                span_id=ids.span(prediction.id, name),
                parent_span_id=root,
                name=name,
                kind=Span.SPAN_KIND_INTERNAL,
                start_time_unix_nano=stamps[position],
                end_time_unix_nano=stamps[position + 1],
            )
        )
    return spans


def _facts(prediction: Prediction) -> dict[str, str | float | bool]:
    facts: dict[str, str | float | bool] = {
        "edge.window": prediction.id,
        "edge.key": prediction.key,
        "edge.label": prediction.label,
        "edge.confidence": prediction.confidence,
        "edge.hard": prediction.hard,
        "edge.route": prediction.route,
        "edge.model": prediction.model,
        "edge.variant": prediction.variant,
    }
    suspect = getattr(prediction, "suspect", "")
    return facts | {"edge.suspect": suspect} if suspect else facts


def _cloud_span(item: Closed, ids: Ids) -> Span:
    answer = item.answer
    facts: dict[str, str | float | bool] = {"edge.window": answer.id, "edge.label": answer.label}
    if isinstance(answer, FinalAnswer):
        facts["edge.reason"] = answer.reason
    else:
        facts |= {"edge.supersedes": answer.supersedes, "edge.model": answer.model, "edge.late": answer.late}
    end = round(item.at * 1e9)
    return Span(
        trace_id=item.trace_id,
        span_id=ids.span(answer.id, "cloud"),
        parent_span_id=ids.span(answer.id, "answer"),
        name="cloud",
        kind=Span.SPAN_KIND_CLIENT,
        start_time_unix_nano=max(0, end - round(answer.latency_ms * 1e6)),
        end_time_unix_nano=end,
        attributes=attributes(facts),
        status=_failed(f"no correction: {answer.reason}") if isinstance(answer, FinalAnswer) else None,
    )


def attributes(facts: Mapping[str, str | float | bool]) -> list[KeyValue]:
    """Make attributes of plain values."""
    return [KeyValue(key=name, value=_value(value)) for name, value in facts.items()]


def _value(value: str | float | bool) -> AnyValue:
    if isinstance(value, str):
        return AnyValue(string_value=value.encode("utf-8", "replace").decode())  # a lone surrogate is no UTF-8
    if isinstance(value, bool):
        return AnyValue(bool_value=value)
    return AnyValue(double_value=value)


def _failed(why: str) -> Status:
    return Status(code=Status.STATUS_CODE_ERROR, message=why)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
