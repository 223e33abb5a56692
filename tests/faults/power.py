"""A disk whose power can be cut at any moment.

`Disk` is a virtual file system under SQLite (apsw) that writes down every write, truncation, deletion and flush. From
that log `Disk.images` builds what a real disk may hold after a power cut at each moment: what was flushed is there; of
what was not, any part may be, in any order, torn at the disk's sectors. So does the directory: a file that was created
or deleted and whose folder was not flushed may be missing, or back.

The model takes sectors of 512 bytes, and a disk that does not lie about flushing.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import apsw

from edge_runtime.store.durable.sqlite_errors import Code

SECTOR = 512

Mode = Literal["dropped", "kept", "torn"]
"""What became of writes that nobody had flushed: none, all, or any part is there."""

Files = dict[str, bytes]
"""By name, as they are on the disk."""


class Write(NamedTuple):
    file: str
    offset: int
    data: bytes


class Truncate(NamedTuple):
    file: str
    size: int


class Delete(NamedTuple):
    file: str
    flushed: bool
    """The folder was flushed too."""


class Flush(NamedTuple):
    file: str


class Mark(NamedTuple):
    """Something that the test wants to find again: what had been promised by then."""

    promised: Any


Event = Write | Truncate | Delete | Flush | Mark


class Image(NamedTuple):
    """What may be on the disk when power comes back."""

    moment: int
    """How many events had happened."""
    mode: Mode
    files: Files
    promised: Any
    """By the last `Mark` before."""


class Disk:
    """Records; a context manager, since SQLite knows it by a name that must be given back.

    Args:
        files: what it holds already, flushed.
    """

    _numbers = itertools.count()

    def __init__(self, files: Files | None = None) -> None:
        self._before = dict(files or {})
        self.events: list[Event] = []
        self._vfs = _Recorder(f"power-{next(self._numbers)}", self.events)

    def __enter__(self) -> Disk:
        return self

    def __exit__(self, *_: object) -> None:
        self._vfs.unregister()

    def connect(self, path: Path) -> _Connection:
        """A connection for `edge_runtime.store.durable.outbox.Outbox`, its file on this disk."""
        return _Connection(path, self._vfs.vfs_name)

    def mark(self, promised: Any) -> None:
        """Note what is promised from now on."""
        self.events.append(Mark(promised))

    def images(self, modes: Sequence[Mode], rng: random.Random, every: int = 1) -> Iterator[Image]:
        """What may be there after a power cut at each moment, in each mode; a mode may be named several times."""
        flushed: dict[str, bytearray] = {name: bytearray(data) for name, data in self._before.items()}
        waiting: list[Write | Truncate | Delete] = []
        promised: Any = None
        for moment, event in enumerate(self.events, 1):
            match event:
                case Mark():
                    promised = event.promised
                case Flush():
                    # A file's first flush makes SQLite flush its folder too, so deletions before it are done for.
                    done = [one for one in waiting if one.file == event.file or isinstance(one, Delete)]
                    waiting = [one for one in waiting if one not in done]
                    flushed.setdefault(event.file, bytearray())
                    _apply(flushed, done)
                case Delete(flushed=True):
                    waiting = [one for one in waiting if one.file != event.file]
                    flushed.pop(event.file, None)
                case _:
                    waiting.append(event)
            if moment % every == 0:
                for mode in modes:
                    files = {name: bytearray(data) for name, data in flushed.items()}
                    _apply(files, _survivors(waiting, mode, rng))
                    yield Image(moment, mode, {name: bytes(data) for name, data in files.items()}, promised)


def _apply(files: dict[str, bytearray], events: Iterable[Write | Truncate | Delete]) -> None:
    for event in events:
        match event:
            case Delete():
                files.pop(event.file, None)
            case Truncate():
                del files.setdefault(event.file, bytearray())[event.size :]
            case Write():
                content = files.setdefault(event.file, bytearray())
                content.extend(bytes(max(0, event.offset - len(content))))
                content[event.offset : event.offset + len(event.data)] = event.data


def _survivors(
    waiting: Sequence[Write | Truncate | Delete], mode: Mode, rng: random.Random
) -> Iterator[Write | Truncate | Delete]:
    if mode == "kept":
        yield from waiting
    if mode != "torn":
        return
    for event in waiting:
        fate = rng.random()
        if fate < 0.5:
            yield event
        elif fate < 0.8 and isinstance(event, Write):
            yield from _torn(event, rng)


def _torn(write: Write, rng: random.Random) -> Iterator[Write]:
    """Some of its sectors, which lie where the disk has them and not where the write begins."""
    edges = [write.offset, *range(write.offset // SECTOR * SECTOR + SECTOR, write.offset + len(write.data), SECTOR)]
    for start, end in itertools.pairwise([*edges, write.offset + len(write.data)]):
        if rng.random() < 0.5:
            yield Write(write.file, start, write.data[start - write.offset : end - write.offset])


class _Recorder(apsw.VFS):
    def __init__(self, name: str, events: list[Event]) -> None:
        super().__init__(name, "")
        self.vfs_name = name
        self._events = events

    def xOpen(self, name: Any, flags: list[int]) -> _File:
        return _File(name, flags, self._events)

    def xDelete(self, name: str, syncdir: bool) -> None:
        self._events.append(Delete(Path(name).name, bool(syncdir)))
        super().xDelete(name, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, name: Any, flags: list[int], events: list[Event]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._name = Path(path or "temporary").name
        self._events = events
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._events.append(Write(self._name, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, size: int) -> None:
        self._events.append(Truncate(self._name, size))
        super().xTruncate(size)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._events.append(Flush(self._name))


class _Rows:
    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows


class _Connection:
    """`edge_runtime.store.durable.outbox.schema.Database` over apsw: the errors are those of the standard library's
    sqlite3."""

    def __init__(self, path: Path, vfs: str) -> None:
        self._db = apsw.Connection(str(path), vfs=vfs)

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> _Rows:
        try:
            return _Rows(list(self._db.execute(sql, parameters)))
        except apsw.Error as error:
            raise _translated(error) from error

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> None:
        try:
            self._db.executemany(sql, parameters)
        except apsw.Error as error:
            raise _translated(error) from error

    def close(self) -> None:
        try:
            self._db.close()
        except apsw.Error as error:
            raise _translated(error) from error


def _translated(error: apsw.Error) -> sqlite3.Error:
    translated = sqlite3.OperationalError(str(error))
    translated.sqlite_errorcode = getattr(error, "extendedresult", Code.ERROR)
    return translated


NAME = "outbox.db"


def restore(files: Files, folder: Path) -> None:
    """Put an image into an empty folder. The database exists: its folder was flushed before SQLite saw the file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, data in ({NAME: b""} | files).items():
        (folder / name).write_bytes(data)
