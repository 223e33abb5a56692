"""Hand-over of answers to the sinks: in the order of each key, and a promise only once it can be kept.

1. An answer leaves at once, unless rule 2 or 3 holds it.
2. ``provisional`` promises that the case will be closed, so such an answer leaves when its case is committed.
3. The answers of its key that come after it leave behind it; those of other keys do not wait.
4. An iteration's `done` are called when every sink reports its answers and every hard case is committed or refused, so
   an acknowledged reading has no consequence that a crash could take back. Which sinks report at once, and how long the
   others may take, is `edge_runtime.io.sinks.guard`'s.
5. Observers are shown what the sinks get, and hold nothing back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from edge_runtime.clock import Clock
from edge_runtime.io.sinks import Sink
from edge_runtime.metrics import Metrics
from edge_runtime.types import Answer, Done, Event, Hard, Prediction


class Escalation(Protocol):
    """Takes hard cases and sees to it that each of them is answered, dropped by a stated policy, or a dead letter."""

    def refuses(self) -> str:
        """Return the reason for which a case would be dropped now, so that none is paid for; empty if it is taken."""
        ...

    def takes_short(self) -> bool:
        """Return whether a case may have fewer samples than its bundle's history."""
        ...

    def submit(self, cases: Sequence[Hard], done: Done | None) -> None:
        """Take cases; `done` is called on the loop's thread once they are committed, or refused and counted.

        Before that, the prediction of each case that was refused has its route set to ``local``.
        """
        ...


class Join:
    """Calls several callbacks when a number of others have reported. Single-threaded, like everything on the loop."""

    __slots__ = ("_callbacks", "_missing")

    def __init__(self, missing: int, callbacks: Sequence[Done]) -> None:
        self._missing = missing
        self._callbacks = callbacks

    def __call__(self) -> None:
        """Report once more; the last report calls everything, in order."""
        self._missing -= 1
        if self._missing == 0:
            for callback in self._callbacks:
                callback()


class _Held:
    """Answers of one key and one iteration that wait for a commit, their own or that of an earlier iteration."""

    __slots__ = ("answers", "done", "uncommitted")

    def __init__(self) -> None:
        self.answers: list[Prediction | Event] = []
        self.uncommitted = False
        self.done: Done = lambda: None


class HandOver:
    """Owner of the answers that wait for a commit. Used on the loop's thread.

    Args:
        sinks: all receivers of answers.
        escalation: receiver of hard cases; None keeps every answer local.
        metrics: receives the time of the stage ``publish``.
        clock: monotonic time for it.
    """

    def __init__(self, sinks: Sequence[Sink], escalation: Escalation | None, metrics: Metrics, clock: Clock) -> None:
        self._sinks = list(sinks)
        self._observers: list[Sink] = []
        self._escalation = escalation
        self._metrics = metrics
        self._clock = clock
        self._open = 0
        self._held: dict[str, deque[_Held]] = {}  # by key, oldest first; none where no case waits for its commit

    def add(self, sink: Sink) -> None:
        """Show answers to an observer too, from now on; nothing waits for it (rule 5)."""
        self._observers.append(sink)

    @property
    def idle(self) -> bool:
        """Every answer given so far is safe."""
        return self._open == 0

    def give(self, answers: Sequence[Prediction | Event], hard: list[Hard], waiting: list[Done]) -> None:
        """Send the answers of an iteration, submit its hard cases, and call `waiting` when all of it is safe."""
        if not answers and not hard:
            for done in waiting:
                done()
            return
        self._open += 1
        began = self._clock.monotonic()
        held: dict[str, _Held] = {}
        now = self._hold(answers, held) if hard or self._held else answers
        join = Join(len(self._sinks) * bool(now) + bool(hard) + len(held) + 1, [*waiting, self._ended])  # rule 4
        for one in held.values():
            one.done = join
        if now:  # rule 1
            for sink in self._sinks:
                sink.send(now, join)  # first: answers of a key before its first hard one are among them
            for observer in self._observers:  # rule 5
                observer.send(now, None)
        if self._escalation is not None and hard:
            self._escalation.submit(hard, lambda: self._committed(held, join))
        join()  # the iteration itself
        ended = self._clock.monotonic()
        self._metrics.stages["publish"].observe((ended - began) / max(1, len(answers)), max(1, len(answers)))

    def send(self, answers: Sequence[Answer], done: Sequence[Done]) -> None:
        """Hand answers to every sink; all of `done` are called once, when each sink has them safe."""
        join = Join(len(self._sinks) + 1, done)
        for sink in self._sinks:
            sink.send(answers, join)
        for observer in self._observers:
            observer.send(answers, None)
        join()  # with no sink no other reports

    def _hold(self, answers: Sequence[Prediction | Event], held: dict[str, _Held]) -> list[Prediction | Event]:
        """Return the answers that leave at once; those that wait for a commit are put into `held` by key."""
        now: list[Prediction | Event] = []
        for answer in answers:
            one = held.get(answer.key)
            # Rules 2 and 3: its own case is not committed yet, or one of its key before it.
            if one is None and (answer.route == "provisional" or answer.key in self._held):
                one = held[answer.key] = _Held()
                self._held.setdefault(answer.key, deque()).append(one)
            if one is None:
                now.append(answer)
            else:
                one.answers.append(answer)
                one.uncommitted |= answer.route == "provisional"
        return now

    def _committed(self, held: Mapping[str, _Held], join: Done) -> None:
        """Send the answers of an iteration whose cases are committed or refused, those of each key in order."""
        ready: list[Prediction | Event] = []
        done: list[Done] = []
        for key, one in held.items():
            one.uncommitted = False
            waiting = self._held.get(key)
            while waiting and not waiting[0].uncommitted:
                first = waiting.popleft()
                ready += first.answers
                done.append(first.done)
            if waiting is not None and not waiting:
                del self._held[key]
        if ready:
            self.send(ready, done)
        join()

    def _ended(self) -> None:
        self._open -= 1
