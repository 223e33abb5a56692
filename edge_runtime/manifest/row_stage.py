"""Base of the stages of a chain that make rows by arithmetic, without a model file."""

from __future__ import annotations

from dataclasses import dataclass

Span = tuple[int, int, int]
"""Rows of a cut, rows from one cut to the next, and rows of zeros before the first; 0 rows: all that a step brings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStage:
    """Stage of a chain that makes rows by arithmetic, without a model file."""

    name: str
    """Name of its track."""
    of: str = ""
    """Name of the track that it takes; empty takes that of the stage before, or the window."""

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the tracks that it takes; empty is that of the stage before."""
        return (self.of,)

    @property
    def tracks(self) -> tuple[str, ...]:
        """Names of the tracks that it makes."""
        return (self.name,)

    @property
    def goes_on(self) -> bool:
        """True where rows depend on those of the step before: a window must begin where the last one ended."""
        return False

    @property
    def made_for_hz(self) -> float:
        """Samples a second that the rows are made for; 0: any."""
        return 0.0

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return tuple((1, 1, 0) for _ in self.takes)


def check_frames(stage: str, frame: int, fft: int, hop: int) -> None:
    """Check the sizes of frames of sound, in samples.

    Raises:
        ValueError: says which is wrong.
    """
    if not frame or not hop:
        raise ValueError(f"{stage}: write frame and hop, samples (frame_length and frame_step of the training code)")
    if not 2 <= frame <= fft <= 65536:
        raise ValueError(f"{stage}: frame ({frame}) must be 2 to fft ({fft}), and fft at most 65536")
    if not 1 <= hop <= 65536:
        raise ValueError(f"{stage}: hop must be 1 to 65536 samples")
