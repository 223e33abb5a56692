"""Front ends as values that a recipe can state; `edge_export.learn.features.modules` builds them.

Every front end maps (batch, channels, samples) in physical units to (batch, rows, frames). Nothing is padded: a frame
exists where all its samples do. So a front end fed with a stream gives the frames it gives for a window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError

WindowName = Literal["hann", "hamming", "rectangular"]
Coefficients = Literal["int8", "float16", "float32"]
MelScale = Literal["htk", "slaney"]
Statistic = Literal["mean", "std", "min", "max", "rms", "mean_abs_change"]

STATISTICS: tuple[Statistic, ...] = ("mean", "std", "min", "max", "rms", "mean_abs_change")


@dataclass(frozen=True, slots=True, kw_only=True)
class Raw:
    """The samples as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standardise:
    """Each row minus its offset, times its scale.

    Attributes:
        offset: one number per row in the unit of the row; empty for none.
        scale: one factor per row.
    """

    offset: tuple[float, ...] = ()
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        if self.offset and len(self.offset) != len(self.scale):
            raise ConfigError(f"standardise: {len(self.offset)} offsets for {len(self.scale)} scales; give one of each")
        if not np.isfinite((*self.offset, *self.scale)).all():
            raise ConfigError("standardise: offsets and scales must be finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A linear filter with a finite impulse response, the same for every channel.

    Attributes:
        kind: what passes. ``high`` takes gravity or a drifting baseline away.
        rate_hz: samples per second.
        low_hz: lower edge of ``high``, ``band`` and ``stop``.
        high_hz: upper edge of ``low``, ``band`` and ``stop``.
        taps: length of the impulse response; the output is `taps` - 1 samples shorter than the input.
        design: ``sinc`` is a Hamming-windowed sinc: linear phase, a delay of (taps - 1) / 2 samples. ``butterworth``
            is the causal filter's impulse response cut off after `taps`, refused where more than a thousandth of its
            energy lies beyond.
        order: of the Butterworth filter.
    """

    kind: Literal["low", "high", "band", "stop"]
    rate_hz: float
    low_hz: float = 0.0
    high_hz: float = 0.0
    taps: int = 65
    design: Literal["sinc", "butterworth"] = "sinc"
    order: int = 2

    def __post_init__(self) -> None:
        edges = {"low": (self.high_hz,), "high": (self.low_hz,)}.get(self.kind, (self.low_hz, self.high_hz))
        if not all(0 < edge < self.rate_hz / 2 for edge in edges) or list(edges) != sorted(set(edges)):
            raise ConfigError(f"filter: edges of {edges} Hz must rise and lie between 0 and {self.rate_hz / 2} Hz")
        if self.taps < 3 or (self.design == "sinc" and self.taps % 2 == 0):
            raise ConfigError(f"filter: {self.taps} taps; need 3 or more, and an odd number for a sinc")
        if not 1 <= self.order <= 8:
            raise ConfigError(f"filter: order {self.order} is outside 1 to 8")


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The change from each sample to the next, in the channel's unit per sample.

    Attributes:
        keep: give the sample itself too; rows are then value and change of the first channel, of the second, ...
    """

    keep: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Centre:
    """Rows less what they have in common over the window.

    Behind a log-mel it takes away what a microphone, a room and a voice add to every frame, or how loud all of it is;
    in front of everything, gravity or an amplifier's offset. The whole window is needed, so a graph with it does not
    convert to a stream.

    Attributes:
        by: ``row`` subtracts each row's mean (cepstral mean normalisation), ``window`` the mean of all rows, ``peak``
            the largest value of all, so that a logarithm counts from the loudest place.
        span: what lies further than this below the peak is raised to it, and silence is the same however quiet the
            speaker; 0 leaves it. Only with ``peak``.

    Source: Atal 1974, "Effectiveness of linear prediction characteristics of the speech wave", J. Acoust. Soc. Am. 55;
    peak and span as ``ref`` and ``top_db`` of ``librosa.power_to_db``.
    """

    by: Literal["row", "window", "peak"] = "row"
    span: float = 0.0

    def __post_init__(self) -> None:
        if self.span < 0 or (self.span and self.by != "peak"):
            raise ConfigError("centre: span counts down from the peak; it must not be negative, and needs by = 'peak'")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpectrogramSpec:
    """Power in each frequency bin of each frame: the squared magnitude of the windowed discrete Fourier transform.

    Attributes:
        rate_hz: samples per second.
        frame_s: length of a frame.
        hop_s: distance of frames.
        fft: points of the transform, at least a frame's samples (zeros follow); 0 takes a frame's samples.
        low_hz: bins below are left out.
        high_hz: bins above are left out; 0 takes half the rate.
        window: by which a frame is weighted; periodic, as librosa and torchaudio have it.
        pre_emphasis: share of the preceding sample that is subtracted first; needs one sample more per frame.
        log: natural logarithm of the power instead of the power.
        floor: least power before the logarithm.
        coefficients: how exactly cosines and sines are held. The transform is a table of frame x 2 bins numbers that
            every model file carries: ``int8`` makes it a fourth as large. A pure tone then leaks about -65 dB into
            other bins of a 256-sample frame, which is below what a microphone of a small device resolves.
    """

    rate_hz: float
    frame_s: float
    hop_s: float
    fft: int = 0
    low_hz: float = 0.0
    high_hz: float = 0.0
    window: WindowName = "hann"
    pre_emphasis: float = 0.0
    log: bool = False
    floor: float = 1e-6
    coefficients: Coefficients = "float32"

    def __post_init__(self) -> None:
        _check_frames(self)

    @property
    def frame(self) -> int:
        """Samples of a frame, without the one that pre-emphasis adds."""
        return round(self.frame_s * self.rate_hz)

    @property
    def hop(self) -> int:
        """Samples between frames."""
        return round(self.hop_s * self.rate_hz)

    @property
    def points(self) -> int:
        """Points of the transform."""
        return self.fft or self.frame

    @property
    def bins(self) -> npt.NDArray[np.int64]:
        """The bins that are kept; bin k lies at k * rate / points."""
        every = np.arange(self.points // 2 + 1)
        hertz = every * self.rate_hz / self.points
        kept: npt.NDArray[np.int64] = every[(hertz >= self.low_hz) & (hertz <= (self.high_hz or self.rate_hz / 2))]
        return kept


@dataclass(frozen=True, slots=True, kw_only=True)
class LogMelSpec:
    """Natural logarithm of the power in bands that are spaced evenly on the mel scale.

    Attributes:
        rate_hz: samples per second.
        frame_s: length of a frame.
        hop_s: distance of frames.
        bands: number of triangular filters.
        low_hz: where the first one begins.
        high_hz: where the last one ends; 0 takes half the rate.
        fft: points of the transform; 0 takes a frame's samples.
        window: by which a frame is weighted.
        pre_emphasis: share of the preceding sample that is subtracted first.
        scale: ``htk`` is 2595 log10(1 + f / 700) (Young et al., The HTK Book), ``slaney`` is linear to 1 kHz and
            logarithmic above (Slaney 1998, Auditory Toolbox).
        area: triangles of equal area instead of equal height, as librosa has it.
        floor: least power before the logarithm.
        coefficients: see `SpectrogramSpec`; holds for the bands' weights too.
    """

    rate_hz: float
    frame_s: float
    hop_s: float
    bands: int = 32
    low_hz: float = 0.0
    high_hz: float = 0.0
    fft: int = 0
    window: WindowName = "hann"
    pre_emphasis: float = 0.0
    scale: MelScale = "htk"
    area: bool = False
    floor: float = 1e-6
    coefficients: Coefficients = "float32"

    def __post_init__(self) -> None:
        if self.bands < 1:
            raise ConfigError(f"log-mel: {self.bands} bands; need at least 1")
        _check_frames(self.spectrogram)

    @property
    def spectrogram(self) -> SpectrogramSpec:
        """The spectrogram underneath."""
        return SpectrogramSpec(
            rate_hz=self.rate_hz,
            frame_s=self.frame_s,
            hop_s=self.hop_s,
            fft=self.fft,
            low_hz=self.low_hz,
            high_hz=self.high_hz,
            window=self.window,
            pre_emphasis=self.pre_emphasis,
            floor=self.floor,
            coefficients=self.coefficients,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterBankSpec:
    """Natural logarithm of the power in mel bands, each heard by one pair of filters instead of a whole transform.

    A pair is a cosine and a sine at the band's centre under a Hann window; its squares' sum is the band's power. Beside
    a log-mel of as many bands that is a third of the work and of the numbers, and the same scale: white noise gives
    the same power. What is lost is variance: a wide band is heard once where the transform hears it in several bins, so
    noise in it flickers more.

    Attributes:
        rate_hz: samples per second.
        frame_s: length of the longest filters, those of narrow bands.
        hop_s: distance of frames; at least half of `frame_s`.
        bands: number of pairs, spaced evenly on the mel scale.
        low_hz: lower edge of the first band.
        high_hz: upper edge of the last one; 0 takes half the rate.
        parts: wide bands need no filter as long as a frame: they may be heard up to this often in a frame, by filters
            as much shorter, and averaged. A power of two that divides the hop; 1 makes all filters as long as
            a frame, or as their band needs.
        scale: as `LogMelSpec.scale`.
        floor: least power before the logarithm.
        coefficients: as `SpectrogramSpec.coefficients`.

    Source: Zeghidour et al. 2018, "Learning filterbanks from raw speech" (arXiv:1711.01161), as initialised there.
    """

    rate_hz: float
    frame_s: float
    hop_s: float
    bands: int = 32
    low_hz: float = 0.0
    high_hz: float = 0.0
    parts: int = 1
    scale: MelScale = "htk"
    floor: float = 1e-6
    coefficients: Coefficients = "float32"

    def __post_init__(self) -> None:
        if self.bands < 1 or not 0 <= self.low_hz < (self.high_hz or self.rate_hz / 2) <= self.rate_hz / 2:
            raise ConfigError(
                f"filter-bank: {self.bands} bands from {self.low_hz} to {self.high_hz} Hz at {self.rate_hz} samples "
                f"per second; need one or more, and edges that rise within half the rate"
            )
        if self.parts < 1 or self.parts & (self.parts - 1) or self.hop % self.parts or self.frame < 4 * self.parts:
            raise ConfigError(
                f"filter-bank: {self.parts} parts of a hop of {self.hop} and a frame of {self.frame} samples; need a "
                f"power of two that divides the hop, and 4 samples a part"
            )
        if not self.hop <= self.frame <= 2 * self.hop:
            raise ConfigError(
                f"filter-bank: a frame of {self.frame} samples every {self.hop}; need one to two hops a frame"
            )
        if not self.floor > 0:
            raise ConfigError("filter-bank: the floor must be above 0")

    @property
    def frame(self) -> int:
        """Samples of the longest filters."""
        return round(self.frame_s * self.rate_hz)

    @property
    def hop(self) -> int:
        """Samples between frames."""
        return round(self.hop_s * self.rate_hz)


@dataclass(frozen=True, slots=True, kw_only=True)
class MfccSpec:
    """Mel-frequency cepstral coefficients: the orthonormal DCT-II of the log-mel bands of each frame.

    Attributes:
        mel: the bands.
        coefficients: how many are kept, from the zeroth (the frame's loudness) upwards.
    """

    mel: LogMelSpec
    coefficients: int = 13

    def __post_init__(self) -> None:
        if not 1 <= self.coefficients <= self.mel.bands:
            raise ConfigError(f"mfcc: {self.coefficients} coefficients of {self.mel.bands} bands; need 1 to that many")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsSpec:
    """A few numbers per channel over the whole window; one frame comes out.

    Rows are ordered by statistic, then by channel.

    Attributes:
        which: ``std`` is of the population; ``mean_abs_change`` is the mean distance of neighbouring samples.
    """

    which: tuple[Statistic, ...] = STATISTICS

    def __post_init__(self) -> None:
        if not self.which or len(set(self.which)) != len(self.which):
            raise ConfigError("statistics: name each one once, and at least one")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """One front end after the other; the rows of each are the channels of the next.

    Attributes:
        stages: in the order of computation.
    """

    stages: tuple[FrontEnd, ...]


FrontEnd: TypeAlias = (
    Raw
    | Standardise
    | Filter
    | FirstDifference
    | Centre
    | SpectrogramSpec
    | LogMelSpec
    | FilterBankSpec
    | MfccSpec
    | StatisticsSpec
    | Chain
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureShape:
    """The shape of a front end's output.

    Attributes:
        rows: features of a frame.
        frames: along time.
        planes: pictures the rows fall into: a log-mel of three channels has 3 planes of `bands` rows.
        hop: samples between frames.
    """

    rows: int
    frames: int
    planes: int = 1
    hop: int = 1


def feature_shape(spec: FrontEnd, *, channels: int, samples: int) -> FeatureShape:
    """Compute the shape of a front end's output for windows of (channels, samples).

    Raises:
        ConfigError: the window is too short for one frame, or the front end is made for other channels.
    """
    match spec:
        case Raw() | Centre():
            return FeatureShape(rows=channels, frames=samples)
        case Standardise():
            if len(spec.scale) != channels:
                raise ConfigError(f"standardise: {len(spec.scale)} scales for {channels} rows; give one per row")
            return FeatureShape(rows=channels, frames=samples)
        case Filter():
            return FeatureShape(rows=channels, frames=_frames("filter", samples, spec.taps, 1))
        case FirstDifference():
            rows = channels * (2 if spec.keep else 1)
            return FeatureShape(rows=rows, frames=_frames("difference", samples, 2, 1))
        case SpectrogramSpec():
            length = spec.frame + (spec.pre_emphasis != 0)
            frames = _frames("spectrogram", samples, length, spec.hop)
            return FeatureShape(rows=channels * len(spec.bins), frames=frames, planes=channels, hop=spec.hop)
        case LogMelSpec():
            below = feature_shape(spec.spectrogram, channels=channels, samples=samples)
            return FeatureShape(rows=channels * spec.bands, frames=below.frames, planes=channels, hop=below.hop)
        case FilterBankSpec():
            frames = _frames("filter-bank", samples, spec.frame, spec.hop)
            return FeatureShape(rows=channels * spec.bands, frames=frames, planes=channels, hop=spec.hop)
        case MfccSpec():
            below = feature_shape(spec.mel, channels=channels, samples=samples)
            return FeatureShape(rows=channels * spec.coefficients, frames=below.frames, planes=channels, hop=below.hop)
        case StatisticsSpec():
            _frames("statistics", samples, 2, 1)
            return FeatureShape(rows=channels * len(spec.which), frames=1, hop=samples)
        case Chain():
            shape = FeatureShape(rows=channels, frames=samples)
            for stage in spec.stages:
                after = feature_shape(stage, channels=shape.rows, samples=shape.frames)
                # A stage that keeps the rows keeps what they stand for.
                planes = shape.planes if after.rows == shape.rows and after.planes == 1 else after.planes
                hop = shape.hop * after.hop
                shape = FeatureShape(rows=after.rows, frames=after.frames, planes=planes, hop=hop)
            return shape


def fit_standardise(features: npt.NDArray[np.float32], *, together: bool = False) -> Standardise:
    """Offsets and scales that bring training features to mean 0 and deviation 1.

    Args:
        features: (n, rows, frames) of training groups.
        together: one offset and one scale for all rows, which keeps their relations (a log-mel picture).

    Raises:
        ConfigError: a row never changes (a dead sensor) or is not finite; the message names it.
    """
    wide = features.astype(np.float64)
    axes = (0, 1, 2) if together else (0, 2)
    mean = np.broadcast_to(wide.mean(axis=axes, keepdims=True), (1, features.shape[1], 1)).ravel()
    deviation = np.broadcast_to(wide.std(axis=axes, keepdims=True), (1, features.shape[1], 1)).ravel()
    # Below this share of its size, a row's deviation is the rounding of its float32 values.
    bad = np.flatnonzero(~np.isfinite(deviation) | (deviation <= 1e-6 * np.maximum(np.abs(mean), 1e-30)))
    if bad.size:
        raise ConfigError(f"row {bad[0]} of the training features never changes or is not finite; leave it out")
    # Seven digits are what float32 holds: the numbers in a recipe or report are then the numbers in the graph.
    return Standardise(
        offset=tuple(float(f"{value:.7g}") for value in mean),
        scale=tuple(float(f"{1 / value:.7g}") for value in deviation),
    )


def _frames(name: str, samples: int, length: int, hop: int) -> int:
    if samples < length:
        raise ConfigError(f"{name}: needs {length} samples, the window has {samples}; lengthen it")
    return (samples - length) // hop + 1


def _check_frames(spec: SpectrogramSpec) -> None:
    if spec.frame < 2 or spec.hop < 1 or spec.points < spec.frame:
        raise ConfigError(
            f"spectrogram: frame of {spec.frame} samples, hop of {spec.hop}, transform of {spec.points} points; need a "
            f"frame of 2 or more, a hop of 1 or more, and at least as many points as the frame has samples"
        )
    if not 0 <= spec.low_hz < (spec.high_hz or spec.rate_hz / 2) <= spec.rate_hz / 2 or not len(spec.bins):
        raise ConfigError(
            f"spectrogram: no bin between {spec.low_hz} and {spec.high_hz} Hz at {spec.rate_hz} samples per second"
        )
    if not 0 <= spec.pre_emphasis < 1 or not spec.floor > 0:
        raise ConfigError("spectrogram: pre-emphasis must be at least 0 and below 1, and the floor above 0")
