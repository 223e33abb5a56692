"""Recordings of others in a form that a recipe reads: NPZ with labels and groups, or WAV.

Each function takes where the data lies and a folder to write into. What must not be in two sets has one group's name.
"""

from __future__ import annotations

import importlib.util
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from edge_export.data.dataset import write_npz

from edge_runtime.errors import ConfigError

Floats = npt.NDArray[np.float32]

BEARING_HZ = 12_000
FAULTS = ("Normal", "B", "IR", "OR")
DIAMETERS = ("007", "014", "021", "028")
TRAIN_GROUPS = 5
"""Into which the training series of a set with an official split are dealt, by class in turns."""
TEST = "test"
"""Group of its test series."""


def bearings(source: Path, out: Path) -> None:
    """Write the vibrations of bearings, grouped by the diameter of their fault: a bearing is in one group alone.

    The one healthy recording is cut into as many parts, a second apart.
    """
    for path in sorted(source.glob("*.npz")):
        found = re.fullmatch(r"load\d_(Normal|B|IR|OR)(?:-at-\d+)?_(\w+)", path.stem)
        if found is None:
            raise ConfigError(f"{path.name}: not the name of a recording of bearings")
        with np.load(path, allow_pickle=False) as stored:
            values: Floats = stored["DE"].reshape(-1).astype(np.float32)
        label = FAULTS.index(found[1])
        if found[1] != "Normal":
            _write(out / path.name, values[:, None], label=[label], group=[found[2]])
            continue
        length = (len(values) - (len(DIAMETERS) - 1) * BEARING_HZ) // len(DIAMETERS)
        for place, group in enumerate(DIAMETERS):
            begin = place * (length + BEARING_HZ)
            part = values[begin : begin + length, None]
            _write(out / f"{path.stem}-{group}.npz", part, label=[label], group=[group])


def pump(source: Path, out: Path) -> None:
    """Write the sensors of a pump, each file a group: an experiment with one fault, or none."""
    for path in sorted(source.glob("*/*.csv")):
        name = f"{path.parent.name}-{path.stem}" if path.parent.name != path.stem else path.stem
        head, *rows = path.read_text("utf-8").splitlines()
        columns = head.split(";")
        cells = [row.split(";") for row in rows]
        t = np.array([cell[0] for cell in cells], "datetime64[s]").astype(np.float64)
        sensors = range(1, columns.index("anomaly") if "anomaly" in columns else len(columns))
        values = np.array([[float(cell[i]) for i in sensors] for cell in cells], np.float32)
        place = columns.index("anomaly") if "anomaly" in columns else 0
        label = [int(float(cell[place])) if place else 0 for cell in cells]
        _write(out / f"{name}.npz", values, label=label, group=[name], t=t)


def sounds(source: Path, out: Path) -> None:
    """Decode clips from Ogg Vorbis into WAV files of 16 bits, as they lie: ``fold1/dog/1-100032-A.wav``.

    Raises:
        ConfigError: soundfile is missing.
    """
    if importlib.util.find_spec("soundfile") is None:
        raise ConfigError("decoding Ogg Vorbis needs: pip install soundfile")
    import soundfile  # noqa: PLC0415 - of no locked environment

    for path in sorted(source.glob("fold*/*/*.ogg")):
        sound, rate_hz = soundfile.read(path, dtype="int16")
        target = out / path.relative_to(source).with_suffix(".wav")
        target.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(target, sound, rate_hz, subtype="PCM_16")


def basic_motions(source: Path, out: Path) -> None:
    """Write four movements under a smart watch, with their official split."""
    _series(source, "BasicMotions", out)


def japanese_vowels(source: Path, out: Path) -> None:
    """Write two vowels of nine speakers, with their official split."""
    _series(source, "JapaneseVowels", out)


def _series(wheel: Path, name: str, out: Path) -> None:
    for part in ("TRAIN", "TEST"):
        file = f"aeon/datasets/data/{name}/{name}_{part}.ts"
        try:
            with zipfile.ZipFile(wheel) as package:
                text = package.read(file).decode("utf-8")
        except (OSError, KeyError, zipfile.BadZipFile) as error:
            raise ConfigError(
                f"cannot read {file} in {wheel.name!r}: {error}; fetch it with `pip download --no-deps aeon==1.6.0`"
            ) from error
        classes, series, labels = read_ts(text)
        seen: Counter[int] = Counter()
        groups = []
        for label in labels:
            groups.append(TEST if part == "TEST" else f"train-{seen[label] % TRAIN_GROUPS}")
            seen[label] += 1
        bounds = np.cumsum([0, *map(len, series)])
        _write(
            out / f"{part.lower()}.npz", np.concatenate(series), label=labels, group=groups, boundaries=bounds,
            classes=np.array(classes),
        )  # fmt: skip


def read_ts(text: str) -> tuple[list[str], list[Floats], list[int]]:
    """Read a file of the UEA and UCR archives: classes, series of (samples, channels), class of each.

    Source: the format's description at timeseriesclassification.com: a series a line, its channels apart by ``:``, the
    class behind the last one.
    """
    head, _, body = text.partition("@data")
    found = re.search(r"^@classLabel +true +(.+)$", head, re.MULTILINE | re.IGNORECASE)
    if found is None:
        raise ConfigError("@classLabel is missing in a file of series")
    classes = found[1].split()
    series, labels = [], []
    for line in filter(None, map(str.strip, body.splitlines())):
        *channels, label = line.split(":")
        series.append(np.array([channel.split(",") for channel in channels], np.float32).T)
        labels.append(classes.index(label))
    return classes, series, labels


def _write(path: Path, x: Floats, *, label: list[int], group: list[str], **more: npt.NDArray[Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_npz(path, {"x": x, "label": np.array(label), "group": np.array(group), **more}, compress=False)
