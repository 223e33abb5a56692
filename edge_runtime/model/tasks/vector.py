"""Vector: numbers or a signal as the answer, given on as they are. The cloud is not asked about them."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import VectorOutput
from edge_runtime.model.tasks import Finding, ReplyValues
from edge_runtime.model.tasks.common import WindowTask
from edge_runtime.types import Float32

_FULL_SCALE = 32768
"""Of 16-bit sound: 1.0 is this."""
_CLOSE = 1e-3
"""Root of the mean square of the difference, as a share of that of the numbers, up to which two are the same."""


class Vector(WindowTask):
    """The `Task` of a bundle whose model answers with numbers that are no labels, values or boxes.

    Args:
        manifest: the bundle's manifest.
        output: its output.
        threshold: replaces that of its gate; every answer has trust 1.
    """

    kind = "vector"
    asked = False

    def __init__(self, manifest: Manifest, output: VectorOutput, threshold: float | None) -> None:
        super().__init__(manifest, threshold)
        self._output = output
        self.outputs = (OipTensor("rows", "FP32", (-1, *output.shape)),)
        *rows, numbers = output.shape
        self._label = " x ".join(map(str, (*rows, numbers)))
        common = {"encoding": output.publish, "unit": output.unit, "rate_hz": output.rate_hz}
        self._common: dict[str, Any] = common

    def find(self, answers: Float32) -> list[Finding]:
        """See `WindowTask`."""
        return [Finding(self._label, 1.0, [], {**self._common, "rows": self._given(row)}) for row in answers]

    def _given(self, row: Float32) -> Any:
        """Return the numbers as JSON carries them."""
        if self._output.publish == "none":
            return []
        if self._output.publish == "pcm16":
            limits = np.iinfo(np.int16)
            sound = np.clip(np.rint(row.astype(np.float64) * _FULL_SCALE), limits.min, limits.max).astype("<i2")
            return base64.b64encode(sound.tobytes()).decode("ascii")
        return _significant(row).tolist()

    def agree(self, one: Float32, other: Float32) -> list[bool]:
        """Return whether the numbers differ by a thousandth of their size at most."""
        a, b = (each.reshape(len(each), -1).astype(np.float64) for each in (one, other))
        size = np.maximum((a * a).mean(axis=1), (b * b).mean(axis=1))
        same: list[bool] = (((a - b) ** 2).mean(axis=1) <= _CLOSE**2 * size).tolist()
        return same

    def same(self, one: Finding, other: Finding) -> bool:
        """Never asked: there are no corrections."""
        return one.own == other.own

    def offer(self, answers: Float32) -> dict[str, Array]:
        """See `Task`."""
        return {"rows": answers}

    def read_reply(self, _reply: Mapping[str, Array], _n: int, _values: ReplyValues, /) -> list[Finding]:
        """See `Task`; refused, since no case is asked."""
        raise CloudRejected("the cloud answered a bundle of vectors, about which it is not asked", None)


def _significant(x: Float32) -> Array:
    """Return numbers rounded to the seven digits that float32 has, so that their text is short."""
    numbers = x.astype(np.float64)
    size = np.floor(np.log10(np.abs(numbers), where=numbers != 0, out=np.zeros_like(numbers)))
    unit = 10.0 ** (6 - size)
    return np.round(numbers * unit) / unit
