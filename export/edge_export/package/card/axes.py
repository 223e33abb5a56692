"""Axes of a model's input, told by evidence: which is the batch, which hold the rows and which the columns.

1. The first axis is the batch, or there is none and the window has all axes. Rows and columns have an axis each, or
   axes side by side that make their number; an open one takes what is left, others are 1. One axis alone holds both.
2. What the card says of `layout` and `batch` is not asked again.
3. What the file does not run with is out.
4. The first axis, open or above 1, is a batch where each of its rows is answered as in another place and beside another
   row; a batch found so leaves no other reading, and one that is none is out. A first axis that is 1 cannot be tried.
5. Where an axis is left over behind a first one that is no batch, it must be the batch by the same trial.
6. One arrangement must be left; else the card is asked for the line that tells.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from edge_export.package.card.spec import CardPort
from edge_runtime.errors import ConfigError, EngineError, InputError
from edge_runtime.manifest.stages import Layout
from edge_runtime.model.engines.base import Array

Run = Callable[[Array], Sequence[Array]]
"""Runs the file on a tensor of floats for this input."""

_ROWS = 3
"""Of a batch that is tried, where the file leaves its size open."""


class Arrangement(NamedTuple):
    """Place of one window in a tensor.

    Attributes:
        layout: which of rows and columns comes first.
        shape: of the tensor.
        batch: the first axis is the batch.
    """

    layout: Layout
    shape: tuple[int, ...]
    batch: bool


def arrange(port: CardPort, rows: int, width: int, shape: Sequence[int], where: str, run: Run | None) -> Arrangement:
    """Find the one arrangement of a window that the file and the card allow.

    Args:
        port: the card's input.
        rows: number of rows of one call.
        width: numbers of a row.
        shape: sizes of the tensor in the file; -1 for open sizes.
        where: the file and its input, for errors.
        run: the file; None where its answers would tell nothing (pictures).

    Raises:
        ConfigError: none fits, or it cannot be told which; names the line to write.
    """
    what = f"{where}: {rows} rows of {width} numbers"
    found = _fitting(port, rows, width, shape)
    if not found:
        said = "" if port.layout == "auto" else f", {port.layout}"
        raise ConfigError(f"{what}{said} do not fit the file's {written(shape)}; correct rows, channels or layout")
    if run is None:
        found = [one for one in found if one.batch] or found
    elif len(found) > 1 or port.batch is None:
        found = _tried(found, shape, run, stated=port.batch is not None) or _refuse(what, shape, found[0])
    if len(found) > 1:
        raise ConfigError(f"{what} may stand in {written(shape)} {_question(found)}")
    return found[0]


def _fitting(port: CardPort, rows: int, width: int, shape: Sequence[int]) -> list[Arrangement]:
    """Return the arrangements that sizes and card allow (rules 1 and 2); a tensor that two of them make counts once."""
    orders: dict[Layout, tuple[int, int]] = {"NWC": (rows, width), "NCW": (width, rows)}
    if port.layout != "auto":
        orders = {name: orders[name] for name in orders if (name == "NCW") == (port.layout == "channels-first")}
    found: dict[tuple[tuple[int, ...], Layout | None], Arrangement] = {}
    batches = (True, False) if port.batch is None else (port.batch == 0,)
    for batch, (layout, wanted) in itertools.product(batches, orders.items()):
        sizes, front = (shape[1:], (max(1, shape[0]),)) if batch else (shape, ())
        for filled in _filled(sizes, wanted) if sizes else ():
            key = (*front, *filled), None if 1 in wanted else layout
            found.setdefault(key, Arrangement(layout, key[0], batch))
    return list(found.values())


def _filled(sizes: Sequence[int], wanted: tuple[int, int]) -> list[tuple[int, ...]]:
    """Fill axes in that make two numbers, or hold both in one axis; an axis for each goes before several for one."""
    total = math.prod(wanted)
    if math.prod(size for size in sizes if size > 0) == total:
        sizes = [max(size, 1) for size in sizes]
    found = {cut: list(_parts(sizes, cut, wanted)) for cut in range(len(sizes) + 1)}
    inner = [one for cut in range(1, len(sizes)) for one in found[cut]]
    alone = sum(size != 1 for size in sizes) <= 1
    return inner or (list(_part(sizes, total)) if alone else [one for outer in found.values() for one in outer])


def _parts(sizes: Sequence[int], cut: int, wanted: tuple[int, int]) -> Iterator[tuple[int, ...]]:
    for front, back in itertools.product(_part(sizes[:cut], wanted[0]), _part(sizes[cut:], wanted[1])):
        yield (*front, *back)


def _part(sizes: Sequence[int], wanted: int) -> Iterator[tuple[int, ...]]:
    """Fill axes in that make a number: one open axis takes what is left, the others are 1."""
    rest, left = divmod(wanted, math.prod(size for size in sizes if size > 0))
    opened = [axis for axis, size in enumerate(sizes) if size < 0]
    if left or (rest != 1 and not opened):
        return
    for taker in opened[: len(opened) if rest > 1 else 1] or [-1]:
        yield tuple(rest if axis == taker else max(size, 1) for axis, size in enumerate(sizes))


def _tried(found: Sequence[Arrangement], shape: Sequence[int], run: Run, *, stated: bool) -> list[Arrangement]:
    """Keep what a trial of the file allows (rules 3 to 5)."""
    if len(found) == 1 and (shape[0] == 1 or stated):
        return list(found)
    runs = [one for one in found if _answers(run, _noise(one.shape)) is not None]
    if not runs:
        return [found[0]] if len(found) == 1 else []  # one refusal is told better by the run of the chain
    return runs if stated else _told(runs, shape, run)


def _told(runs: Sequence[Arrangement], shape: Sequence[int], run: Run) -> list[Arrangement]:
    """Keep what agrees with which axis is the batch (rules 4 and 5)."""
    told = {one: _is_batch(one, shape, run) for one in runs}
    sure = [one for one in runs if one.batch and told[one]]
    left = [one for one in runs if told[one] is None or (told[one] is False and not one.batch)]
    if not sure and len(left) == 1 and len(left) < len(runs) and not _batch_behind(left[0], shape, run):
        return list(runs)  # rule 5: rows that depend on each other in every axis tell of none
    return sure or left


def _batch_behind(one: Arrangement, shape: Sequence[int], run: Run) -> bool:
    """Return whether no open axis is left over behind the first one, or one is the batch."""
    over = [axis for axis in range(1, len(shape)) if shape[axis] < 0 and one.shape[axis] == 1]
    for axis in over:
        front, turned = ((sizes[axis], *sizes[:axis], *sizes[axis + 1 :]) for sizes in (shape, one.shape))
        behind = Arrangement(one.layout, turned, batch=True)
        if _is_batch(behind, front, lambda x, axis=axis: run(np.moveaxis(x, 0, axis))):  # type: ignore[misc]
            return True
    return not over


def _is_batch(one: Arrangement, shape: Sequence[int], run: Run) -> bool | None:
    """Say whether the rows of the first axis are answered each on its own; None where that cannot be tried."""
    rows = shape[0] if shape[0] > 0 else (_ROWS if one.batch else one.shape[0])
    if rows < 2:
        return None
    x = _noise((rows, *one.shape[1:]))
    other = x.copy()
    other[-1:] = np.flip(other[-1:], -1) * 0.5 - 0.25
    made = [_answers(run, array) for array in (x, x[::-1].copy(), other)]
    if any(answers is None for answers in made):
        return None
    varied = [answers for answers in zip(*(one or () for one in made), strict=True) if _differ(*answers)]
    return all(_by_row(*answers, rows=rows) for answers in varied) if varied else None


def _differ(one: Array, *others: Array) -> bool:
    return any(one.shape != other.shape or not np.array_equal(one, other) for other in others)


def _by_row(one: Array, turned: Array, other: Array, *, rows: int) -> bool:
    """Return whether an axis of an answer has each row's own numbers, whatever its place and its neighbours are."""
    if not one.shape == turned.shape == other.shape:
        return False
    rest = range(rows - 1)
    near = max(1e-6, 1e-4 * float(np.abs(one).max(initial=0)))
    return any(
        np.allclose(one, np.flip(turned, axis), rtol=0, atol=near)
        and np.allclose(one.take(rest, axis), other.take(rest, axis), rtol=0, atol=near)
        for axis, size in enumerate(one.shape)
        if size == rows
    )


