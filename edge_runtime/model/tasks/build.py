"""Construction of the task that a bundle's manifest names."""

from __future__ import annotations

from collections.abc import Sequence

from edge_runtime.manifest import Manifest, MultiLabelOutput, OutputContract
from edge_runtime.manifest.outputs import (
    AnomalyOutput,
    DetectionOutput,
    EmbeddingOutput,
    RegressionOutput,
    TextOutput,
)
from edge_runtime.model.tasks import Task
from edge_runtime.model.tasks.classification import Classification
from edge_runtime.model.tasks.common import Files


def build_task(
    manifest: Manifest, *, threshold: float | None = None, labels: Sequence[str] = (), files: Files | None = None
) -> Task:
    """Build the task of a bundle, by the kind of its output.

    Args:
        manifest: the bundle's manifest.
        threshold: replaces that of its gate.
        labels: replace those of its output, where another model answers.
        files: reads an .npy file of the bundle; None: the task is asked for nothing but what others have answered.

    Raises:
        BundleError: a file that the output names does not fit it.
    """
    output = manifest.output
    if isinstance(output, OutputContract):
        return Classification(manifest, threshold=threshold, labels=labels)
    # A device imports the one task that its bundle has.
    if isinstance(output, MultiLabelOutput):
        from edge_runtime.model.tasks.multi_label import MultiLabel  # noqa: PLC0415

        return MultiLabel(manifest, output, threshold, labels)
    if isinstance(output, RegressionOutput):
        from edge_runtime.model.tasks.regression import Regression  # noqa: PLC0415

        return Regression(manifest, output, threshold)
    if isinstance(output, AnomalyOutput):
        from edge_runtime.model.tasks.anomaly import Anomaly  # noqa: PLC0415

        return Anomaly(manifest, output, threshold, files)
    if isinstance(output, DetectionOutput):
        from edge_runtime.model.tasks.detection import Detection  # noqa: PLC0415

        return Detection(manifest, output, threshold, labels, files)
    if isinstance(output, EmbeddingOutput):
        from edge_runtime.model.tasks.embedding import EmbeddingTask  # noqa: PLC0415

        return EmbeddingTask(manifest, output, threshold, files)
    if isinstance(output, TextOutput):
        from edge_runtime.model.tasks.text import Text  # noqa: PLC0415

        return Text(manifest, output, threshold)
    from edge_runtime.model.tasks.vector import Vector  # noqa: PLC0415

    return Vector(manifest, output, threshold)
