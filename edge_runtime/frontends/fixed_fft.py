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
            turns = np.outer(np.arange(1, 4), np.arange(done)) / (4 * done)
            self._twiddles.append(_twiddle(turns.reshape(3, done, 1, 1)))
            done *= 4
        self._split = _twiddle((np.arange(1, half + 1)[:, None] / points + 0.5) / 2)
        self._pairs = tuple(np.zeros(points * most, np.int16) for _ in range(4))
        """Real and imaginary parts, twice: a stage reads two arrays and writes the other two."""
        self._sums = tuple(np.zeros(points * most, np.int16) for _ in range(2))
        self._products = tuple(np.zeros(points * most, np.int32) for _ in range(4))
        self._programs: dict[int, list[_Step]] = {}

    def power(self, frames: Int16) -> Int32:
        """Return the squared magnitudes, (bins, n); the next call overwrites them.

        Args:
            frames: (n, samples), at most `most` of at most `size` samples, an even number; zeros fill them up.
        """
        count, samples = frames.shape
        room = self._room(count)
        for array, part in zip(self._pairs, (frames[:, 0::2], frames[:, 1::2]), strict=False):
            points = array[: self._points * room].reshape(self._points, room)
            # Every value x travels as z = x - 1, the form that `_divide` takes.
            np.subtract(part.T, 1, out=points[: samples // 2, :count])
            points[samples // 2 :] = -1
        if room not in self._programs:
            self._programs[room] = [*self._program(room)]
        for operation, first, second, out in self._programs[room]:
            operation(first, second, out)
        power = self._products[2][: (self._points - 1) * room].reshape(-1, room)
        return power[:, :count]

    def _room(self, count: int) -> int:
        """Round up to 1, 2, 4, 8, 16 or a multiple of 32: a few programs serve every number of frames."""
        if count <= _ROOM // 2:
            return 1 << max(count - 1, 0).bit_length()
        return min(-(-count // _ROOM) * _ROOM, self.most)

    def _program(self, count: int) -> Iterator[_Step]:
        """Yield all operations on `count` frames."""
        points = self._points
        pairs = [each[: points * count] for each in self._pairs]
        done = 1
        for stage in range(len(self._twiddles) + 1):
            left = points // (4 * done)
            x, y = (each.reshape(4, done, left, count) for each in pairs[:2])
            for part in (x, y):
                yield from _divide(part, 2, self._sums[0])
                # Each of the four sums of a butterfly has the first addend once: so all four are less 1 again.
                yield np.subtract, part[0], 1, part[0]
            if stage:
                yield from _rotate(x[1:], y[1:], self._twiddles[stage - 1], self._products)
            # The next stage takes its four addends from the first axis, so that each is one block.
            order = (min(4, left), 4, done, max(left // 4, 1), count)
            real, imag = (each.reshape(order) for each in pairs[2:])
            yield from _butterflies(x, y, real, imag, self._sums)
            pairs = [*pairs[2:], *pairs[:2]]
            done *= 4
        yield from self._real_power([each.reshape(points, count) for each in pairs])

    def _real_power(self, pairs: list[Int16]) -> Iterator[_Step]:
        """Take the spectrum of the real samples out of that of their pairs, and square it.

        Args:
            pairs: four of (points, n): real and imaginary parts in order of frequency, and two free arrays.
        """
        half, count = self._points // 2, pairs[0].shape[1]
        near, far = slice(1, half + 1), slice(self._points - 1, half - 1, -1)
        real, imag = pairs[:2]
        near_real, far_real, near_imag, far_imag = (part for each in pairs[2:] for part in (each[:half], each[half:]))
        for source, target in ((real[near], near_real), (real[far], far_real), (imag[near], near_imag)):
            yield _copy, source, None, target
        # A mirrored point is conjugate: -x - 1 = -2 - z.
        yield np.subtract, np.int16(-2), imag[far], far_imag
        for part in pairs[2:]:
            yield from _divide(part, 1, self._sums[0])
        odd_real, odd_imag = real[:half], imag[:half]
        yield np.subtract, near_real, far_real, odd_real
        yield np.subtract, near_imag, far_imag, odd_imag
        yield from _rotate(odd_real, odd_imag, self._split, self._products)
        yield np.add, near_real, far_real, near_real
        yield np.add, near_imag, far_imag, near_imag
        a, b, power, square = (each[: (2 * half - 1) * count].reshape(-1, count) for each in self._products)
        for first, second, out in ((near_real, odd_real, power), (odd_imag, near_imag, square)):
            yield _copy, first, None, a[:half]
            yield _copy, second, None, b[:half]
            # The sum has 17 bits before it is halved.
            yield np.add, a[: half - 1], b[: half - 1], out[: half - 1]
            yield np.subtract, a[:half], b[:half], out[half - 1 :]
            yield np.right_shift, out, 1, out
            yield np.multiply, out, out, out
        yield np.add, power, square, power


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


def _divide(z: Int16, bits: int, spare: Int16) -> Iterator[_Step]:
    """Divide by 2 or 4 in place: z = x - 1 becomes (x * (32767 >> bits) + 16384) >> 15.

    With c = 2 ** (15 - bits) that is floor((x - x / c + 2 ** (bits - 1)) / 2 ** bits), and for whole numbers
    (z + 2 ** (bits - 1) - (z >> (15 - bits))) >> bits: four operations of int16 in place of three of int32 and two
    conversions. A test compares it to the product for every x.

    Args:
        z: contiguous.
        bits: 1 or 2.
        spare: as many numbers, overwritten.
    """
    small = _like(spare, z)

    def small_part(z: Int16, shift: int, out: Int16) -> None:
        # x = -32768 has wrapped around to 32767, as only samples at the end of the scale do. Any z will do for it that
        # gives the same quotient.
        if z.max() == 32767:
            z[z == 32767] = -32768
        np.right_shift(z, shift, out=out)

    yield small_part, z, _FRACTION_BITS - bits, small
    yield np.subtract, z, small, z
    yield np.add, z, np.int16(1 << bits >> 1), z
    yield np.right_shift, z, np.int16(bits), z


def _rotate(real: Int16, imag: Int16, twiddle: tuple[Int32, Int32], products: tuple[Int32, ...]) -> Iterator[_Step]:
    """Multiply complex numbers by twiddle factors in place, rounded and wrapped to int16."""
    cosine, sine = twiddle
    a, b, c, d = (_like(each, real) for each in products)
    yield _copy, real, None, a
    yield _copy, imag, None, b
    yield np.multiply, a, cosine, c
    yield np.multiply, b, sine, d
    yield np.subtract, c, d, c
    yield np.multiply, a, sine, a
    yield np.multiply, b, cosine, b
    yield np.add, a, b, a
    for product, out in ((c, real), (a, imag)):
        yield np.add, product, _HALF, product
        yield np.right_shift, product, _FRACTION_BITS, product
        yield _copy, product, None, out


def _butterflies(x: Int16, y: Int16, real: Int16, imag: Int16, sums: tuple[Int16, ...]) -> Iterator[_Step]:
    """Add four values in the four ways of a radix-4 butterfly; sums wrap around.

    Args:
        x: (4, done, left, n), real parts, overwritten.
        y: the imaginary parts.
        real: (4 or 1, 4, done, rest, n), written; the first axis is what the next stage splits `left` by.
        imag: the same of the imaginary parts.
        sums: overwritten.
    """
    a, b, c, d = (_like(each, x[0], start) for start in (0, x[0].size) for each in sums)
    yield np.add, x[0], x[2], a
    yield np.add, y[0], y[2], b
    yield np.subtract, x[0], x[2], x[0]
    yield np.subtract, y[0], y[2], y[0]
    yield np.add, x[1], x[3], c
    yield np.add, y[1], y[3], d
    yield np.subtract, x[1], x[3], x[1]
    yield np.subtract, y[1], y[3], y[1]
    split, _, done, rest, count = real.shape
    last: list[tuple[Callable[..., Any], int, Int16, Int16, Int16]] = [
        (np.add, 0, a, c, real),
        (np.add, 1, x[0], y[1], real),
        (np.subtract, 2, a, c, real),
        (np.subtract, 3, x[0], y[1], real),
        (np.add, 0, b, d, imag),
        (np.subtract, 1, y[0], x[1], imag),
        (np.subtract, 2, b, d, imag),
        (np.add, 3, y[0], x[1], imag),
    ]
    blocks = (done, split, rest, count)
    for operation, quarter, first, second, out in last:
        yield operation, first.reshape(blocks), second.reshape(blocks), out[:, quarter].transpose(1, 0, 2, 3)
