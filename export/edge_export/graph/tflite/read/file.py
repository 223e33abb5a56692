"""Reading of a float TensorFlow Lite file as ONNX; the rules are those of `edge_export.graph.tflite.read.reader`."""

from __future__ import annotations

import numpy as np
import onnx

from edge_export.graph.onnx_graph.run import session
from edge_export.graph.tflite.read.operators import READERS
from edge_export.graph.tflite.read.reader import Reader


def read_tflite(data: bytes, file: str) -> onnx.ModelProto:
    """Read a float TensorFlow Lite file as ONNX; the batch is open where rows are then answered as they are alone.

    Args:
        data: the file's bytes.
        file: named in errors.

    Raises:
        ConfigError: it is no such file, is quantised, or has an operator that cannot be read.
    """
    fixed = Reader(data, file).read(READERS)
    opening = Reader(data, file, open_batch=True)
    opened = opening.read(READERS) if opening.open_batch else fixed
    return opened if opened is not fixed and _rows_are_alone(opened, fixed) else fixed


def _rows_are_alone(opened: onnx.ModelProto, fixed: onnx.ModelProto) -> bool:
    """Give two rows together and each alone; some graphs mix rows, or fix their number somewhere inside."""
    random = np.random.default_rng(0)
    try:
        both, single = session(opened), session(fixed)
        rows = {
            info.name: random.standard_normal((2, *info.shape[1:])).astype(np.float32)
            for info in single.get_inputs()
            if info.type == "tensor(float)"
        }
        together = both.run(None, rows)
        for i in range(2):
            alone = single.run(None, {name: array[i : i + 1] for name, array in rows.items()})
            for a, b in zip(together, alone, strict=True):
                if a.shape[0] != 2 or not np.allclose(a[i : i + 1], b, rtol=1e-3, atol=1e-5):
                    return False
    except Exception:  # noqa: BLE001 - onnxruntime's own classes derive from nothing narrower
        return False
    return True
