"""Values of files in the model's terms: numbers in its units, labels as classes, parts of paths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

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
