"""Operators that pick, place or mark numbers by their index, as selections from a flat vector.

Everything is computed in int32, which both engines index by. An index from the end counts as in Python; one out of
range, which ONNX leaves undefined, wraps around instead of reading other memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_export.graph.tflite.lower.draft import Array, Draft


def gather_elements(draft: Draft) -> bool:
    """One index for each number of the result, along one axis."""
    data, places = draft.shape(draft.input(0)), draft.shape(draft.input(1))
    if data is None or places is None:
        return False
    axis = int(draft.settings.get("axis", 0)) % len(data)
    steps = _steps(data)
    others = [
        np.arange(size) * (0 if i == axis else step) for i, (size, step) in enumerate(zip(places, steps, strict=True))
    ]
    base = sum(np.meshgrid(*others, indexing="ij"), np.zeros(places, np.int64))
    # In one row: old readers broadcast no more than four axes.
    index = _wrapped(draft, draft.reshape(draft.input(1), [-1]), data[axis])
    if steps[axis] != 1:
        index = draft.add("Mul", index, draft.constant(np.array(steps[axis], np.int32)))
    index = draft.add("Add", index, draft.constant(base.astype(np.int32).ravel()))
    draft.done(draft.reshape(draft.add("Gather", draft.reshape(draft.input(0), [-1]), index), places))
    return True


def gather_nd(draft: Draft) -> bool:
    """Gather by indices of several axes, flattened into one; batch axes run along."""
    data, places = draft.shape(draft.input(0)), draft.shape(draft.input(1))
    if data is None or places is None:
        return False
    batch = int(draft.settings.get("batch_dims", 0))
    count = places[-1]
    index = _linear(draft, draft.input(1), data[batch : batch + count])
    if batch:
        rows = int(np.prod(data[:batch]))
        each = int(np.prod(data[batch : batch + count]))
        base = (np.arange(rows) * each).reshape(*data[:batch], *[1] * (len(places) - 1 - batch))
        index = draft.add("Add", index, draft.constant(base.astype(np.int32)))
    rest = data[batch + count :]
    draft.done(draft.add("Gather", draft.reshape(draft.input(0), [-1, *rest]), index, axis=0))
    return True


def scatter_nd(draft: Draft) -> bool:
    """Put updates at constant indices of several axes: select from data and updates, concatenated."""
    data = draft.shape(draft.input(0))
    if data is None:
        return False
    places = _indices(draft)
    count = places.shape[-1]
    span = data[:count]
    linear = (np.where(places < 0, places + np.array(span), places) * _steps(span)).sum(axis=-1)
    _place(draft, linear.ravel(), data[count:], int(np.prod(span)), data)
    return True


def scatter_elements(draft: Draft) -> bool:
    """Put updates at constant indices along one axis."""
    data = draft.shape(draft.input(0))
    if data is None:
        return False
    axis = int(draft.settings.get("axis", 0)) % len(data)
    places = _indices(draft)
    grid: list[Array] = list(np.indices(places.shape))
    grid[axis] = np.where(places < 0, places + data[axis], places)
    linear = sum(part * step for part, step in zip(grid, _steps(data), strict=True))
    _place(draft, np.ravel(linear), (), int(np.prod(data)), data)
    return True


def _indices(draft: Draft) -> Array:
    places = draft.parameter(1, "indices")
    assert places is not None
    if (kind := draft.settings.get("reduction", b"none")) != b"none":
        raise draft.refuse(f"reduction {kind.decode()!r} has no form")
    return places


def _place(draft: Draft, linear: Array, rest: Sequence[int], rows: int, data: Sequence[int]) -> None:
    """Rows of the data, replaced by updates where an index names them; of two for one row, the last."""
    source: Array = np.arange(rows)
    source[linear] = rows + np.arange(len(linear))
    both = draft.add("Concat", *(draft.reshape(draft.input(i), [-1, *rest]) for i in (0, 2)), axis=0)
    draft.done(draft.reshape(draft.add("Gather", both, draft.constant(source), axis=0), data))


def one_hot(draft: Draft) -> bool:
    """Mark indices by ones; those out of range mark nothing."""
    shape = draft.shape(draft.input(0))
    depth = draft.parameter(1, "depth")
    if shape is None or depth is None:
        return False
    values = draft.parameter(2, "values")
    assert values is not None
    size, rank = int(depth.item()), len(shape)
    axis = int(draft.settings.get("axis", -1)) % (rank + 1)
    index = draft.cast(draft.input(0), np.int32)
    below = draft.add("Less", index, draft.constant(np.array(0, np.int32)))
    index = draft.add("Where", below, draft.add("Add", index, draft.constant(np.array(size, np.int32))), index)
    off, on = (draft.constant(np.asarray(value)) for value in values)
    draft.done(draft.add("Where", _marks(draft, index, size, axis, rank + 1), on, off))
    return True


def hardmax(draft: Draft) -> bool:
    """1 at the first of the largest numbers along an axis, else 0."""
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    axis = int(draft.settings.get("axis", -1)) % len(shape)
    index = draft.cast(draft.add("ArgMax", draft.input(0), axis=axis, keepdims=0), np.int32)
    draft.done(draft.cast(_marks(draft, index, shape[axis], axis, len(shape)), draft.dtype()))
    return True


def _marks(draft: Draft, index: str, size: int, axis: int, rank: int) -> str:
    """Truth values: whether a place along a new axis is the one that is named."""
    along = np.arange(size, dtype=np.int32).reshape(-1, *[1] * (rank - 1 - axis))
    return draft.add("Equal", draft.unsqueeze(index, axis), draft.constant(along))


def top_k(draft: Draft) -> bool:
    """Move other axes last, and negate for the smallest: the operator takes the largest along the last axis."""
    shape = draft.shape(draft.input(0))
    count = draft.parameter(1, "k")
    if shape is None or count is None:
        return False
    axis = int(draft.settings.get("axis", -1)) % len(shape)
    largest = draft.settings.get("largest", 1)
    draft.settings.get("sorted", 1)  # sorted serves those who do not ask for it
    if axis == len(shape) - 1 and largest:
        return False
    moved, back = draft.moved_last(draft.input(0), axis, len(shape))
    source = moved if largest else draft.add("Neg", moved)
    values = draft.add("TopK", source, draft.constant(np.array([count.item()], np.int64)), outputs=2, axis=-1)
    draft.done(back(values if largest else draft.add("Neg", values)), 0)
    draft.done(back(f"{values}.1"), 1)
    return True


def triangle(draft: Draft) -> bool:
    """Trilu: a constant mask."""
    shape = draft.shape(draft.input(0))
    if shape is None:
        return False
    given = draft.parameter(1, "diagonal")
    k, ones = 0 if given is None else int(given.item()), np.ones(shape[-2:], np.bool_)
    mask = np.triu(ones, k) if draft.settings.get("upper", 1) else np.tril(ones, k)
    draft.done(draft.add("Where", draft.constant(mask), draft.input(0), draft.number(0)))
    return True


def last_extreme(draft: Draft) -> bool:
    """ArgMax or ArgMin that takes the last of equal numbers: the first from the end."""
    shape = draft.shape(draft.input(0))
    if not draft.settings.get("select_last_index", 0) or shape is None:
        return False
    axis = int(draft.settings.get("axis", 0)) % len(shape)
    ends = (draft.constant(np.array([number], np.int64)) for number in (-1, np.iinfo(np.int64).min, axis, -1))
    found = draft.add(
        draft.node.op_type, draft.add("Slice", draft.input(0), *ends), axis=axis,
        keepdims=draft.settings.get("keepdims", 1),
    )  # fmt: skip
    draft.done(draft.add("Sub", draft.constant(np.array(shape[axis] - 1, np.int64)), found))
    return True


def _steps(shape: Sequence[int]) -> list[int]:
    """Compute the distance of neighbours along each axis in a flat vector."""
    return [int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))]


def _wrapped(draft: Draft, name: str, size: int) -> str:
    index = draft.cast(name, np.int32)
    return draft.add("Mod", index, draft.constant(np.array(size, np.int32)))


def _linear(draft: Draft, name: str, span: Sequence[int]) -> str:
    """(..., axes) indices as (...) places in a flat vector."""
    sizes, steps = np.array(span, np.int32), np.array(_steps(span), np.int32)
    index = draft.add("Mod", draft.cast(name, np.int32), draft.constant(sizes))
    return draft.reduce("ReduceSum", draft.add("Mul", index, draft.constant(steps)), [-1], keep=False)
