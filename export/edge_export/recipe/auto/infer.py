"""From what was found to a recipe, each decision with its reason."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edge_export.recipe.auto.scan import Scan
from edge_export.recipe.auto.stratified_split import StratifiedSplit, stratified_split
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel
from edge_runtime.signal.intake.triads import find_triads

LONGEST = 1024
"""Samples of a window that is not sound; longer ones cost more than they tell."""
SHORTEST = 16
MOTION_S = 2.0
"""A step, a gesture, a turn of a machine: what sensors of movement are asked about takes one to three seconds."""
WINDOWS = 40
"""Windows of the rarest class that a hop should give."""
UNBALANCED = 3.0
"""Ratio of the largest to the smallest class from which on accuracy hides the smallest."""

_TURNING = re.compile(r"gyr|gyro|omega|rot|^w$|rad/s|deg/s|dps|°/s", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferredChoice:
    """One line of what was decided.

    Attributes:
        subject: what about.
        choice: what was chosen.
        reason: what it rests on.
    """

    subject: str
    choice: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Requirements of the user.

    Attributes:
        name: of the model and of the data's key.
        targets: as in a recipe.
        created: ISO 8601 date for the bundle.
        max_bytes: of a model file; None for any.
        max_latency_ms: per window; None for any.
        max_forwarded: share of windows that may go to the cloud.
        window_s: length of a window; 0: found.
        source: where the data comes from.
        licence: of the data.
    """

    name: str
    targets: tuple[str, ...]
    created: str
    max_bytes: int | None = None
    max_latency_ms: float | None = None
    max_forwarded: float = 0.1
    window_s: float = 0.0
    source: str = "own recordings"
    licence: str = "not stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeDraft:
    """A recipe and how it came about."""

    text: str
    decisions: tuple[InferredChoice, ...]


@dataclass(frozen=True, slots=True)
class _Window:
    samples: int
    hop: int
    clip_s: float
    reason: str


def infer_recipe(found: Scan, order: Order) -> RecipeDraft:
    """Write a recipe.

    Args:
        found: what lies in the folder.
        order: what is wanted.

    Raises:
        ConfigError: the recordings do not suffice; a sentence that says what is missing.
    """
    split = stratified_split(found.pieces)
    window = _window(found, order)
    share = Counter[str]()
    for piece in found.pieces:
        share[piece.label] += piece.samples
    ratio = max(share.values()) / max(1, min(share.values()))
    unbalanced = ratio > UNBALANCED
    sound = found.kind == "wav"
    width, width_why = _width(order.max_bytes, sound=sound)
    student, teachers = _networks(window.samples, width, sound=sound)
    seconds = window.samples / found.rate_hz
    decisions = [
        InferredChoice(subject="recordings", choice=f"{len(found.files)} {_KINDS[found.kind]}", reason=_lengths(found)),
        InferredChoice(subject="classes", choice=", ".join(found.classes), reason=found.notes["labels"]),
        InferredChoice(
            subject="groups",
            choice=f"{split.train} to train on, {len(split.validation)} to choose by, {len(split.test)} to test with",
            reason=found.notes["groups"],
        ),
        InferredChoice(subject="rate", choice=f"{found.rate_hz:g} Hz", reason=found.notes["rate"]),
        InferredChoice(
            subject="channels",
            choice=", ".join(f"{channel.name} ({channel.unit})" for channel in found.channels),
            reason=found.notes["channels"] + (f"; {found.notes['empty cells']}" if found.notes["empty cells"] else ""),
        ),
        InferredChoice(
            subject="window",
            choice=f"{window.samples} samples ({seconds:.3g} s), one every {window.hop / found.rate_hz:.3g} s",
            reason=window.reason,
        ),
        InferredChoice(
            subject="front end",
            choice="log-mel spectrogram in the graph" if sound else "offset and scale of each channel in the graph",
            reason="sound is told apart by its frequencies over time"
            if sound
            else "no sound: the network sees samples",
        ),
        InferredChoice(subject="network", choice=f"{student['type']} of width {width:g}", reason=width_why),
        InferredChoice(
            subject="decided by",
            choice="macro F1" if unbalanced else "accuracy",
            reason=f"the largest class has {ratio:.1f} times the smallest one's samples",
        ),
        InferredChoice(
            subject="gate",
            choice=f"at most {order.max_forwarded:.0%} of windows to the cloud",
            reason="as --max-forwarded says, or its default",
        ),
    ]
    text = _text(found, order, split, window, student, teachers, metric="macro_f1" if unbalanced else "accuracy")
    return RecipeDraft(text=text, decisions=tuple(decisions))


