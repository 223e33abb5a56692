"""The shoulder-exercise smartwatch recordings of the Python package ``seglearn`` 1.2.5.

Ten people, seven exercises, both wrists, about 20 repetitions a recording; accelerometer and gyroscope at 50 Hz.

Source: Burns et al. 2018, "Shoulder physiotherapy exercise recognition: machine learning the inertial signals from a
smartwatch", arXiv:1802.01489. Licence of package and data: BSD 3-Clause, Copyright (c) 2018, David M. Burns.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import Dataset, Recording
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel

CHANNELS = (
    *(Channel(name=name, unit="g") for name in ("ax", "ay", "az")),
    *(Channel(name=name, unit="rad/s") for name in ("wx", "wy", "wz")),
)
"""The package states no units; gravity reads 1.0 and the gyroscope's peaks fit rad/s (29 rad/s = 1,660 deg/s)."""

CLASSES = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
"""Pendulum, abduction, forward elevation, internal rotation, external rotation, trapezius extension, upright row."""

RATE_HZ = 50.0

RESERVED_PEOPLE = frozenset({"3", "6", "9"})
"""Kept for a later, independent judgement of what this project ships. They are dropped before any other code sees
them, so that nothing can be trained, tuned, validated or shown on them by accident."""

MIRROR = np.array([-1.0, 1.0, 1.0, 1.0, -1.0, -1.0], np.float32)
"""Factor per channel that turns a left wrist into a right one. Reflection in the plane across the forearm (x) flips
that component of a polar vector (acceleration) and the two others of an axial one (angular velocity)."""

ARRAY_FILE = "watch_dataset.npy"
ARRAY_SHA256 = "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537"


def load_watch(source: Path) -> Dataset:
    """Read the data set, without the reserved people.

    Args:
        source: the ``seglearn`` wheel, a folder that holds ``watch_dataset.npy`` at any depth, or that file.

    Raises:
        ConfigError: the array is not there, or is not the one that was reviewed.
    """
    stored = _trusted_array(_array_bytes(source))
    if tuple(stored["y_labels"]) != CLASSES or tuple(stored["X_labels"]) != tuple(c.name for c in CHANNELS):
        raise ConfigError(f"{ARRAY_FILE} lists other classes or channels than this reader knows")
    recordings = []
    for values, label, side, person in zip(stored["X"], stored["y"], stored["side"], stored["subject"], strict=True):
        group = str(int(person))
        if group in RESERVED_PEOPLE:
            continue
        wrist = "right" if int(side) == 1 else "left"
        recordings.append(
            Recording(
                name=f"person-{group}-{wrist}-{CLASSES[int(label)]}",
                group=group,
                label=int(label),
                values=np.asarray(values, np.float32),
                tags={"side": wrist},
            )
        )
    # The file's order is arbitrary; a sorted one makes every later choice by index reproducible and readable.
    recordings.sort(key=lambda r: (int(r.group), r.tags["side"], r.label))
    return Dataset(
        name="exercise-watch", channels=CHANNELS, rate_hz=RATE_HZ, classes=CLASSES, recordings=tuple(recordings)
    )


def _array_bytes(source: Path) -> bytes:
    try:
        if source.is_dir():
            if not (found := sorted(source.rglob(ARRAY_FILE))):
                raise ConfigError(f"folder {source.name!r} holds no {ARRAY_FILE}; unpack the seglearn wheel there")
            return found[0].read_bytes()
        if source.suffix == ".npy":
            return source.read_bytes()
        with zipfile.ZipFile(source) as wheel:
            return wheel.read(f"seglearn/data/{ARRAY_FILE}")
    except (OSError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(
            f"cannot read {source.name!r}: {error}; fetch it with `pip download --no-deps seglearn==1.2.5`"
        ) from error


def _trusted_array(content: bytes) -> dict[str, Any]:
    if (found := hashlib.sha256(content).hexdigest()) != ARRAY_SHA256:
        raise ConfigError(f"{ARRAY_FILE} has SHA-256 {found}, not the reviewed {ARRAY_SHA256}; it was not opened")
    # The package stores a pickled dict, and unpickling runs code from the file. This is the only place that allows
    # it, and only for these exact bytes, which were checked to hold nothing but arrays, lists and strings.
    stored: npt.NDArray[np.object_] = np.load(io.BytesIO(content), allow_pickle=True)
    loaded: dict[str, Any] = stored.item()
    return loaded
