"""Dynamic batching for the server: requests of different callers run through the model together.

There is no batching thread. The first caller that finds the model free *leads*: it waits `max_queue_delay_s` for
company, takes what has queued up to the model's `max_batch`, runs it, hands out the results, and passes the lead to
whoever is next in the queue. A lone caller thus pays for no thread switch, and while the model is busy the queue forms
the next batch by itself, so a delay of 0 already batches under load.

Requests go together when their tensors have the same types and the same shapes behind the first axis.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from edge_runtime.clock import Clock
from edge_runtime.errors import EdgeError, InputError
from edge_runtime.oip import Array, TensorSpec

_Key = tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """A model that a server offers.

    Attributes:
        predict: arrays by input name to arrays by output name, first axis the batch on both sides. Called by one
            thread at a time (not always the same one); may raise `InputError` for inputs it refuses. What it returns is
            copied before the next call, so it may reuse its buffers.
        max_batch: largest batch it takes; a larger request is refused.

    Raises:
        ValueError: a tensor has no batch axis (a first dimension of -1), or a value makes no sense.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    predict: Callable[[dict[str, Array]], dict[str, Array]] = field(repr=False)
    version: str = "1"
    platform: str = "edge-runtime"
    max_batch: int = 32

    def __post_init__(self) -> None:
        if not self.name or not self.version or not self.inputs or not self.outputs or self.max_batch < 1:
            raise ValueError(f"model {self.name!r} needs a name, a version, inputs, outputs and max_batch >= 1")
        for spec in (*self.inputs, *self.outputs):
            if spec.shape[:1] != (-1,):
                raise ValueError(f"model {self.name!r}: {spec} needs a first dimension of -1, the batch")


class Refused(EdgeError):  # noqa: N818 - a verdict, named as the caller sees it
    """A request that the server answers with an error.

    Attributes:
        status: HTTP status.
        retry: whether to invite the caller to come back (`Retry-After`).
    """

    def __init__(self, status: int, message: str, *, retry: bool = False) -> None:
        super().__init__(message)
        self.status = status
        self.retry = retry


@dataclass(slots=True, eq=False)
class _Call:
    inputs: dict[str, Array]
    rows: int
    key: _Key
    give_up: float
    collect_until: float
    signal: threading.Event | None = None
    """Set when the call has its result or leads; None for a call that led from the start."""
    outputs: dict[str, Array] | None = None
    error: Exception | None = None


class Batcher:
    """The queue in front of one model. `run` is called by many threads.

    Args:
        model: what to run.
        clock: what waits are measured with.
        max_queue_delay_s: how long a leader waits for company; 0 takes what is there.
        max_queue_rows: windows that may wait; beyond it a request is refused with 503.
        queue_timeout_s: longest wait for a turn and a result; then 503.
    """

    def __init__(
        self,
        model: ServedModel,
        clock: Clock,
        *,
        max_queue_delay_s: float,
        max_queue_rows: int,
        queue_timeout_s: float,
    ) -> None:
        self.model = model
        self.batches = 0
        self.rows = 0
        self.failures = 0
        self._clock = clock
        self._max_queue_delay_s = max_queue_delay_s
        self._max_queue_rows = max_queue_rows
        self._queue_timeout_s = queue_timeout_s
        self._changed = threading.Condition()
        self._queue: deque[_Call] = deque()
        self._queued_rows = 0
        self._leader: _Call | None = None

    def run(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """Run a request, together with others where that works out.

        Args:
            inputs: arrays that fit the model's specs, all with the same first axis.

        Returns:
            Arrays by output name that nobody else writes to.

        Raises:
            Refused: the queue is full (503), the wait is over (503), or the model failed (500).
            InputError: the model refused these inputs.
        """
        now = self._clock.monotonic()
        call = _Call(
            inputs,
            len(next(iter(inputs.values()))),
            tuple((name, array.shape[1:]) for name, array in sorted(inputs.items())),
            now + self._queue_timeout_s,
            now + self._max_queue_delay_s,
        )
        with self._changed:
            if self._queued_rows + call.rows > self._max_queue_rows and self._queue:
                raise Refused(503, f"model {self.model.name!r} is busy: {self._queued_rows} windows wait", retry=True)
            self._queue.append(call)
            self._queued_rows += call.rows
            if self._leader is None:
                self._leader = call
            else:
                call.signal = threading.Event()
                if self._queued_rows >= self.model.max_batch:
                    self._changed.notify_all()  # the leader may be collecting: its batch is full now
        if call.signal is None or not self._follow(call, call.signal):
            self._lead(call)
        if call.error is not None:
            raise call.error
        assert call.outputs is not None
        return call.outputs

    def _follow(self, call: _Call, signal: threading.Event) -> bool:
        """Wait for the result; False when this call became the leader instead."""
        signal.wait(max(0.0, call.give_up - self._clock.monotonic()))
        with self._changed:
            if call.outputs is not None or call.error is not None:
                return True
            if self._leader is call:
                return False
            if call in self._queue:
                self._queue.remove(call)
                self._queued_rows -= call.rows
        raise Refused(503, f"model {self.model.name!r} did not answer in {self._queue_timeout_s} s", retry=True)

    def _lead(self, call: _Call) -> None:
        """Form the next batch, run it, hand out the results and the lead. `call` is the head of the queue."""
        with self._changed:
            while self._queued_rows < self.model.max_batch:
                left = call.collect_until - self._clock.monotonic()
                if left <= 0:
                    break
                self._changed.wait(left)
            batch = self._take()
        try:
            self._execute(batch)
        finally:
            with self._changed:
                successor = self._queue[0] if self._queue else None
                self._leader = successor
            for other in (*batch, successor):
                if other is not None and other.signal is not None:
                    other.signal.set()

    def _take(self) -> list[_Call]:
        """Calls that fit the one at the head of the queue, in order, up to `max_batch` windows."""
        head = self._queue.popleft()
        batch, rows = [head], head.rows
        rest: deque[_Call] = deque()
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

    def _execute(self, batch: Sequence[_Call]) -> None:
        try:
            results = self._predict([call.inputs for call in batch], [call.rows for call in batch])
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

    def _predict(self, inputs: Sequence[dict[str, Array]], rows: Sequence[int]) -> list[dict[str, Array]]:
        total = sum(rows)
        together = (
            inputs[0]
            if len(inputs) == 1
            else {name: np.concatenate([one[name] for one in inputs]) for name in inputs[0]}
        )
        outputs = self.model.predict(together)
        for spec in self.model.outputs:
            array = outputs.get(spec.name)
            if array is None or array.dtype != spec.dtype or not spec.accepts(array.shape) or len(array) != total:
                got = "nothing" if array is None else f"{array.dtype} {array.shape}"
                raise Refused(500, f"model {self.model.name!r} gave {got} for {total} windows of output {spec}")
        self.batches += 1
        self.rows += total
        return [
            {spec.name: outputs[spec.name][end - n : end].copy() for spec in self.model.outputs}
            for n, end in zip(rows, itertools.accumulate(rows), strict=True)
        ]

    def _failed(self, error: Exception) -> Refused:
        text = " ".join(str(error).split())[:200] or type(error).__name__
        return Refused(500, f"model {self.model.name!r} failed: {text}")
