"""Clips of nothing are made of what lies around words, and hold no word."""

from __future__ import annotations

import numpy as np
from edge_export.data.dataset import Recording
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.accuracy.nothing import EDGE, extent, nothing_clips

SAMPLES = 200
NOTHING = 2


def clip_of(name: str, group: str, begin: int, end: int, label: int = 0) -> Recording:
    values = np.full((SAMPLES, 1), 1e-3, np.float32)
    values[begin:end] = 1.0
    return Recording(name=name, group=group, label=label, values=values)


@given(begin=st.integers(0, 100), length=st.integers(10, 100))
def test_the_extent_of_a_word_is_where_its_energy_is(begin: int, length: int) -> None:
    first, last = extent(clip_of("a", "g", begin, begin + length).values)
    assert begin <= first <= begin + 1
    assert begin + length - 2 <= last <= begin + length


@given(
    words=st.lists(st.tuples(st.sampled_from("gh"), st.integers(0, 100), st.integers(10, 100)), min_size=1, max_size=8)
)
def test_no_clip_of_nothing_holds_more_than_the_edges_of_two_words_of_its_group(
    words: list[tuple[str, int, int]],
) -> None:
    clips = [clip_of(str(i), group, begin, begin + n) for i, (group, begin, n) in enumerate(words)]
    made = nothing_clips(clips, NOTHING)
    assert sorted(one.group for one in made) == sorted(clip.group for clip in clips)
    assert len({one.name for one in made} | {clip.name for clip in clips}) == 2 * len(clips)
    for one in made:
        longest = max(n for group, _, n in words if group == one.group)
        assert one.label == NOTHING
        assert one.values.shape == (SAMPLES, 1)
        # `extent` leaves out up to a sample of a word at each side, which counts as background.
        loud = int((one.values > 0.5).sum())
        assert loud <= 2 * EDGE * longest + SAMPLES * 4 / (SAMPLES - longest)


def test_clips_that_are_of_nothing_already_make_no_further_ones() -> None:
    clips = [clip_of("door", "g", 10, 60, NOTHING), clip_of("one", "g", 50, 100)]
    before = [clip.values.copy() for clip in clips]
    assert [one.name for one in nothing_clips(clips, NOTHING)] == ["one/nothing"]
    for clip, values in zip(clips, before, strict=True):
        np.testing.assert_array_equal(clip.values, values)


def test_a_word_that_fills_its_clip_leaves_silence() -> None:
    assert not nothing_clips([clip_of("a", "g", 0, SAMPLES)], NOTHING)[0].values.any()
