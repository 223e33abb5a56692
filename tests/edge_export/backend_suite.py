"""ONNX's own backend suite: some two thousand small models, each with inputs and the answers that it must give.

Source: ``onnx.backend.test`` of the installed onnx package; nothing is downloaded.
"""

from __future__ import annotations

import functools
import warnings
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCase:
    """A model of the suite.

    Attributes:
        kind: one of `KINDS`.
        name: unique within its kind.
        model: as published.
        inputs: by name of the model's inputs that are not weights; None for one that is left out.
        outputs: in the model's order.
        rtol: relative tolerance that the suite asks for.
        atol: absolute tolerance that the suite asks for.
        tensors: every input and output is a tensor (no sequence, no optional, nothing left out).
    """

    kind: str
    name: str
    model: onnx.ModelProto
    inputs: dict[str, Array]
    outputs: tuple[Array, ...]
    rtol: float
    atol: float
    tensors: bool

    def within(self, part: int, of: int) -> bool:
        """Whether the case is in a part of the suite: a fixed choice by name, the same on every machine."""
        return zlib.crc32(self.name.encode()) % of == part


@functools.cache
def cases() -> tuple[BackendCase, ...]:
    """Every case of the suite, in a fixed order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite's references divide by zero on purpose
        found = [(kind, each) for kind in KINDS for each in load_model_tests(kind=kind)]
    made = []
    for kind, each in found:
        folder = None if each.model_dir is None else Path(each.model_dir)
        model = each.model if folder is None else onnx.load(str(folder / "model.onnx"))
        data = each.data_sets[0] if folder is None else _stored(folder / "test_data_set_0")
        weights = {tensor.name for tensor in model.graph.initializer}
        names = [info.name for info in model.graph.input if info.name not in weights]
        given = dict(zip(names, data[0], strict=False))
        tensors = all(isinstance(array, np.ndarray | np.generic) for array in (*given.values(), *data[1]))
        made.append(
            BackendCase(
                kind=kind,
                name=each.name,
                model=model,
                inputs={name: np.asarray(array) for name, array in given.items()} if tensors else {},
                outputs=tuple(np.asarray(array) for array in data[1]) if tensors else (),
                rtol=each.rtol,
                atol=each.atol,
                tensors=tensors and len(given) == len(names),
            )
        )
    return tuple(sorted(made, key=lambda case: (KINDS.index(case.kind), case.name)))


def _stored(folder: Path) -> tuple[list[object], list[object]]:
    """Inputs and outputs as the suite stores them; None for what is no tensor."""

    def numbered(role: str) -> list[object]:
        files = sorted(folder.glob(f"{role}_*.pb"), key=lambda path: int(path.stem.rpartition("_")[2]))
        return [_tensor(path) for path in files]

    return numbered("input"), numbered("output")


def _tensor(path: Path) -> Array | None:
    tensor = onnx.TensorProto()
    try:
        tensor.ParseFromString(path.read_bytes())
        array: Array = numpy_helper.to_array(tensor)
    except Exception:
        return None
    return array


def alike(answer: Array, expected: Array, *, rtol: float = 1e-5, atol: float = 1e-6) -> bool:
    """Whether two tensors are the same in form, and in content up to rounding."""
    if answer.shape != expected.shape or answer.dtype != expected.dtype:
        return False
    if expected.dtype.kind not in "biufc":
        try:
            answer, expected = answer.astype(np.float64), expected.astype(np.float64)
        except (TypeError, ValueError):
            return bool(np.array_equal(answer, expected))
    if answer.dtype == np.float16:
        rtol = max(rtol, 2e-3)  # two of its steps
    return bool(np.allclose(answer, expected, rtol=rtol, atol=atol, equal_nan=True))
