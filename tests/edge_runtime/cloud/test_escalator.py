"""Hard cases from the offer to the correction, over a real outbox and a cloud that the test controls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime.base.oip import Array
from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.clock import SystemClock
from edge_runtime.cloud import forwarder, outbox_writer
from edge_runtime.cloud.config import EscalationConfig
from edge_runtime.cloud.escalator import Escalator
from edge_runtime.cloud.question import CloudModel
from edge_runtime.errors import CloudRejected, CloudUnavailable, StoreError
from edge_runtime.manifest.surround import Fusion, Surround, SurroundGate
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks.answers import FusedCorrection
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig, PutResult, control
from edge_runtime.store.durable.outbox.schema import connect_sqlite
from edge_runtime.types import Correction, FinalAnswer, Hard, Prediction
from tests.edge_runtime.cloud.clouds import FakeCloud, high
from tests.edge_runtime.manifests import manifest
from tests.edge_runtime.store.durable.outbox.outboxes import WRITE_FAILED, Failing


class Rig:
    def __init__(
        self,
        path: Path,
        config: EscalationConfig | None = None,
        outbox: OutboxConfig | Outbox | None = None,
        on_status: Callable[[str], None] | None = None,
        surround: Surround | None = None,
    ) -> None:
        self.loop, self.metrics, self.cloud = Loop(), Metrics(), FakeCloud()
        self.corrections: list[Correction] = []
        self.finals: list[FinalAnswer] = []
        self.hold_publishing = False
        self.held: list[Callable[[], None]] = []
        self.outbox = outbox if isinstance(outbox, Outbox) else Outbox(outbox or OutboxConfig(path=path), SystemClock())
        config, clock = config or EscalationConfig(), SystemClock()
        self.escalator = Escalator(
            model=CloudModel(config, manifest(surround=surround), self.cloud, self.metrics, clock),
            outbox=self.outbox,
            loop=self.loop,
            publish=self.publish,
            metrics=self.metrics,
            clock=clock,
            retry=Retry(base_s=0.02, cap_s=0.1),
            on_status=on_status,
        )
        try:
            self.outbox.open()
        except StoreError as error:
            self.escalator.begin_without_outbox(error)

    def publish(self, answers: Sequence[Correction | FinalAnswer], done: Callable[[], None]) -> None:
        for answer in answers:
            if isinstance(answer, Correction):
                self.corrections.append(answer)
            else:
                self.finals.append(answer)
        if self.hold_publishing:
            self.held.append(done)
        else:
            done()

    def until(self, condition: Callable[[], object], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"timed out; {self.outbox.counts()}, {self.metrics.snapshot()['counts']}"
            self.loop.iterate(0.02)

    def acked(self) -> bool:
        counts = self.outbox.counts()
        assert counts.balances()
        return counts.accepted > 0 and counts.queued == 0 and self.escalator.drained()

    def close(self, seconds: float = 5.0) -> None:
        self.escalator.stop(seconds)
        self.outbox.close()
        self.loop.close()


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path / "outbox.db")
    yield rig
    rig.close()


def case(i: int, *, audit: bool = False, shape: tuple[int, int] = (2, 8)) -> Hard:
    prediction = Prediction(
        f"k@{i}", "k", float(i), i + 0.4, "low", 0.6, [0.6, 0.4], "provisional", not audit, "bench/3", "null", 0.1
    )
    return Hard(prediction, np.full(shape, i, np.float32), 0.6, audit)


def test_every_hard_case_gets_its_correction_with_the_same_id(rig: Rig) -> None:
    committed: list[int] = []
    rig.escalator.start()
    for i in range(40):
        rig.escalator.submit([case(i)], lambda i=i: committed.append(i))  # type: ignore[misc]
    rig.until(lambda: len(committed) == 40 and rig.acked())
    assert committed == list(range(40))
    assert sorted(c.id for c in rig.corrections) == sorted(f"k@{i}" for i in range(40))
    c = rig.corrections[0]
    assert (c.route, c.label, c.supersedes, c.late, c.hard, c.model) == (
        "cloud",
        "high",
        "low",
        False,
        True,
        "teacher/7",
    )
    assert c.scores == [0.25, 0.75]
    counts = rig.outbox.counts()
    assert (counts.accepted, counts.delivered) == (40, 40)
    assert rig.metrics.counts["cloud_bytes_total"] == 40 * 2 * 8 * 4


def test_what_the_device_had_answered_has_its_part_in_a_correction_of_the_next_run(tmp_path: Path) -> None:
    first = Rig(tmp_path / "outbox.db")
    first.cloud.down = True
    done: list[int] = []
    first.escalator.start()
    first.escalator.submit([case(1)], lambda: done.append(1))
    first.until(lambda: done)
    first.close()
    fusion = Fusion(device=2.0, cloud=0.5)
    second = Rig(tmp_path / "outbox.db", surround=Surround(gate=SurroundGate(), fusion=fusion))
    second.escalator.start()
    second.until(lambda: second.corrections)
    (fused,) = second.corrections
    assert isinstance(fused, FusedCorrection)
    assert (fused.label, fused.cloud_label, fused.upheld) == ("low", "high", False)
    second.close()


def test_an_explanation_is_kept_with_its_case(rig: Rig) -> None:
    explained = case(1)
    explained.explanation = {"label": "low", "channels": {"a": 0.5}}
    done: list[int] = []
    rig.escalator.submit([explained, case(2)], lambda: done.append(1))
    rig.escalator.writer.commits.start()
    rig.until(lambda: done)
    metas = {one.id: orjson.loads(one.meta) for one in rig.outbox.lease(10, 1 << 20)}
    assert metas["k@1"]["explanation"] == explained.explanation
    assert "explanation" not in metas["k@2"]


def test_a_cloud_that_is_away_delays_and_loses_nothing(rig: Rig) -> None:
    rig.cloud.down = True
    rig.escalator.start()
    for i in range(20):
        rig.escalator.submit([case(i)], None)
    rig.until(lambda: rig.metrics.counts["cloud_failures_total"] >= 3)
    assert rig.corrections == []
    assert rig.outbox.counts().queued == 20
    assert rig.metrics.gauges["cloud_reachable"] == 0
    rig.cloud.down = False
    rig.until(rig.acked)
    assert len({c.id for c in rig.corrections}) == 20
    assert rig.metrics.gauges["cloud_reachable"] == 1


def test_late_answers_are_published_and_marked(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "outbox.db", EscalationConfig(deadline_s=0.05))
    rig.cloud.down = True
    rig.escalator.start()
    rig.escalator.submit([case(1)], None)
    rig.until(lambda: rig.metrics.counts["cloud_failures_total"])
    time.sleep(0.1)
    rig.cloud.down = False
    rig.until(rig.acked)
    assert [c.late for c in rig.corrections] == [True]
    assert rig.corrections[0].latency_ms >= 100
    assert rig.metrics.counts["late_total"] == 1
    rig.close()


def test_nonsense_from_the_cloud_is_never_published(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "outbox.db", EscalationConfig(unreadable_attempts=2))
    nonsense = {"p": np.full((1, 2), np.nan, np.float32)}
    rig.cloud.answer = lambda tensor: nonsense if (tensor == 1).any() else high(tensor)
    rig.escalator.start()
    rig.escalator.submit([case(1)], None)
    others = 0

    def is_dead() -> bool:
        nonlocal others
        others += 1
        rig.escalator.submit([case(100 + others)], None)
        return rig.outbox.counts().dead == 1

    rig.until(is_dead)
    rig.until(rig.acked)
    assert sorted(c.id for c in rig.corrections) == sorted(f"k@{100 + i}" for i in range(1, others + 1))
    rig.close()


def test_a_model_that_was_replaced_is_looked_at_again(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.escalator.start()
    rig.escalator.submit([case(1)], None)
    rig.until(rig.acked)
    rig.cloud.input_shape = (-1, 2, 99)

    def refuse(_tensor: Array) -> dict[str, Array]:
        raise CloudRejected("expected 99 samples", 400)

    rig.cloud.answer = refuse
    for i in range(2, 8):
        rig.escalator.submit([case(i)], None)
    rig.until(lambda: "do not fit" in caplog.text)
    assert rig.outbox.counts().dead <= 1
    rig.cloud.input_shape, rig.cloud.answer = (-1, 2, 8), high
    rig.until(rig.acked)
    assert len(rig.corrections) + rig.outbox.counts().dead == 7


def test_a_model_that_does_not_fit_keeps_the_cases_and_says_so(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.cloud.input_shape = (-1, 2, 99)
    rig.escalator.start()
    rig.escalator.submit([case(1)], None)
    rig.until(lambda: "do not fit" in caplog.text)
    assert rig.outbox.counts().queued == 1
    rig.cloud.input_shape = (-1, 2, 8)
    rig.until(rig.acked)
    assert len(rig.corrections) == 1


def test_a_crash_between_answer_and_publishing_asks_again_with_the_same_id(tmp_path: Path) -> None:
    first = Rig(tmp_path / "outbox.db")
    first.hold_publishing = True  # the correction never becomes safe, as if the process died before
    first.escalator.start()
    first.escalator.submit([case(5)], None)
    first.until(lambda: first.corrections)
    first.close(0.1)
    second = Rig(tmp_path / "outbox.db")
    second.escalator.start()
    second.until(second.acked)
    assert [c.id for c in first.corrections + second.corrections] == ["k@5", "k@5"]
    assert second.outbox.counts().accepted == 1
    second.close()


def test_a_disk_that_refuses_costs_the_cases_and_not_the_stream(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(cases: Sequence[HardCase]) -> PutResult:
        raise StoreError("no space left on device")

    monkeypatch.setattr(rig.outbox, "put", full)
    failing(rig, monkeypatch, "put_state")
    done: list[int] = []
    rig.escalator.start()
    rig.escalator.submit([case(1), case(2)], lambda: done.append(rig.metrics.dropped["outbox_error"]))
    rig.until(lambda: done)
    assert done == [2], "acknowledged when they are counted, and not before"
    refused = case(3)
    rig.escalator.submit([refused], lambda: done.append(rig.metrics.dropped["outbox_error"]))
    assert done == [2, 3], "nothing is waited for while it is known to fail"
    assert refused.prediction.route == "local", "no correction is promised"
    monkeypatch.undo()
    rig.until(lambda: rig.metrics.gauges["outbox_accepting"])
    rig.escalator.submit([case(4)], None)
    rig.until(lambda: rig.corrections)


def test_it_begins_without_an_outbox_and_takes_up_what_waits_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backlog of an earlier run goes out first, under its ids; what came meanwhile is counted.

    Mutations that this finds: `submit` that waits for the disk; `begin_without_outbox` that tells nobody.
    """
    first = Rig(tmp_path / "outbox.db")
    first.cloud.down = True
    first.escalator.start()
    first.escalator.submit([case(1), case(2)], None)
    first.until(first.escalator.drained)
    first.close()
    look_often(monkeypatch)
    said: list[str] = []
    faults = {"": WRITE_FAILED}
    rig = Rig(
        tmp_path / "outbox.db",
        outbox=Outbox(
            OutboxConfig(path=tmp_path / "outbox.db"), SystemClock(), lambda path: Failing(connect_sqlite(path), faults)
        ),
        on_status=said.append,
    )
    rig.escalator.start()
    done: list[bool] = []
    rig.escalator.submit([case(3)], lambda: done.append(True))
    assert done == [True]
    rig.until(lambda: said)
    assert "check its disk" in said[0]
    faults.clear()
    rig.until(lambda: len(rig.corrections) == 2 and len(said) == 2)
    assert said[1] == ""
    rig.escalator.submit([case(4)], None)
    rig.until(lambda: len(rig.corrections) == 3 and rig.acked())
    assert sorted(c.id for c in rig.corrections) == ["k@1", "k@2", "k@4"]
    assert rig.metrics.dropped["outbox_error"] == 1
    rig.close()


