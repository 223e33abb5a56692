"""Folds: every group is in one of them, and they are of about the same size."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the models of a fold are trained by torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")

from edge_export.choose.surround.cross_fit import Folds, deal
from hypothesis import given
from hypothesis import strategies as st

COUNTS = st.dictionaries(st.text(min_size=1, max_size=5), st.integers(1, 1000), min_size=2, max_size=30)


@given(COUNTS, st.integers(2, 40))
def test_every_group_is_dealt_once_and_no_fold_is_empty(counts: dict[str, int], folds: int) -> None:
    dealt = deal(counts, Folds(folds))
    assert sorted(group for fold in dealt for group in fold) == sorted(counts)
    assert len(dealt) == min(folds, len(counts))
    assert all(dealt)


@given(COUNTS, st.integers(2, 10))
def test_folds_differ_by_no_more_than_the_largest_group(counts: dict[str, int], folds: int) -> None:
    sizes = [sum(counts[group] for group in fold) for fold in deal(counts, Folds(folds))]
    assert max(sizes) - min(sizes) <= max(counts.values())


def test_groups_that_every_fold_is_trained_on_are_in_no_fold() -> None:
    counts = {"a": 5, "hard": 50, "b": 5, "c": 9}
    assert deal(counts, Folds(2, always=("hard",))) == deal({"a": 5, "b": 5, "c": 9}, Folds(2))


def test_the_order_of_groups_does_not_matter() -> None:
    counts = {"a": 5, "b": 5, "c": 9, "d": 1}
    assert deal(counts, Folds(2)) == deal(dict(reversed(counts.items())), Folds(2))


@given(COUNTS, st.integers(2, 10), st.data())
def test_groups_set_apart_are_the_last_fold_and_in_no_other(
    counts: dict[str, int], folds: int, data: st.DataObject
) -> None:
    apart = data.draw(st.lists(st.sampled_from(sorted(counts)), min_size=1, max_size=len(counts) - 1, unique=True))
    *others, last = deal(counts, Folds(folds, tuple(apart)))
    assert last == apart
    assert others == deal({group: count for group, count in counts.items() if group not in apart}, Folds(folds))
