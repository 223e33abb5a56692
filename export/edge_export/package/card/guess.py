"""Guesses of a card from the shapes and names of a file: its signal, front end and states.

1. A picture: two sizes of 16 or more with 1 or 3 channels, or two open sizes with 3; or a line of text, whose width is
   open.
2. Forty numbers a row and variables, or 1960 int8: TensorFlow Lite Micro's micro-frontend.
3. Sizes of published front ends: 49 x 10, 64 x 96, 5 x 128, 80 x hundreds; 96 numbers a row of an embedding.
4. As many bands as a log-mel has, where the input has four axes, 40 bands or a name that says it.
5. Frames beside a state: sound where the file takes a rate, too, or is Silero by its names and sizes; how many
   samples a call takes is asked, unless the file says it.
6. Long rows of one number, or an input with a name of sound: sound, at the rate that makes whole seconds of them.
7. Trees and the like, or names of features in the file: a row of features.
8. Anything else: a sensor's channels. Where the first layer sums over an axis, that one holds them; sizes that nothing
   tells are left out of the card, so that `pack` asks for them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_export.package.card.facts import Facts, Tensor
from edge_export.package.card.fitting import alike

AUDIO = "audio 16000"
_LEAST_PICTURE = 16
_OPEN_PICTURE = (320, 320)
_LARGE_PICTURE = (960, 960)
_MOST_PIXELS = 1_000_000
_LINE = 8
"""Width of a line of text, in heights, where the file leaves it open."""
_LONG = 8000
_RATES = (16000, 48000, 44100, 22050)
_TEACHABLE_MACHINE = 43 * 1024
"""Samples of a call of Teachable Machine's sound models, at 44,100 Hz."""
_MOST_SECONDS = 5
_EMBEDDED = 96
"""Numbers of a row of Google's speech embedding."""
_MOST_CHANNELS = 64
_BANDS = (128, 80, 64, 40, 32)
_SOUNDS = ("audio", "wav", "sound", "speech", "pcm")
_SPECTRAL = ("mel", "fbank", "spec", "feat", "mfcc")
_REMEMBERS = ("state", "hidden", "cell", "cache", "memory", "buffer", "past", "prev")
_SHORT = ("h", "c", "h0", "c0", "hx", "cx", "h_0", "c_0", "h_in", "c_in", "hn", "cn")
_KEYWORD = {
    "type": "mel", "definition": "tensorflow", "frame": 480, "hop": 320, "bands": 40, "coefficients": 10,
    "low_hz": 20, "high_hz": 4000, "normalise": "max",
}  # fmt: skip
_YAMNET = {
    "type": "mel", "fft": 512, "frame": 400, "hop": 160, "bands": 64, "low_hz": 125, "high_hz": 7500, "mel": "htk",
    "norm": "none", "power": 1, "log": "ln", "floor": 1e-3, "centred": False,
}  # fmt: skip
_TOYCAR = {
    "type": "mel", "frame": 1024, "hop": 512, "floor": 2.220446049250313e-16, "floor_by": "add", "stream": True,
}  # fmt: skip
_WHISPER = {
    "type": "mel", "frame": 400, "hop": 160, "padding": "reflect",
}  # fmt: skip
_FUNASR = {
    "type": "mel", "definition": "kaldi", "bands": 80, "window": "hamming-symmetric", "scale": 32768, "stream": True,
}  # fmt: skip
_OPENWAKEWORD: tuple[Mapping[str, Any], ...] = (
    {
        "name": "mel", "inputs": [{"rows": 1760, "hop": 1280, "lead": 480, "scale": 32768}],
        "outputs": [{"rows": 8, "offset": -20, "scale": 0.1}],
    },
    {"name": "embedding", "inputs": [{"rows": 76, "hop": 8}]},
)  # fmt: skip
_PLAIN_MEL = {"type": "mel", "frame": 400, "hop": 160, "stream": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class GuessedFront:
    """Signal and what stands before the model.

    Attributes:
        signal: of the card.
        why: of the guess.
        fill: what a person must still say of the signal; empty for nothing.
        top: further keys of the card.
        stages: before the model.
        port: of the model's input, without its name.
        port_why: of that.
        frame: height and width of a picture.
    """

    signal: Any
    why: str
    fill: str = ""
    top: Mapping[str, Any] | None = None
    stages: tuple[Mapping[str, Any], ...] = ()
    port: Mapping[str, Any] | None = None
    port_why: str = ""
    frame: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Inputs and outputs of a file, told apart.

    Attributes:
        main: takes the signal.
        states: an input, and the output that is its next value.
        constants: inputs with their value.
        others: inputs that no rule names.
        answers: outputs that are no state.
    """

    main: Tensor
    states: tuple[tuple[Tensor, Tensor], ...]
    constants: tuple[tuple[Tensor, float], ...]
    others: tuple[Tensor, ...]
    answers: tuple[Tensor, ...]


def tell_apart(facts: Facts) -> Ends:
    """Tell signal, states and constants of a file with at least one input apart."""
    rates = [one for one in facts.inputs if len(facts.inputs) > 1 and _is_rate(one)]
    left, outputs = [one for one in facts.inputs if one not in rates] or list(facts.inputs), list(facts.outputs)
    named = [one for one in left if _remembers(one.name)]
    main = next((one for one in left if one not in named), left[0])
    states, others = list[tuple[Tensor, Tensor]](), list[Tensor]()
    for one in left:
        if one is main:
            continue
        if (chosen := _partner(one, outputs, surely=one in named)) is None:
            others.append(one)
        else:
            states.append((one, chosen))
            outputs.remove(chosen)
    return Ends(
        main=main, states=tuple(states), constants=tuple((one, 16000.0) for one in rates), others=tuple(others),
        answers=tuple(outputs) or facts.outputs,
    )  # fmt: skip


def _partner(one: Tensor, outputs: Sequence[Tensor], *, surely: bool) -> Tensor | None:
    """Return the output that may be an input's next value: the one named alike, else any but the first, the answer."""
    partners = [other for other in outputs if _fits(one, other)]
    named = [other for other in partners if alike(other.name, one.name)]
    if named or not partners or not (surely or len(outputs) > 1):
        return named[0] if named else None
    return ([other for other in partners if other is not outputs[0]] or partners)[0]


def _is_rate(tensor: Tensor) -> bool:
    whole = tensor.dtype is not None and tensor.dtype.kind in "iu"
    return whole and tensor.shape in ((), (1,)) and tensor.name.lower() in ("sr", "sample_rate", "sampling_rate")


def _remembers(name: str) -> bool:
    plain = name.lower().removeprefix("serving_default_").partition(":")[0]
    return plain in _SHORT or any(word in plain for word in _REMEMBERS)


def _fits(one: Tensor, other: Tensor) -> bool:
    pairs = list(zip(one.shape, other.shape, strict=False))
    same_rank = len(one.shape) == len(other.shape) > 0
    return same_rank and one.dtype == other.dtype and all(a == b or -1 in (a, b) for a, b in pairs)


def guess_front(facts: Facts, ends: Ends) -> GuessedFront:
    """Guess what the model's main input takes."""
    main = ends.main
    stateful = bool(facts.variables or ends.states or facts.inside)
    return (
        _speech(facts, ends, main)
        or _picture(main, facts.picture)
        or (_frames(ends, main) if stateful else None)
        or _mel(main)
        or _features(facts, main)
        or _sound(main)
        or _sensor(main)
    )


def _audio(why: str, **more: Any) -> GuessedFront:
    return GuessedFront(signal=AUDIO, why=why, **more)


def _speech(facts: Facts, ends: Ends, main: Tensor) -> GuessedFront | None:
    """Sizes of published front ends for sound."""
    row = main.row
    if main.shape[-1:] == (40,) and facts.variables and len(main.shape) == 3:
        rows = main.shape[1]
        return _audio(
            f"{rows} x 40 numbers and variables, as microWakeWord has them",
            stages=({"type": "micro-frontend"},), port={"rows": rows} if rows > 0 else None,
        )  # fmt: skip
    if row == (1960,) or (row == (49, 40) and main.dtype == np.int8):
        return _audio(
            "49 x 40 numbers, as micro_speech of TensorFlow Lite Micro has them",
            stages=({"type": "micro-frontend", "hop": 320},),
            port={"rows": 49, "hop": 1, "layout": "samples-first"},
        )  # fmt: skip
    if row == (49, 10):
        return _audio(
            "49 x 10 MFCC of a second, as MLPerf Tiny keyword spotting has them",
            top={"window": 16000, "hop": 8000}, stages=(_KEYWORD,),
        )  # fmt: skip
    if row in ((64, 96), (96, 64)):
        return _audio("96 rows of 64 bands, as YAMNet has them", stages=(_YAMNET,), port={"rows": 96, "hop": 48})
    if row in ((640,), (5, 128)) and len(ends.answers) == 1 and ends.answers[0].row == row:
        return _audio(
            "5 rows of 128 bands, as MLPerf Tiny anomaly detection has them", stages=(_TOYCAR,),
            port={"rows": 5, "hop": 1, "layout": "samples-first"},
        )  # fmt: skip
    return _of_whisper(main) or _of_embeddings(ends, main) or _of_funasr(main)


def _of_whisper(main: Tensor) -> GuessedFront | None:
    """Bands first and hundreds of rows, whole seconds: the features of Whisper."""
    row = main.row
    if len(row) != 2 or row[0] not in (80, 128) or row[1] < 100 or row[1] % 100:
        return None
    return _audio(
        f"{row[0]} bands of {row[1] / 100:g} s, as Whisper has them", top={"window": row[1] * 160},
        fill='normalise = "mean-std" at the mel stage, where training evened out the level of a clip (do_normalize)',
        stages=({**_WHISPER, "bands": row[0]},), port={"rows": row[1], "offset": -40, "scale": 0.025},
        port_why="(log10 + 4) / 4",
    )  # fmt: skip


def _of_funasr(main: Tensor) -> GuessedFront | None:
    """Any number of rows, each of five or seven frames of 80 bands: FunASR's low frame rate."""
    if len(main.shape) != 3 or main.shape[1] > 1 or main.shape[2] not in (400, 560):
        return None
    frames = main.shape[2] // 80
    return _audio(
        f"{frames} rows of 80 bands side by side, as FunASR has them",
        fill=f"offset and scale, lists of 80 at the model's input: the first 80 of am.mvn's <AddShift>, each times -1, "
             f"and of its <Rescale>; hop = {frames - 1} there where lfr_n of config.yaml is {frames - 1}",
        stages=(_FUNASR,), port={"rows": frames, "hop": 1, "layout": "samples-first"},
    )  # fmt: skip


def _of_embeddings(ends: Ends, main: Tensor) -> GuessedFront | None:
    """Rows of 96 numbers before probabilities: a wake word behind the two models of openWakeWord."""
    row = main.row
    if len(row) != 2 or row[1] != _EMBEDDED or row[0] < 12 or ends.answers[0].end not in ("sigmoid", "softmax"):
        return None
    return _audio(
        f"{row[0]} rows of openWakeWord's speech embedding; pack melspectrogram.onnx embedding_model.onnx THIS.onnx",
        stages=_OPENWAKEWORD, port={"rows": row[0], "hop": 1, "layout": "samples-first"},
    )  # fmt: skip


def _picture(main: Tensor, stated: tuple[int, int] | None) -> GuessedFront | None:
    sizes, fill = _filled(main.shape[1:], stated)
    if len(sizes) == 2 and sizes[0] == sizes[1] and sizes[0] in (28, 32):
        sizes = (*sizes, 1)
    if len(sizes) != 3:
        return None
    if sizes[-1] in (1, 3):
        (height, width), channels = sizes[:2], sizes[2]
    elif sizes[0] in (1, 3):
        (height, width), channels = sizes[1:], sizes[0]
    else:
        return None
    if (height != width and channels == 1 and not fill) or min(height, width) < _LEAST_PICTURE:
        return None
    port, why = _pixels(main)
    return GuessedFront(
        signal=f"{'rgb' if channels == 3 else 'grey'} {height} x {width}",
        why="a picture by its shape; the order of colours may be bgr" if channels == 3 else "a picture by its shape",
        fill=fill,
        port=port, port_why=why, frame=(height, width),
    )  # fmt: skip


def _filled(sizes: tuple[int, ...], stated: tuple[int, int] | None) -> tuple[tuple[int, ...], str]:
    """Fill height and width in where a file of pictures leaves them open; and what a person must write."""
    if len(sizes) != 3 or sizes.count(-1) not in (1, 2):
        return sizes, ""
    if first := sizes[0] in (1, 3):
        colours, height, width = sizes
    else:
        height, width, colours = sizes
    if width > 0 or colours not in (1, 3) or (height < 0 and colours == 1):
        return sizes, ""
    (height, width), fill = _size(height, stated)
    return (colours, height, width) if first else (height, width, colours), fill


def _size(height: int, stated: tuple[int, int] | None) -> tuple[tuple[int, int], str]:
    """Return height and width of a picture whose width is open, and what a person must write."""
    if height > 0:
        fill = "width of the pictures, which the file leaves open; wider lines are made smaller"
        return (height, _LINE * height), fill
    if stated is None:
        return _OPEN_PICTURE, "height and width of the pictures, which the file leaves open"
    if stated[0] * stated[1] <= _MOST_PIXELS:
        return stated, ""
    made = f"{stated[0]} x {stated[1]}"
    return _LARGE_PICTURE, f"height and width; {made}, for which the file was made, are more than a window holds"


def _pixels(main: Tensor) -> tuple[dict[str, Any], str]:
    """Guess how a picture of 0 to 255 is scaled for the model."""
    if main.dtype is not None and main.dtype.kind in "iu" and main.dtype.itemsize == 1:
        if not main.scale:
            return {}, ""
        offset = main.zero - int(np.iinfo(main.dtype).min)
        scale = {} if main.scale == 1 else {"scale": float(f"{main.scale:.9g}")}
        return {**({"offset": offset} if offset else {}), **scale}, "bytes go in as they are, by the quantisation"
    return {"scale": 0.00392156863}, (
        "0 to 1; for -1 to 1 write offset = 127.5, scale = 0.00784313725; for 0 to 255 leave it out"
    )


def _frames(ends: Ends, main: Tensor) -> GuessedFront | None:
    """Frames of sound beside a state."""
    row, last = main.row, main.shape[-1] if main.shape else 0
    if len(row) > 1:
        return None
    if last == 257:
        spectrum = {"type": "spectrum", "frame": 512, "hop": 128, "values": "complex", "stream": True, "lead": 384}
        return _audio("257 magnitudes of a spectrum beside a state, as DTLN has them",
                      stages=(spectrum, {"type": "magnitude"}))  # fmt: skip
    if main.dtype is None or main.dtype.kind != "f" or len(main.shape) != 2:
        return None
    if _is_silero(ends, main):
        return _audio("names and sizes of Silero 5 and 6", port={"rows": 576, "hop": 512, "lead": 64},
                      port_why="64 samples of the step before and 512 new ones, as Silero has them")  # fmt: skip
    if not (ends.constants or _sounds(main)) or 0 < last < 128:
        return None
    rows = {"rows": last} if last > 0 else {}
    fill = (
        "hop at the input where frames overlap, and lead for samples of the step before, as the code that calls it does"
    )
    return _audio(
        "frames of sound beside a state", port=rows, fill=fill if rows else f"rows, samples of a call; {fill}"
    )


def _is_silero(ends: Ends, main: Tensor) -> bool:
    """Return whether a file has the tensors of Silero's voice activity, version 5 and 6; those before keep h and c."""
    named = [(one.name, one.shape, other.name) for one, other in ends.states]
    return main.name == "input" and main.shape[-1] in (-1, 576) and named == [("state", (2, -1, 128), "stateN")]


def _sounds(main: Tensor) -> bool:
    return any(word in main.name.lower() for word in _SOUNDS)


def _mel(main: Tensor) -> GuessedFront | None:
    row = main.row
    if len(row) != 2 or min(row) < 1:
        return None
    if len(main.shape) == 3 and 40 not in row and not any(word in main.name.lower() for word in _SPECTRAL):
        return None
    bands = row[1] if row[1] in _BANDS else next((bands for bands in _BANDS if bands in row), 0)
    if not bands:
        return None
    rows = row[0] if row[1] == bands else row[1]
    layout = {"layout": "samples-first"} if rows == bands else {}
    return GuessedFront(
        signal=AUDIO, why=f"{rows} rows of {bands} bands of a log-mel spectrum",
        fill="frame, fft, hop, window, low_hz, high_hz, log and floor of the front end, as training computed it",
        stages=({**_PLAIN_MEL, "bands": bands},), port={"rows": rows, "hop": max(1, rows // 2), **layout},
    )  # fmt: skip


def _sound(main: Tensor) -> GuessedFront | None:
    row = main.row
    floats = main.dtype is not None and main.dtype.kind == "f"
    if len(row) == 1 and row[0] >= _LONG and floats:
        return GuessedFront(signal=f"audio {_rate(row[0])}", why="one long row of numbers", port={"rows": row[0]},
                     fill="the rate of the sound, which the file does not say, if it differs")  # fmt: skip
    if len(main.shape) == 2 and row == (-1,) and floats and _sounds(main):
        return GuessedFront(signal=AUDIO, why="one row of any length", fill="rows, how many samples a call takes",
                     port={})  # fmt: skip
    return None


def _rate(samples: int) -> int:
    """Return the rate at which a call of this length is one to five whole seconds; 16,000 where none is."""
    if samples == _TEACHABLE_MACHINE:
        return 44100
    whole = [rate for rate in _RATES if samples % rate == 0 and samples <= _MOST_SECONDS * rate]
    return whole[0] if whole else _RATES[0]


def _features(facts: Facts, main: Tensor) -> GuessedFront | None:
    """One row of features for each answer, with their names where the file has them."""
    if len(main.row) != 1 or main.row[0] < 1 or not (facts.tabular or facts.features):
        return None
    count = main.row[0]
    named = len(set(facts.features)) == count and all(re.fullmatch(r"\w[\w .-]*", one) for one in facts.features)
    names = "" if named else "; channels = [...], their names; with low and high where pack gets no recording"
    return GuessedFront(
        signal={"rate_hz": 0, "channels": list(facts.features) if named else count},
        why="a row of features" + (", named in the file's metadata" if named else ""),
        fill=f"rate_hz, rows a second (1 where they have no rate){names}", port={"rows": 1},
    )  # fmt: skip


def _sensor(main: Tensor) -> GuessedFront:
    row = main.row
    fill = 'rate_hz, samples a second; channels = ["x (g)", ...], or with low and high where pack gets no recording'
    if row == (-1,) or len(main.shape) < 2:
        return GuessedFront(signal={"rate_hz": 0, "channels": 1}, why="nothing: the file leaves the sizes open",
                     fill=f"{fill}; rows, layout and, if there is none, batch = -1 at the input", port={})  # fmt: skip
    if len(row) < 2:
        numbers = row[0] if row and row[0] > 0 else 1
        single = numbers <= _MOST_CHANNELS
        why = "one sample of each channel" if single else "samples of one channel"
        return GuessedFront(signal={"rate_hz": 0, "channels": numbers if single else 1}, why=why, fill=fill,
                     port={"rows": 1 if single else numbers})  # fmt: skip
    first_axis, port_why = _channels_first(main)
    channels, samples = (row[0], row[1]) if first_axis else (row[-1], row[0])
    order = {"layout": "channels-first" if first_axis else "samples-first"}
    port: dict[str, Any] = {**({"rows": samples} if samples > 0 else {}), **order}
    return GuessedFront(
        signal={"rate_hz": 0, "channels": max(1, channels)}, fill=fill, port=port,
        why=f"windows of {samples if samples > 0 else 'any number of'} samples of {max(1, channels)} channels",
        port_why=port_why,
    )  # fmt: skip


def _channels_first(main: Tensor) -> tuple[bool, str]:
    """Return whether the channels come before the samples, and why."""
    row, first = main.row, main.first
    if first is not None and first.axis > 0 and len(main.shape) == len(row) + 1:
        return first.axis == 1 and len(row) == 2, f"the first layer, {first.operator}, sums over the channels"
    runs_on = len(row) == 2 and row[1] < 0 < row[0]  # the open axis is time
    few = 0 < row[0] <= _MOST_CHANNELS < row[-1] and len(row) == 2
    return runs_on or few, "the order of the axes; the file cannot say it"
