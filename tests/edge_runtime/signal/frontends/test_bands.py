"""Band powers of vibration."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_runtime.errors import ManifestError
from edge_runtime.manifest.frontends import Bands
from edge_runtime.signal.frontends.build import build
from tests.edge_runtime.signal.frontends.cuts import rows_of


def test_a_tone_lies_in_its_band_with_half_its_squared_amplitude() -> None:
    t = np.arange(1000)[:, None] / 1000
    x = np.concatenate([3 * np.sin(2 * np.pi * 50 * t), 5 + 0.5 * np.sin(2 * np.pi * 300 * t)], axis=1)
    spec = Bands(rate_hz=1000, edges_hz=(0, 40, 60, 500))
    row = rows_of(build(spec, x.shape), x.astype(np.float32))
    np.testing.assert_allclose(row[0], [0, 4.5, 0, 0, 0, 0.125], atol=1e-3)


@pytest.mark.parametrize("samples", [1000, 1001])
def test_the_bands_of_noise_add_up_to_its_variance(samples: int) -> None:
    x = np.random.default_rng(3).normal(2, 7, (samples, 1)).astype(np.float32)
    row = rows_of(build(Bands(rate_hz=200, edges_hz=(0, 1, 30, 100)), x.shape), x)
    assert row.sum() == pytest.approx(x.var(), rel=0.06)
    assert row[0, 1] / row.sum() == pytest.approx(0.29, abs=0.06)


def test_decibels_are_those_of_the_powers() -> None:
    x = np.random.default_rng(4).normal(size=(256, 2)).astype(np.float32)
    edges = (0.0, 10.0, 50.0)
    power = rows_of(build(Bands(rate_hz=100, edges_hz=edges), x.shape), x)
    decibels = rows_of(build(Bands(rate_hz=100, edges_hz=edges, log="db"), x.shape), x)
    np.testing.assert_allclose(decibels, 10 * np.log10(power), rtol=1e-5)


def test_an_envelope_shows_how_often_a_carrier_is_struck() -> None:
    t = np.arange(4000)[:, None] / 4000
    struck = (1 + np.cos(2 * np.pi * 30 * t)) * np.sin(2 * np.pi * 1200 * t)
    edges = (5.0, 25.0, 35.0, 100.0)
    plain = rows_of(build(Bands(rate_hz=4000, edges_hz=edges), t.shape), struck.astype(np.float32))
    spec = Bands(rate_hz=4000, edges_hz=edges, envelope_hz=(1000, 1400))
    envelope = rows_of(build(spec, t.shape), struck.astype(np.float32))
    assert plain.max() < 1e-6
    np.testing.assert_allclose(envelope[0], [0, 0.5, 0], atol=1e-3)


def test_a_bearing_of_a_motor_shows_its_fault_in_the_envelope(shared: Path) -> None:
    """Outer race: struck 107.4 times a second (SOURCE.md of the recordings)."""
    edges = (20.0, 100.0, 115.0, 200.0)
    spec = Bands(rate_hz=12000, edges_hz=edges, envelope_hz=(2000, 4500))

    def share(name: str) -> float:
        with np.load(shared / "data/bearing-cwru" / f"{name}.npz") as file:
            x = file["DE"].reshape(-1, 1)[:12000].astype(np.float32)
        row = rows_of(build(spec, x.shape), x)[0]
        return float(row[1] / row.sum())

    assert share("load0_OR-at-6_007") > 0.5
    assert share("load0_Normal_part1") < 0.3


def test_a_band_without_a_frequency_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"no frequency from 10\.2 to 10\.8 Hz \(they are 1 Hz apart\)"):
        build(Bands(rate_hz=100, edges_hz=(1, 10.2, 10.8)), (100, 1))
