"""Filter banks: sums of slopes against the matrix that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest.mel import Mel
from edge_runtime.signal.frontends.build import build
from edge_runtime.signal.frontends.mel_bank import Triangles, mel_weights

definitions = st.sampled_from(["kaldi", "librosa", "python_speech_features", "tensorflow", "torchaudio"])


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    definition=definitions,
    fft=st.sampled_from([16, 64, 256, 400, 512, 1024]),
    bands=st.integers(1, 128),
    low=st.floats(0, 3000),
    width=st.floats(1, 5000),
)
def test_the_sums_are_those_of_the_matrix(definition: Any, fft: int, bands: int, low: float, width: float) -> None:
    spec = Mel(definition=definition, frame=fft, fft=fft, hop=fft, bands=bands, low_hz=low, high_hz=low + width)
    weights = mel_weights(spec)
    spectra = np.random.default_rng(0).exponential(size=(5, fft // 2 + 1))
    np.testing.assert_allclose(Triangles(weights)(spectra), spectra @ weights.T, rtol=1e-12, atol=1e-300)


def test_a_row_alone_has_the_same_sums_to_the_last_bit() -> None:
    """Rounded to float32, the sums of a matrix product would nearly always pass the contract suite."""
    bank = Triangles(mel_weights(Mel(frame=512, hop=160, bands=40)))
    spectra = np.random.default_rng(0).exponential(size=(37, 257))
    together = bank(spectra)
    for i in range(37):
        np.testing.assert_array_equal(bank(spectra[i : i + 1])[0], together[i], strict=True)


def test_a_bank_that_is_no_row_of_triangles_is_refused() -> None:
    with pytest.raises(ValueError, match="more than two bands"):
        Triangles(np.ones((3, 5)))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    definition=definitions,
    frame=st.integers(16, 600),
    hop=st.integers(1, 400),
    bands=st.integers(1, 60),
    power=st.sampled_from([1, 2]),
    log=st.sampled_from(["db", "ln", "log10", "none"]),
    samples=st.integers(0, 700),
    batch=st.integers(1, 3),
)
def test_any_settings_give_as_many_finite_rows_as_stated(
    definition: Any, frame: int, hop: int, bands: int, power: Any, log: Any, samples: int, batch: int
) -> None:
    power = 2 if definition == "python_speech_features" else power
    spec = Mel(definition=definition, frame=frame, hop=hop, bands=bands, power=power, log=log, high_hz=8000)
    front_end = build(spec, (1024 + samples, 1))
    cuts = np.random.default_rng(hop).normal(size=(batch, 2, 1024 + samples, 1)).astype(np.float32)
    rows, _ = front_end(cuts, [])
    assert rows.shape == (batch, 2 * front_end.rows, bands)
    assert np.isfinite(rows).all()


def test_rows_of_a_louder_cut_with_another_mean_are_the_same_where_cuts_are_levelled() -> None:
    samples = np.random.default_rng(5).normal(0, 0.1, (1, 1, 1600, 1)).astype(np.float32)
    common: dict[str, Any] = {"frame": 400, "hop": 160, "bands": 20, "log": "ln", "centred": False}
    levelled: tuple[dict[str, Any], ...] = ({}, {"normalise": "mean-std"}, {"normalise_rows": "mean-std"})
    plain, level, bands = (build(Mel(**common, **more), (1600, 1)) for more in levelled)
    rows = plain(samples, [])[0]
    assert np.abs(plain(8 * samples + 0.5, [])[0] - rows).max() > 1
    np.testing.assert_allclose(level(8 * samples + 0.5, [])[0], level(samples, [])[0], atol=1e-3)
    made = bands(samples, [])[0]
    np.testing.assert_allclose(made.mean(axis=1), 0, atol=1e-5)
    np.testing.assert_allclose(made.std(axis=1), 1, atol=1e-4)
    centred = rows - rows.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(made, centred / rows.std(axis=1, keepdims=True), atol=1e-3)
    less = build(Mel(**common, normalise_rows="mean"), (1600, 1))(samples, [])[0]
    np.testing.assert_allclose(less, centred, atol=1e-4)
    assert np.isfinite(level(np.zeros_like(samples), [])[0]).all(), "silence has no deviation"
