"""Guard of a sink: the bounds in time and number of what one sink may hold back.

1. Every sink gets every answer at once, whatever the others do. What its destination does not take waits in the sink's
   own queue, which is bounded and drops by its own policy, counted under the sink's name.
2. The acknowledgement of a reading waits for the required sinks: those with ``required = true``, else the first one.
   Sources that wait without loss (a recording, a pipe) wait for every sink.
3. A required sink holds an acknowledgement back for `SinkPolicy.patience_s`; for `GRACE_S` once half of what a source
   has on its way waits for it. Then nothing waits for it until rule 5; its answers stay queued.
4. A sink whose oldest answer has waited for so long is stalled. That is logged, is in the status and in the metrics.
5. The stall ends when none of its answers has waited for half of that time. A line says what was dropped meanwhile.
6. Observers hold nothing back at all (`edge_runtime.answer.handover.HandOver.add`).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.clock import Clock
from edge_runtime.io.sinks import Sink
from edge_runtime.metrics import Metrics
from edge_runtime.types import Answer, Done

log = logging.getLogger(__name__)

PATIENCE_S: Final = 5.0
"""Longest time that a sink holds acknowledgements back, unless it says otherwise."""
GRACE_S: Final = 1.0
"""The same while half of what a source may have on its way waits for the sink."""
LOOK_S: Final = 1.0
"""Longest time between two looks at a sink for which something waits."""
MOST_UNACKED: Final = 1000
"""Readings that a source of a program's own is taken to have on their way, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkPolicy:
    """Settings that every sink has.

    Raises:
        ValueError: a patience below 0.
    """

    required: bool | None = None
    """Readings are acknowledged once this sink has their answers. Left out: that is so for the first sink, where none
    says true. Answers to a sink that is not required are lost with a crash while they wait."""
    patience_s: float | Literal["forever"] | None = None
    """Longest time that a required sink holds acknowledgements back while it takes nothing; afterwards its answers stay
    queued, and readings go on to the other sinks without it. Left out: 5, and ``"forever"`` for the only sink."""

    def __post_init__(self) -> None:
        if isinstance(self.patience_s, float | int) and not self.patience_s >= 0:
            raise ValueError("patience_s must be at least 0")

    def longest_s(self, default_s: float) -> float:
        """Return the patience in seconds, infinite for ``"forever"``."""
        if self.patience_s is None:
            return default_s
        return math.inf if isinstance(self.patience_s, str) else self.patience_s


class Bounds(NamedTuple):
    """Bounds of one sink: whether readings wait for it, and for how long."""

    required: bool
    patience_s: float
    most_held: float = math.inf
    """Answers for which `GRACE_S` takes the place of the patience."""


