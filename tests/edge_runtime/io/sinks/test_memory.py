"""The sink for other people's tests."""

from __future__ import annotations

from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.memory import MemorySink
from tests.edge_runtime.io.sinks.answers import prediction


def test_held_answers_are_reported_when_released() -> None:
    sink, loop, done = MemorySink(hold=True), Loop(), [0]
    sink.open(loop)
    sink.send([prediction(1)], lambda: done.append(1))
    sink.send([prediction(2)], None)
    assert done == [0]
    assert sink.release() == 1
    assert done == [0, 1]
    assert [answer.id for answer in sink.answers] == ["k@1", "k@2"]
    sink.close(0.0)
    loop.close()
    assert (sink.opened, sink.closed) == (True, True)
