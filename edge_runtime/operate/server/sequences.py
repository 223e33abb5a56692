"""Sequences of requests to a model with states, by the sequence extension of the Open Inference Protocol.

A request says with the parameters ``sequence_id`` (a number above 0, or a text), ``sequence_start`` and
``sequence_end`` which sequence it belongs to. Its windows are steps of that sequence, in order. Rules, as in Triton
(https://docs.nvidia.com/deeplearning/triton-inference-server/user-guide/docs/protocol/extension_sequence.html):

1. A request to a model with states names a sequence.
2. ``sequence_start`` begins it, also where it is under way.
3. A request without it, of a sequence that is not under way, is refused.
4. ``sequence_end`` forgets it, after the answer.
5. A sequence that is idle for longer than `idle_s` is forgotten (Triton: ``max_sequence_idle_microseconds``).
6. Where more are under way than are allowed, the address that has the most loses one: of those that had one request
   alone, or of those that went on, whichever are more, the one used least recently. So a flood of one caller ends its
   own, behind a proxy as well. Requests of a sequence that was ended so are told.

Steps of several sequences run together; those of one sequence in the order in which they came.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from edge_runtime.base.oip import Array
from edge_runtime.clock import Clock
from edge_runtime.key_table import KeyTable
from edge_runtime.model.serving.loading import LoadedVariant
from edge_runtime.model.serving.states import StateStore
from edge_runtime.operate.server.batcher import InSequence
from edge_runtime.operate.serving.answers import Refused
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32

EXTENSIONS = ("sequence", "sequence(string_id)")
NAMES = ("sequence_id", "sequence_start", "sequence_end")


class Stepped(NamedTuple):
    """Answers to the steps of a call."""

    rows: Float32
    """(steps, ...); zeros where a step has no answer."""
    answered: Array
    """(steps,) bool: a chain answers nothing before it is full."""


@dataclass(slots=True)
class _Sequence:
    key: str
    """Of its states; another one each time that it begins."""
    step: int
    used_s: float
    peer: str
    """Address that has begun it."""
    went_on: bool
    """It had more than one request."""


def sequence_of(parameters: Mapping[str, Any], model: str) -> InSequence:
    """Read the sequence of a request to a model with states.

    Raises:
        Refused: there is none (rule 1), or a value is none.
    """
    name = parameters.get("sequence_id", 0)
    good = isinstance(name, str) or (isinstance(name, int) and not isinstance(name, bool) and 0 <= name < 2**64)
    if not good or (isinstance(name, str) and len(name) > 256):
        raise Refused(400, "sequence_id must be a number of 64 bits, or a text of at most 256 characters")
    flags = [parameters.get(flag, False) for flag in NAMES[1:]]
    if not all(isinstance(flag, bool) for flag in flags):
        raise Refused(400, "sequence_start and sequence_end must be true or false")
    if not name:
        raise Refused(
            400,
            f'model {model!r} has states: send the parameters "sequence_id" (not 0 and not empty), and '
            '"sequence_start": true with the first request of a sequence',
        )
    return InSequence(name, *flags)


class Sequences:
    """Sequences that are under way.

    Args:
        model: a model with states; used by one thread.
        clock: measures idle sequences.
        most: sequences at a time.
        idle_s: see rule 5.
    """

    def __init__(self, model: LoadedVariant, states: StateStore, clock: Clock, most: int, idle_s: float) -> None:
        self._model = model
        self._states = states
        self._clock = clock
        self._most = most
        self._idle_s = idle_s
        self._begun = 0
        self._open: OrderedDict[int | str, _Sequence] = OrderedDict()  # the one that is idle for longest comes first
        self._of_peer: dict[str, tuple[dict[int | str, None], dict[int | str, None]]] = {}  # in the same order
        self._made_room: KeyTable[int | str, None] = KeyTable(most)  # the last ones that did
        self.evicted = 0

    def __len__(self) -> int:
        """Count the sequences under way."""
        return len(self._open)

    def run(self, windows: Float32, calls: Sequence[tuple[InSequence, int]]) -> Stepped:
        """Compute the steps of some requests; all of them move their sequences, or none.

        Args:
            windows: (steps, samples, channels).
            calls: sequence and number of steps of each request, in order.

        Raises:
            Refused: rule 3.
            InputError, EngineError: as `LoadedVariant.predict`.
        """
        now = self._clock.monotonic()
        self._forget_idle(now)
        hop = self._model.manifest.input.hop
        changed: dict[int | str, _Sequence | None] = {}  # None: it has ended
        asked: list[Window] = []
        for sequence, steps in calls:
            one = self._of(sequence, changed, now)
            for step in range(one.step, one.step + steps):
                rows = windows[len(asked)]
                asked.append(Window(one.key, step * hop, 0.0, rows, rows, now))
            one.step += steps
            changed[sequence.id] = None if sequence.end else one
        answers = self._model.predict(asked)
        self._keep(changed, {window.key for window in asked})
        places = {window.id: place for place, window in enumerate(asked)}
        rows = np.zeros((len(asked), *answers.rows.shape[1:]), np.float32)
        answered = np.zeros(len(asked), np.bool_)
        at = [places[window.id] for window in answers.windows]
        rows[at], answered[at] = answers.rows, True
        return Stepped(rows, answered)

    def _of(self, sequence: InSequence, changed: Mapping[int | str, _Sequence | None], now: float) -> _Sequence:
        """Return a copy of the sequence, begun where the request says so."""
        known = changed[sequence.id] if sequence.id in changed else self._open.get(sequence.id)
        if sequence.start:  # rule 2
            self._begun += 1
            return _Sequence(str(self._begun), 0, now, sequence.peer, went_on=False)
        if known is None:  # rule 3
            made_room = f"was ended to make room for a new one, since more than {self._most} were under way"
            lost = f"is not under way: it has ended, was idle for more than {self._idle_s:g} s, or never began"
            raise Refused(
                400,
                f"sequence {str(sequence.id)[:60]!r} {made_room if sequence.id in self._made_room else lost}; "
                'send "sequence_start": true with its first request',
            )
        return _Sequence(known.key, known.step, now, known.peer, went_on=True)

    def _keep(self, changed: Mapping[int | str, _Sequence | None], keys: set[str]) -> None:
        """Note what has changed, and forget the states of what has ended or begun again (rule 4)."""
        for name, one in changed.items():
            if name in self._open:
                keys.add(self._end(name))
            if one is not None:
                self._made_room.pop(name, None)
                self._open[name] = one
                self._of_peer.setdefault(one.peer, ({}, {}))[one.went_on][name] = None
                keys.discard(one.key)
        while len(self._open) > self._most:  # rule 6
            fullest = max(self._of_peer.values(), key=lambda two: len(two[0]) + len(two[1]))
            name = next(iter(fullest[len(fullest[1]) > len(fullest[0])]))
            keys.add(self._end(name))
            self._made_room[name] = None
            self.evicted += 1
        self._states.forget(keys)

    def _end(self, name: int | str) -> str:
        """Take a sequence out; return the key of its states."""
        one = self._open.pop(name)
        of_peer = self._of_peer[one.peer]
        del of_peer[one.went_on][name]
        if not any(of_peer):
            del self._of_peer[one.peer]
        return one.key

    def _forget_idle(self, now: float) -> None:
        """Apply rule 5."""
        while self._open:
            name, oldest = next(iter(self._open.items()))
            if now - oldest.used_s <= self._idle_s:
                return
            self._states.forget([self._end(name)])