def test_a_group_that_was_committed_before_the_disk_failed_is_not_counted_as_dropped(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, calls = rig.outbox.put, 0

    def full_after_the_first(cases: Sequence[HardCase]) -> PutResult:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise StoreError("no space left on device")
        return put(cases)

    monkeypatch.setattr(rig.outbox, "put", full_after_the_first)
    done: list[bool] = []
    rig.escalator.submit([case(i) for i in range(300)], lambda: done.append(True))
    rig.escalator.start()
    rig.until(lambda: done)
    accepted = rig.outbox.counts().accepted
    assert (accepted, rig.metrics.dropped["outbox_error"]) == (256, 44)


def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (outbox_writer, forwarder):
        monkeypatch.setattr(module, "LOOK_AGAIN_S", 0.05)


def failing(rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str) -> list[str]:
    """Make one of the outbox's methods fail until `monkeypatch` is undone; returns the list of its calls."""
    calls: list[str] = []

    def fail(*_: object) -> int:
        calls.append(name)
        raise StoreError("disk I/O error")

    monkeypatch.setattr(rig.outbox, name, fail)
    return calls


def test_answered_cases_leave_once_the_disk_takes_it_and_are_not_asked_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = failing(rig, monkeypatch, "ack")
    look_often(monkeypatch)
    rig.escalator.start()
    rig.escalator.submit([case(1), case(2)], None)
    rig.until(lambda: len(calls) >= 3)
    assert rig.outbox.counts().queued == 2
    monkeypatch.undo()
    rig.until(rig.acked)
    assert rig.outbox.counts().delivered == 2
    assert sorted(c.id for c in rig.corrections) == ["k@1", "k@2"]


@pytest.mark.parametrize("name", ["retry", "move_to_dead_letters"])
def test_cases_whose_failure_could_not_be_written_down_are_asked_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    calls = failing(rig, monkeypatch, name)
    look_often(monkeypatch)
    if name == "move_to_dead_letters":
        rig.escalator.submit([case(1, shape=(2, 5))], None)
    else:
        rig.cloud.errors = [CloudUnavailable("overloaded")]
        rig.escalator.submit([case(1)], None)
    rig.escalator.start()
    rig.until(lambda: calls)
    monkeypatch.undo()
    rig.until(rig.acked)
    assert [c.id for c in rig.corrections] == (["k@1"] if name == "retry" else [])
    assert rig.outbox.counts().dead == (name == "move_to_dead_letters")


def test_offers_beyond_the_bound_are_refused_and_counted(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "outbox.db", EscalationConfig(max_pending=3))
    done: list[str] = []
    rig.escalator.submit([case(1), case(2)], lambda: done.append("first"))
    rig.escalator.submit([case(3), case(4)], lambda: done.append("second"))
    assert done == ["second"]
    assert rig.metrics.dropped["outbox_busy"] == 2
    rig.escalator.start()
    rig.until(lambda: len(done) == 2)
    rig.close()


def test_a_full_outbox_refuses_and_every_case_is_accounted_for(tmp_path: Path) -> None:
    config = replace(OutboxConfig(path=tmp_path / "outbox.db"), max_bytes=256 * 1024)
    rig = Rig(config.path, EscalationConfig(max_pending=10**6), config)
    rig.cloud.down = True
    rig.escalator.start()
    body = (2, 8)
    done: list[int] = []
    for i in range(0, 20_000, 500):
        rig.escalator.submit([case(j, shape=body) for j in range(i, i + 500)], lambda i=i: done.append(i))  # type: ignore[misc]
    rig.until(lambda: len(done) == 40, 60)
    counts = rig.outbox.counts()
    assert counts.balances()
    assert 0 < counts.accepted < 20_000
    refused = sum(n for reason, n in rig.metrics.dropped.items() if reason.startswith("outbox_"))
    assert counts.accepted + refused == 20_000
    rig.close()


def test_audits_count_agreement(rig: Rig) -> None:
    rig.escalator.start()
    rig.escalator.submit([case(1, audit=True)], None)
    rig.until(rig.acked)
    assert not rig.corrections[0].hard
    assert rig.metrics.counts["audit_agreed_total"] == 0  # the device said low, the cloud says high


def test_short_cases_go_in_requests_of_equal_length(rig: Rig) -> None:
    rig.cloud.input_shape = (-1, 2, -1)
    for i, samples in enumerate((4, 8, 6, 4, 8, 6, 4)):
        rig.escalator.submit([case(i, shape=(2, samples))], None)
    rig.escalator.start()
    rig.until(lambda: rig.outbox.counts().delivered == 7)
    assert {c.id: (c.context_short, c.context_samples) for c in rig.corrections} == {
        f"k@{i}": (samples < 8, samples) for i, samples in enumerate((4, 8, 6, 4, 8, 6, 4))
    }
    assert sorted(shape[2] for shape in rig.cloud.shapes for _ in range(shape[0])) == [4, 4, 4, 6, 6, 8, 8]
    told = [sent.get("context_samples", 8) for sent in rig.cloud.parameters]
    assert told == [shape[2] for shape in rig.cloud.shapes]


def test_whether_short_cases_are_taken_is_known_before_the_first_one(rig: Rig) -> None:
    assert rig.escalator.takes_short()
    rig.escalator.start()
    rig.until(lambda: not rig.escalator.takes_short())
    assert rig.cloud.asked == []


def test_an_orderly_stop_waits_for_corrections_on_their_way_to_the_sinks(tmp_path: Path) -> None:
    """Mutation that this finds: `stop` that ends the committer before the sinks have what was published."""
    rig = Rig(tmp_path / "outbox.db")
    rig.hold_publishing = True
    rig.escalator.start()
    rig.escalator.submit([case(1)], None)
    rig.until(lambda: rig.held)
    rig.loop.call_later(0.2, rig.held.pop())  # as a broker acknowledges: on the loop, while it stops
    rig.close()
    with Outbox(OutboxConfig(path=tmp_path / "outbox.db"), SystemClock()) as outbox:
        counts = outbox.counts()
    assert (counts.delivered, counts.queued) == (1, 0)


def test_an_operator_is_heard_while_cases_flow(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """`edge-runtime outbox retry` beside the running application: the dead letter goes out again."""
    look_often(monkeypatch)

    def picky(tensor: Array) -> dict[str, Array]:
        if (tensor == 13).any():
            raise CloudRejected("window 13 is unlucky", 400)
        return high(tensor)

    rig.cloud.answer = picky
    rig.escalator.submit([case(i) for i in range(12, 15)], None)
    rig.escalator.start()
    rig.until(lambda: rig.acked() and rig.outbox.counts().dead == 1)
    rig.cloud.answer = high
    answers: list[int] = []
    clock = SystemClock()
    command = threading.Thread(
        target=lambda: answers.append(control.ask(rig.outbox.path, "retry", ["k@13"], clock, 30))
    )
    command.start()
    rig.until(lambda: len(rig.corrections) == 3)
    command.join()
    assert answers == [1]
    rig.until(rig.acked)
    assert rig.outbox.counts().dead == 0


def test_a_server_that_refuses_everything_costs_no_case_and_is_probed_with_one_at_a_time(tmp_path: Path) -> None:
    """After good answers, too. Mutation that this finds: a dead letter because the server once answered well."""
    rig = Rig(tmp_path / "outbox.db")
    rig.escalator.start()
    rig.escalator.submit([case(0)], None)
    rig.until(rig.acked)
    asked: list[int] = []

    def refuse(tensor: Array) -> dict[str, Array]:
        asked.append(len(tensor))
        raise CloudRejected("the proxy does not like it", 400)

    rig.cloud.answer = refuse
    rig.escalator.submit([case(i) for i in range(1, 41)], None)
    rig.until(lambda: len(asked) >= 12)
    assert rig.outbox.counts().dead == 0
    assert rig.metrics.gauges["cloud_reachable"] == 0
    assert asked[3:] == [1] * (len(asked) - 3), "held, and probed"
    rig.close()
    rig = Rig(tmp_path / "outbox.db")  # and a restart proves nothing
    rig.cloud.answer = refuse
    rig.escalator.start()
    rig.until(lambda: len(asked) >= 20)
    assert rig.outbox.counts().dead == 0
    rig.cloud.answer = high
    rig.until(rig.acked)
    assert (rig.outbox.counts().delivered, rig.finals) == (41, [])
    rig.close()


def test_every_case_that_ends_without_a_correction_is_closed_by_a_final_message(tmp_path: Path) -> None:
    def picky(tensor: Array) -> dict[str, Array]:
        if (tensor == 3).any():
            raise CloudRejected("window 3 is unlucky", 400)
        return high(tensor)

    rig = Rig(tmp_path / "outbox.db")
    rig.cloud.answer = picky
    rig.escalator.start()
    rig.escalator.submit([case(i) for i in range(6)], None)
    rig.until(lambda: rig.finals and rig.acked())
    assert sorted(c.id for c in rig.corrections) == [f"k@{i}" for i in range(6) if i != 3]
    counts = rig.outbox.counts()
    assert (counts.dead, counts.delivered) == (1, 5)
    (final,) = rig.finals
    assert (final.id, final.key, final.start, final.end) == ("k@3", "k", 3.0, 3.4)
    assert (final.label, final.confidence, final.scores) == ("low", 0.6, [0.6, 0.4])
    assert (final.route, final.hard, final.final, final.reason) == ("local", True, True, "rejected")
    assert (final.model, final.variant) == ("bench/3", "null")
    rig.until(lambda: rig.outbox.unpublished == 0)
    rig.close()


def test_a_final_message_is_published_again_after_a_crash_and_not_after_it_was_safe(tmp_path: Path) -> None:
    first = Rig(tmp_path / "outbox.db")
    first.outbox.put([HardCase("k@1", "k", 0.0, 60.0, 0, 0.5, b"", b"{}")])
    first.outbox.move_to_dead_letters([one.id for one in first.outbox.lease(1, 100)], "rejected", "no")
    first.hold_publishing = True  # as if the process died before the sinks had it
    first.escalator.start()
    first.until(lambda: first.finals)
    first.close()
    for wanted in (1, 0):
        rig = Rig(tmp_path / "outbox.db")
        rig.escalator.start()
        rig.escalator.submit([case(100 + wanted)], None)
        rig.until(lambda rig=rig: rig.acked() and rig.outbox.unpublished == 0)  # type: ignore[misc]
        assert len(rig.finals) == wanted
        rig.close()


def test_a_repeat_of_a_case_that_was_answered_gets_the_same_answer_and_the_cloud_is_not_asked(tmp_path: Path) -> None:
    """After a crash the readings of a case may come again. Mutation that this finds: `Outbox.put` that forgets."""
    first = Rig(tmp_path / "outbox.db")
    first.escalator.start()
    first.escalator.submit([case(1)], None)
    first.until(first.acked)
    first.close()
    rig = Rig(tmp_path / "outbox.db")
    rig.escalator.start()
    rig.escalator.submit([case(1)], None)
    rig.until(lambda: rig.corrections)
    assert rig.corrections == first.corrections
    assert rig.cloud.asked == []
    counts = rig.outbox.counts()
    assert (counts.accepted, counts.delivered, counts.repeated) == (1, 1, 1)
    assert rig.metrics.counts["cases_repeated_total"] == 1
    rig.close()


def test_an_audit_that_ends_without_an_answer_closes_nothing(rig: Rig) -> None:
    rig.escalator.submit([case(1, audit=True, shape=(2, 5))], None)
    rig.escalator.start()
    rig.until(lambda: rig.outbox.counts().dead == 1 and rig.outbox.unpublished == 0)
    assert rig.finals == []


def test_cases_that_the_outbox_refuses_are_local_when_the_loop_hears_of_them(tmp_path: Path) -> None:
    config = OutboxConfig(path=tmp_path / "outbox.db", max_case_bytes=200)
    rig = Rig(config.path, outbox=config)
    rig.cloud.down = True
    rig.escalator.start()
    small, large = case(1, shape=(1, 2)), case(2, shape=(2, 80))
    routes: list[str] = []
    rig.escalator.submit([small, large], lambda: routes.extend(one.prediction.route for one in (small, large)))
    rig.until(lambda: routes)
    assert routes == ["provisional", "local"]
    assert rig.metrics.dropped["outbox_too_large"] == 1
    rig.close()
