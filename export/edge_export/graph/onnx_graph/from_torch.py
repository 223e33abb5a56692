"""From a trained torch network to an ONNX file that says nothing of the machine it was made on.

The same network gives the same bytes; see `edge_export.graph.onnx_graph.passes.canonicalise` for what is removed.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_runtime.errors import ConfigError

OPSET = 20
"""Read by onnxruntime since 1.17; the exporter silently raises anything below 18."""


def from_torch(
    module: nn.Module,
    example: torch.Tensor | Sequence[torch.Tensor],
    path: str | Path | None = None,
    *,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
) -> bytes:
    """Export a torch module as an ONNX file in this package's normal form.

    ``edge-export quantize`` and ``edge-export pack`` take the file. The first axis of every input of one axis or more
    is the batch, and stays open where the module allows it.

    Args:
        module: a module of any kind that `torch.export` takes; its weights are read, and its mode is put back.
        example: one input, or one for each of the module's inputs in order. Sizes behind the batch are fixed by it.
        path: the file that is written too; None writes none.
        inputs: names of the inputs; default: those of the module's `forward`.
        outputs: names of the outputs; default: the exporter's.

    Returns:
        The file's bytes; the same module gives the same bytes.

    Raises:
        ConfigError: torch cannot export it.
    """
    examples = (example,) if isinstance(example, torch.Tensor) else tuple(example)
    # Two rows: the exporter takes a batch of one for a constant.
    doubled = tuple(each if not each.ndim or len(each) > 1 else torch.cat([each, each]) for each in examples)
    batch = torch.export.Dim("batch")
    open_axes = tuple({0: batch} if each.ndim and len(each) == len(doubled[0]) else {} for each in doubled)
    training = module.training
    try:
        try:
            model = _exported(module, doubled, open_axes, inputs, outputs)
        except Exception:  # noqa: BLE001 - of torch; most modules that fail have a fixed batch
            model = _exported(module, examples, None, inputs, outputs)
    except Exception as error:
        raise ConfigError(f"torch cannot export the module: {(str(error).splitlines() or ['?'])[0]}") from error
    finally:
        module.train(training)
    data = bytes(model.SerializeToString(deterministic=True))
    if path is not None:
        Path(path).write_bytes(data)
    return data


def to_onnx(network: nn.Module, *, channels: int, samples: int) -> onnx.ModelProto:
    """Export a network that maps (batch, channels, samples) to (batch, classes), with an open batch.

    Args:
        network: a network in evaluation mode.
        channels: number of the input's channels.
        samples: number of the input's samples.

    Returns:
        A checked model with input ``window``, output ``probabilities``, batch normalisation folded, and no traces.
    """
    # Two windows: the exporter takes a batch of one for a constant.
    example = torch.zeros((2, channels, samples), dtype=torch.float32)
    return _exported(network, (example,), ({0: torch.export.Dim("batch")},), ["window"], ["probabilities"])


def _exported(
    module: nn.Module,
    example: tuple[torch.Tensor, ...],
    dynamic_shapes: Any,
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> onnx.ModelProto:
    """Run torch's exporter without its chatter, and bring the model to its canonical form."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # The exporter warns of its own internals (deprecated torch calls); nothing a user could change.
        warnings.simplefilter("ignore")
        path = Path(folder) / "model.onnx"
        logger = logging.getLogger("torch.onnx")
        level, logger_level = logging.ERROR, logger.level
        logger.setLevel(level)
        try:
            torch.onnx.export(
                module.eval(),
                example,
                str(path),
                input_names=list(inputs) or None,
                output_names=list(outputs) or None,
                dynamic_shapes=dynamic_shapes,
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        finally:
            logger.setLevel(logger_level)
        return canonicalise(onnx.load(str(path)))
