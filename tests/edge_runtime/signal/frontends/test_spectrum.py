"""Spectra, masks and overlap-add."""

from __future__ import annotations

import numpy as np
import pytest

from edge_runtime.errors import ManifestError
from edge_runtime.manifest.frontends import FrontendSpec, Magnitude, Masked, OverlapAdd, Spectrum
from edge_runtime.signal.frontends.build import build
from tests.edge_runtime.signal.frontends.cuts import fresh, rows_of


def sound(samples: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(samples, 1)).astype(np.float32)


def test_masks_of_one_give_the_sound_back() -> None:
    """DTLN's way: frames of 512 every 128, no window, each sample in four frames."""
    heard = sound(128 * 20)
    spectrum = build(Spectrum(frame=512, hop=128, values="complex"), heard.shape)
    rows = rows_of(spectrum, heard)
    joined = np.concatenate([rows.reshape(len(rows), -1), np.ones((len(rows), 257), np.float32)], axis=1)
    frames = rows_of(build(Masked(mask="mask"), rows.shape, (17, 257)), joined)
    assert frames.shape == (17, 512)
    back = rows_of(build(OverlapAdd(hop=128), frames.shape), frames)
    assert back.shape == (17 * 128, 1)
    np.testing.assert_allclose(back[384:], 4 * heard[384 : 17 * 128], atol=1e-5)
    np.testing.assert_allclose(back[:128], heard[:128], atol=1e-6)  # one frame alone


def test_magnitudes_of_complex_rows_are_those_of_the_spectrum() -> None:
    heard = sound(700)
    values = rows_of(build(Spectrum(frame=512, hop=64, window="hann", values="complex"), heard.shape), heard)
    magnitudes = rows_of(build(Magnitude(), values.shape), values)
    expected = rows_of(build(Spectrum(frame=512, hop=64, window="hann"), heard.shape), heard)
    np.testing.assert_allclose(magnitudes, expected, rtol=1e-6)
    power = rows_of(build(Spectrum(frame=512, hop=64, window="hann", values="power"), heard.shape), heard)
    np.testing.assert_allclose(magnitudes**2, power, rtol=1e-6)


def test_a_step_of_a_frame_is_what_dtln_does_in_its_own_code() -> None:
    """Source: real_time_processing.py of breizhn/DTLN: shift, add, take the first 128 samples."""
    rng = np.random.default_rng(2)
    frames = rng.normal(size=(9, 1, 512)).astype(np.float32)
    added = build(OverlapAdd(hop=128), (1, 512))
    states, buffer = fresh(added), np.zeros(512, np.float32)
    for frame in frames:
        buffer = np.concatenate([buffer[128:], np.zeros(128, np.float32)]) + frame[0]
        rows, new = added(frame[None, None], states)
        states = list(new)
        np.testing.assert_array_equal(rows[0, :, 0], buffer[:128])


@pytest.mark.parametrize(
    ("spec", "cuts", "words"),
    [
        (Spectrum(frame=512, hop=128), [(500, 1)], "cut of 500 samples is shorter than a frame of 512"),
        (Spectrum(frame=512, hop=128), [(600, 2)], "takes one channel"),
        (Magnitude(), [(1, 257)], "values = 'complex'"),
        (Masked(mask="m"), [(1, 2, 257), (1, 256)], "a mask of the same frequencies"),
        (Masked(mask="m"), [(1, 257), (1, 257)], "values = 'complex'"),
        (OverlapAdd(hop=128), [(1, 64)], "write hop = 64 or less"),
    ],
)
def test_rows_that_do_not_fit_are_refused(spec: FrontendSpec, cuts: list[tuple[int, ...]], words: str) -> None:
    with pytest.raises(ManifestError, match=words):
        build(spec, *cuts)
