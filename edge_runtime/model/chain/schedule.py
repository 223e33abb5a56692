"""Schedule of a chain: which stage runs how often in which step after a reset. Nothing of it depends on values.

A step brings each stage the same number of rows once the chain is full. Before that, some stages wait for rows, or for
their states to settle. So the *level* of a key, its steps since the last reset, says all: keys of one level are
computed together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from edge_runtime.model.chain import STREAM, WINDOW

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
    warm: int = 0
    """Calls after a reset whose rows are not used."""


class StageTurn(NamedTuple):
    """One stage in one step."""

    calls: int
    kept: tuple[int, ...]
    """Rows that each cut has kept of earlier steps."""
    skipped: tuple[int, ...]
    """Oldest rows that each cut leaves out: another cut of the stage was not there yet, and the newest rows belong
    together."""
    left: tuple[int, ...]
    """Rows that each cut keeps for later steps."""
    unused: int = 0
    """Calls, the first ones, whose rows are not used."""


class Schedule(NamedTuple):
    """All steps after a reset: the levels, of which the last ones repeat."""

    levels: tuple[tuple[StageTurn, ...], ...]
    """A turn for each stage."""
    rows: tuple[Mapping[str, int], ...]
    """Rows of each track, by level."""
    again: int
    """Level that follows the last one."""

    def most_kept(self, stage: int, cut: int) -> int:
        """Return the longest that a cut's kept rows ever are, those before the first step left out."""
        return max(level[stage].left[cut] for level in self.levels)


def make(nodes: Sequence[Node], window: int, hop: int = 0) -> Schedule:
    """Follow a chain from a reset until it repeats itself.

    Args:
        nodes: the stages, in order.
        window: rows of the track ``window``, each step.
        hop: rows of the track ``stream`` after the first step; 0: those of the window.

    Raises:
        ValueError: it does not repeat: rows pile up before a stage.
    """
    kept = [[cut.lead for cut in node.cuts] for node in nodes]
    warm = [node.warm for node in nodes]
    hop = hop or window
    new = window  # of the track `STREAM`
    seen: dict[tuple[object, ...], int] = {}
    levels: list[tuple[StageTurn, ...]] = []
    rows: list[Mapping[str, int]] = []
    streams = STREAM in {cut.of for node in nodes for cut in node.cuts}
    while (state := (*map(tuple, kept), *warm, streams and new)) not in seen:
        seen[state] = _checked(len(levels), window)
        made: dict[str, int] = {WINDOW: window, STREAM: new}
        turns = [_turn(node, own, left, made) for node, own, left in zip(nodes, kept, warm, strict=True)]
        kept = [list(turn.left) for turn in turns]
        warm = [left - turn.unused for left, turn in zip(warm, turns, strict=True)]
        new = hop
        levels.append(tuple(turns))
        rows.append(made)
    return Schedule(tuple(levels), tuple(rows), seen[state])


def _checked(levels: int, window: int) -> int:
    if levels >= _MOST_LEVELS:
        raise ValueError(
            f"a chain that takes {window} rows a step does not settle within {_MOST_LEVELS} steps; choose hops that "
            "divide the rows that a step brings"
        )
    return levels


def _turn(node: Node, kept: Sequence[int], warm: int, made: dict[str, int]) -> StageTurn:
    """Run one stage in one step; notes the rows that it makes in `made`."""
    have = [before + made[cut.of] for cut, before in zip(node.cuts, kept, strict=True)]
    calls = min(max(0, (n - cut.rows) // cut.hop + 1) for cut, n in zip(node.cuts, have, strict=True))
    left = [0 if cut.within else n - calls * cut.hop for cut, n in zip(node.cuts, have, strict=True)]
    skipped = [max(0, (n - cut.rows) // cut.hop + 1) * cut.hop for cut, n in zip(node.cuts, left, strict=True)]
    unused = min(warm, calls)
    made |= {track: (calls - unused) * each for track, each in node.gives.items()}
    rest = tuple(n - more for n, more in zip(left, skipped, strict=True))
    return StageTurn(calls, tuple(kept), tuple(skipped), rest, unused)
