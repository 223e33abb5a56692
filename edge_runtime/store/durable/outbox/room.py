"""Room on the disk: an outbox that has filled it alone must still be able to give room back.

Deleting a case writes: the pages that it frees go into the log first, and folding the log may make the database longer.
An outbox that took cases until the disk was full could never remove one again. So a case is accepted only while there
is room for what deletes it, too.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from edge_runtime.store.durable.config import PAGE_BYTES
from edge_runtime.store.durable.outbox.open_db import LOG_FRAME_BYTES
from edge_runtime.store.durable.outbox.schema import Database
from edge_runtime.store.durable.sqlite_errors import Code, primary_code


def has_room(path: Path, db: Database, pages: float) -> bool:
    """Return whether a transaction can write these pages, and the log be folded after it.

    Folding lengthens the database by the pages that are in the log alone, and the log goes away only after that.
    """
    disk = os.statvfs(path.parent)
    (known,) = db.execute("PRAGMA page_count").fetchone()
    (unused,) = db.execute("PRAGMA freelist_count").fetchone()
    longer = known - path.stat().st_size // PAGE_BYTES + max(0.0, pages - unused)
    return bool(disk.f_bavail * disk.f_frsize >= pages * (PAGE_BYTES + LOG_FRAME_BYTES) + longer * PAGE_BYTES)


def make_room(path: Path, db: Database, pages: float) -> bool:
    """Fold the log if the disk is short of room; returns whether there is room for them then.

    Raises:
        sqlite3.Error: the disk fails otherwise than by being full.
    """
    if has_room(path, db, pages):
        return True
    try:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        if primary_code(error) != Code.FULL:
            raise
        return False
    return has_room(path, db, pages)
