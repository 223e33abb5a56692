"""Fixed-point FFT of real int16 samples, many frames at once: the very integers of KISS FFT with 16 bits.

A microcontroller's FFT divides by its radix before every stage and rounds after every product. A floating-point FFT is
more exact and so gives other numbers. Here the integer operations are repeated one by one: int16 that wraps around for
sums, int32 for products. Frames lie in the last axis, so that each operation runs over all of them.

The operations are a list, made once for a number of frames: making the views of the arrays at each call took as long as
the arithmetic of 100 frames.

Source: M. Borgerding, KISS FFT, `kiss_fftr` with FIXED_POINT=16, radix 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Int16 = npt.NDArray[np.int16]
Int32 = npt.NDArray[np.int32]
_Step = tuple[Callable[..., Any], Any, Any, Array]
"""Operation, its two operands, and the array that it writes."""

_ONE = 32767
"""Integer that stands for 1 in a twiddle factor."""
_FRACTION_BITS = 15
_HALF = 1 << (_FRACTION_BITS - 1)
"""Half of the last bit that is left of a product."""
_ROOM = 32
# An operand that is an array already costs a third less than a number.
_INT16 = {number: np.array(number, np.int16) for number in (-2, 1, 2, 13, 14)}
_INT32 = {number: np.array(number, np.int32) for number in (1, _FRACTION_BITS, _HALF)}


class RealFft:
    """Squared magnitudes of the spectrum of `size` real samples.

    Args:
        size: samples; twice a power of 4, at least 32.
        most: frames in one call. More fill the caches of a core, fewer pay more for each call.
    """

    def __init__(self, size: int, most: int) -> None:
        self._points = points = size // 2
        if size < 32 or 4 ** ((points.bit_length() - 1) // 2) * 2 != size:
            raise ValueError(f"size must be twice a power of 4, at least 32; it is {size}")
        half = points // 2
        self.most = most
        self.bins = np.concatenate([np.arange(1, half), np.arange(points - 1, half - 1, -1)])
        """Bin of each row that `power` gives: all but 0 and `size` / 2."""
        self._twiddles: list[tuple[Int32, Int32]] = []
        done = 4
        while done < points:
            turns = np.outer(np.arange(1, 4), np.arange(1, done)) / (4 * done)
            self._twiddles.append(_twiddle(turns.reshape(3, done - 1, 1, 1)))
            done *= 4
        self._split = _twiddle((np.arange(1, half + 1)[:, None] / points + 0.5) / 2)
        self._values = tuple(np.zeros(2 * points * most, np.int16) for _ in range(2))
        """Real parts and imaginary parts; a stage reads one array and writes the other."""
        self._sums = np.zeros(2 * points * most, np.int16)
        self._products = tuple(np.zeros(2 * points * most, np.int32) for _ in range(2))
        self._programs: dict[int, list[_Step]] = {}

    def power(self, frames: Int16) -> Int32:
        """Return the squared magnitudes, (bins, n); the next call overwrites them.

        Args:
            frames: (n, samples), at most `most` of at most `size` samples, an even number; zeros fill them up.
        """
        count, samples = frames.shape
        room = self._room(count)
        points = self._values[0][: 2 * self._points * room].reshape(2, self._points, room)
        # Every value x travels as z = x - 1, the form that `_divide` takes.
        pairs = frames.reshape(count, samples // 2, 2).transpose(2, 1, 0)
        np.subtract(pairs, _INT16[1], out=points[:, : samples // 2, :count])
        points[:, samples // 2 :] = -1
        if room not in self._programs:
            self._programs[room] = [*self._program(room)]
        for operation, first, second, out in self._programs[room]:
            operation(first, second, out)
        power = self._products[0][: (self._points - 1) * room].reshape(-1, room)
        return power[:, :count]

    def _room(self, count: int) -> int:
        """Round up to 1, 2, 4, 8, 16 or a multiple of 32: a few programs serve every number of frames."""
        if count <= _ROOM // 2:
            return 1 << max(count - 1, 0).bit_length()
        return min(-(-count // _ROOM) * _ROOM, self.most)

    def _program(self, count: int) -> Iterator[_Step]:
        """Yield all operations on `count` frames."""
        points = self._points
        now, after = (each[: 2 * points * count] for each in self._values)
        done = 1
        for stage in range(len(self._twiddles) + 1):
            left = points // (4 * done)
            x = now.reshape(2, 4, done, left, count)
            # Four numbers of at most 8191 follow the first stage's division: none is -32768.
            yield from _divide(x, 2, self._sums, check=stage != 1)
            # Each of the four sums of a butterfly has the first addend once: so all four are less 1 again.
            yield np.subtract, x[:, 0], _INT16[1], x[:, 0]
            if stage:
                # The first number of each block is turned by 0, and |x| <= 8191 times 32767 / 32768 rounds to x.
                yield from _rotate(x[:, 1:, 1:], self._twiddles[stage - 1], self._products)
            # The next stage takes its four addends from one axis, so that each is one block.
            out = after.reshape(2, min(4, left), 4, done, max(left // 4, 1), count)
            yield from _butterflies(x, out, self._sums)
            now, after = after, now
            done *= 4
        yield from self._real_power(now.reshape(2, points, count), after.reshape(2, 2, points // 2, count))

    def _real_power(self, pairs: Int16, parts: Int16) -> Iterator[_Step]:
        """Take the spectrum of the real samples out of that of their pairs, and square it.

        Args:
            pairs: (2, points, n), real and imaginary parts in order of frequency; overwritten.
            parts: (2, 2, points / 2, n), overwritten: real and imaginary parts of bins from 1 up, and of their mirrors.
        """
        half = self._points // 2
        near, far = parts
        mirrored = pairs[:, : half - 1 : -1]
        yield _copy, pairs[:, 1 : half + 1], None, near
        yield _copy, mirrored[0], None, far[0]
        # A mirrored point is conjugate: -x - 1 = -2 - z.
        yield np.subtract, _INT16[-2], mirrored[1], far[1]
        yield from _divide(parts, 1, self._sums, check=True)
        odd = pairs[:, :half]
        yield np.subtract, near, far, odd
        yield from _rotate(odd, self._split, self._products)
        yield np.add, near, far, near
        a, b = (_like(self._products[1], near, start) for start in (0, near.size))
        yield _copy, near, None, a
        yield _copy, odd, None, b
        both = _like(self._products[0], pairs[:, 1:])
        # The sum has 17 bits before it is halved.
        yield np.add, a[:, : half - 1], b[:, : half - 1], both[:, : half - 1]
        yield np.subtract, a[0], b[0], both[0, half - 1 :]
        yield np.subtract, b[1], a[1], both[1, half - 1 :]
        yield np.right_shift, both, _INT32[1], both
        yield np.multiply, both, both, both
        yield np.add, both[0], both[1], both[0]


def _twiddle(turns: npt.NDArray[Any]) -> tuple[Int32, Int32]:
    """Real and imaginary part of exp(-2 pi i turns), rounded as the source does."""
    angle = -2 * np.pi * turns
    real, imag = (np.floor(0.5 + _ONE * part).astype(np.int32) for part in (np.cos(angle), np.sin(angle)))
    return real, imag


def _copy(source: Array, _: None, out: Array) -> None:
    np.copyto(out, source, casting="unsafe")


def _like(flat: Array, shaped: Array, start: int = 0) -> Array:
    """View of the numbers of `flat` from `start`, in another array's shape."""
    view: Array = flat[start : start + shaped.size].reshape(shaped.shape)
    return view


