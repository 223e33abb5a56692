"""Triads: three channels that are the axes of one sensor."""

from __future__ import annotations

from collections.abc import Sequence

from edge_runtime.manifest import Channel


def find_triads(channels: Sequence[Channel]) -> list[tuple[int, int, int]]:
    """Find triads by name and unit: channels of one unit whose names differ in one letter alone, x, y and z.

    Args:
        channels: the channels of an input contract; masks belong to none.

    Returns:
        Columns of x, y and z of each, in the order of x; a column is in one triad at most.

    >>> find_triads([Channel(name=name, unit="g") for name in ("t", "acc_x", "acc_y", "acc_z")])
    [(1, 2, 3)]
    """
    columns = {(channel.name.lower(), channel.unit): i for i, channel in enumerate(channels) if not channel.mask_of}
    found: list[tuple[int, int, int]] = []
    taken: set[int] = set()
    for (name, unit), x in columns.items():
        for at in reversed([i for i, letter in enumerate(name) if letter == "x"]):  # acc_x, not the x of xacc_x
            y, z = (columns.get((f"{name[:at]}{axis}{name[at + 1 :]}", unit)) for axis in "yz")
            if y is not None and z is not None and not taken & {x, y, z}:
                found.append((x, y, z))
                taken |= {x, y, z}
                break
    return found
