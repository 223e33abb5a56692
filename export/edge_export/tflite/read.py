"""Reading of a float TensorFlow Lite file as ONNX; the rules are those of `edge_export.tflite.reader`."""

from __future__ import annotations

import onnx

from edge_export.tflite.read_operators import READERS
from edge_export.tflite.reader import Reader


def read_tflite(data: bytes, file: str) -> onnx.ModelProto:
    """Read a float TensorFlow Lite file as ONNX.

    Args:
        data: the file's bytes.
        file: named in errors.

    Raises:
        ConfigError: it is no such file, is quantised, or has an operator that cannot be read.
    """
    return Reader(data, file).read(READERS)
