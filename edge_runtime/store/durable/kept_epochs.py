"""Epochs of keys in a file: rule 4 of `edge_runtime.signal.windowing.epochs`. Written once a minute, and at a stop.

What is written is never newer than a moment at which the answers to all windows until then were safe: a message that is
delivered again after a crash has then a number above the one that is kept.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import orjson

from edge_runtime.errors import StoreError
from edge_runtime.signal.windowing.epochs import Epochs, Given

_WORKER = re.compile(r"worker-\d+")


class KeptEpochs:
    """Reads and encodes the file.

    Args:
        path: the file's path.
        epochs: receives what was kept.
        given: goes through all keys that are known.
        marks: numbers of the last iteration, and of the last up to which all answers are safe.
    """

    def __init__(
        self,
        path: Path,
        epochs: Epochs,
        given: Callable[[], Iterable[tuple[str, Given]]],
        marks: Callable[[], tuple[int, int]],
    ) -> None:
        self._path = path
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

    def begin(self) -> None:
        """Take in what workers have kept that had keys of this one; call it once the own file has been looked for.

        A file that should be there and is not is lost: the outbox knows ids that such a run has given.
        """
        if not self._path.exists() and self._epochs.digested:
            self._epochs.lose()
        for path in self._of_others():
            with suppress(
                OSError, TypeError, ValueError, LookupError, AttributeError
            ):  # of use to its owner, if at all
                self._read(path.read_bytes())

    def _of_others(self) -> Iterator[Path]:
        folder, name = self._path.parent, self._path.name
        root = folder.parent if _WORKER.fullmatch(folder.name) else folder
        found = [root / name, *sorted(root.glob(f"worker-*/{name}"))]
        return (path for path in found if path != self._path and path.exists())

    def _encoded(self) -> bytes:
        keys = {name: (given.epoch, given.number) for name, given in self._given()}
        return orjson.dumps({"floor": self._epochs.floor, "keys": keys})

    def _read(self, data: bytes) -> None:
        plain = orjson.loads(data)
        keys = {name: Given(int(epoch), int(number)) for name, (epoch, number) in plain["keys"].items()}
        self._epochs.restore(int(plain["floor"]), keys)
