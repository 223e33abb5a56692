"""Dynamic batching for the server: requests of different callers run through the model together.

Each model has a thread, which takes what waits, up to the model's `max_batch`, runs it, and takes again. A lone request
is run at once; while the model is busy the queue forms the next batch, so a delay of 0 batches under load.

Requests go together when their tensors have the same types and the same shapes behind the first axis.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.clock import Clock
from edge_runtime.errors import InputError, one_line
from edge_runtime.operate.serving.answers import Refused

_Key = tuple[tuple[str, tuple[int, ...]], ...]


class InSequence(NamedTuple):
    """Place of a request to a model with states; see `edge_runtime.operate.server.sequences`."""

    id: int | str
    start: bool
    end: bool
    peer: str = ""
    """Address of its caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that a server offers.

    Attributes:
        predict: arrays by input name to arrays by output name, first axis the batch on both sides. Called by one
            thread at a time; may raise `InputError` for inputs it refuses. What it returns is
            copied before the next call, so it may reuse its buffers.
        step: the same of a model with states, which is told the sequence and the number of rows of each request; None
            where an answer depends on its own inputs alone. It changes all sequences or, where it raises, none.
        max_batch: largest batch it takes; a larger request is refused.
        max_numbers: most numbers of one window, all inputs together, where an axis besides the batch is open; None is
            not known. A request may be as long as they need.
        evicted: counts the sequences that ended to make room.

    Raises:
        ValueError: a tensor has no batch axis (a first dimension of -1), or a value makes no sense.
    """

    name: str
    inputs: tuple[OipTensor, ...]
    outputs: tuple[OipTensor, ...]
    predict: Callable[[dict[str, Array]], dict[str, Array]] = field(repr=False)
    step: Callable[[dict[str, Array], Sequence[tuple[InSequence, int]]], dict[str, Array]] | None = field(
        default=None, repr=False
    )
    version: str = "1"
    platform: str = "edge-runtime"
    max_batch: int = 32
    max_numbers: int | None = None
    evicted: Callable[[], int] = lambda: 0

    def __post_init__(self) -> None:
        if not self.name or not self.version or not self.inputs or not self.outputs or self.max_batch < 1:
            raise ValueError(f"model {self.name!r} needs a name, a version, inputs, outputs and max_batch >= 1")
        for spec in (*self.inputs, *self.outputs):
            if spec.shape[:1] != (-1,):
                raise ValueError(f"model {self.name!r}: {spec} needs a first dimension of -1, the batch")


@dataclass(slots=True, eq=False)
class Call:
    """A request in the queue of a model, and what became of it: `outputs` or `error`, once `done` was called.

    Attributes:
        done: to be called by the function that `Batcher.start` was given.
    """

    inputs: dict[str, Array]
    done: Callable[[], object]
    since: float
    rows: int
    key: _Key
    sequence: InSequence | None = None
    outputs: dict[str, Array] | None = None
    error: Exception | None = None


class Batcher:
    """The queue in front of one model. Calls are submitted by one thread, and run by one other.

    Args:
        model: what to run.
        clock: what waits are measured with.
        max_queue_delay_s: how long the oldest request waits for others to fill a batch; 0 takes what is there.
        max_queue_rows: windows that may wait; beyond it a request is refused with 503.
    """

    def __init__(
        self, model: ServedModel, clock: Clock, *, max_queue_delay_s: float = 0.0, max_queue_rows: int = 256
    ) -> None:
        self.model = model
        self.batches = 0
        self.rows = 0
        self.failures = 0
        self._clock = clock
        self._max_queue_delay_s = max_queue_delay_s
        self._max_queue_rows = max_queue_rows
        self._changed = threading.Condition()
        self._queue: deque[Call] = deque()
        self._queued_rows = 0
        self._fresh = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, deliver: Callable[[Sequence[Call]], object]) -> None:
        """Run what is submitted, in a thread of its own.

        Args:
            deliver: receiver of finished calls, in that thread.
        """
        # A thread that hangs in a model at `stop` keeps the event that it was started with, and ends by it.
        self._stop = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(deliver, self._stop), name=f"serve[{self.model.name}]", daemon=True
        )
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the thread; a model that hangs is left to itself after `timeout_s`."""
        self._stop.set()
        with self._changed:
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
            self._thread = None

    def submit(self, inputs: dict[str, Array], done: Callable[[], object], sequence: InSequence | None = None) -> Call:
        """Queue a request; `flush` starts it.

        Args:
            inputs: arrays that fit the model's specs, all with the same first axis.
            done: see `Call`.
            sequence: the request's place in a sequence, for a model with states.

        Raises:
            Refused: the queue is full (503).
        """
        rows = len(next(iter(inputs.values())))
        key = tuple((name, array.shape[1:]) for name, array in sorted(inputs.items()))
        call = Call(inputs, done, self._clock.monotonic(), rows, key, sequence)
        with self._changed:
            if self._queued_rows + rows > self._max_queue_rows and self._queue:
                raise Refused(503, f"model {self.model.name!r} is busy: {self._queued_rows} windows wait", retry=True)
            self._queue.append(call)
            self._queued_rows += rows
            self._fresh = True
        return call

    def flush(self) -> None:
        """Wake the model's thread. Apart from `submit`, so that what came together makes one batch."""
        if self._fresh:
            self._fresh = False
            with self._changed:
                self._changed.notify()

    def withdraw(self, call: Call) -> None:
        """Forget a call whose caller gave up, where it still waits."""
        with self._changed:
            if call in self._queue:
                self._queue.remove(call)
                self._queued_rows -= call.rows

    def _run(self, deliver: Callable[[Sequence[Call]], object], stop: threading.Event) -> None:
        while batch := self._next(stop):
            self._execute(batch)
            deliver(batch)

    def _next(self, stop: threading.Event) -> list[Call]:
        """Wait for the next batch; empty when the thread is to end."""
        with self._changed:
            while not stop.is_set():
                wait: float | None = None
                if self._queue:
                    wait = self._queue[0].since + self._max_queue_delay_s - self._clock.monotonic()
                    if wait <= 0 or self._queued_rows >= self.model.max_batch:
                        return self._take()
                self._changed.wait(wait)
        return []

    def _take(self) -> list[Call]:
        """Take calls that fit the one at the head of the queue, in order, up to `max_batch` windows."""
        head = self._queue.popleft()
        batch, rows = [head], head.rows
        rest: deque[Call] = deque()
        full = False
        while self._queue:
            call = self._queue.popleft()
            full = full or (call.key == head.key and rows + call.rows > self.model.max_batch)
            if full or call.key != head.key:
                rest.append(call)
            else:
                batch.append(call)
                rows += call.rows
        self._queue = rest
        self._queued_rows -= rows
        return batch

    def _execute(self, batch: Sequence[Call]) -> None:
        try:
            results = self._predict(batch)
        except Exception as error:  # noqa: BLE001 - whatever a model raises is an answer to its callers, not our end
            if len(batch) > 1:
                for call in batch:  # one caller's bad window must not fail the others'
                    self._execute([call])
                return
            self.failures += 1
            batch[0].error = error if isinstance(error, InputError | Refused) else self._failed(error)
        else:
            for call, outputs in zip(batch, results, strict=True):
                call.outputs = outputs

    def _check_outputs(self, outputs: Mapping[str, Array], total: int) -> None:
        for spec in self.model.outputs:
            array = outputs.get(spec.name)
            if array is None or array.dtype != spec.dtype or not spec.accepts(array.shape) or len(array) != total:
                got = "nothing" if array is None else f"{array.dtype} {array.shape}"
                raise Refused(500, f"model {self.model.name!r} gave {got} for {total} windows of output {spec}")

    def _predict(self, batch: Sequence[Call]) -> list[dict[str, Array]]:
        rows = [call.rows for call in batch]
        total = sum(rows)
        together = batch[0].inputs
        if len(batch) > 1:
            together = {name: np.concatenate([call.inputs[name] for call in batch]) for name in together}
        if self.model.step is None:
            outputs = self.model.predict(together)
        else:
            outputs = self.model.step(together, [(call.sequence, call.rows) for call in batch if call.sequence])
        self._check_outputs(outputs, total)
        self.batches += 1
        self.rows += total
        return [
            {spec.name: outputs[spec.name][end - n : end].copy() for spec in self.model.outputs}
            for n, end in zip(rows, itertools.accumulate(rows), strict=True)
        ]

    def _failed(self, error: Exception) -> Refused:
        text = one_line(error, 200)
        return Refused(500, f"model {self.model.name!r} failed: {text}")
