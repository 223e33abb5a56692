"""A model that someone else trained, made into a bundle: its file, and a card of what goes in and what comes out.

The file stays as it is, but for states that are taken out and kernels that are faster. What is asked of a file that
cannot be met is an error here, and not a surprise on the device.
"""

from __future__ import annotations

from edge_export.package.card.old_form import OldCardError
from edge_export.package.card.packing import Packed, pack_models
from edge_export.package.card.spec import Card, load_card

__all__ = ["Card", "OldCardError", "Packed", "load_card", "pack_models"]
