"""Rows against those of TensorFlow's C code (tests/data/frontends/micro_frontend.py)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ManifestError
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.signal.frontends import Array
from edge_runtime.signal.frontends.micro_frontend import MicroFrontendRows
from edge_runtime.types import Float32

REFERENCE = Path(__file__).parents[3] / "data/frontends/micro_frontend.npz"
SOUNDS = ("ends", "inverse", "lowest", "quiet", "square", "voice")


def as_cuts(sound: npt.NDArray[Any], samples: int, hop: int) -> Float32:
    """(1, n, samples): overlapping cuts of int16 sound, at full scale of 1."""
    views = np.lib.stride_tricks.sliding_window_view(sound, samples)[::hop]
    return np.asarray(views[None] / np.float32(32768), np.float32)


def fresh(frontend: MicroFrontendRows, keys: int = 1) -> list[Array]:
    return [np.zeros((keys, *state.shape), state.dtype) for state in frontend.states]


@pytest.fixture(scope="module")
def frontend() -> MicroFrontendRows:
    return MicroFrontendRows(MicroFrontend(), (480, 1))


@pytest.mark.parametrize(("samples", "rows"), [(480, 1), (800, 3)])
@pytest.mark.parametrize("name", SOUNDS)
def test_every_row_is_the_reference_to_the_last_bit(name: str, samples: int, rows: int) -> None:
    with np.load(REFERENCE) as reference:
        sound, wanted = reference[f"{name}.sound"], reference[f"{name}.rows"]
    frontend = MicroFrontendRows(MicroFrontend(), (samples,))
    assert frontend.rows == rows
    found, _ = frontend(as_cuts(sound, samples, rows * 160), fresh(frontend))
    np.testing.assert_array_equal(found[0], wanted * np.float32(0.0390625), strict=True)


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    keys=st.integers(1, 20),
    loudness=st.sampled_from([3, 300, 9000, 40000]),
    splits=st.lists(st.integers(1, 14), max_size=6),
)
def test_keys_together_in_calls_of_any_length_have_the_rows_that_each_has_alone(
    seed: int, keys: int, loudness: int, splits: list[int]
) -> None:
    frontend = MicroFrontendRows(MicroFrontend(), (800,))
    random = np.random.default_rng(seed)
    sounds = random.normal(0, loudness, (keys, 800 + 14 * 480)).clip(-32768, 32767).astype(np.int16)
    cuts = np.concatenate([as_cuts(sound, 800, 480) for sound in sounds])
    bounds = [0, *sorted(set(splits)), cuts.shape[1]]
    states: list[Array] = fresh(frontend, keys)
    parts = []
    for begin, end in itertools.pairwise(bounds):
        rows, new = frontend(cuts[:, begin:end], states)
        parts.append(rows)
        states = list(new)
    joined = np.concatenate(parts, axis=1)
    for k in range(keys):
        alone, (noise,) = frontend(cuts[k : k + 1], fresh(frontend))
        np.testing.assert_array_equal(joined[k], alone[0], strict=True)
        np.testing.assert_array_equal(states[0][k], noise[0], strict=True)


def test_more_frames_than_one_transform_takes_are_the_same_rows(frontend: MicroFrontendRows) -> None:
    sound = np.random.default_rng(3).integers(-9000, 9000, (2, 480)).astype(np.int16)
    cuts = np.repeat((sound / np.float32(32768)).astype(np.float32)[:, None], 400, axis=1)
    rows, _ = frontend(cuts, fresh(frontend, 2))
    alone, _ = frontend(cuts[:1, :100], fresh(frontend))
    np.testing.assert_array_equal(rows[0, :100], alone[0], strict=True)


@pytest.mark.parametrize("wide", [-2.0, -1.00001, 1.0, 3e38])
def test_sound_beyond_full_scale_is_cut_off(wide: float, frontend: MicroFrontendRows) -> None:
    edge = -1.0 if wide < 0 else 32767 / 32768
    rows, _ = frontend(np.full((1, 2, 480), wide, np.float32), fresh(frontend))
    wanted, _ = frontend(np.full((1, 2, 480), edge, np.float32), fresh(frontend))
    np.testing.assert_array_equal(rows, wanted)


@pytest.mark.parametrize("shape", [(479,), (480, 2), (2, 480)])
def test_a_cut_without_a_whole_frame_or_with_several_channels_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ManifestError, match="at least 480 samples"):
        MicroFrontendRows(MicroFrontend(), shape)


def test_other_numbers_of_bands_give_rows_of_that_size() -> None:
    frontend = MicroFrontendRows(MicroFrontend(bands=16, hop=320), (800,))
    rows, (noise,) = frontend(np.zeros((3, 2, 800), np.float32), fresh(frontend, 3))
    assert (rows.shape, noise.shape) == ((3, 4, 16), (3, 16))


@pytest.mark.parametrize("field", [{"bands": 7}, {"bands": 65}, {"hop": 0}, {"hop": 481}], ids=str)
def test_settings_beyond_what_was_compared_are_refused(field: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        MicroFrontend(**field)
