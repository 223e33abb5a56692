"""Pictures of what models answer, as SVG files that stand alone and follow a light or dark page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final, NamedTuple

import numpy as np
from edge_export.report.markup import tag
from edge_export.report.plot import Scale, box, line, path, text
from markupsafe import Markup

from edge_runtime.types import Float32

WIDTH: Final = 480.0
"""Pixels of a drawing: on a telephone of 390 pixels its letters are still 11 pixels high."""

_STYLE: Final = (
    "text{font:14px system-ui,sans-serif;fill:#333}.t{font-weight:600;font-size:16px}.s{font-size:13px;fill:#666}"
    ".g{stroke:#ddd}.w{fill:#8a98a5}.p{fill:none;stroke:#1f6fb2;stroke-width:2}.r{stroke:#b0413e;stroke-dasharray:4 4}"
    ".n{fill:#b0413e}.e{fill:#e08a00;fill-opacity:.3}.m{fill:#1f6fb2}.b{fill:none;stroke:#e08a00;stroke-width:3}"
    ".l{fill:none;stroke:#8a98a5;stroke-width:2}.o{fill:none;stroke:#e08a00;stroke-width:2}"
    ".f{fill:#e4e7ea}.k{fill:#8a98a5}.h{stroke:#fff;stroke-width:4px;paint-order:stroke}"
    "@media (prefers-color-scheme:dark){svg{background:#1a1a1a}text{fill:#ddd}.s{fill:#aaa}.g{stroke:#444}"
    ".p{stroke:#62aee8}.m{fill:#62aee8}.n{fill:#ef8078}.r{stroke:#ef8078}.f{fill:#2b3034}.h{stroke:#1a1a1a}}"
)


class Clip(NamedTuple):
    """A short recording and its answer.

    Attributes:
        sound: (n,) samples in -1..1.
        label: the answer.
        confidence: 0 to 1.
        truth: the label that is right.
    """

    sound: Float32
    label: str
    confidence: float
    truth: str


class Span(NamedTuple):
    """An event: seconds from its start to its end."""

    start: float
    end: float


class Box(NamedTuple):
    """A found object: pixels of the picture, and the words above it."""

    x: float
    y: float
    width: float
    height: float
    words: str


def clips(title: str, shown: Sequence[Clip], columns: int) -> str:
    """Draw recordings side by side, each with its answer below; wrong answers are red and name the truth."""
    side, high = (WIDTH - 16) / columns, 112.0
    parts = []
    for i, clip in enumerate(shown):
        left, top = 8 + side * (i % columns), 40 + high * (i // columns)
        x = Scale(low=0, high=len(clip.sound), begin=left + 4, end=left + side - 4)
        right = clip.label == clip.truth
        parts += [
            _waveform(clip.sound, x, top + 26, 24),
            text(left + side / 2, top + 60, clip.label.replace("_", " "), anchor="middle", class_="" if right else "n"),
            text(left + side / 2, top + 77, f"{100 * clip.confidence:.0f} %", anchor="middle", class_="s"),
        ]
        if not right:
            parts.append(
                text(left + side / 2, top + 94, f"truth: {clip.truth.replace('_', ' ')}", anchor="middle", class_="s")
            )
    return svg(title, 40 + high * -(-len(shown) // columns), parts)


def timeline(
    title: str,
    sound: Float32,
    rate_hz: float,
    answers: Sequence[tuple[float, float]],
    spans: Sequence[Span],
    threshold: float,
    event: str,
) -> str:
    """Draw a recording, the probability over time below it, and events over both.

    Args:
        title: above it.
        sound: (n,) samples in -1..1.
        rate_hz: of the sound.
        answers: end of a window in seconds, and its probability.
        spans: events.
        threshold: probability that begins an event.
        event: its name.
    """
    x = Scale(low=0, high=len(sound) / rate_hz, begin=52, end=WIDTH - 12)
    y = Scale(low=0, high=1, begin=276, end=150)
    parts = []
    for span in spans:
        begin, end = x(span.start), x(span.end)
        parts.append(box(begin, 44, max(2.0, end - begin), 232, "e", f"{event} {span.start:.2f} to {span.end:.2f} s"))
    parts += [_waveform(sound, Scale(low=0, high=len(sound), begin=x.begin, end=x.end), 90, 44)]
    for share in (0.0, 0.5, 1.0):
        parts += [line(x.begin, y(share), x.end, y(share), "g")]
        parts += [text(x.begin - 8, y(share), f"{100 * share:.0f} %", anchor="end")]
    for second in x.ticks(6):
        parts += [text(x(second), y.begin + 16, f"{second:g}", anchor="middle")]
    parts += [
        line(x.begin, y(threshold), x.end, y(threshold), "r"),
        path([(x(time), y(share)) for time, share in answers], "p"),
        text((x.begin + x.end) / 2, 314, "seconds", anchor="middle"),
        box(x.begin, 331, 14, 14, "e", event),
        text(x.begin + 22, 338, event),
        line(230, 338, 254, 338, "p"),
        text(262, 338, "probability"),
        line(360, 338, 384, 338, "r"),
        text(392, 338, f"on at {100 * threshold:.0f} %"),
    ]
    return svg(title, 360, parts)


def waves(title: str, sounds: Mapping[str, Float32]) -> str:
    """Draw sounds below each other, all as loud as they are beside each other.

    Args:
        title: above them.
        sounds: (n,) samples in -1..1, by what they are.
    """
    loudest = max(float(np.abs(sound).max()) for sound in sounds.values())
    parts = []
    for row, (name, sound) in enumerate(sounds.items()):
        x = Scale(low=0, high=len(sound), begin=12, end=WIDTH - 12)
        top = 40 + 118.0 * row
        tall = 44 * float(np.abs(sound).max()) / loudest
        parts += [text(x.begin, top + 10, name), _waveform(sound, x, top + 66, tall)]
    return svg(title, 46 + 118.0 * len(sounds), parts)


def groups(title: str, scores: Mapping[str, Sequence[float]], threshold: float, axis: str) -> str:
    """Draw scores in a row for each group, and the threshold; bars are as high as their share of the row.

    Args:
        title: above it.
        scores: positive, by group.
        threshold: of an anomaly.
        axis: what the scores are.
    """
    values = np.concatenate([np.asarray(each, float) for each in scores.values()])
    low, high = float(np.quantile(values, 0.001)) / 1.1, float(np.quantile(values, 0.999)) * 1.1
    x = Scale(low=low, high=high, begin=16, end=WIDTH - 16, logarithmic=high > 4 * low)
    bottom = 60 + 66.0 * len(scores)
    edges = (np.geomspace if x.logarithmic else np.linspace)(low, high, 61)
    parts = []
    for value in _round_ticks(x):
        parts.append(line(x(value), bottom, x(value), 52, "g"))
        parts.append(text(x(value), bottom + 16, f"{value:g}", anchor="middle"))
    for row, (name, group) in enumerate(scores.items()):
        base = 60 + 66.0 * row + 58
        counts, _ = np.histogram(np.clip(group, low, high), edges)
        for i, count in enumerate(counts):
            if count:
                tall = 32 * count / counts.max()
                begin, end = x(float(edges[i])), x(float(edges[i + 1]))
                parts.append(
                    box(begin, base - tall, end - begin - 1, tall, "n" if edges[i] >= threshold else "m", name, rx=0)
                )
        above = float(np.mean(np.asarray(group) > threshold))
        parts.append(text(x.begin, base - 44, f"{name}: {100 * above:.0f} % above", class_="h"))
    parts = [
        line(x(threshold), bottom, x(threshold), 52, "r"),
        text(x(threshold), 42, "threshold", anchor="middle", class_="s"),
        *parts,
        text(WIDTH / 2, bottom + 38, axis, anchor="middle"),
    ]
    return svg(title, bottom + 56, parts)


def boxes(title: str, grey: Float32, found: Sequence[Box]) -> str:
    """Draw the found objects over the edges of the picture, five pixels to a cell.

    Args:
        title: above it.
        grey: (height, width) of the picture.
        found: in its pixels.
    """
    scale = (WIDTH - 16) / grey.shape[1]
    height, cell = scale * grey.shape[0], 5
    small = grey[: grey.shape[0] // cell * cell, : grey.shape[1] // cell * cell]
    small = small.reshape(small.shape[0] // cell, cell, -1, cell).mean(axis=(1, 3))
    edge = np.hypot(*np.gradient(small))
    side = scale * cell
    rows, columns = np.nonzero(edge > np.quantile(edge, 0.85))
    drawn = "".join(
        f"M{8 + side * j:.1f} {36 + side * i:.1f}h{side:.1f}v{side:.1f}h-{side:.1f}z"
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
    )
    parts = [box(8, 36, WIDTH - 16, height, "f", "picture", rx=0), tag("path", d=drawn, class_="k")]
    for one in found:
        left, top = 8 + scale * one.x, 36 + scale * one.y
        parts.append(box(left, top, scale * one.width, scale * one.height, "b", one.words))
        parts.append(text(left, top - 10, one.words, class_="t"))
    return svg(title, height + 44, parts)


def words_of(picture: str) -> list[str]:
    """Return the lines of text of a picture, to compare what it says with what it ought to."""
    return [part.split("<", 1)[0].split(">", 1)[1] for part in picture.split("<text")[1:]]


def _waveform(sound: Float32, x: Scale, middle: float, tall: float) -> Markup:
    """Draw the envelope of a sound, as loud as the room allows."""
    columns = max(1, min(len(sound), int(x.end - x.begin)))
    most = float(np.abs(sound).max()) or 1.0
    pieces = np.array_split(sound / most, columns)
    width = (x.end - x.begin) / columns
    drawn = []
    for i, piece in enumerate(pieces):
        up, down = float(piece.max()) * tall, float(piece.min()) * tall
        height = max(1.0, up - down)
        drawn.append(f"M{x.begin + width * i:.1f} {middle - up:.1f}h{width:.1f}v{height:.1f}h-{width:.1f}z")
    return tag("path", d="".join(drawn), class_="w")


def _round_ticks(x: Scale) -> list[float]:
    """Return the ticks of an axis that leave each other room."""
    kept: list[float] = []
    for value in x.ticks():
        if not kept or x(value) - x(kept[-1]) >= 56:
            kept.append(value)
    return kept


def svg(title: str, height: float, parts: Sequence[Markup]) -> str:
    """Make a drawing of its title and its parts, `WIDTH` pixels wide."""
    about = f'viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(title)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {about}><style>{_STYLE}</style>'
    return "\n".join([head, tag("text", title, x=8.0, y=22.0, class_="t"), *parts, "</svg>\n"])
