"""The export toolchain: from labelled recordings and a teacher to a small model that runs on a device.

It runs on a workstation and may use torch; nothing under `edge_runtime` or `devices` imports it.

`from_torch` is for programs: a torch module as the ONNX file that ``edge-export quantize`` and ``edge-export pack``
take. `half_widths` too: the intervals of a regression, for its card.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["from_torch", "half_widths"]


def __getattr__(name: str) -> Any:
    """Import a public name when it is asked for: torch takes seconds, and the commands do not need it."""
    if name == "from_torch":
        return importlib.import_module("edge_export.graph.onnx_graph.from_torch").from_torch
    if name == "half_widths":
        return importlib.import_module("edge_export.conformal").half_widths
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