def bounds_of(policies: Sequence[SinkPolicy], limits: Sequence[int | None]) -> list[Bounds]:
    """Return the bounds of each sink.

    Args:
        policies: the policies of all sinks, in order.
        limits: readings that each source may have on their way at a time; None for one that waits without loss.
    """
    lossy = [limit for limit in limits if limit is not None]
    first = next((policy for policy in policies if policy.required is not False), None)
    named = any(policy.required for policy in policies)
    patience_s = PATIENCE_S if lossy and len(policies) > 1 else math.inf
    most_held = max(1, min(lossy) // 2) if lossy else math.inf
    found = []
    for policy in policies:
        required = not lossy or (policy.required is True if named else policy is first)  # rule 2
        own_s = policy.longest_s(patience_s)
        found.append(Bounds(required, own_s, most_held if own_s < math.inf else math.inf))
    return found


class _Batch:
    """Answers of one `send` that the sink has not handed over."""

    __slots__ = ("answers", "done", "finished", "guard", "since")

    def __init__(self, guard: SinkGuard, answers: int, done: Done | None, since: float) -> None:
        self.guard = guard
        self.answers = answers
        self.done = done
        self.since = since
        self.finished = False

    def finish(self) -> None:
        if not self.finished:
            self.finished = True
            self.guard.finished(self)

    def release(self) -> None:
        """Let the readings behind it be acknowledged."""
        done, self.done = self.done, None
        if done is not None:
            done()


class SinkGuard:
    """Sink that passes answers on to another one, and bounds what that one holds back.

    Args:
        sink: the other one; it counts its drops in `metrics`.
        bounds: what it may hold back.
        metrics: `Metrics.of_sink`.
        clock: monotonic time.
        on_change: called when a stall begins or ends.
    """

    def __init__(
        self, sink: Sink, bounds: Bounds, metrics: Metrics, clock: Clock, on_change: Callable[[], None] = lambda: None
    ) -> None:
        self.name = sink.name
        self.sink = sink
        self.required = bounds.required
        self._bounds = bounds
        self._metrics = metrics
        self._clock = clock
        self._on_change = on_change
        finite = 0 < bounds.patience_s < math.inf
        self._stall_s = bounds.patience_s if finite else PATIENCE_S
        self._look_s = min(LOOK_S, self._stall_s)
        self._batches: deque[_Batch] = deque()
        self._waiting = 0
        self._dropped_before = 0
        self._ends_below_s = 0.0
        self._stalled_since: float | None = None
        self._loop: Loop | None = None
        self._timer: Timer | None = None

    @property
    def idle(self) -> bool:
        """Nothing waits for its destination."""
        return not self._batches

    @property
    def stalled_s(self) -> float:
        """Seconds since it took its last answer, while it is stalled; else 0."""
        return 0.0 if self._stalled_since is None else self._clock.monotonic() - self._stalled_since

    @property
    def blocks(self) -> bool:
        """Readings wait for it without bound, and it takes nothing."""
        return self._stalled_since is not None and self.required and self._bounds.patience_s == math.inf

    def status(self) -> dict[str, Any]:
        """Return its state as plain values."""
        return {
            "name": self.name,
            "required": self.required,
            "waiting": self._waiting,
            "stalled_s": round(self.stalled_s, 1),
            "blocks": self.blocks,
            "dropped": dict(self._metrics.dropped),
        }

    def open(self, loop: Loop) -> None:
        """See `edge_runtime.io.sinks.Sink`."""
        self._loop = loop
        self.sink.open(loop)

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """Pass answers on; `done` is called by the rules 2 and 3."""
        holds = self.required and (self._stalled_since is None or self._bounds.patience_s == math.inf)
        batch = _Batch(self, len(answers), done if holds else None, self._clock.monotonic())
        self._batches.append(batch)
        self._waiting += batch.answers
        self.sink.send(answers, batch.finish)  # rule 1
        if not holds and done is not None:
            done()
        if self._batches and self._timer is None and self._loop is not None:
            self._timer = self._loop.call_later(self._look_s, self._look)

    def finished(self, batch: _Batch) -> None:
        """Take note that the sink has handed over, or dropped and counted, a batch."""
        self._waiting -= batch.answers
        while self._batches and self._batches[0].finished:
            self._batches.popleft()
        batch.release()

    def close(self, timeout_s: float) -> None:
        """See `edge_runtime.io.sinks.Sink`."""
        self.sink.close(timeout_s)
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        age = now - self._batches[0].since if self._batches else 0.0
        bounds = self._bounds
        full = self._waiting >= bounds.most_held and age >= GRACE_S
        if self._stalled_since is None:
            if age >= self._stall_s or full:
                self._begin_stall(age)  # rule 4
        elif age < self._ends_below_s:
            self._end_stall()  # rule 5
        if age >= bounds.patience_s or full or (self._stalled_since is not None and bounds.patience_s < math.inf):
            for batch in list(self._batches):
                batch.release()  # rule 3
        self._metrics.gauges[f'sink_waiting_answers{{sink="{self.name}"}}'] = self._waiting
        self._metrics.gauges[f'sink_stalled_seconds{{sink="{self.name}"}}'] = self.stalled_s
        if (self._batches or self._stalled_since is not None) and self._loop is not None and self._timer is None:
            self._timer = self._loop.call_later(self._look_s, self._look)

    def _begin_stall(self, age: float) -> None:
        self._stalled_since = self._clock.monotonic() - age
        self._ends_below_s = age / 2
        self._dropped_before = sum(self._metrics.dropped.values())
        bounds = self._bounds
        if self.required and bounds.patience_s == math.inf:
            then = "readings wait for it: look after it, or bound the wait with patience_s under [[sink]]"
        else:
            then = "readings and other sinks go on without it, its answers wait in its queue"
        log.warning("%s: took no answers: for_s=%.0f waiting=%d; %s", self.name, age, self._waiting, then)
        self._on_change()

    def _end_stall(self) -> None:
        dropped = sum(self._metrics.dropped.values()) - self._dropped_before
        text = "%s: took answers again: after_s=%.0f waiting=%d dropped=%d"
        log.warning(text, self.name, self.stalled_s, self._waiting, dropped)
        self._stalled_since = None
        self._on_change()
