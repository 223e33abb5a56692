"""A model that someone else trained, made into a bundle: its file, and a card that says what it eats and answers.

A device runs models of one form: windows in physical units go in, probabilities of labels come out. A card states how
a file differs from that, and the difference (scaling, axes, softmax) is written into a copy of the file, so that the
device, the golden vectors and every tool after them see the one form. What is asked of a file that cannot be met is an
error here, and not a surprise there.
"""

from __future__ import annotations

from edge_export.card.golden import given_to_model, recorded_windows, seeded_windows, windows_of
from edge_export.card.packing import Packed, pack_models
from edge_export.card.spec import Card, load

__all__ = [
    "Card",
    "Packed",
    "given_to_model",
    "load",
    "pack_models",
    "recorded_windows",
    "seeded_windows",
    "windows_of",
]
