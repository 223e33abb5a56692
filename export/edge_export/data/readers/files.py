"""Arrays of NPZ files, as they stand there; every error names the file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError


def arrays_of(path: Path, name: str, *, without: str = "") -> dict[str, npt.NDArray[Any]]:
    """All arrays of an NPZ file by name; one that needs pickle is refused.

    Args:
        path: the file's path.
        name: the file's name, for messages.
        without: array that is not read.

    Raises:
        ConfigError: it cannot be read.
    """
    try:
        # Opened here: numpy leaves a file open that turns out not to be an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            return {key: stored[key] for key in stored.files if key != without}
    except (OSError, EOFError, ValueError, TypeError, KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{name}: not a usable .npz file: {error}") from error
