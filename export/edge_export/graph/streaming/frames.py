"""Frames of tensors along time: their move from one window to the next, and those that an update needs.

A tensor with a time axis is a row of frames, numbered as the windowed network numbers them: frame 0 is the first of
the window. Between two windows ``hop`` samples apart, a tensor whose frames stand ``stride`` samples apart moves by
``hop / stride`` frames: what was frame ``j + hop / stride`` is frame ``j`` now. This holds for the frames that depend
on samples alone. A frame that also depends on the zeros around the window is new in every window; such frames stand at
the left and the right edge, `Frames.begin` and `Frames.end` separate them from the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

ALWAYS = -(1 << 40)
"""Stands for the begin of a stream that has none: every earlier frame exists."""

Interval = tuple[int, int]
"""Frames from the first number up to, not including, the second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frames:
    """The time axis of one tensor.

    Attributes:
        axis: which axis is time.
        batch: which axis is the batch.
        length: frames in the windowed network.
        stride: samples from one frame to the next.
        begin: first frame that does not depend on what lies before the window.
        end: one past the last frame that does not depend on what lies behind the window.
    """

    axis: int
    batch: int
    length: int
    stride: int
    begin: int
    end: int

    def moved(self, *, axis: int, batch: int) -> Frames:
        """Return the same frames of a tensor with other axes."""
        return replace(self, axis=axis, batch=batch)

    def fixed(self) -> Frames:
        """Return the same tensor with every frame new in every window."""
        return replace(self, begin=self.length, end=self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Receptive field of one output frame: input frames from ``j * stride - before`` on, ``size`` of them.

    Attributes:
        stride: input frames from one output frame to the next.
        size: input frames from the first that is read to the last, both counted.
        before: frames of padding in front of the first input frame; negative where input frames are cut off.
    """

    stride: int = 1
    size: int = 1
    before: int = 0

    def read_by(self, run: Interval) -> Interval:
        """Input frames that a run of output frames reads, whether they exist or not."""
        return run[0] * self.stride - self.before, (run[1] - 1) * self.stride - self.before + self.size

    def after(self, frames: Frames, length: int) -> Frames:
        """Return the time axis of the result, with `length` frames."""
        begin = ALWAYS if frames.begin == ALWAYS else -(-(frames.begin + self.before) // self.stride)
        end = (frames.end - self.size + self.before) // self.stride + 1
        result = replace(
            frames,
            length=length,
            stride=frames.stride * self.stride,
            begin=begin if begin == ALWAYS else max(0, begin),
            end=min(length, end),
        )
        return result if result.begin < result.end else result.fixed()


@dataclass(slots=True)
class Demand:
    """Frames of one tensor that are read in every update, as one interval each at the edges and between them."""

    frames: Frames
    left: Interval | None = None
    inner: Interval | None = None
    right: Interval | None = None

    def add(self, wanted: Interval) -> None:
        """Ask for these frames too."""
        begin, end = self.frames.begin, self.frames.end
        self.left = _hull(self.left, (wanted[0], min(wanted[1], begin)))
        self.inner = _hull(self.inner, (max(wanted[0], begin), min(wanted[1], end)))
        self.right = _hull(self.right, (max(wanted[0], end), wanted[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Supply:
    """Origin of the frames that are read in an update.

    Attributes:
        runs: frames to compute, as intervals that do not touch.
        ring: frames kept from earlier updates, or None; those behind them come out of `runs`.
        step: frames by which the tensor moves, 0 where it is not a whole number.
    """

    runs: tuple[Interval, ...] = field(default=())
    ring: Interval | None = None
    step: int = 0


def supply(demand: Demand, hop: int, *, keep: bool) -> Supply:
    """Decide what to compute and what to keep.

    Args:
        demand: what is read.
        hop: samples from window to window.
        keep: whether frames of this tensor may be kept; otherwise all are computed, from inputs that keep theirs.
    """
    frames = demand.frames
    step = hop // frames.stride if hop % frames.stride == 0 else 0
    runs = [demand.left, demand.right]
    ring = None
    if demand.inner is not None:
        first, end = demand.inner[0], frames.end
        if keep and first < end - step:
            ring = (first, end - step)
            runs.append((end - step, end))
        else:
            runs.append(demand.inner)
    joined: list[Interval] = []
    for run in sorted(run for run in runs if run is not None):
        if joined and run[0] <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], run[1]))
        else:
            joined.append(run)
    return Supply(runs=tuple(joined), ring=ring, step=step)


def _hull(known: Interval | None, more: Interval) -> Interval | None:
    if more[0] >= more[1]:
        return known
    return more if known is None else (min(known[0], more[0]), max(known[1], more[1]))
