"""Settings of front ends and small joints, as a manifest's ``stages`` and a card name them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal, TypeAlias

from edge_runtime.manifest.mel import Mel
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.manifest.row_stage import RowStage, Span, check_frames


@dataclass(frozen=True, slots=True, kw_only=True)
class Spectrum(RowStage):
    """Short-time Fourier transform of one channel."""

    type: Literal["spectrum"] = "spectrum"
    name: str = "spectrum"
    frame: int
    """Samples of a frame."""
    hop: int
    """Samples from one frame to the next."""
    fft: int = 0
    """Points of the transform; 0 means `frame`. A longer one has zeros after the frame."""
    window: Literal["none", "hann", "hann-symmetric", "hamming", "hamming-symmetric"] = "none"
    """`hann` and `hamming` are periodic; TensorFlow's are symmetric where the frame is odd."""
    values: Literal["magnitude", "power", "complex"] = "magnitude"
    """``complex``: rows that `Magnitude` and `Masked` take."""
    stream: bool = False
    """False: the frames of a step are its own. True: frames go on from step to step, so a window must begin where the
    one before ended."""
    lead: int = 0
    """Zeros before a stream's first sample; frame - hop gives the first `hop` samples a row."""

    def __post_init__(self) -> None:
        check_frames("spectrum", self.frame, self.fft or self.frame, self.hop)
        if not 0 <= self.lead <= max(0, self.frame - self.hop):
            raise ValueError("spectrum: lead must be 0 to frame - hop")
        if self.lead and not self.stream:
            raise ValueError("spectrum: lead is for streams; leave it out, or write stream = true")

    @property
    def goes_on(self) -> bool:
        """See `RowStage`."""
        return self.stream

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return ((self.frame, self.hop, self.lead),) if self.stream else ((0, 0, 0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Magnitude(RowStage):
    """Magnitudes of the complex rows of a `Spectrum`."""

    type: Literal["magnitude"] = "magnitude"
    name: str = "magnitude"


@dataclass(frozen=True, slots=True, kw_only=True)
class Masked(RowStage):
    """Frames of sound from the complex rows of a `Spectrum`, whose magnitudes a mask multiplies; the phases stay."""

    type: Literal["masked"] = "masked"
    name: str = "masked"
    of: str = "spectrum"
    mask: str
    """Name of the track with a factor for each frequency."""

    @property
    def takes(self) -> tuple[str, ...]:
        """Names of the tracks that it takes; empty is that of the stage before."""
        return (self.of, self.mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapAdd(RowStage):
    """Sound from overlapping frames, which are added; each begins `hop` samples after the one before."""

    type: Literal["overlap-add"] = "overlap-add"
    name: str = "overlap-add"
    hop: int
    """Samples that a frame brings; the first ones lack what frames before the first would have added."""

    def __post_init__(self) -> None:
        if not 1 <= self.hop <= 65536:
            raise ValueError("overlap-add: hop must be 1 to 65536 samples")

    @property
    def goes_on(self) -> bool:
        """See `RowStage`."""
        return True


Measure = Literal["mean", "std", "rms", "mad", "min", "max", "peak", "kurtosis", "crest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutStage(RowStage):
    """Stage that makes one row of a cut of any length."""

    rows: int = 0
    """Samples of a cut; 0 takes a window as it is, and windows may overlap."""
    hop: int = 0
    """Samples from one cut to the next; 0 means `rows`."""

    def check_cut(self) -> None:
        """Check the lengths.

        Raises:
            ValueError: they make no sense.
        """
        if not 0 <= self.hop <= self.rows <= 1_000_000:
            raise ValueError(f"{self.name}: rows must be 0 to 1,000,000 samples, and hop 0 to rows")

    @property
    def goes_on(self) -> bool:
        """See `RowStage`."""
        return self.rows > 0

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return ((self.rows, self.hop, 0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistic(CutStage):
    """Statistics of each channel over a cut, one row of channels * `what` numbers, those of the first channel first."""

    type: Literal["statistic"] = "statistic"
    name: str = "statistic"
    what: tuple[Measure, ...]
    """``std``: over n, not n - 1. ``mad``: median of the distances from the median. ``peak``: largest absolute value.
    ``kurtosis``: Fisher's, 0 for a normal distribution, and where a channel does not move. ``crest``: peak over rms, 0
    where both are 0."""

    def __post_init__(self) -> None:
        self.check_cut()
        if not self.what or len(set(self.what)) != len(self.what):
            raise ValueError("statistic: what needs one name or more, all different, for example ['mean', 'std']")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands(CutStage):
    """Power of each channel in frequency bands over a cut, one row of channels * bands, those of the first first.

    The powers are parts of the variance: bands from 0 Hz to half the rate add up to it, if the signal is steady.
    """

    type: Literal["bands"] = "bands"
    name: str = "bands"
    rate_hz: float
    edges_hz: tuple[float, ...]
    """Rising; n + 1 edges make n bands, each with its lower edge and without its upper one, but for the last."""
    envelope_hz: tuple[float, float] | None = None
    """Take the spectrum of the envelope of this band instead (Hilbert transform): faults of bearings and gears."""
    log: Literal["none", "db"] = "none"
    """``db``: 10 log10, not below -100 dB of the channel's unit squared."""

    def __post_init__(self) -> None:
        self.check_cut()
        half = self.rate_hz / 2
        edges = self.edges_hz
        if not 0 < self.rate_hz < math.inf:
            raise ValueError("bands: rate_hz must be above 0")
        if len(edges) < 2 or any(a >= b for a, b in pairwise(edges)) or not 0 <= edges[0] < edges[-1] <= half:
            raise ValueError(f"bands: edges_hz must be two or more rising numbers, 0 to half of rate_hz ({half:g})")
        if self.envelope_hz is not None and not 0 <= self.envelope_hz[0] < self.envelope_hz[1] <= half:
            raise ValueError(f"bands: envelope_hz must be two rising numbers, 0 to half of rate_hz ({half:g})")

    @property
    def made_for_hz(self) -> float:
        """See `RowStage`."""
        return self.rate_hz


FRONTENDS: Final = {
    "bands": f"{__name__}:Bands",
    "magnitude": f"{__name__}:Magnitude",
    "masked": f"{__name__}:Masked",
    "mel": "edge_runtime.manifest.mel:Mel",
    "micro-frontend": "edge_runtime.manifest.micro_frontend:MicroFrontend",
    "overlap-add": f"{__name__}:OverlapAdd",
    "spectrum": f"{__name__}:Spectrum",
    "statistic": f"{__name__}:Statistic",
}
"""Classes by their ``type``."""
FrontendSpec: TypeAlias = Bands | Magnitude | Masked | Mel | MicroFrontend | OverlapAdd | Spectrum | Statistic