_KINDS = {"wav": "WAV files", "table": "tables", "npz": "NPZ files"}


def _lengths(found: Scan) -> str:
    whole = sum(piece.samples for piece in found.pieces) / found.rate_hz
    return f"{whole / 60:.1f} minutes in {len(found.pieces)} labelled stretches"


def _durations(found: Scan) -> dict[str, float]:
    """Median length of the stretches of each class, samples."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for piece in found.pieces:
        lengths[piece.label].append(piece.samples)
    return {label: float(np.median(each)) for label, each in lengths.items()}


def _window(found: Scan, order: Order) -> _Window:
    """Choose a window's length and hop; refuse one too short to tell anything or longer than what is labelled.

    1. What was said counts. Else sound goes by the clip or the second, the rest by a movement, within a stretch.
    2. A hop is half a window, and less where a class would give too few.
    """
    medians = _durations(found)
    shortest = min(medians, key=lambda label: medians[label])
    rate = found.rate_hz
    said = f"the shortest class, {shortest!r}, lasts {medians[shortest] / rate:.3g} s in the median"
    by_file = not found.label.startswith("column:") and not found.time
    if found.kind == "wav":  # rule 1
        # Lengths are counted at the files' own rate; those of another rate were refused or are multiples.
        longest = float(np.quantile([piece.samples for piece in found.pieces], 0.9)) / rate
        if not order.window_s and by_file and longest <= 3.0:
            clip = max(0.5, float(np.ceil(longest * 2) / 2))
            samples = round(clip * rate)
            return _Window(samples, samples, clip, f"one clip a file: nine of ten last at most {longest:.2g} s")
        seconds = order.window_s or 1.0
        samples = round(seconds * rate)
        why = "as --window says" if order.window_s else "sound in one-second windows"
    elif order.window_s:  # rule 1
        samples, why = round(order.window_s * rate), "as --window says"
    else:
        samples = int(min(LONGEST, max(32.0, MOTION_S * rate), medians[shortest]))
        why = f"about {MOTION_S:g} s, at most {LONGEST} samples, and within a stretch: {said}"
    if samples > 8:
        samples -= samples % 4
    if samples < SHORTEST:
        raise ConfigError(
            f"a window would have {samples} samples, too few to tell anything ({said}); record longer stretches, or "
            "faster, or say --window S"
        )
    if samples > medians[shortest]:
        raise ConfigError(
            f"a window of {samples / rate:.3g} s is longer than what is labelled: {said}; say a shorter --window"
        )
    rarest = min(sum(piece.samples for piece in found.pieces if piece.label == label) for label in medians)
    hop = samples // 2  # rule 2
    while hop > samples // 8 and hop > 4 and rarest / hop < WINDOWS:
        hop //= 2
    return _Window(samples, hop, 0.0, why)


def _width(max_bytes: int | None, *, sound: bool) -> tuple[float, str]:
    """Width of the student by the bytes that it may have as integers.

    The sizes are those of `learn.networks.count` for 6 channels and 100 samples, and for 1 s of sound, where
    most is the spectrogram's table. Whether the file keeps to its limit is measured when it is built.
    """
    sizes = {0.25: 82e3, 0.5: 88e3, 1.0: 105e3} if sound else {0.5: 7.6e3, 1.0: 11.5e3, 1.5: 17e3, 2.0: 24e3}
    if max_bytes is None:
        return (0.5 if sound else 1.0), "the default; --max-bytes chooses by size"
    fitting = [width for width, size in sizes.items() if size <= max_bytes]
    if not fitting:
        return min(sizes), f"the smallest there is, although {max_bytes} bytes may not do"
    return fitting[-1], f"the widest expected within {max_bytes} bytes"


def _networks(samples: int, width: float, *, sound: bool) -> tuple[dict[str, object], list[dict[str, object]]]:
    """Student and teachers, as deep as the window allows."""
    if sound:
        return (
            {"type": "separable-cnn-2d", "width": width, "depth": 4},
            [{"type": "resnet-2d", "width": 0.5}, {"type": "resnet-2d", "width": 1.0}],
        )
    # Without padding every layer shortens what is left: three blocks of seven behind a reduction of four need 92.
    depth, kernel = (3, 7) if samples >= 96 else (2, 5) if samples >= 40 else (1, 3)
    student: dict[str, object] = {"type": "separable-cnn-1d", "width": width, "depth": depth, "kernel": kernel}
    if samples < 40:
        student["reduction"] = 1
    return student, [{"type": "resnet-1d", "width": 0.5}, {"type": "resnet-1d", "width": 1.0}]


# -- the file ----------------------------------------------------------------------------------------------------------


_FOREST = (
    "# Small trees on numbers that sum up a window, in place of both, where the report advises it:",
    '# network = { type = "forest" }',
    '# front_end = [{ type = "statistics" }]',
)
"""The end of ``[student]`` where no sound is."""


def _text(
    found: Scan,
    order: Order,
    split: StratifiedSplit,
    window: _Window,
    student: dict[str, object],
    teachers: Sequence[dict[str, object]],
    *,
    metric: str,
) -> str:
    sound = found.kind == "wav"
    lines = [
        "# Written by edge-export auto; change what you know better.",
        f"# Build it with: edge-export build recipe.toml --data {order.name}=FOLDER -o out/",
        f"name = {_toml(order.name)}",
        "version = 1",
        f"created = {_toml(order.created)}",
        f"classes = {_toml(found.classes)}",
        f"metric = {_toml(metric)}",
        f"targets = {_toml(order.targets)}",
        "",
        *_data(found, order),
        "",
        "[window]",
        f"rate_hz = {_toml(found.rate_hz)}",
        f"samples = {window.samples}",
        f"hop = {window.hop}",
        *([f"clip_s = {_toml(window.clip_s)}"] if window.clip_s else []),
        *(['label = "majority"', "purity = 0.8"] if found.label.startswith("column:") else []),
        "channels = [",
        *(f"    {{ name = {_toml(channel.name)}, unit = {_toml(channel.unit)} }}," for channel in found.channels),
        "]",
        "",
        "# Groups that are named nowhere are trained on.",
        "[split]",
        f"validation = {_toml(split.validation)}",
        f"test = {_toml(split.test)}",
        "",
        *_augmentation(found),
        "",
        *(_log_mel(found.rate_hz) if sound else []),
        "[teacher]",
        "training = { steps = 500, weight_decay = 0.05 }",
        *(line for teacher in teachers for line in ("", "[[teacher.candidates]]", *_table(teacher))),
        "",
        "[student]",
        f"network = {{ {', '.join(_table(student))} }}",
        "training = { steps = 1200, learning_rate = 0.01 }",
        *([] if sound else _FOREST),
        "",
        "[limits]",
        "max_accuracy_drop = 0.005",
        *([f"max_bytes = {order.max_bytes}"] if order.max_bytes else []),
        *([f"max_latency_ms = {_toml(order.max_latency_ms)}"] if order.max_latency_ms else []),
        "",
        "[gate]",
        f"max_forwarded = {_toml(order.max_forwarded)}",
        "",
        "# What the sensors deliver here; a device notices values in another unit by it.",
        "[references]",
        "",
        "# Answers over time, and a share for the cloud that every key keeps, where they win.",
        "# With folds = 5 under [split] it is fitted to all people, and trained six times.",
        "# [surround]",
    ]
    return "\n".join(lines) + "\n"


def _data(found: Scan, order: Order) -> list[str]:
    """Write the table of the data.

    1. Group and label are in the path or in a column, and each has a key for either.
    2. Classes by number need a name for each index up to the last; one that does not occur names nothing.
    """
    place, _, where = found.label.partition(":")
    whose, _, group = found.group.partition(":")
    lines = ["[[data]]", f"type = {_toml(found.kind)}", f"key = {_toml(order.name)}"]
    suffix = found.files[0].rsplit(".", 1)[-1]
    lines.append(f"files = {_toml(f'**/*.{suffix}')}")
    if whose == "path":  # rule 1
        lines.append(f"group = {_toml(group)}")
    else:
        lines.append(f"group_column = {_toml(group)}")
    if found.kind == "npz":
        lines.append(f"values = {_toml(found.channels[0].source)}")
    if found.time:
        lines += [f"time = {_toml(found.time)}", f"time_unit = {_toml(found.time_unit)}"]
    if place == "column":  # rule 1
        lines.append(f"{'label' if found.kind == 'npz' else 'label_column'} = {_toml(where)}")
        if found.numbers:  # rule 2
            top = max(map(int, found.classes))
            lines.append(f"label_names = {_toml([str(i) for i in range(top + 1)])}")
    else:
        lines.append(f"label = {_toml(where)}")
    if found.kind == "table" and any(channel.name != channel.source for channel in found.channels):
        pairs = ", ".join(f"{_toml(c.name)} = {_toml(c.source)}" for c in found.channels if c.name != c.source)
        lines.append(f"columns = {{ {pairs} }}")
    lines += [
        f"origin = {{ name = {_toml(order.name)}, source = {_toml(order.source)}, licence = {_toml(order.licence)} }}"
    ]
    if found.label_names:
        lines += ["", "[data.label_names]"]
        lines += [f"{_toml(file)} = {_toml(label)}" for file, label in sorted(found.label_names.items())]
    return lines


def _augmentation(found: Scan) -> list[str]:
    if found.kind == "wav":
        return ["[augmentation]", "gain = 0.7", "speed = 0.1", "noise = [0.003]", "shift = 0.1"]
    names = [channel.name for channel in found.channels]
    columns = find_triads([Channel(name=channel.name, unit=channel.unit) for channel in found.channels])
    triads = [[names[column] for column in triad] for triad in columns]
    turning = [
        channel.name
        for channel in found.channels
        if _TURNING.search(f"{channel.unit}") or _TURNING.search(channel.name)
    ]
    lines = ["[augmentation]"]
    if triads:
        lines += [f"triads = {_toml(triads)}", "rotation_deg = 8"]
    if turning:
        lines.append(f"rates = {_toml(turning)}")
    noise = [float(f"{max(0.02 * spread, 1e-9):.3g}") for spread in found.spread]
    return [*lines, "speed = 0.1", "gain = 0.1", f"noise = {_toml(noise)}"]


def _log_mel(rate_hz: float) -> list[str]:
    # 256 samples are 32 ms at 8 kHz and 16 ms at 16 kHz. The transform's table grows with the square of this number.
    frame = min(256, 1 << round(float(np.log2(0.032 * rate_hz))))
    hop = max(1, round(0.016 * rate_hz))
    return [
        "[[front_end]]",
        'type = "log-mel"',
        f"rate_hz = {_toml(rate_hz)}",
        f"frame_s = {_toml(frame / rate_hz)}",
        f"hop_s = {_toml(hop / rate_hz)}",
        f"bands = {40 if rate_hz >= 16_000 else 32}",
        "low_hz = 60",
        f"fft = {frame}",
        'coefficients = "int8"',
        "",
    ]


def _table(values: dict[str, object]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items()]


def _toml(value: object) -> str:
    """Write a TOML value. JSON's texts are TOML's but for DEL, which neither names nor patterns hold."""
    if isinstance(value, list | tuple):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return str(value)
