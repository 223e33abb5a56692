"""One list of checks over every front end and joint: what `edge_runtime.signal.frontends.Frontend` promises."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest.frontends import Bands, FrontendSpec, Magnitude, Masked, OverlapAdd, Spectrum, Statistic
from edge_runtime.manifest.mel import Mel, Pcen
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.signal.frontends import Array, Frontend
from edge_runtime.signal.frontends.build import build
from edge_runtime.types import Float32
from tests.edge_runtime.signal.frontends.cuts import fresh


@dataclass(frozen=True)
class Case:
    name: str
    spec: FrontendSpec
    cut: tuple[int, ...]
    rows: int
    shape: tuple[int, ...]
    tracks: tuple[tuple[int, ...], ...] = ()
    """Cuts of the tracks that `cut` holds side by side, where they are several."""

    def build(self) -> Frontend:
        return build(self.spec, *(self.tracks or (self.cut,)))


TENSORFLOW = Mel(definition="tensorflow", frame=480, hop=320, coefficients=10, normalise="max")
STATISTIC = Statistic(what=("mean", "std", "rms", "mad", "min", "max", "peak", "kurtosis", "crest"))
CASES = [
    Case("bands", Bands(rate_hz=100, edges_hz=(0, 5, 20, 50)), (100, 3), 1, (9,)),
    Case("bands-envelope", Bands(rate_hz=100, edges_hz=(1, 5), envelope_hz=(20, 40), log="db"), (99, 2), 1, (2,)),
    Case("magnitude", Magnitude(), (2, 2, 33), 2, (33,)),
    Case("masked", Masked(mask="mask"), (2, 3 * 33), 2, (64,), ((2, 2, 33), (2, 33))),
    Case("mel", Mel(frame=400, fft=512, hop=160, bands=40), (1200, 1), 8, (40,)),
    Case("mel-kaldi", Mel(definition="kaldi"), (900, 1), 4, (23,)),
    Case(
        "mel-levelled",
        Mel(frame=400, hop=160, bands=20, preemphasis=0.97, normalise="mean-std", normalise_rows="mean-std"),
        (1200, 1),
        8,
        (20,),
    ),
    Case("mel-one-frame", Mel(frame=512, hop=512, bands=40, centred=False, top_db=0), (512,), 1, (40,)),
    Case("mel-pcen", Mel(frame=256, hop=128, bands=20, centred=False, power=1, pcen=Pcen()), (512, 1), 3, (20,)),
    Case("mel-reflected", Mel(definition="torchaudio", coefficients=13, reference="max"), (1000, 1), 6, (13,)),
    Case("mel-speech", Mel(definition="python_speech_features", coefficients=13), (900, 1), 5, (13,)),
    Case("mel-tensorflow", TENSORFLOW, (4000, 1), 12, (10,)),
    Case("micro-frontend", MicroFrontend(bands=20), (800, 1), 3, (20,)),
    Case("micro-frontend-one-frame", MicroFrontend(), (480, 1), 1, (40,)),
    Case("overlap-add", OverlapAdd(hop=16), (2, 64), 32, (1,)),
    Case("spectrum", Spectrum(frame=64, hop=32, window="hann"), (200, 1), 5, (33,)),
    Case("spectrum-complex", Spectrum(frame=60, fft=64, hop=32, values="complex"), (60,), 1, (2, 33)),
    Case("spectrum-power", Spectrum(frame=63, hop=9, values="power"), (63, 1), 1, (32,)),
    Case("statistic", STATISTIC, (50, 3), 1, (27,)),
    Case("statistic-one", Statistic(what=("mad",)), (200, 1), 1, (1,)),
]
draws = st.tuples(st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32 - 1))


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    param: Case = request.param
    return param


def drawn(case: Case, batch: int, n_cuts: int, seed: int) -> Float32:
    """Cuts whose keys differ in level by up to a million."""
    rng = np.random.default_rng(seed)
    levels = 10.0 ** rng.uniform(-6, 0, (batch, *[1] * (len(case.cut) + 1)))
    return (levels * rng.normal(size=(batch, n_cuts, *case.cut))).astype(np.float32)


def of(states: list[Array], key: int) -> list[Array]:
    return [state[key : key + 1] for state in states]


@settings(derandomize=True, deadline=None, max_examples=12)
@given(draw=draws)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_key_gets_the_same_rows_alone_and_in_any_batch(case: Case, draw: tuple[int, int, int]) -> None:
    frontend, cuts = case.build(), drawn(case, *draw)
    first, states = frontend(cuts, fresh(frontend, len(cuts)))
    together, after = frontend(cuts, states)
    for key in range(0, len(cuts), 1 + len(cuts) // 7):
        own, own_states = frontend(cuts[key : key + 1], fresh(frontend))
        np.testing.assert_array_equal(own[0], first[key], strict=True)
        again, last = frontend(cuts[key : key + 1], own_states)
        np.testing.assert_array_equal(again[0], together[key], strict=True)
        for alone, among in zip(last, of(list(after), key), strict=True):
            np.testing.assert_array_equal(alone, among, strict=True)


@settings(derandomize=True, deadline=None, max_examples=8)
@given(draw=draws)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_several_cuts_at_once_are_the_same_as_one_after_another(case: Case, draw: tuple[int, int, int]) -> None:
    frontend, cuts = case.build(), drawn(case, min(draw[0], 5), 3, draw[2])
    at_once, end = frontend(cuts, fresh(frontend, len(cuts)))
    states, parts = fresh(frontend, len(cuts)), []
    for i in range(3):
        rows, new = frontend(cuts[:, i : i + 1], states)
        states = list(new)
        parts.append(rows)
    np.testing.assert_array_equal(np.concatenate(parts, axis=1), at_once, strict=True)
    for one, other in zip(states, end, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_rows_and_states_have_the_stated_number_and_shape(case: Case) -> None:
    frontend = case.build()
    assert (frontend.rows, frontend.shape) == (case.rows, case.shape)
    rows, states = frontend(drawn(case, 3, 2, 1), fresh(frontend, 3))
    assert rows.shape == (3, 2 * case.rows, *case.shape)
    assert rows.dtype == np.float32
    assert [(s.shape, s.dtype) for s in states] == [((3, *spec.shape), spec.dtype) for spec in frontend.states]


def test_neither_cuts_nor_states_are_written_to(case: Case) -> None:
    frontend, cuts = case.build(), drawn(case, 2, 2, 3)
    states = fresh(frontend, 2)
    for array in (cuts, *states):
        array.flags.writeable = False
    _, new = frontend(cuts, states)
    assert not any(np.shares_memory(a, b) for a in new for b in (cuts, *states))


def test_a_view_of_a_longer_recording_gives_the_same_rows(case: Case) -> None:
    frontend, cuts = case.build(), drawn(case, 2, 2, 4)
    wide = np.zeros((2, 2, *case.cut, 2), np.float32)
    wide[..., 0] = cuts
    plain, _ = frontend(cuts, fresh(frontend, 2))
    np.testing.assert_array_equal(frontend(wide[..., 0], fresh(frontend, 2))[0], plain, strict=True)


@pytest.mark.parametrize("level", [1e-45, 1e-20, 1.0, 1e30])
def test_rows_are_finite_whatever_the_samples(case: Case, level: float) -> None:
    frontend = case.build()
    silence = np.zeros((1, 1, *case.cut), np.float32)
    first, last, steady = silence.copy(), silence.copy(), np.full_like(silence, level)
    first.reshape(-1)[0] = level
    last.reshape(-1)[-1] = -level
    fastest = steady.copy()
    fastest[:, :, ::2] *= -1
    noise = np.random.default_rng(5).normal(size=silence.shape).astype(np.float32) * np.float32(level)
    states = fresh(frontend)
    for cut in (silence, first, last, steady, -steady, fastest, noise, silence):
        rows, new = frontend(cut.astype(np.float32), states)
        states = list(new)
        assert np.isfinite(rows).all()
        assert all(np.isfinite(state).all() for state in states)
