"""Pictures of another size are Pillow's, bit for bit, and other shapes fit as they are told to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.media.picture import in_colours
from edge_runtime.media.resize import Bytes, fit, resize

STORED = np.load(Path(__file__).parents[2] / "data/pictures/resized.npz")
PAIRS = range(len([name for name in STORED.files if name.startswith("to_")]))


def noise(height: int, width: int) -> Bytes:
    return np.random.default_rng(height * width).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("i", PAIRS)
def test_sizes_are_those_of_pillow_bit_for_bit(i: int) -> None:
    wanted = STORED[f"to_{i}"]
    assert resize(STORED[f"from_{i}"], *wanted.shape[:2]).tolist() == wanted.tolist()


@pytest.mark.parametrize("i", PAIRS)
def test_grey_is_that_of_pillow_bit_for_bit(i: int) -> None:
    assert in_colours(STORED[f"from_{i}"], "grey")[..., 0].tolist() == STORED[f"grey_{i}"].tolist()


@given(st.tuples(*[st.integers(1, 60)] * 4))
def test_one_colour_stays_that_colour(sizes: tuple[int, int, int, int]) -> None:
    h, w, height, width = sizes
    assert (resize(np.full((h, w, 1), 201, np.uint8), height, width) == 201).all()


def test_stretched_changes_proportions() -> None:
    wide = noise(10, 40)
    assert fit(wide, 10, 10, "stretch").tolist() == resize(wide, 10, 10).tolist()


@pytest.mark.parametrize(
    ("h", "w", "rows", "columns"),
    [
        (10, 41, slice(0, 10), slice(15, 25)),
        (40, 10, slice(15, 25), slice(0, 10)),
        (10, 10, slice(0, 10), slice(0, 10)),
    ],
)
def test_cropped_is_the_middle(h: int, w: int, rows: slice, columns: slice) -> None:
    whole = noise(h, w)
    assert fit(whole, 5, 5, "crop").tolist() == resize(whole[rows, columns], 5, 5).tolist()


def test_padded_is_whole_on_the_ground() -> None:
    wide = noise(10, 40)
    padded = fit(wide, 20, 20, "pad", 114)
    assert (padded[:7] == 114).all()
    assert (padded[12:] == 114).all()
    assert padded[7:12].tolist() == resize(wide, 5, 20).tolist()


@given(st.tuples(*[st.integers(1, 50)] * 4), st.sampled_from(["stretch", "crop", "pad"]))
def test_every_shape_fits(sizes: tuple[int, int, int, int], how: str) -> None:
    h, w, height, width = sizes
    assert fit(noise(h, w), height, width, how, 7).shape == (height, width, 3)
