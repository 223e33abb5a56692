"""Progress of the windows of a run: completed ones whose answers are not safe yet, snapshots, and their recovery.

Both modes of durability share it (`edge_runtime.store.durable.window_state`, `edge_runtime.store.durable.reading_log`).

States of events, and of answers over time, are saved as they were after the last window whose answer is safe. The
windows after it are answered again, and make the same events again, with the same ids. States of a model are saved as
they were before the first of these windows; windows that were completed since, and whose answers are safe, are computed
again and not answered.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import orjson

from edge_runtime.answer.durability import Play
from edge_runtime.answer.events.tracker import EventTracker
from edge_runtime.clock import Clock
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.model_states import ModelStates, Resets
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import AnyWindower, is_joined
from edge_runtime.signal.windowing.window import Window
from edge_runtime.store.durable.answer_states import AnswerStates, AnyState, Changed
from edge_runtime.store.durable.reading_log_file import Recovered
from edge_runtime.store.durable.reading_log_records import (
    decode_events,
    decode_readings,
    decode_snapshot,
    decode_snapshot_events,
    decode_snapshot_model,
    encode_snapshot,
)
from edge_runtime.types import Done

log = logging.getLogger(__name__)


class WindowProgress:
    """Completed windows whose answers are not safe yet, by iteration of the loop; snapshots of them and of a windower.

    Args:
        path: the file's path, for messages.
        clock: restored windows count as received when they are restored.
        events: states of answers that are saved with the windows.
    """

    def __init__(self, path: Path, clock: Clock, events: AnswerStates | None = None) -> None:
        self._path = path
        self._clock = clock
        self._events = events or AnswerStates(EventTracker(()))
        self._rules = self._events.rules
        self._safe_events: dict[str, AnyState] = {}
        self._event_changes: deque[tuple[int, Changed]] = deque()  # with the iteration that made them
        self._model: ModelStates | None = None
        self._resets: Resets | None = None
        self._open: dict[int, Sequence[Window]] = {}
        self._safe_out_of_turn: set[int] = set()
        self.seq = 0
        """Number of the last iteration."""
        self.contract = ""
        """Of the windows, as text: a snapshot of other ones is of no use."""

    def use(self, contract: InputContract, config: WindowConfig) -> None:
        """Set what windows are from now on; completed ones of before are not kept."""
        fields, bounds = asdict(contract), asdict(config)
        # What says nothing of how windows are cut: files of earlier releases do not name it.
        del fields["fill"]
        if fields["frame"] is None:
            del fields["frame"]
        fields["channels"] = [_as_earlier(channel) for channel in fields["channels"]]
        if not is_joined(contract, config):
            for name in ("parts", "wait_s", "max_waiting"):
                del bounds[name]
        self.contract = orjson.dumps([fields, bounds]).decode()
        for windows in self._open.values():
            self._release(windows)
        self._open.clear()
        self._safe_out_of_turn.clear()

    def keep(self, model: ModelStates | None) -> bool:
        """Save these states from now on; windows that a model before has answered begin their keys, if asked again.

        Returns:
            Whether they are other ones than before.
        """
        if model is self._model:
            return False
        for windows in self._open.values():
            self._release(windows)
        self._model = model
        if model is not None:
            for windows in self._open.values():
                model.hold(windows, begins=True)
        return True

    @property
    def stateful(self) -> bool:
        """The model has states."""
        return self._model is not None

    def _release(self, windows: Sequence[Window]) -> None:
        if self._model is not None:
            self._model.release(windows)

    def hold(self, windows: Sequence[Window]) -> Done | None:
        """Begin an iteration that has completed `windows`; returns what to call when their answers are safe."""
        seq = self.next_seq()
        if not windows:
            return None
        self._open[seq] = windows
        if self._model is not None:
            self._model.hold(windows)
        return lambda: self._forget(seq)

    def next_seq(self) -> int:
        """Begin an iteration, or number a snapshot."""
        self._collect_events()
        self.seq += 1
        return self.seq

    @property
    def acked(self) -> int:
        """All windows of the iterations up to this one are answered, and their answers safe."""
        return next(iter(self._open), self.seq + 1) - 1

    @property
    def marks(self) -> tuple[int, int]:
        """Number of the last iteration, and `acked`."""
        return self.seq, self.acked

    @property
    def event_backlog(self) -> int:
        """States of events that have changed and are not taken yet, about."""
        return self._events.backlog

    def newly_safe_events(self) -> Changed | None:
        """Take the states of events that have become safe since this was asked last.

        Returns:
            By key, to be written with the iteration's readings; None: a snapshot has to be, since rules have changed.
        """
        rules = self._rules
        self._collect_events()
        safe: dict[str, AnyState | None] = {}
        while self._event_changes and self._event_changes[0][0] <= self.acked:
            safe |= self._event_changes.popleft()[1]
        for key, state in safe.items():
            self._safe_events.pop(key, None)  # the key silent longest comes first
            if state is not None:
                self._safe_events[key] = state
        return safe if self._rules is rules else None

    def _collect_events(self) -> None:
        changed = self._events.changed()
        if self._events.rules is not self._rules:  # all keys have changed
            self._rules = self._events.rules
            self._event_changes.clear()
            self._safe_events = {key: state for key, state in changed.items() if state is not None}
        elif changed:
            self._event_changes.append((self.seq, changed))

    def snapshot(self, windower: AnyWindower | None) -> bytes:
        """Encode the completed windows, and the states of `windower` and of events where there is one."""
        self.newly_safe_events()
        held = [(seq, window) for seq, windows in self._open.items() for window in windows]
        model = None if self._model is None else self._model.save(whole=windower is not None)
        if windower is None:
            return encode_snapshot(held, [], None, model)
        events = {"rules": self._rules, "keys": self._safe_events} if self._rules else None
        return encode_snapshot(held, windower.state(), events, model)

    def restore(
        self, left: Recovered, windower: AnyWindower, play: Play | None = None, *, late: bool = False
    ) -> tuple[list[Window], int, Done]:
        """Bring a fresh windower, and events, to where the run before was.

        Args:
            left: what it has left.
            windower: a fresh one.
            play: player of windows whose answers are safe, where the model has states.
            late: this run has answered windows meanwhile, so states stay what they are, and windows that need those
                from before cannot be answered.

        Returns:
            Windows to answer, how many readings were replayed, and what to call when the answers are safe.
        """
        self.seq = max(self.seq, left.seq)
        windows: list[Window] = []
        readings = 0
        if left.contract == self.contract:
            safe, windows, readings = self._replay(left, windower)
            if not late:
                self._restore_events(left)
                self._restore_model(left, safe, play)
            elif self._model is not None:
                log.warning(
                    "windows of the run before cannot be answered, since states went on: windows=%d", len(windows)
                )
                windows = []
        elif left.snapshot or left.entries:
            log.warning("the reading log %s was written for other windows and is recreated", self._path)
        acked = self.hold(windows)  # as if an iteration had completed them now
        return windows, readings, acked or nothing

    def _restore_model(self, left: Recovered, safe: list[Window], play: Play | None) -> None:
        if self._model is None:
            return
        if left.contract:
            self._resets = self._model.restore(decode_snapshot_model(left.snapshot))
        if play is not None and safe:
            play(safe)

    def report(self, metrics: Metrics) -> None:
        """Count and log the keys that begin again, after `restore`."""
        resets, self._resets = self._resets, None
        if resets is not None:
            metrics.counts[f'state_resets_total{{reason="{resets.reason}"}}'] += resets.keys
            log.warning("model: states of keys begin again: %s", resets.why)

    def _replay(self, left: Recovered, windower: AnyWindower) -> tuple[list[Window], list[Window], int]:
        """Return windows whose answers are safe, the others, and how many readings were replayed."""
        held, states = decode_snapshot(left.snapshot)
        windower.restore(states)
        received = self._clock.monotonic()
        windows = [window._replace(received=received) for seq, window in held if seq > left.acked]
        safe = [window for seq, window in held if seq <= left.acked]
        readings = 0
        for entry in left.entries:
            replayed = decode_readings(entry.body)
            readings += len(replayed)
            completed = windower.push(replayed, received)
            if entry.seq > left.acked:
                windows += completed
            else:
                safe += completed
        log.info(
            "reading log: restored the run before: keys=%d readings=%d windows=%d",
            len(windower), readings, len(windows),
        )  # fmt: skip
        return safe, windows, readings

    def _restore_events(self, left: Recovered) -> None:
        saved = decode_snapshot_events(left.snapshot)
        if not saved:
            return
        keys = saved["keys"]
        for entry in left.entries:
            for key, state in decode_events(entry.body).items():
                keys.pop(key, None)
                if state is not None:
                    keys[key] = state
        try:
            self._events.restore(saved["rules"], keys)
        except ValueError as error:
            log.warning("events: what the run before knew of them is given up: path=%s error=%s", self._path, error)

    def _forget(self, seq: int) -> None:
        if not self._rules and self._model is None:
            self._open.pop(seq, None)
            return
        # Events and states need their windows without a hole: what is safe out of turn is answered again with those
        # before it.
        if seq in self._open:
            self._safe_out_of_turn.add(seq)
        while self._open and (first := next(iter(self._open))) in self._safe_out_of_turn:
            self._safe_out_of_turn.remove(first)
            self._release(self._open.pop(first))


def _as_earlier(channel: dict[str, object]) -> dict[str, object]:
    """Leave out what earlier releases do not name, where it has its default."""
    plain = asdict(Channel(name="", unit=""))
    return {name: value for name, value in channel.items() if name in {"name", "unit"} or value != plain[name]}


def nothing() -> None:
    """Do nothing: nothing waits for the answers."""


@contextmanager
def counted_before(metrics: Metrics) -> Iterator[None]:
    """Within, nothing is counted: the run before has counted what is replayed."""
    counts, dropped = metrics.counts.copy(), metrics.dropped.copy()
    yield
    for counter, before in ((metrics.counts, counts), (metrics.dropped, dropped)):
        counter.clear()
        counter.update(before)
