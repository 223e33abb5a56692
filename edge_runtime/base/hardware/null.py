"""No hardware at all: one core, the null engine, no sensors. For tests, examples and dry runs; only asked for by name.

A profile of it never comes out of detection on a real machine: `detect` answers only where the tree holds the file
``/etc/edge-runtime/null-device``.
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.profile import EngineChoice, Evidence, Profile

EVIDENCE = Evidence(tier="simulated", detail="there is nothing to measure: it answers without a model")

PROFILE = Profile(
    family="null",
    model="null device",
    evidence=EVIDENCE,
    choices=(EngineChoice(name="null", engine="null"),),
)


def detect(root: Path = files.ROOT) -> Profile | None:
    """Return the null device where the tree has its marker file, else None."""
    return PROFILE if files.exists(root, "/etc/edge-runtime/null-device") else None
