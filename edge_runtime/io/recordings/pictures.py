"""Recordings of pictures: a folder of JPEG, PNG and BMP files, or one file. See `edge_runtime.io.recordings.reader`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.frame import FrameCodec, FrameConfig
from edge_runtime.manifest import InputContract
from edge_runtime.types import Reading

if TYPE_CHECKING:
    from edge_runtime.io.recordings.layout import Labelled, RecordingLayout, Refused

SUFFIXES: Final = (".jpg", ".jpeg", ".png", ".bmp")

FOLDER: Final = "folder"
"""Name of the one column that pictures have: the folder that a picture lies in."""


def picture_readings(
    path: Path,
    contract: InputContract,
    layout: RecordingLayout,
    *,
    key: str,
    refuse: Refused,
    labelled: Labelled | None,
) -> Iterator[Reading]:
    """Read a picture, or all pictures below a folder in the order of their paths.

    Each picture has a key of its own, its path within the folder, and the stamp 0 s. With a key for all, they are one
    behind the other, at the contract's highest rate or `RecordingLayout.rate_hz`.

    Args:
        path: the picture or folder.
        contract: the contract of a model that takes pictures.
        layout: key and rate.
        key: a lone picture's key.
        refuse: called with each picture that cannot be used.
        labelled: called with the stamp and folder of each picture.

    Raises:
        ConfigError: the model takes no pictures, there are none, a library is missing, or the label is no column.
    """
    if labelled is not None and layout.label != FOLDER:
        raise ConfigError(f"{path}: pictures have no column {layout.label!r}; label {FOLDER!r} is the folder of each")
    files = _files(path)
    try:
        codec = FrameCodec(FrameConfig(), contract.frame, jpeg=any(_is_jpeg(file) for file in files))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    period_s = 1 / layout.rate_hz if layout.rate_hz else contract.window / contract.rate_hz
    for place, file in enumerate(files):
        name = layout.key or (key if file == path else file.relative_to(path).as_posix())
        try:
            (reading,) = codec.decode(name, _bytes(file), place * period_s if layout.key else 0.0)
        except InputError as error:
            refuse(InputError(error.reason, f"{file}: {error}"))
            continue
        if labelled is not None:
            labelled(name, np.array([reading.t]), [file.resolve().parent.name])
        yield reading


def _is_jpeg(file: Path) -> bool:
    return file.suffix.lower() in (".jpg", ".jpeg")


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    found = sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not found:
        raise ConfigError(
            f"{path}: holds no picture, and no other recording that its suffix tells: no {', '.join(SUFFIXES)}"
        )
    return found


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError("malformed", f"cannot be read: {error.strerror or error}") from None
