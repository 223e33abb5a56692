"""Measured variants of a foreign float model: int8 by several algorithms, mixed, fp16, 4-bit weights.

`quantize_model` makes every variant that the model allows, measures each beside the float file on recordings that set
nothing, and keeps what is within the loss and not slower. What it refuses is named with the reason.
"""

from __future__ import annotations

from edge_export.choose.variants.run import Settings, VariantOutcome, quantize_model

__all__ = ["Settings", "VariantOutcome", "quantize_model"]
