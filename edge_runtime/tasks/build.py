"""Construction of the task that a bundle's manifest names."""

from __future__ import annotations

from collections.abc import Sequence

from edge_runtime.manifest import Manifest
from edge_runtime.tasks import Task
from edge_runtime.tasks.classification import Classification


def build_task(manifest: Manifest, *, threshold: float | None = None, labels: Sequence[str] = ()) -> Task:
    """Build the task of a bundle, by the kind of its output.

    Args:
        manifest: of the bundle.
        threshold: replaces that of its gate.
        labels: replace those of its output, where another model answers.
    """
    return Classification(manifest, threshold=threshold, labels=labels)
