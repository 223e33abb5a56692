"""A model that someone else trained, made into a bundle: its file, and a card of what goes in and what comes out.

A card has one of two forms. With ``[input]`` and ``[output]``: one window in, probabilities of labels out, and what the
file does otherwise (scaling, axes, softmax) is written into a copy of it. With ``signal``, stages and a task: any
model, its states and what stands before it; the file stays as it is, but for states that are taken out. What is asked
of a file that cannot be met is an error here, and not a surprise on the device.
"""

from __future__ import annotations

from edge_export.card.any_packing import PackedAny, pack_any
from edge_export.card.any_spec import AnyCard, load_card
from edge_export.card.golden import given_to_model, recorded_windows, seeded_windows, windows_of
from edge_export.card.packing import Packed, pack_models
from edge_export.card.spec import Card, load

__all__ = [
    "AnyCard", "Card", "Packed", "PackedAny", "given_to_model", "load", "load_card", "pack_any", "pack_models",
    "recorded_windows", "seeded_windows", "windows_of",
]  # fmt: skip
