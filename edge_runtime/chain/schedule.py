"""Schedule of a chain: which stage runs how often in which step after a reset. Nothing of it depends on values.

A step brings each stage the same number of rows once the chain is full. Before that, some stages wait for rows. So the
*level* of a key, its steps since the last reset, says all: keys of one level are computed together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

_MOST_LEVELS = 100_000


class Cut(NamedTuple):
    """Rows that one call of a stage takes of a track."""

    of: str
    rows: int
    hop: int
    lead: int = 0
    within: bool = False
    """Rows that a step leaves over are dropped: each step is a clip of its own."""


class Node(NamedTuple):
    """A stage as the schedule sees it."""

    cuts: tuple[Cut, ...]
    gives: Mapping[str, int]
    """Rows of one call, by track."""


class Turn(NamedTuple):
    """One stage in one step."""

    calls: int
    kept: tuple[int, ...]
    """Rows that each cut has kept of earlier steps."""
    skipped: tuple[int, ...]
    """Oldest rows that each cut leaves out: another cut of the stage was not there yet, and the newest rows belong
    together."""
    left: tuple[int, ...]
    """Rows that each cut keeps for later steps."""


class Schedule(NamedTuple):
    """All steps after a reset: the levels, of which the last ones repeat."""

    levels: tuple[tuple[Turn, ...], ...]
    """A turn for each stage."""
    rows: tuple[Mapping[str, int], ...]
    """Rows of each track, by level."""
    again: int
    """Level that follows the last one."""

    def most_kept(self, stage: int, cut: int) -> int:
        """Return the longest that a cut's kept rows ever are."""
        return max(max(level[stage].kept[cut], level[stage].left[cut]) for level in self.levels)


def make(nodes: Sequence[Node], window: int) -> Schedule:
    """Follow a chain from a reset until it repeats itself.

    Args:
        nodes: the stages, in order.
        window: rows of the track ``window``, each step.

    Raises:
        ValueError: it does not repeat: rows pile up before a stage.
    """
    kept = [[cut.lead for cut in node.cuts] for node in nodes]
    seen: dict[tuple[tuple[int, ...], ...], int] = {}
    levels: list[tuple[Turn, ...]] = []
    rows: list[Mapping[str, int]] = []
    while (state := tuple(map(tuple, kept))) not in seen:
        if len(levels) >= _MOST_LEVELS:
            raise ValueError(
                f"a chain that takes {window} rows a step does not settle within {_MOST_LEVELS} steps; choose hops "
                "that divide the rows that a step brings"
            )
        seen[state] = len(levels)
        made: dict[str, int] = {"window": window}
        turns = [_turn(node, own, made) for node, own in zip(nodes, kept, strict=True)]
        kept = [list(turn.left) for turn in turns]
        levels.append(tuple(turns))
        rows.append(made)
    return Schedule(tuple(levels), tuple(rows), seen[state])


def _turn(node: Node, kept: Sequence[int], made: dict[str, int]) -> Turn:
    """Run one stage in one step; notes the rows that it makes in `made`."""
    have = [before + made[cut.of] for cut, before in zip(node.cuts, kept, strict=True)]
    calls = min(max(0, (n - cut.rows) // cut.hop + 1) for cut, n in zip(node.cuts, have, strict=True))
    left = [0 if cut.within else n - calls * cut.hop for cut, n in zip(node.cuts, have, strict=True)]
    skipped = [max(0, (n - cut.rows) // cut.hop + 1) * cut.hop for cut, n in zip(node.cuts, left, strict=True)]
    made |= {track: calls * each for track, each in node.gives.items()}
    return Turn(calls, tuple(kept), tuple(skipped), tuple(n - more for n, more in zip(left, skipped, strict=True)))
