"""Which windows are traced: every part of a window, every process and every share agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.proto", reason='needs the extra otlp: pip install "edge-runtime[otlp]"')

from edge_devices.integrations.otlp import MAX_BEGUN, Tracer
from edge_devices.integrations.otlp_spans import Closed, HandedOver, Ids, Traced, trace_request
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from edge_runtime.clock import SimulatedClock
from edge_runtime.model.tasks.answered import Answered
from edge_runtime.types import Correction, FinalAnswer, Prediction
from tests.edge_devices.integrations.collector import plain
from tests.models import completed

SHARES = st.floats(0, 1)


def prediction(window_id: str, variant: str = "int8") -> Prediction:
    return Prediction(window_id, "k", 0.0, 1.0, "up", 0.9, [0.9], "local", False, "m/1", variant, 5.0)


def correction(window_id: str) -> Correction:
    return Correction(window_id, "k", 0, 1, "up", 0.9, [], "cloud", True, "teacher/1", "cloud", 5.0, "down", False)


def tracer(share: float, instance: str = "i") -> tuple[Tracer, list[Traced], list[int]]:
    sent: list[Traced] = []
    lost: list[int] = []
    return Tracer(Ids(instance, share), SimulatedClock(), sent.append, lost.append), sent, lost


def answer(one: Tracer, *predictions: Prediction) -> None:
    (window,) = completed(1)
    one.note(Answered([window] * len(predictions), predictions, 1.0, 2.0, {}))


@given(st.text(min_size=1), SHARES)
def test_all_parts_of_a_window_are_traced_or_none(window_id: str, share: float) -> None:
    first, sent, _ = tracer(share)
    answer(first, prediction(window_id))
    first.send([prediction(window_id)], None)
    after_a_restart, later, _ = tracer(share)
    after_a_restart.send([correction(window_id)], None)
    items = [one.begun if isinstance(one, HandedOver) else one for one in (*sent, *later)]
    assert len({one.trace_id for one in items}) == bool(sent)
    assert len(sent) == len(later)


@given(st.text(min_size=1), SHARES, SHARES)
def test_a_larger_share_traces_what_a_smaller_one_does(window_id: str, one: float, other: float) -> None:
    small, large = Ids("i", min(one, other)), Ids("i", max(one, other))
    trace_id = small.trace(window_id)
    assert not small.traced(trace_id) or large.traced(trace_id)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.25, 1.0])
def test_the_share_is_what_is_traced(share: float) -> None:
    ids, n = Ids("i", share), 20_000
    traced = sum(ids.traced(ids.trace(f"kitchen@{slot}")) for slot in range(n))
    assert abs(traced - n * share) <= 5 * (n * share * (1 - share)) ** 0.5


def test_answers_that_are_never_handed_over_take_no_memory() -> None:
    one, _, lost = tracer(1.0)
    for number in range(MAX_BEGUN + 3):
        answer(one, prediction(f"k@{number}"))
    assert lost == [4] * 3


def test_a_window_without_an_answer_and_a_case_without_a_correction_are_marked_as_errors() -> None:
    one, sent, _ = tracer(1.0)
    answer(one, unanswered := prediction("k@1", variant="none"))
    final = FinalAnswer("k@1", "k", 0, 1, "", 0.0, [], "local", True, "m/1", "none", 9.0, True, "expired")
    one.send([unanswered, final], None)
    assert [type(item) for item in sent] == [HandedOver, Closed]
    message = trace_request(sent, Ids("i", 1.0), Resource())
    spans = {span.name: span for span in message.resource_spans[0].scope_spans[0].spans}
    assert set(spans) == {"answer", "wait", "engine", "publish", "cloud"}
    assert sum(item.spans for item in sent) == len(spans)
    assert spans["answer"].status.message == "nothing on the device could answer"
    assert spans["cloud"].status.message == "no correction: expired"
    assert plain(spans["cloud"].attributes)["edge.reason"] == "expired"
    assert spans["cloud"].parent_span_id == spans["answer"].span_id
