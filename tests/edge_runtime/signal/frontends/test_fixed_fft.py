"""The array operations against the same transform in plain integers, one value after another."""

from __future__ import annotations

import cmath
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.signal.frontends.fixed_fft import RealFft

Complex = tuple[int, int]
SIZE = 32
values = st.one_of(st.integers(-32768, 32767), st.sampled_from([-32768, -32767, -16384, 0, 1, 16384, 32767]))


def int16(x: int) -> int:
    return (x + 32768) % 65536 - 32768


def rounded(product: int) -> int:
    return int16((product + 16384) >> 15)


def divided(x: Complex, by: int) -> Complex:
    return rounded(x[0] * (32767 // by)), rounded(x[1] * (32767 // by))


def times(x: Complex, turns: float) -> Complex:
    factor = cmath.exp(-2j * math.pi * turns)
    c, s = math.floor(0.5 + 32767 * factor.real), math.floor(0.5 + 32767 * factor.imag)
    return rounded(x[0] * c - x[1] * s), rounded(x[0] * s + x[1] * c)


def plus(x: Complex, y: Complex, sign: int = 1) -> Complex:
    return int16(x[0] + sign * y[0]), int16(x[1] + sign * y[1])


def transform(x: list[Complex]) -> list[Complex]:
    """Decimation in time by 4."""
    if len(x) == 1:
        return x
    m = len(x) // 4
    parts = [transform(x[k::4]) for k in range(4)]
    out: list[Complex] = [(0, 0)] * len(x)
    for k in range(m):
        a, b, c, d = (times(divided(parts[j][k], 4), j * k / len(x)) for j in range(4))
        s, t = plus(a, c), plus(a, c, -1)
        u, v = plus(b, d), plus(b, d, -1)
        turned = v[1], int16(-v[0])
        out[k], out[k + m], out[k + 2 * m], out[k + 3 * m] = (
            plus(s, u),
            plus(t, turned),
            plus(s, u, -1),
            plus(t, turned, -1),
        )
    return out


def power(samples: list[int]) -> dict[int, int]:
    """Squared magnitude of each bin but the first and the last."""
    pairs = transform(list(zip(samples[0::2], samples[1::2], strict=True)))
    n, found = len(pairs), {}
    for k in range(1, n // 2 + 1):
        near, far = divided(pairs[k], 2), divided((pairs[n - k][0], int16(-pairs[n - k][1])), 2)
        even, odd = plus(near, far), times(plus(near, far, -1), (k / n + 0.5) / 2)
        found[k] = ((even[0] + odd[0]) >> 1) ** 2 + ((even[1] + odd[1]) >> 1) ** 2
        found[n - k] = ((even[0] - odd[0]) >> 1) ** 2 + ((odd[1] - even[1]) >> 1) ** 2
    return found


def frames_of(rows: list[list[int]]) -> npt.NDArray[Any]:
    return np.array(rows, np.int16)


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.lists(values, min_size=SIZE, max_size=SIZE), min_size=1, max_size=3))
def test_every_bin_has_the_integers_of_plain_arithmetic(rows: list[list[int]]) -> None:
    fft = RealFft(SIZE, 4)
    made = fft.power(frames_of(rows))
    for row, column in zip(rows, made.T, strict=True):
        assert dict(zip(fft.bins.tolist(), column.tolist(), strict=True)) == power(row)


def test_all_512_samples_at_the_ends_of_the_scale_wrap_around_alike() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.choice([-32768, 32767], 512), np.full(512, 32767), np.full(512, -32768)]
    fft = RealFft(512, 4)
    made = fft.power(np.array(rows, np.int16))
    for row, column in zip(rows, made.T, strict=True):
        assert dict(zip(fft.bins.tolist(), column.tolist(), strict=True)) == power(row.tolist())


def test_missing_samples_are_zeros() -> None:
    frames = np.random.default_rng(2).integers(-32768, 32768, (5, 512)).astype(np.int16)
    frames[:, 480:] = 0
    fft = RealFft(512, 8)
    fft.power(np.full((8, 512), 9, np.int16))
    short = fft.power(frames[:, :480]).copy()
    np.testing.assert_array_equal(fft.power(frames), short)


@pytest.mark.parametrize("size", [0, 16, 31, 64, 256, 1024])
def test_a_size_that_is_not_made_of_fours_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="twice a power of 4"):
        RealFft(size, 1)
