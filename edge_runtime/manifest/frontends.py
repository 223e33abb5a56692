"""Settings of front ends and small joints, as a manifest's ``stages`` and a card name them.

A field that is left out has the default of the library that the definition names, so a card repeats the arguments of
the training code and no others. `Mel` fills them in when it is made: a manifest that was packed holds every value, and
keeps it when a library changes its mind.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, Final, Literal, TypeAlias

from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.manifest.row_stage import RowStage, Span

LEFT_OUT: Final = -1.0
"""Value of a number that was left out, where 0 has a meaning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pcen:
    """Per-channel energy normalisation in the place of the logarithm, with librosa's names and defaults.

    Source: Wang et al. 2017, Trainable frontend for robust and far-field keyword spotting; `librosa.pcen`.
    """

    gain: float = 0.98
    bias: float = 2.0
    power: float = 0.5
    time_constant_s: float = 0.4
    """Of the smoother, whose output is a state of the key."""
    eps: float = 1e-6

    def __post_init__(self) -> None:
        if min(self.gain, self.bias, self.power) < 0 or not all(map(math.isfinite, (self.gain, self.bias, self.power))):
            raise ValueError("pcen: gain, bias and power must be 0 or more")
        if not (0 < self.eps < math.inf and 0 < self.time_constant_s < math.inf):
            raise ValueError("pcen: eps and time_constant_s must be above 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mel(RowStage):
    """Log-mel rows or MFCC of sound.

    Fields left out have the defaults of the library: librosa 0.11, TensorFlow 2.21, torchaudio 2.11.
    """

    type: Literal["mel"] = "mel"
    name: str = "mel"
    definition: Literal["librosa", "tensorflow", "torchaudio", "kaldi"] = "librosa"
    """Library whose arithmetic it is. ``librosa``: `feature.melspectrogram`, `power_to_db` and `feature.mfcc`.
    ``tensorflow``: `signal.stft`, `linear_to_mel_weight_matrix`, `mfccs_from_log_mel_spectrograms`. ``torchaudio``:
    `MelSpectrogram`, `AmplitudeToDB` and `MFCC`. ``kaldi``: `torchaudio.compliance.kaldi.fbank` without dither."""
    rate_hz: float = 16000.0
    frame: int = 0
    """Samples under the window function (n_fft or win_length, frame_length)."""
    fft: int = 0
    """Points of the transform; 0 means `frame`, for ``tensorflow`` and ``kaldi`` the next power of two."""
    hop: int = 0
    """Samples from one frame to the next."""
    bands: int = 0
    coefficients: int = 0
    """Above 0: the first coefficients of the cosine transform of the log-mel rows (MFCC)."""
    low_hz: float = LEFT_OUT
    high_hz: float = LEFT_OUT
    """0, too, means half the rate."""
    mel: Literal["", "htk", "slaney"] = ""
    norm: Literal["", "none", "slaney"] = ""
    """``slaney``: each band has the same area."""
    power: Literal[0, 1, 2] = 0
    """1: magnitudes, 2: their squares."""
    log: Literal["", "ln", "db", "log10", "none"] = ""
    """``db``: 10 log10 of squares, 20 log10 of magnitudes."""
    floor: float = 0.0
    """Least value before the logarithm, in the unit of the mel rows."""
    floor_by: Literal["", "clip", "add"] = ""
    """``clip``: the larger of value and floor (amin). ``add``: their sum (log(x + 1e-6))."""
    reference: Literal["1", "max"] = "1"
    """Value of 0 dB; ``max``: the largest of the cut."""
    top_db: float = LEFT_OUT
    """Least row value, in dB below the largest of the cut; 0: no such limit. Librosa's 80 dB make a row depend on the
    cut that it is in; write 0 where rows come one by one."""
    centred: bool | None = None
    """Frames are centred on multiples of `hop`, so the cut is padded by half a transform at both ends."""
    padding: Literal["", "constant", "reflect"] = ""
    """Of a centred cut. librosa: ``reflect`` before version 0.10, ``constant`` (zeros) since."""
    window: Literal["", "hann", "hann-symmetric", "hamming", "hamming-symmetric", "povey", "none"] = ""
    """`hann` and `hamming` are periodic."""
    preemphasis: float = LEFT_OUT
    """x[n] - preemphasis * x[n-1]; ``kaldi`` in each frame, the others over the cut, before whose first sample is 0."""
    normalise: Literal["none", "max"] = "none"
    """``max``: divide the samples of a cut by the largest, as MLPerf Tiny's keyword training does."""
    scale: float = 1.0
    """The samples are multiplied by it: 32768 where training took 16-bit integers as they are."""
    pcen: Pcen | None = None
    """In the place of `log`."""
    stream: bool = False
    """False: the frames of a step are its own, as training saw clips. True: frames go on from step to step, so a window
    must begin where the one before ended, and nothing may depend on the whole step: no `centred` frames, no `top_db`,
    `reference` or `normalise` (the first two are left out by default then)."""

    def __post_init__(self) -> None:
        defaults = _library_defaults(self)
        for field in fields(self):
            if field.name in defaults and getattr(self, field.name) == field.default:
                object.__setattr__(self, field.name, defaults[field.name])
        _check_mel(self)

    @property
    def goes_on(self) -> bool:
        """See `RowStage`."""
        return self.stream or self.pcen is not None

    @property
    def span(self) -> int:
        """Samples that one row is computed from.

        librosa and torchaudio count frames of `fft` samples, with a shorter window in their middle.
        """
        return self.frame if self.definition in ("tensorflow", "kaldi") else self.fft

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return ((self.span, self.hop, 0),) if self.stream else ((0, 0, 0),)


_DEFAULTS: Final[dict[str, dict[str, Any]]] = {
    "librosa": {
        "frame": 2048, "hop": 512, "bands": 128, "low_hz": 0.0, "mel": "slaney", "norm": "slaney", "power": 2,
        "log": "db", "floor": 1e-10, "floor_by": "clip", "centred": True, "padding": "constant", "window": "hann",
        "preemphasis": 0.0,
    },
    "tensorflow": {
        "bands": 20, "low_hz": 125.0, "high_hz": 3800.0, "mel": "htk", "norm": "none", "power": 1, "log": "ln",
        "floor": 1e-6, "floor_by": "add", "centred": False, "padding": "constant", "window": "hann",
        "preemphasis": 0.0,
    },
    "torchaudio": {
        "frame": 400, "bands": 128, "low_hz": 0.0, "mel": "htk", "norm": "none", "power": 2, "log": "db",
        "floor": 1e-10, "floor_by": "clip", "centred": True, "padding": "reflect", "window": "hann",
        "preemphasis": 0.0,
    },
    "kaldi": {
        "bands": 23, "low_hz": 20.0, "mel": "htk", "norm": "none", "power": 2, "log": "ln", "floor": 2.0**-23,
        "floor_by": "clip", "centred": False, "padding": "constant", "window": "povey", "preemphasis": 0.97,
    },
}  # fmt: skip


def _library_defaults(mel: Mel) -> dict[str, Any]:
    """Defaults of the library, those that follow from other fields among them."""
    if mel.high_hz == 0:
        object.__setattr__(mel, "high_hz", mel.rate_hz / 2)
    found = {"high_hz": mel.rate_hz / 2, **_DEFAULTS[mel.definition], **_default_frames(mel)}
    if mel.pcen is not None:
        found["log"] = "none"
    if mel.definition == "librosa" and mel.power == 1:
        found["floor"] = 1e-5  # amplitude_to_db
    limited = mel.definition == "librosa" or (mel.definition == "torchaudio" and mel.coefficients > 0)
    to_db = (mel.log or found["log"]) == "db"
    found["top_db"] = 80.0 if limited and to_db and not mel.stream else 0.0
    if mel.stream:
        found["centred"] = False
    return found


def _default_frames(mel: Mel) -> dict[str, int]:
    if mel.definition == "kaldi":  # 25 ms every 10 ms
        found = {"frame": int(0.025 * mel.rate_hz), "hop": int(0.01 * mel.rate_hz)}
    elif mel.definition == "tensorflow":
        found = {"frame": 0}
    else:  # n_fft is also the window's length where only it is given
        found = {"frame": mel.fft or _DEFAULTS[mel.definition]["frame"]}
    frame = mel.frame or found["frame"]
    if mel.definition in ("tensorflow", "kaldi"):
        return found | {"fft": 1 << max(frame - 1, 0).bit_length()}
    return found | {"fft": frame} | ({"hop": frame // 2} if mel.definition == "torchaudio" else {})


def _check_mel(mel: Mel) -> None:
    if not 1 <= mel.rate_hz <= 1e6:
        raise ValueError("mel: rate_hz must be 1 to 1e6")
    _check_frames("mel", mel.frame, mel.fft, mel.hop)
    if not 1 <= mel.bands <= 1024 or not 0 <= mel.coefficients <= mel.bands:
        raise ValueError("mel: bands must be 1 to 1024 and coefficients 0 to bands")
    if not 0 <= mel.low_hz < mel.high_hz <= mel.rate_hz / 2:
        raise ValueError(
            f"mel: low_hz ({mel.low_hz:g}) must be below high_hz ({mel.high_hz:g}), and both 0 to half of rate_hz "
            f"({mel.rate_hz / 2:g})"
        )
    if not 0 < mel.floor < math.inf or not 0 <= mel.top_db < math.inf:
        raise ValueError("mel: floor must be above 0, and top_db 0 or more")
    if not 0 <= mel.preemphasis <= 1 or not 0 < mel.scale < math.inf:
        raise ValueError("mel: preemphasis must be 0 to 1, and scale above 0")
    if (problem := _contradiction(mel)) is not None:
        raise ValueError(f"mel: {problem}")


def _contradiction(mel: Mel) -> str | None:
    if mel.definition in ("tensorflow", "kaldi") and (mel.centred or mel.norm == "slaney" or mel.mel == "slaney"):
        return f"{mel.definition} has no centred, no slaney; leave them out, or write definition = 'librosa'"
    if mel.stream and (mel.centred or mel.top_db or mel.reference == "max" or mel.normalise == "max"):
        return "a stream has no centred frames, top_db, reference or normalise; leave them out, or write stream = false"
    if mel.definition == "kaldi" and mel.coefficients:
        return "kaldi's MFCC are not known here; write coefficients = 0"
    if mel.pcen is not None and mel.log != "none":
        return "pcen takes the place of the logarithm; leave log out"
    if mel.coefficients and mel.log == "none":
        return "coefficients need a logarithm; write log = 'ln', 'db' or 'log10'"
    if mel.log == "none" and (mel.reference == "max" or mel.top_db):
        return "reference and top_db need a logarithm; leave them out"
    return None


def _check_frames(stage: str, frame: int, fft: int, hop: int) -> None:
    if not frame or not hop:
        raise ValueError(f"{stage}: write frame and hop, samples (frame_length and frame_step of the training code)")
    if not 2 <= frame <= fft <= 65536:
        raise ValueError(f"{stage}: frame ({frame}) must be 2 to fft ({fft}), and fft at most 65536")
    if not 1 <= hop <= 65536:
        raise ValueError(f"{stage}: hop must be 1 to 65536 samples")


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
        _check_frames("spectrum", self.frame, self.fft or self.frame, self.hop)
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
class Statistic(RowStage):
    """Statistics of each channel over a cut, one row of channels * `what` numbers, those of the first channel first."""

    type: Literal["statistic"] = "statistic"
    name: str = "statistic"
    rows: int = 0
    """Samples of a cut; 0 takes all that a step brings."""
    hop: int = 0
    """Samples from one cut to the next; 0 means `rows`."""
    what: tuple[Measure, ...]
    """``std``: over n, not n - 1. ``mad``: median of the distances from the median. ``peak``: largest absolute value.
    ``kurtosis``: Fisher's, 0 for a normal distribution. ``crest``: peak over rms. The last two are 0 where a channel
    does not move."""

    def __post_init__(self) -> None:
        _check_cut("statistic", self.rows, self.hop)
        if not self.what or len(set(self.what)) != len(self.what):
            raise ValueError("statistic: what needs one name or more, all different, for example ['mean', 'std']")

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return ((self.rows, self.hop, 0),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands(RowStage):
    """Power of each channel in frequency bands over a cut, one row of channels * bands, those of the first first.

    The powers are parts of the variance: with bands from 0 Hz to half the rate they add up to it, whatever the window.
    """

    type: Literal["bands"] = "bands"
    name: str = "bands"
    rows: int = 0
    """Samples of a cut; 0 takes all that a step brings."""
    hop: int = 0
    """Samples from one cut to the next; 0 means `rows`."""
    rate_hz: float
    edges_hz: tuple[float, ...]
    """Rising; n + 1 edges make n bands, each with its lower edge and without its upper one, but for the last."""
    envelope_hz: tuple[float, float] | None = None
    """Take the spectrum of the envelope of this band instead (Hilbert transform): faults of bearings and gears."""
    log: Literal["none", "db"] = "none"
    """``db``: 10 log10, not below -100 dB of the channel's unit squared."""

    def __post_init__(self) -> None:
        _check_cut("bands", self.rows, self.hop)
        half = self.rate_hz / 2
        edges = self.edges_hz
        if not 0 < self.rate_hz < math.inf:
            raise ValueError("bands: rate_hz must be above 0")
        if len(edges) < 2 or any(a >= b for a, b in pairwise(edges)) or not 0 <= edges[0] < edges[-1] <= half:
            raise ValueError(f"bands: edges_hz must be two or more rising numbers, 0 to half of rate_hz ({half:g})")
        if self.envelope_hz is not None and not 0 <= self.envelope_hz[0] < self.envelope_hz[1] <= half:
            raise ValueError(f"bands: envelope_hz must be two rising numbers, 0 to half of rate_hz ({half:g})")

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return ((self.rows, self.hop, 0),)


def _check_cut(stage: str, rows: int, hop: int) -> None:
    if not 0 <= hop <= rows <= 1_000_000:
        raise ValueError(f"{stage}: rows must be 0 to 1,000,000 samples, and hop 0 to rows")


FRONTENDS: Final = {
    "bands": f"{__name__}:Bands",
    "magnitude": f"{__name__}:Magnitude",
    "masked": f"{__name__}:Masked",
    "mel": f"{__name__}:Mel",
    "micro-frontend": "edge_runtime.manifest.micro_frontend:MicroFrontend",
    "overlap-add": f"{__name__}:OverlapAdd",
    "spectrum": f"{__name__}:Spectrum",
    "statistic": f"{__name__}:Statistic",
}
"""Classes by their ``type``."""
FrontendSpec: TypeAlias = Bands | Magnitude | Masked | Mel | MicroFrontend | OverlapAdd | Spectrum | Statistic
