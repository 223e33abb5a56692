"""Settings of log-mel rows and MFCC.

A field that is left out has the default of the library that the definition names, so a card repeats the arguments of
the training code and no others. `Mel` fills them in when it is made: a manifest that was packed holds every value, and
keeps it when a library changes its mind.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from edge_runtime.manifest.row_stage import RowStage, Span, check_frames

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
    definition: Literal["librosa", "tensorflow", "torchaudio", "kaldi", "python_speech_features"] = "librosa"
    """Library whose arithmetic it is. ``librosa``: `feature.melspectrogram`, `power_to_db` and `feature.mfcc`.
    ``tensorflow``: `signal.stft`, `linear_to_mel_weight_matrix`, `mfccs_from_log_mel_spectrograms`. ``torchaudio``:
    `MelSpectrogram`, `AmplitudeToDB` and `MFCC`. ``kaldi``: `torchaudio.compliance.kaldi.fbank` without dither.
    ``python_speech_features``: `logfbank` and `mfcc`, which fill the last frame of a clip with zeros."""
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
    lifter: float = LEFT_OUT
    """Of MFCC: raises the later coefficients; 0: none. python_speech_features' ceplifter, whose default is 22."""
    energy: bool | None = None
    """Of MFCC: the first coefficient is the logarithm of the frame's power (appendEnergy)."""
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
    normalise: Literal["none", "max", "mean-std"] = "none"
    """``max``: divide the samples of a cut by the largest, as MLPerf Tiny's keyword training does. ``mean-std``:
    after pre-emphasis, less their mean and by their standard deviation, as `do_normalize` of transformers does."""
    normalise_rows: Literal["none", "mean", "mean-std"] = "none"
    """Each band over the rows of a cut: less its mean, and by its standard deviation (CMN, CMVN)."""
    scale: float = 1.0
    """The samples are multiplied by it: 32768 where training took 16-bit integers as they are."""
    pcen: Pcen | None = None
    """In the place of `log`."""
    stream: bool = False
    """False: the frames of a step are its own, as training saw clips. True: frames go on from step to step, so a window
    must begin where the one before ended, and nothing may depend on the whole step: no `centred` frames, no `top_db`,
    `reference`, `normalise` or `normalise_rows` (the first two are left out by default then)."""

    def __post_init__(self) -> None:
        defaults = _library_defaults(self)
        for field in fields(self):
            if field.name in defaults and getattr(self, field.name) == field.default:
                object.__setattr__(self, field.name, defaults[field.name])
        _check_mel(self)

    @property
    def made_for_hz(self) -> float:
        """See `RowStage`."""
        return self.rate_hz

    @property
    def goes_on(self) -> bool:
        """See `RowStage`."""
        return self.stream or self.pcen is not None

    @property
    def whole_fft(self) -> bool:
        """True where a frame has as many samples as the transform; elsewhere zeros follow it."""
        return self.definition in ("librosa", "torchaudio")

    @property
    def span(self) -> int:
        """Samples that one row is computed from.

        librosa and torchaudio count frames of `fft` samples, with a shorter window in their middle.
        """
        return self.fft if self.whole_fft else self.frame

    @property
    def spans(self) -> tuple[Span, ...]:
        """Cuts of the tracks in `takes`."""
        return ((self.span, self.hop, 0),) if self.stream else ((0, 0, 0),)


_BY_TIME: Final = ("kaldi", "python_speech_features")
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
    "python_speech_features": {
        "bands": 26, "low_hz": 0.0, "mel": "htk", "norm": "none", "power": 2, "log": "ln", "floor": 2.0**-52,
        "floor_by": "clip", "centred": False, "padding": "constant", "window": "none", "preemphasis": 0.97,
    },
}  # fmt: skip


def _library_defaults(mel: Mel) -> dict[str, Any]:
    """Defaults of the library, those that follow from other fields among them."""
    if mel.high_hz == 0:
        object.__setattr__(mel, "high_hz", mel.rate_hz / 2)
    found = {"high_hz": mel.rate_hz / 2, **_DEFAULTS[mel.definition], **_default_frames(mel)}
    speech = mel.definition == "python_speech_features" and mel.coefficients > 0
    found |= {"lifter": 22.0 if speech else 0.0, "energy": speech}
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
    if mel.definition in _BY_TIME:  # 25 ms every 10 ms
        found = {"frame": int(0.025 * mel.rate_hz), "hop": int(0.01 * mel.rate_hz)}
    elif mel.definition == "tensorflow":
        found = {"frame": 0}
    else:  # n_fft is also the window's length where only it is given
        found = {"frame": mel.fft or _DEFAULTS[mel.definition]["frame"]}
    frame = mel.frame or found["frame"]
    if not mel.whole_fft:
        return found | {"fft": 1 << max(frame - 1, 0).bit_length()}
    return found | {"fft": frame} | ({"hop": frame // 2} if mel.definition == "torchaudio" else {})


def _check_mel(mel: Mel) -> None:
    if not 1 <= mel.rate_hz <= 1e6:
        raise ValueError("mel: rate_hz must be 1 to 1e6")
    check_frames("mel", mel.frame, mel.fft, mel.hop)
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
    if found := [*_contradictions(mel), *_bad_logarithm(mel)]:
        raise ValueError(f"mel: {found[0]}")


def _contradictions(mel: Mel) -> Iterator[str]:
    """Yield what to write instead, for fields that do not go together."""
    speech = mel.definition == "python_speech_features"
    if not mel.whole_fft and (mel.centred or "slaney" in (mel.norm, mel.mel)):
        yield f"{mel.definition} has no centred, no slaney; leave them out, or write definition = 'librosa'"
    if (mel.lifter or mel.energy) and not (speech and mel.coefficients):
        yield "lifter and energy are for MFCC of definition = 'python_speech_features'; leave them out"
    if speech and mel.power != 2:
        yield "python_speech_features takes powers; write power = 2, or leave it out"
    if mel.definition == "kaldi" and mel.coefficients:
        yield "kaldi's MFCC are not known here; write coefficients = 0"


def _bad_logarithm(mel: Mel) -> Iterator[str]:
    """Yield what to write instead, for fields about the logarithm and the whole cut."""
    of_the_cut = mel.reference == "max" or mel.top_db > 0
    if mel.stream and (mel.centred or of_the_cut or {mel.normalise, mel.normalise_rows} != {"none"}):
        yield (
            "a stream has no centred frames, top_db, reference, normalise or normalise_rows; leave them out, or write "
            "stream = false"
        )
    if mel.pcen is not None and mel.log != "none":
        yield "pcen takes the place of the logarithm; leave log out"
    if mel.pcen is not None and mel.normalise_rows != "none":
        yield "pcen has levels of its own; leave normalise_rows out"
    if mel.coefficients and mel.log == "none":
        yield "coefficients need a logarithm; write log = 'ln', 'db' or 'log10'"
    if mel.log == "none" and of_the_cut:
        yield "reference and top_db need a logarithm; leave them out"
