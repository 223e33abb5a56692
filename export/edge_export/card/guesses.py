"""Guesses of what stands before a model, from the sizes of its input: pictures, front ends that are common, sound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edge_export.card.metadata import Metadata
from edge_runtime.engines.base import TensorSpec

_FILL_IN = "# FILL IN:"
_GUESS = "# GUESS:"
_AUDIO = '"audio 16000"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Front:
    """Signal and stages before a model, as lines of a card.

    Attributes:
        signal: value of ``signal``, with its comment.
        stages: lines of the stages before the model.
        port: fields of the model's input.
        port_comment: of that line.
        window: samples of a step, where they are guessed; 0: what the stages take.
        picture: the input is one.
        open_size: size of an open axis for a run on noise.
    """

    signal: str
    stages: tuple[str, ...] = ()
    port: str = ""
    port_comment: str = ""
    window: int = 0
    picture: bool = False
    open_size: int = 16


@dataclass(frozen=True, slots=True)
class _Known:
    """A front end that several published models share."""

    rows: int
    width: int
    what: str
    stage: tuple[str, ...]
    window: int = 0
    hop: int = 0


_MICRO = ('type = "micro-frontend"',)
_KNOWN: Sequence[_Known] = (
    _Known(49, 10, "MFCC of one second, as MLPerf Tiny's keywords", (
        'type = "mel"', 'definition = "tensorflow"', "frame = 480", "hop = 320", "bands = 40", "coefficients = 10",
        "low_hz = 20", "high_hz = 4000", 'normalise = "max"'), window=16000),
    _Known(49, 40, "TensorFlow Lite Micro's micro_speech", (*_MICRO, "hop = 320"), hop=1),
    _Known(1, 40, "microWakeWord", _MICRO), _Known(2, 40, "microWakeWord", _MICRO),
    _Known(3, 40, "microWakeWord", _MICRO), _Known(4, 40, "microWakeWord", _MICRO),
    _Known(96, 64, "YAMNet or VGGish", (
        'type = "mel"', "fft = 512", "frame = 400", "hop = 160", "bands = 64", "low_hz = 125", "high_hz = 7500",
        'mel = "htk"', 'norm = "none"', "power = 1", 'log = "ln"', "floor = 1e-3", "centred = false",
        "stream = true"), hop=48),
    _Known(30, 40, "MLPerf Tiny's streaming wake word", (
        'type = "mel"', 'definition = "tensorflow"', "frame = 1024", "hop = 512", "bands = 40", "low_hz = 0",
        "high_hz = 8000", "power = 2", 'log = "db"', "stream = true"), hop=1),
    _Known(50, 64, "ST's audio events", (
        'type = "mel"', "frame = 1024", "hop = 320", "bands = 64", "low_hz = 20", "high_hz = 7500",
        'reference = "max"', 'padding = "reflect"')),
)  # fmt: skip
"""In the order of docs/front-ends.md."""


def front_of(spec: TensorSpec, metadata: Metadata) -> Front:
    """Guess what stands before a model's input."""
    sizes = [int(size) for size in spec.shape[1:]]
    solid = [size for size in sizes if size != 1]
    square = [*solid, 1] if len(solid) == 2 and solid[0] == solid[1] else sizes
    picture = _picture(square, metadata)
    if picture is not None:
        return picture
    if any(size < 0 for size in sizes):
        return _open(sizes)
    known = _common(sizes, solid)
    if known is not None:
        return known
    return _sound(solid[0]) if len(solid) == 1 and solid[0] >= 400 else _channels(solid)


def _common(sizes: Sequence[int], solid: Sequence[int]) -> Front | None:
    """Return the front end that published models of these sizes have."""
    for one in _KNOWN:
        if sorted(solid) == sorted((one.rows, one.width)) or (one.rows == 1 and list(sizes) == [1, one.width]):
            return _known(one)
        if one.rows == 49 and list(solid) == [one.rows * 40]:
            return _known(next(other for other in _KNOWN if (other.rows, other.width) == (49, 40)), flat=True)
    return None


def _picture(sizes: Sequence[int], metadata: Metadata) -> Front | None:
    if len(sizes) != 3:
        return None
    last = sizes[2] in (1, 3)
    colours = sizes[2] if last else sizes[0]
    height, width = (sizes[0], sizes[1]) if last else (sizes[1], sizes[2])
    square = height == width and height >= 20
    if min(height, width) < 20 or colours not in (1, 3) or (colours == 1 and not square):
        return None
    kind = "rgb" if colours == 3 else "grey"
    port, comment = _scaling(metadata)
    return Front(
        signal=f'"{kind} {height} x {width}"  {_GUESS} a picture, height x width; write bgr for that order',
        port=port, port_comment=comment, picture=True,
    )  # fmt: skip


def _scaling(metadata: Metadata) -> tuple[str, str]:
    if metadata.mean and metadata.std:
        mean, std = metadata.mean, metadata.std
        if len(mean) == 1 and len(std) == 1:
            return f"offset = {mean[0]:g}, scale = {1 / std[0]:.9g}", "# from the file's metadata"
        scales = [f"{1 / one:.9g}" for one in std]
        return f"offset = [{', '.join(map('{:g}'.format, mean))}], scale = [{', '.join(scales)}]", (
            "# from the file's metadata"
        )
    return "scale = 0.00392156863", (
        f"{_FILL_IN} pixels are 0 to 255, the model sees (pixel - offset) * scale; here 0 to 1; "
        "offset = 127.5, scale = 0.00784313725 for -1 to 1"
    )


def _known(known: _Known, *, flat: bool = False) -> Front:
    port = [f"hop = {known.hop}"] if known.hop else []
    port = [f"rows = {known.rows}", *port] if known.hop or known.rows < 5 else port
    port += ['layout = "samples-first"'] if flat else []
    return Front(
        signal=_AUDIO,
        stages=(f"[[stages]]  {_GUESS} {known.rows} rows of {known.width}: {known.what}", *known.stage, ""),
        port=", ".join(port),
        window=known.window,
    )


def _open(sizes: Sequence[int]) -> Front:
    fixed = [size for size in sizes if size > 1]
    if fixed:
        return Front(
            signal=f"{{ rate_hz = 50, channels = {fixed[-1]} }}  {_FILL_IN} rate, names and units of the channels",
            port="rows = 16", port_comment=f"{_FILL_IN} rows of a call: the file leaves them open", open_size=16,
        )  # fmt: skip
    return Front(
        signal=f"{_AUDIO}  {_GUESS} sound; write the rate that the model was trained at",
        port="rows = 512",
        port_comment=f"{_FILL_IN} samples of a call (rows), new ones of them (hop), older ones before the first (lead)",
        open_size=512,
    )


def _sound(samples: int) -> Front:
    rate = 22050 if samples in (43844, 22050) else 16000
    return Front(
        signal=f'"audio {rate}"  {_GUESS} {samples} samples at once; write the rate that the model was trained at'
    )


def _channels(solid: Sequence[int]) -> Front:
    if len(solid) == 2:
        rows, channels = max(solid), min(solid)
        return Front(
            signal=f"{{ rate_hz = 50, channels = {channels} }}  {_FILL_IN} the rate, and a list of channels: "
            '["ax (m/s2)", ...]',
            port_comment=f"{_GUESS} {rows} samples of {channels} channels",
        )
    channels = solid[0] if len(solid) == 1 else 1
    return Front(
        signal=f"{{ rate_hz = 1, channels = {channels} }}  {_FILL_IN} the rate, and a list of channels: "
        '["ax (m/s2)", ...]'
    )
