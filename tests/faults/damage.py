"""What a failing card makes of files at rest."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

SECTOR, PAGE = 512, 4096


def flip_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 1, 2, 8, 64))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def lose_sectors(data: bytearray, rng: random.Random) -> None:
    """Sectors that read as zeros, as ones, or as what another sector holds."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(0, max(1, len(data) - SECTOR), SECTOR)
        other = rng.randrange(0, max(1, len(data) - SECTOR), SECTOR)
        data[at : at + SECTOR] = rng.choice((bytes(SECTOR), b"\xff" * SECTOR, data[other : other + SECTOR]))


def lose_pages(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(0, len(data), PAGE)
    data[at : at + PAGE] = rng.choice((bytes(PAGE), rng.randbytes(PAGE)))


def swap_pages(data: bytearray, rng: random.Random) -> None:
    a, b = (rng.randrange(0, len(data), PAGE) for _ in range(2))
    data[a : a + PAGE], data[b : b + PAGE] = data[b : b + PAGE], data[a : a + PAGE]


def cut_short(data: bytearray, rng: random.Random) -> None:
    """At any byte, at a sector or at a page; never to nothing, which is what a new file looks like."""
    unit = rng.choice([unit for unit in (1, SECTOR, PAGE) if unit < len(data)])
    del data[rng.randrange(unit, len(data), unit) :]


def append_rubbish(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.choice((1, SECTOR, PAGE, 3 * PAGE)))


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(flip_bits, flip_bits, lose_sectors, lose_pages, swap_pages, cut_short, append_rubbish),
)  # fmt: skip


def spoil(files: Mapping[str, bytes], folder: Path, rng: random.Random) -> tuple[str, str]:
    """Write these files into a folder, one of them damaged; returns which, and how."""
    name = rng.choice(sorted(name for name, content in files.items() if content))
    damage = rng.choice(DAMAGES)
    for one, content in files.items():
        data = bytearray(content)
        if one == name:
            damage(data, rng)
        (folder / one).write_bytes(data)
    return name, damage.__name__
