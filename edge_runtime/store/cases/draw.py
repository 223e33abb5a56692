"""Secret draw: which windows on which two models differ are kept for people, and in what order their labels count.

1. Each window has a number that is drawn by its id and a secret of this device (keyed BLAKE2b, RFC 7693). Who sends
   readings, and may choose their keys and stamps, cannot search for low numbers.
2. Keys take turns: first comes the lowest number of each key, the lowest of these first; then the second lowest of
   each; and so on. So a key that sends far more than others gets no more places than they do.
3. The first `PLACES` are kept. A window that came later than all others, or earlier, is kept as likely as they are
   (a bottom-k sketch for each key: Cohen and Kaplan 2007), and none that made room would have a place later on. Where
   the file has room for fewer, the first of them are kept, and that number of places is not raised again.
"""

from __future__ import annotations

import os
import stat
from bisect import insort
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from edge_runtime.base.system import durable_file

PLACES: Final = 256
_SECRET_BYTES: Final = 32


def secret_of(path: Path) -> bytes:
    """Read the secret of this device; make it where there is none that only this user can read.

    On a disk that takes nothing it is one of this process: as random, but a repeated window gets another number later.
    """
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
            secret = path.read_bytes()
            if len(secret) == _SECRET_BYTES:
                return secret
    secret = os.urandom(_SECRET_BYTES)
    with suppress(OSError):
        durable_file.write(path, secret)
    return secret


def drawn(secret: bytes, id_: str) -> int:
    """Draw a number of 63 bits by the id of a window, evenly (rule 1)."""
    digest = blake2b(id_.encode("utf-8", "surrogatepass"), digest_size=8, key=secret).digest()
    return int.from_bytes(digest, "big") >> 1


class Sample:
    """Numbers of the windows that are kept, so that no other one is written.

    Args:
        kept: key and number of each.
        places: windows at most.
    """

    def __init__(self, kept: Iterable[tuple[str, int]] = (), places: int = PLACES) -> None:
        self._places = places
        self._numbers: dict[str, list[int]] = {}
        self._n = 0
        for key, number in kept:
            self.offer(key, number)

    def offer(self, key: str, number: int) -> bool:
        """Return whether a window gets a place that it did not have; another one may lose its own (rule 3)."""
        own = self._numbers.setdefault(key, [])
        if number in own:
            return False
        insort(own, number)
        self._n += 1
        if self._n <= self._places:
            return True
        turn = max(map(len, self._numbers.values()))
        last = max(
            (one for one, numbers in self._numbers.items() if len(numbers) == turn), key=lambda k: self._numbers[k][-1]
        )
        gone = self._numbers[last].pop()
        if not self._numbers[last]:
            del self._numbers[last]
        self._n -= 1
        return (last, gone) != (key, number)
