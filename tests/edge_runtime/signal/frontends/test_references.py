"""Front ends against the libraries that define them: rows made by tests/data/frontends/make.py."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime import schema
from edge_runtime.manifest.frontends import Spectrum, Statistic
from edge_runtime.manifest.mel import Mel, Pcen
from edge_runtime.signal.frontends.bands import analytic_factors, envelope
from edge_runtime.signal.frontends.build import build
from edge_runtime.types import Float32
from tests.edge_runtime.signal.frontends import cards
from tests.edge_runtime.signal.frontends.cuts import fresh, rows_of

DATA = Path(__file__).parents[3] / "data" / "frontends"


@dataclass(frozen=True)
class Case:
    """A table of a card, and the rows that a library gives for it."""

    library: str
    rows: str
    stage: dict[str, Any]
    within: float = 1e-5
    """Largest difference, as a share of the largest value."""

    def __str__(self) -> str:
        return f"{self.library}-{self.rows}"


PSF: dict[str, Any] = {"definition": "python_speech_features", "scale": 32768}
CASES = [
    Case("librosa", "defaults", {}),
    Case("librosa", "energies", {"frame": 400, "hop": 200, "bands": 32, "window": "hamming", "log": "none"}),
    Case("librosa", "magnitudes", {"frame": 512, "hop": 160, "bands": 40, "power": 1}),
    Case("librosa", "mfcc", {"frame": 512, "hop": 160, "coefficients": 13}),
    Case("librosa", "miniresnet", cards.MINIRESNET | {"padding": "constant"}),
    Case("librosa", "pcen", {"frame": 512, "hop": 160, "bands": 40, "power": 1, "scale": 2**31, "pcen": {}}),
    Case("librosa", "toycar", cards.TOYCAR),
    Case("librosa", "yamnet", cards.YAMNET),
    Case("psf", "defaults", PSF),
    Case("psf", "mfcc", PSF | {"coefficients": 13}),
    Case("psf", "tutorial", PSF | cards.TUTORIAL),
    Case("tensorflow", "defaults", {"frame": 512, "hop": 160}),
    Case("tensorflow", "keyword", cards.KEYWORD),
    Case("torchaudio", "defaults", {}),
    Case("torchaudio", "kaldi", {"definition": "kaldi", "scale": 32768}),
    Case("torchaudio", "kaldi_64", cards.KALDI_64),
    Case(
        "torchaudio",
        "mel",
        {"frame": 400, "fft": 512, "hop": 160, "bands": 40, "log": "ln", "floor": 1e-6, "floor_by": "add"},
    ),
    Case("torchaudio", "mfcc", {"frame": 512, "hop": 160, "bands": 40, "coefficients": 13}),
]


def reference(library: str, name: str) -> tuple[Float32, Any]:
    """The sound, full scale 1, and what the library made of it."""
    with np.load(DATA / f"{library}.npz") as file:
        return (file["sound"] / 32768).astype(np.float32)[:, None], file[name]


@pytest.mark.parametrize("case", sorted(CASES, key=str), ids=str)
def test_a_mel_stage_gives_the_rows_of_its_library(case: Case) -> None:
    sound, expected = reference(case.library, case.rows)
    spec = schema.load(Mel, {"definition": case.library, **case.stage})
    got = rows_of(build(spec, sound.shape), sound)
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() < case.within * np.abs(expected).max()


def test_pcen_goes_on_where_the_cut_before_ended() -> None:
    sound, expected = reference("librosa", "pcen")
    spec = Mel(frame=512, hop=160, bands=40, power=1, scale=2**31, centred=False, pcen=Pcen())
    padded = np.concatenate([np.zeros((256, 1), np.float32), sound, np.zeros((256, 1), np.float32)])
    frontend = build(spec, (512 + 160, 1))
    states, rows = fresh(frontend), []
    for start in range(0, 160 * 24, 320):
        made, new = frontend(padded[None, None, start : start + 672], states)
        states = list(new)
        rows.append(made[0])
    np.testing.assert_allclose(np.concatenate(rows), expected[:24], rtol=1e-5, atol=1e-6)


def test_spectra_are_those_of_the_libraries() -> None:
    sound, expected = reference("librosa", "complex")
    rows = rows_of(build(Spectrum(frame=512, hop=128, values="complex"), sound.shape), sound)
    np.testing.assert_allclose(rows[::9, 0] + 1j * rows[::9, 1], expected, atol=1e-5)
    sound, expected = reference("tensorflow", "magnitude")
    rows = rows_of(build(Spectrum(frame=255, fft=256, hop=128, window="hann-symmetric"), sound.shape), sound)
    np.testing.assert_allclose(rows[::9], expected[:, :129], atol=1e-5)


def test_the_wake_word_rows_of_mlperf_tiny_follow_from_a_mel_stage() -> None:
    """Its power is divided by 1,024, and (dB + 52) / 64 is what the model takes, in 0..1: offset, scale, saturation."""
    sound, expected = reference("tensorflow", "wake_word")
    spec = schema.load(Mel, cards.WAKE_WORD)
    rows = rows_of(build(spec, sound.shape), sound)
    got = np.clip((rows - 10 * np.log10(1024) + 52) / 64, 0, 1)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_statistics_are_those_of_scipy() -> None:
    sound, mad = reference("librosa", "mad")
    _, kurtosis = reference("librosa", "kurtosis")
    channels = sound[:3999, 0].reshape(1333, 3)
    spec = Statistic(what=("mad", "kurtosis"))
    row = rows_of(build(spec, channels.shape), channels).reshape(3, 2)
    np.testing.assert_allclose(row, np.stack([mad, kurtosis], 1), rtol=1e-5)


def test_plain_statistics_are_what_their_names_say() -> None:
    x = np.array([[3.0, 1.0], [-4.0, 1.0], [0.0, 1.0], [5.0, 1.0]], np.float32)
    spec = Statistic(what=("mean", "std", "rms", "min", "max", "peak", "crest", "kurtosis", "mad"))
    row = rows_of(build(spec, x.shape), x).reshape(2, 9)
    rms = np.sqrt(50 / 4)
    np.testing.assert_allclose(row[0, :7], [1, np.sqrt(46 / 4), rms, -4, 5, 5, 5 / rms], rtol=1e-6)
    np.testing.assert_array_equal(row[1], [1, 0, 1, 1, 1, 1, 1, 0, 0])


def test_an_envelope_is_that_of_the_hilbert_transform() -> None:
    sound, expected = reference("librosa", "envelope")
    factors = analytic_factors(np.arange(len(sound) // 2 + 1.0), (0, len(sound)), len(sound))
    np.testing.assert_allclose(envelope(sound[:, 0].astype(np.float64), factors)[::20], expected, rtol=1e-5)
