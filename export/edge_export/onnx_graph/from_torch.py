"""From a trained torch network to an ONNX file that says nothing of the machine it was made on.

The same network gives the same bytes; see `edge_export.onnx_graph.passes.canonicalise` for what is removed.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from pathlib import Path

import onnx
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.onnx_graph.passes.canonicalise import canonicalise

OPSET = 20
"""Read by onnxruntime since 1.17; the exporter silently raises anything below 18."""


def to_onnx(network: nn.Module, *, channels: int, samples: int) -> onnx.ModelProto:
    """Export a network that maps (batch, channels, samples) to (batch, classes), with an open batch.

    Args:
        network: in evaluation mode.
        channels: of the input.
        samples: of the input.

    Returns:
        A checked model with input ``window``, output ``probabilities``, batch normalisation folded, and no traces.
    """
    # Two windows: the exporter takes a batch of one for a constant.
    example = torch.zeros((2, channels, samples), dtype=torch.float32)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # The exporter warns of its own internals (deprecated torch calls); nothing a user could change.
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        logger = logging.getLogger("torch.onnx")
        level, logger_level = logging.ERROR, logger.level
        logger.setLevel(level)
        try:
            torch.onnx.export(
                network.eval(),
                (example,),
                str(path),
                input_names=["window"],
                output_names=["probabilities"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        finally:
            logger.setLevel(logger_level)
        model = onnx.load(str(path))
    return canonicalise(model)
