"""Worker of `litert_torch`, in an environment with litert-torch and ai-edge-quantizer and nothing of ours.

Run as a file: ``python litert_worker.py convert NETWORK.pt2 OUT.tflite`` or
``python litert_worker.py quantize MODEL.tflite INPUTS.npz OUT.tflite``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def convert(program: Path, out: Path) -> None:
    """Write an exported torch program as a float TensorFlow Lite file."""
    import litert_torch  # type: ignore[import-not-found]  # noqa: PLC0415 - each command has its own libraries
    import torch  # noqa: PLC0415, TID251

    loaded = torch.export.load(program)
    arguments, _ = loaded.example_inputs
    litert_torch.convert(loaded.module(), arguments).export(str(out))


def quantize(model: Path, inputs: Path, out: Path) -> None:
    """Quantise a float file to int8 weights and activations, ranges from the smallest to the largest value seen."""
    import numpy as np  # noqa: PLC0415
    from ai_edge_quantizer import quantizer, recipe  # type: ignore[import-not-found]  # noqa: PLC0415
    from ai_edge_quantizer.calibrator import Calibrator  # type: ignore[import-not-found]  # noqa: PLC0415
    from ai_edge_quantizer.recipe_manager import RecipeManager  # type: ignore[import-not-found]  # noqa: PLC0415
    from ai_edge_quantizer.utils.qsv_utils import min_max_update  # type: ignore[import-not-found]  # noqa: PLC0415

    content, arrays = model.read_bytes(), dict(np.load(inputs))
    steps = recipe.static_wi8_ai8()
    rules = RecipeManager()
    rules.load_quantization_recipe(steps)
    # The default update is a moving average, which forgets peaks and then clips them.
    calibrator = Calibrator(content, num_threads=1, qsv_update_func=min_max_update)
    samples = [
        {name: array[i : i + 1] for name, array in arrays.items()} for i in range(len(next(iter(arrays.values()))))
    ]
    calibrator.calibrate({"serving_default": samples}, rules)
    worker = quantizer.Quantizer(content, steps)
    result = worker.quantize(calibrator.get_model_qsvs(), enable_progress_report=False)
    out.write_bytes(bytes(result.quantized_model))


def main(arguments: list[str]) -> None:
    """Run one command."""
    commands: dict[str, Any] = {"convert": convert, "quantize": quantize}
    commands[arguments[0]](*map(Path, arguments[1:]))


if __name__ == "__main__":
    main(sys.argv[1:])
