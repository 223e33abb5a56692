"""Runs TensorFlow Lite files one after the other, in the process of whoever has the engine: LiteRT or tflite-runtime.

    python answer_files.py FOLDER [NAME ...]

For each NAME it reads ``NAME.tflite`` and ``NAME.npz``, and writes ``NAME.answers.npz``, or ``NAME.error`` with what
the engine says. A file that ends the process leaves neither, and its name as the last line printed.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np


def _interpreter(path: Path) -> Any:
    try:
        from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415
    except ImportError:
        from tflite_runtime.interpreter import Interpreter  # noqa: PLC0415
    return Interpreter(model_content=path.read_bytes(), num_threads=1)


def answer(path: Path) -> list[np.ndarray]:
    interpreter = _interpreter(path)
    stored = np.load(path.with_suffix(".npz"))
    inputs = [stored[name] for name in stored.files]
    names = (path.with_suffix(".names")).read_text(encoding="utf-8").split("\n")
    details = {detail["name"]: detail for detail in interpreter.get_input_details()}
    for name, array in zip(names, inputs):  # noqa: B905 - none where there are no inputs
        if tuple(details[name]["shape"]) != array.shape:
            interpreter.resize_tensor_input(details[name]["index"], array.shape)
    interpreter.allocate_tensors()
    for name, array in zip(names, inputs):  # noqa: B905
        interpreter.set_tensor(details[name]["index"], array)
    # Twice: a file must not depend on what the first call left behind.
    interpreter.invoke()
    first = [interpreter.get_tensor(detail["index"]).copy() for detail in interpreter.get_output_details()]
    interpreter.invoke()
    again = [interpreter.get_tensor(detail["index"]) for detail in interpreter.get_output_details()]
    if any(a.tobytes() != b.tobytes() for a, b in zip(first, again)):  # noqa: B905
        raise RuntimeError("a second call answers otherwise")
    return first


def main() -> None:
    folder = Path(sys.argv[1])
    for name in sys.argv[2:]:
        path = folder / f"{name}.tflite"
        print(name, flush=True)
        try:
            np.savez(path.with_suffix(".answers.npz"), *answer(path))
        except (RuntimeError, ValueError, KeyError) as error:
            path.with_suffix(".error").write_text(str(error), encoding="utf-8")


if __name__ == "__main__":
    main()
