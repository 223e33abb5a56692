"""A given network as the body of a teacher: features of windows, computed by the device's engine, never trained."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch  # noqa: TID251 - this is the export toolchain
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_runtime.errors import ConfigError, EngineError, InputError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import Array, EngineOptions


class EmbeddingBody(nn.Module):  # type: ignore[misc]  # torch ships no types the device's tools can see
    """The features of an ONNX file.

    Args:
        file: the model; one input, one output.
        channels: number of a window's channels.
        samples: number of a window's samples.

    Raises:
        ConfigError: the file is missing, has several inputs or outputs, or does not turn such windows into features.
    """

    def __init__(self, file: Path, channels: int, samples: int) -> None:
        super().__init__()
        self.name = file.name
        try:
            self.model = file.read_bytes()
        except OSError as error:
            raise ConfigError(
                f"embedding: cannot read {file} ({error.strerror}); a relative path begins at the recipe's folder"
            ) from error
        try:
            self._engine = engines.load("onnxruntime", self.model, EngineOptions())
        except EngineError as error:
            raise ConfigError(f"embedding {file.name}: {error}") from error
        for what, found in (("input", self._engine.inputs), ("output", self._engine.outputs)):
            if len(found) != 1:
                raise ConfigError(
                    f"embedding {file.name}: has {len(found)} {what}s ({', '.join(each.name for each in found)}); "
                    f"keep one with onnx.utils.extract_model"
                )
        # Two windows: one alone would fit a file that takes no batch.
        features = self.run(np.zeros((2, channels, samples), np.float32))
        if features.ndim not in (2, 3) or len(features) != 2 or 0 in features.shape:
            raise ConfigError(
                f"embedding {file.name}: gives {features.shape} for two windows; it must give (2, features) or "
                "(2, frames, features): end it with a Reshape"
            )
        self.width = int(features.shape[-1])

    def run(self, x: Array, *, batch: int = 32) -> Array:
        """(n, channels, samples) to the features as the file gives them.

        Raises:
            ConfigError: the file does not take such windows.
        """
        try:
            # Copied: an engine's answer is the caller's until its next run only.
            parts = [np.array(self._engine.run(x[at : at + batch])[0]) for at in range(0, len(x), batch)]
        except (EngineError, InputError) as error:
            raise ConfigError(
                f"embedding {self.name}: takes {self._engine.inputs[0].shape}, not windows of {x.shape} (windows, "
                f"channels, samples): put a Reshape in front ({error})"
            ) from error
        return np.concatenate(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, channels, samples) to (batch, features), or (batch, features, frames)."""
        found = torch.from_numpy(self.run(x.numpy()))
        return found.transpose(1, 2) if found.dim() == 3 else found
