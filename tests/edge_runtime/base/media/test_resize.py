"""Pictures of another size are Pillow's, bit for bit, and other shapes fit as they are told to."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.media.picture import in_colours
from edge_runtime.base.media.resize import Bytes, resize
from edge_runtime.base.media.resize import fit as fit_frame
from edge_runtime.manifest.frames import Frame

STORED = np.load(Path(__file__).parents[3] / "data/pictures/resized.npz")
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


@given(st.tuples(*[st.integers(1, 60)] * 4), st.booleans(), st.integers(1, 2000))
def test_some_rows_at_a_time_give_what_all_at_once_give(
    sizes: tuple[int, int, int, int], antialias: bool, block: int
) -> None:
    h, w, height, width = sizes
    whole = resize(noise(h, w), height, width, antialias=antialias)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("edge_runtime.base.media.resize._BLOCK", block)
        assert resize(noise(h, w), height, width, antialias=antialias).tolist() == whole.tolist()


def test_a_high_and_narrow_picture_takes_the_memory_of_a_square_one() -> None:
    def peak(height: int, width: int) -> int:
        pixels = np.zeros((height, width, 3), np.uint8)
        tracemalloc.start()
        resize(pixels, 224, 224)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    assert peak(2**15, 1) < 4 * peak(512, 512)


def fit(picture: Bytes, height: int, width: int, **how: Any) -> Bytes:
    return fit_frame(picture, Frame(height=height, width=width, **how))


def four_pixels(picture: Bytes, height: int, width: int) -> npt.NDArray[np.float64]:
    """As OpenCV's INTER_LINEAR: the four pixels around each new one's middle, those beyond the edge repeated."""
    corners, shares = [], []
    for size, to in zip(picture.shape, (height, width), strict=False):
        at = (np.arange(to) + 0.5) * size / to - 0.5
        low = np.floor(at).astype(int)
        corners.append((np.clip(low, 0, size - 1), np.clip(low + 1, 0, size - 1)))
        shares.append(at - low)
    (top, bottom), (left, right) = corners
    down, across = shares[0][:, None, None], shares[1][None, :, None]
    whole = picture.astype(np.float64)
    upper = whole[top][:, left] * (1 - across) + whole[top][:, right] * across
    lower = whole[bottom][:, left] * (1 - across) + whole[bottom][:, right] * across
    return np.asarray(upper * (1 - down) + lower * down)


@given(st.tuples(*[st.integers(1, 60)] * 4))
def test_without_antialias_it_is_the_bilinear_of_four_pixels(sizes: tuple[int, int, int, int]) -> None:
    h, w, height, width = sizes
    made = resize(noise(h, w), height, width, antialias=False)
    assert np.abs(made - four_pixels(noise(h, w), height, width)).max() < 1.001  # this one rounds twice


def letterbox(picture: Bytes, side: int, ground: tuple[int, int, int]) -> npt.NDArray[np.float64]:
    """As NudeNet and YOLOX: scaled by OpenCV, in the upper left corner, the ground on the right and below."""
    share = side / max(picture.shape)
    h, w = (round(size * share) for size in picture.shape[:2])
    made = np.tile(np.array(ground, np.float64), (side, side, 1))
    made[:h, :w] = four_pixels(picture, h, w)
    return made


@pytest.mark.parametrize("ground", [(0, 0, 0), (114, 114, 114), (104, 117, 123)])
@pytest.mark.parametrize(("h", "w"), [(90, 41), (41, 90), (30, 30)])
def test_a_letterbox_at_the_top_left_is_that_of_opencv(h: int, w: int, ground: tuple[int, int, int]) -> None:
    made = fit(noise(h, w), 32, 32, fit="pad", at="top-left", padding=ground, antialias=False)
    assert np.abs(made - letterbox(noise(h, w), 32, ground)).max() < 1.001  # this one rounds twice


def test_stretched_changes_proportions() -> None:
    wide = noise(10, 40)
    assert fit(wide, 10, 10, fit="stretch").tolist() == resize(wide, 10, 10).tolist()


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
    assert fit(whole, 5, 5, fit="crop").tolist() == resize(whole[rows, columns], 5, 5).tolist()


@pytest.mark.parametrize(("how", "h", "w"), [("stretch", 50, 70), ("crop", 60, 60)])
def test_a_share_of_the_middle_is_cut_after_resizing(how: str, h: int, w: int) -> None:
    whole = noise(h, w)
    made = fit(whole, 28, 28, fit=how, crop_share=0.875)
    assert made.tolist() == resize(whole, 32, 32)[2:30, 2:30].tolist()


def test_padded_is_whole_on_the_ground() -> None:
    wide = noise(10, 40)
    padded = fit(wide, 20, 20, fit="pad", padding=114)
    assert (padded[:7] == 114).all()
    assert (padded[12:] == 114).all()
    assert padded[7:12].tolist() == resize(wide, 5, 20).tolist()


FITS: list[dict[str, Any]] = [
    {"fit": "stretch", "crop_share": 0.875},
    {"fit": "crop", "crop_share": 0.3},
    {"fit": "crop", "antialias": False},
    {"fit": "pad", "padding": 7},
    {"fit": "pad", "padding": (1, 2, 3), "at": "top-left"},
]


@given(st.tuples(*[st.integers(1, 50)] * 4), st.sampled_from(FITS))
def test_every_shape_fits(sizes: tuple[int, int, int, int], how: dict[str, Any]) -> None:
    h, w, height, width = sizes
    assert fit(noise(h, w), height, width, **how).shape == (height, width, 3)
