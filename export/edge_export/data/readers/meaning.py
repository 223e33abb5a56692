"""Values of files in the model's terms: numbers in its units, labels as classes, parts of paths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import Channel, Float32
from edge_runtime.errors import ConfigError


def find_in(pattern: str, name: str, what: str) -> str:
    """Find the first group of a pattern in a path; without groups, the whole pattern.

    Args:
        pattern: regular expression.
        name: path of the file within its folder.
        what: name of the thing looked for, for the message.

    Raises:
        ConfigError: it finds nothing.
    """
    match = re.search(pattern, name)
    if match is None:
        raise ConfigError(f"{name}: the pattern for the {what}, {pattern!r}, finds nothing in this path")
    return str(match[1] if match.re.groups else match[0])


def named(label: str, names: Mapping[str, str]) -> str | None:
    """Look up the class that stands for a label; None where the names leave it out."""
    return names.get(label) if names else label


def class_of(label: str, classes: Sequence[str], name: str) -> int:
    """Index of a label among the recipe's classes.

    Raises:
        ConfigError: it is none of them; names the file.
    """
    if label not in classes:
        raise ConfigError(f"{name}: label {label!r} is none of the recipe's classes: {', '.join(classes)}")
    return list(classes).index(label)


def physical(values: npt.NDArray[Any], scale: Sequence[float], channels: Sequence[Channel], name: str) -> Float32:
    """Numbers as (samples, channels) in the units of the channels.

    Args:
        values: (samples,) or (samples, channels).
        scale: none, one factor, or one for each channel.
        channels: of the model.
        name: of the file, for messages.

    Raises:
        ConfigError: there are more or fewer columns, or factors, than channels.
    """
    table: Float32 = np.asarray(values, np.float32).reshape(len(values), -1)
    if table.shape[1] != len(channels):
        raise ConfigError(f"{name}: {table.shape[1]} columns of values, the recipe names {len(channels)} channels")
    if scale and len(scale) not in (1, len(channels)):
        raise ConfigError(f"{name}: scale has {len(scale)} factors; give one, or one for each of {len(channels)}")
    return table * np.array(scale, np.float32) if scale else table