def _divide(z: Int16, bits: int, spare: Int16, *, check: bool) -> Iterator[_Step]:
    """Divide by 2 or 4 in place: z = x - 1 becomes (x * (32767 >> bits) + 16384) >> 15.

    With c = 2 ** (15 - bits) that is floor((x - x / c + 2 ** (bits - 1)) / 2 ** bits), and for whole numbers
    (z + 2 ** (bits - 1) - (z >> (15 - bits))) >> bits: four operations of int16 in place of three of int32 and two
    conversions. A test compares it to the product for every x.

    Args:
        z: contiguous.
        bits: 1 or 2.
        spare: a buffer of as many numbers, overwritten.
        check: x = -32768 can occur.
    """
    small = _like(spare, z)
    if check:
        yield _unwrap, z.reshape(-1), None, z
    yield np.right_shift, z, _INT16[_FRACTION_BITS - bits], small
    yield np.subtract, z, small, z
    yield np.add, z, _INT16[1 << bits >> 1], z
    yield np.right_shift, z, _INT16[bits], z


def _unwrap(flat: Int16, _: None, z: Int16) -> None:
    """Put another z in the place of that of x = -32768, 32767, which gives the same quotient."""
    if np.maximum.reduce(flat) == _ONE:
        z[z == _ONE] = -32768


def _rotate(values: Int16, twiddle: tuple[Int32, Int32], products: tuple[Int32, ...]) -> Iterator[_Step]:
    """Multiply complex numbers by twiddle factors in place, rounded and wrapped to int16.

    Args:
        values: (2, ...), real and imaginary parts.
        twiddle: real and imaginary parts.
        products: overwritten.
    """
    sine, cosine = (_like(each, values) for each in products)
    yield _copy, values, None, sine
    yield np.multiply, sine, twiddle[0], cosine
    yield np.multiply, sine, twiddle[1], sine
    yield np.subtract, cosine[0], sine[1], cosine[0]
    yield np.add, cosine[1], sine[0], cosine[1]
    yield np.add, cosine, _INT32[_HALF], cosine
    yield np.right_shift, cosine, _INT32[_FRACTION_BITS], cosine
    yield _copy, cosine, None, values


def _butterflies(x: Int16, out: Int16, sums: Int16) -> Iterator[_Step]:
    """Add four values in the four ways of a radix-4 butterfly; sums wrap around.

    Args:
        x: (2, 4, done, left, n), real and imaginary parts; overwritten.
        out: (2, 4 or 1, 4, done, rest, n), written; the second axis is what the next stage splits `left` by.
        sums: overwritten.
    """
    even, odd = (_like(sums, x[:, 0], start) for start in (0, x[:, 0].size))
    yield np.add, x[:, 0], x[:, 2], even
    yield np.subtract, x[:, 0], x[:, 2], x[:, 0]
    yield np.add, x[:, 1], x[:, 3], odd
    yield np.subtract, x[:, 1], x[:, 3], x[:, 1]
    _, split, _, done, rest, count = out.shape
    blocks = (done, split, rest, count)
    even, odd, low, high = (each.reshape(2, *blocks) for each in (even, odd, x[:, 0], x[:, 1]))
    to = out.transpose(2, 0, 3, 1, 4, 5)
    yield np.add, even, odd, to[0]
    yield np.subtract, even, odd, to[2]
    # Times -i: real and imaginary parts change places.
    yield np.add, low[0], high[1], to[1, 0]
    yield np.subtract, low[1], high[0], to[1, 1]
    yield np.subtract, low[0], high[1], to[3, 0]
    yield np.add, low[1], high[0], to[3, 1]
