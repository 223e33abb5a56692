"""Epochs of keys in the state file: rule 4 of `edge_runtime.signal.windowing.epochs`.

What is written is never newer than a moment at which the answers to all windows until then were safe: a message that is
delivered again after a crash has then a number above the one that is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import orjson

from edge_runtime.errors import StoreError
from edge_runtime.signal.windowing.epochs import Epochs, Given
from edge_runtime.store.durable.state_file import read_part

EPOCHS: Final = "epochs"
"""Name of the part."""
_WORKER = re.compile(r"worker-\d+")


class KeptEpochs:
    """Reads and encodes the part.

    Args:
        epochs: receives what was kept.
        given: goes through all keys that are known.
        marks: numbers of the last iteration, and of the last up to which all answers are safe.
    """

    def __init__(
        self,
        epochs: Epochs,
        given: Callable[[], Iterable[tuple[str, Given]]],
        marks: Callable[[], tuple[int, int]],
    ) -> None:
        self._epochs = epochs
        self._given = given
        self._marks = marks
        self._safe = b""
        self._next: tuple[int, bytes] | None = None

    def save(self) -> bytes:
        """Encode the newest state that is safe."""
        (seq, acked), now = self._marks(), self._encoded()
        if acked >= seq or not self._safe:
            self._safe = now
        elif self._next is not None and acked >= self._next[0]:
            self._safe = self._next[1]
        self._next = seq, now
        return self._safe

    def restore(self, data: bytes) -> None:
        """Take in what the run before has kept.

        Raises:
            StoreError: it cannot be read; keys then begin at a floor of their own.
        """
        try:
            self._read(data)
        except (TypeError, ValueError, LookupError, AttributeError) as error:
            self._epochs.lose()
            raise StoreError(f"no epochs of keys: {error}") from error

    def begin(self, path: Path, *, found: bool) -> None:
        """Take in what workers have kept that had keys of this one.

        Epochs that should be there and are not are lost: the outbox knows ids that such a run has given.

        Args:
            path: the own state file.
            found: it held epochs.
        """
        if not found and self._epochs.digested:
            self._epochs.lose()
        root = path.parent.parent if _WORKER.fullmatch(path.parent.name) else path.parent
        for other in (root, *sorted(root.glob("worker-*"))):
            # What cannot be read is of use to its owner, if at all.
            with suppress(StoreError, TypeError, ValueError, LookupError, AttributeError):
                if other != path.parent and (data := read_part(other / path.name, EPOCHS)) is not None:
                    self._read(data)

    def _encoded(self) -> bytes:
        keys = {name: (given.epoch, given.number) for name, given in self._given()}
        return orjson.dumps({"floor": self._epochs.floor, "keys": keys})

    def _read(self, data: bytes) -> None:
        plain = orjson.loads(data)
        keys = {name: Given(int(epoch), int(number)) for name, (epoch, number) in plain["keys"].items()}
        self._epochs.restore(int(plain["floor"]), keys)
