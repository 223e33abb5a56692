"""Trained weights on disk, as plain arrays: torch's own format is a pickle, which runs code from the file it reads."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import write_npz
from edge_runtime.errors import ConfigError, one_line


def save_weights(network: nn.Module, path: Path) -> None:
    """Write a network's weights and statistics as .npz, the same bytes for the same numbers."""
    write_npz(path, {name: tensor.numpy() for name, tensor in sorted(network.state_dict().items())}, compress=False)


def load_pruned(network: nn.Module, path: Path) -> nn.Module:
    """Fill a network whose weights from `save_weights` may have fewer channels: its layers are narrowed to them.

    Raises:
        ConfigError: the file is damaged, or is that of another network.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            sizes = {name: stored[name].shape for name in stored.files}
    except (OSError, EOFError, ValueError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path.name}: not the weights of this network: {one_line(error)}") from error
    for name, module in network.named_modules():
        _narrow(module, {key: size for key, size in sizes.items() if key.rpartition(".")[0] == name}, name)
    return load_weights(network, path)


def _narrow(module: nn.Module, sizes: dict[str, tuple[int, ...]], name: str) -> None:
    """Give a layer tensors of these sizes, and say so in its attributes."""
    for key, tensor in [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]:
        size = sizes.get(f"{name}.{key}" if name else key)
        if size is None or tuple(tensor.shape) == size:
            continue
        if isinstance(tensor, nn.Parameter):
            setattr(module, key, nn.Parameter(tensor.new_zeros(size)))
        else:
            module.register_buffer(key, tensor.new_zeros(size))
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        depthwise = module.groups > 1
        module.out_channels = module.weight.shape[0]
        module.groups = module.weight.shape[0] if depthwise else 1
        module.in_channels = module.weight.shape[1] * module.groups
    elif isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
        module.num_features = module.weight.shape[0]
    elif isinstance(module, nn.Linear):
        module.out_features, module.in_features = module.weight.shape
    elif isinstance(module, nn.GRU):
        module.hidden_size, module.input_size = module.weight_hh_l0.shape[1], module.weight_ih_l0.shape[1]
        module.flatten_parameters()


def load_weights(network: nn.Module, path: Path) -> nn.Module:
    """Fill a network of the same shape with weights from `save_weights`; returns it, ready to answer.

    Raises:
        ConfigError: the file is damaged, or is that of another network.
    """
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            network.load_state_dict({name: torch.from_numpy(np.array(stored[name])) for name in stored.files})
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path.name}: not the weights of this network: {one_line(error)}") from error
    return network.eval()
