"""The exporter of torch before torch.export; to be imported only where torch is."""

from __future__ import annotations

import io
import warnings

import onnx
import torch  # noqa: TID251
from torch import nn  # noqa: TID251


def older(network: nn.Module, *, channels: int, samples: int) -> onnx.ModelProto:
    """Other node patterns, and a tenth of the time."""
    written = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is the older one, and that shapes are traced
        torch.onnx.export(
            network.eval(), (torch.zeros(2, channels, samples),), written, dynamo=False, opset_version=17,
            input_names=["window"], output_names=["probabilities"], dynamic_axes={"window": {0: "batch"}},
        )  # fmt: skip
    return onnx.load_from_string(written.getvalue())
