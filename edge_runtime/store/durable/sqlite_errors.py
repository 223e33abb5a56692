"""SQLite's primary result codes (https://www.sqlite.org/rescode.html), read off an error of the `sqlite3` module.

Python 3.10 gives neither the codes' names nor an error's code. There the code follows from the exception's class and
from the fixed beginning of SQLite's message (``sqlite3ErrStr`` in its ``main.c``).
"""

from __future__ import annotations

import sqlite3
from enum import IntEnum


class Code(IntEnum):
    """Primary result codes that the outbox and the reading log tell apart."""

    ERROR = 1
    INTERNAL = 2
    PERM = 3
    ABORT = 4
    BUSY = 5
    LOCKED = 6
    READONLY = 8
    INTERRUPT = 9
    IOERR = 10
    CORRUPT = 11
    FULL = 13
    CANTOPEN = 14
    PROTOCOL = 15
    SCHEMA = 17
    TOOBIG = 18
    CONSTRAINT = 19
    MISMATCH = 20
    NOTADB = 26


_BEGINNINGS = {
    "access permission denied": Code.PERM,
    "query aborted": Code.ABORT,
    "abort due to ROLLBACK": Code.ABORT,
    "database is locked": Code.BUSY,
    "database table is locked": Code.LOCKED,
    "database schema is locked": Code.LOCKED,
    "attempt to write a readonly database": Code.READONLY,
    "interrupted": Code.INTERRUPT,
    "disk I/O error": Code.IOERR,
    "database or disk is full": Code.FULL,
    "unable to open database file": Code.CANTOPEN,
    "locking protocol": Code.PROTOCOL,
    "database schema has changed": Code.SCHEMA,
    "datatype mismatch": Code.MISMATCH,
    "file is not a database": Code.NOTADB,
}
_BY_CLASS: tuple[tuple[type[sqlite3.Error], Code], ...] = (
    (sqlite3.OperationalError, Code.ERROR),
    (sqlite3.IntegrityError, Code.CONSTRAINT),
    (sqlite3.DataError, Code.TOOBIG),
    (sqlite3.InternalError, Code.INTERNAL),
)
_DAMAGE = {
    Code.ERROR,  # "no such column": a corrupt table definition
    Code.CORRUPT,
    Code.NOTADB,
    Code.TOOBIG,
    Code.CONSTRAINT,
    Code.MISMATCH,
}


def primary_code(error: BaseException) -> int | None:
    """Return SQLite's primary result code of an error.

    Rules, the first that applies:

    1. An error that carries its code: the low byte of that.
    2. A text that Python could not decode, or a wrong use of the module, is not from SQLite: None.
    3. A message of SQLite's table of messages: the code of that message.
    4. The class that the `sqlite3` module chooses by code.
    5. Any other error of the database: damage, for which the module has no class.

    Args:
        error: anything; what is no error of `sqlite3` has no code.
    """
    extended = getattr(error, "sqlite_errorcode", None)
    if extended is not None:  # rule 1
        return int(extended) & 0xFF
    message = str(error)
    if (
        not isinstance(error, sqlite3.DatabaseError)
        or isinstance(error, (sqlite3.ProgrammingError, sqlite3.NotSupportedError))
        or message.startswith("Could not decode to UTF-8")
    ):  # rule 2
        return None
    for beginning, code in _BEGINNINGS.items():  # rule 3
        if message.startswith(beginning):
            return code
    for kind, code in _BY_CLASS:  # rule 4
        if isinstance(error, kind):
            return code
    return Code.CORRUPT  # rule 5


def is_damage(error: Exception) -> bool:
    """Tell a file that is not as we wrote it, or whose rows contradict each other, from a full or failing disk."""
    code = primary_code(error)
    if code is None:  # not from SQLite: what it gave could not be decoded, or failed its checksum
        return not isinstance(error, sqlite3.ProgrammingError)
    return code in _DAMAGE
