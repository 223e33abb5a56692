"""Clips in which no word is, made of what lies around the words of others, for a class of nothing.

A stream mostly holds nothing. A model that has seen clips of words alone must call each of its windows some word.
`benchmarks.accuracy.stream` measures whether such a class helps; recipes do not have it, since it did not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np
from edge_export.data.dataset import Float32, Recording

EDGE = 0.25
"""Share of a word that may stand in a window of nothing: a window that has more of it may well be called the word."""

LEAST = 0.1
"""Share of a clip that must lie around its word to be repeated; a shorter piece would hum."""


def extent(values: Float32) -> tuple[int, int]:
    """Find the stretch of a clip that holds 98 % of its energy.

    Args:
        values: (n, n_channels).

    Returns:
        First sample, and the one behind the last.
    """
    energy = np.square(values, dtype=np.float64).sum(axis=1).cumsum()
    total = max(float(energy[-1]), 1e-30)
    return int((energy < 0.01 * total).sum()), int((energy < 0.99 * total).sum())


def nothing_clips(clips: Sequence[Recording], label: int) -> list[Recording]:
    """Make a clip of nothing of each clip of a word, in the word's own group.

    1. Every second one is the word's background: what lies around it, repeated; silence if that is too short.
    2. The others are that background between the end of the word and the beginning of the group's next one.

    Args:
        clips: all of one length; those that already are of nothing stay as they are, and nothing is made of them.
        label: of nothing.
    """
    words = sorted((clip for clip in clips if clip.label != label), key=lambda clip: clip.group)
    made: list[Recording] = []
    for _, group in groupby(words, key=lambda clip: clip.group):
        own = list(group)
        for index, clip in enumerate(own):
            following = own[(index + 1) % len(own)].values
            values = _between(clip.values, following) if index % 2 else _background(clip.values)
            made.append(replace(clip, name=f"{clip.name}/nothing", label=label, values=values))
    return made


def _background(values: Float32) -> Float32:
    begin, end = extent(values)
    around = np.concatenate([values[:begin], values[end:]])
    if len(around) < LEAST * len(values):
        return np.zeros_like(values)
    return np.resize(around, values.shape)


def _between(values: Float32, following: Float32) -> Float32:
    made = _background(values)
    begin, end = extent(values)
    tail = values[end - int((end - begin) * EDGE) : end]
    begin, end = extent(following)
    head = following[begin : begin + int((end - begin) * EDGE)]
    made[: len(tail)] = tail
    made[len(made) - len(head) :] = head
    return made
