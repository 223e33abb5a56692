"""Trained weights on disk, as plain arrays: torch's own format is a pickle, which runs code from the file it reads."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_runtime.errors import ConfigError
from export.data import write_npz


def save_weights(network: nn.Module, path: Path) -> None:
    """Write a network's weights and statistics as .npz, the same bytes for the same numbers."""
    write_npz(path, {name: tensor.numpy() for name, tensor in sorted(network.state_dict().items())}, compress=False)


def load_weights(network: nn.Module, path: Path) -> nn.Module:
    """Fill a network of the same shape with weights from `save_weights`; returns it, ready to answer.

    Raises:
        ConfigError: the file is damaged, or is that of another network.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            network.load_state_dict({name: torch.from_numpy(np.array(stored[name])) for name in stored.files})
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path.name}: not the weights of this network: {str(error).splitlines()[0]}") from error
    return network.eval()