def _noise(shape: Sequence[int]) -> Array:
    return np.random.default_rng(7).uniform(-1, 1, shape).astype(np.float32)


def _answers(run: Run, array: Array) -> Sequence[Array] | None:
    try:
        return [np.array(answer, np.float64) for answer in run(array)]
    except (EngineError, InputError):
        return None


def _refuse(what: str, shape: Sequence[int], one: Arrangement) -> list[Arrangement]:
    if one.batch:
        why = (
            "the answers to the rows of its first axis depend on each other, so it may be time and no batch; write "
            "batch = -1 at the input if the rows and columns of a window have all axes, or batch = 0 if it is the batch"
        )
    else:
        why = (
            "the file runs with no such sizes, or answers each row of its first axis on its own, so that it is a batch "
            "without an axis for rows; write rows = 1, or batch = -1 at the input if the first axis is the window's"
        )
    raise ConfigError(f"{what} in {written(shape)}: {why}")


def _question(found: Sequence[Arrangement]) -> str:
    made = " or ".join(written(one.shape) for one in found)
    if len({one.batch for one in found}) > 1:
        return f"as {made}; write batch = 0 at the input if the first axis is the batch, or batch = -1 if there is none"
    if len({one.layout for one in found}) > 1:
        return (
            'rows first or columns first; write layout = "samples-first" or "channels-first" at the input'
        )  # fmt: skip
    return f"as {made}; export the model with fixed sizes but for the batch"


def written(shape: Sequence[int]) -> str:
    """Write a shape for people."""
    return f"({', '.join('any' if size < 0 else str(size) for size in shape)})"
