"""Files that a card's task names, as files of the bundle: scores of normal data, examples, priors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from edge_export.data.dataset import Float32
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import AnyOutput
from edge_runtime.manifest.outputs import files_of
from edge_runtime.model.bundle import npy


def renamed(output: AnyOutput) -> AnyOutput:
    """Return an output contract that names its files as the bundle does: by their field."""
    names = {field: f"{field}.npy" for field in files_of(output)}
    return cast("AnyOutput", replace(cast("Any", output), **names)) if names else output


def read(output: AnyOutput, folder: Path, *, made: Float32 | None) -> dict[str, bytes]:
    """Read the files of a task.

    Args:
        output: names them, relative to the card.
        folder: the card's folder.
        made: scores of normal data that were computed; None reads them from their file.

    Returns:
        Contents by their name in the bundle.

    Raises:
        ConfigError: a file is missing or no array of float32.
    """
    contents = {}
    for field, name in files_of(output).items():
        if field == "normal" and made is not None:
            contents["normal.npy"] = npy.dump(made)
            continue
        path = folder / Path(name).expanduser()
        if field == "normal" and not path.is_file():
            raise ConfigError(
                "[task] says no threshold and has no scores of normal data; give --normal RECORDING, or write threshold"
            )
        try:
            array = np.load(path, allow_pickle=False)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: [task] {field} cannot be read as an .npy file: {error}") from error
        if array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ConfigError(f"{path}: [task] {field} must be finite numbers, float32")
        array = np.sort(array.reshape(-1)) if field == "normal" else array
        contents[f"{field}.npy"] = npy.dump(np.ascontiguousarray(array, np.float32))
    return contents
