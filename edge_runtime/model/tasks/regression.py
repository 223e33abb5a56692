"""Regression: values with a unit, each with an interval that holds the true one in a stated share of windows.

The intervals' half widths were set at export by split conformal prediction (`edge_export.conformal`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import Quantity, RegressionOutput
from edge_runtime.model.tasks import Finding, ReplyValues
from edge_runtime.model.tasks.common import WindowTask, physical
from edge_runtime.types import Float32

_CLOSE = 0.01
"""Values that differ by this share at most are the same, where no interval is known."""


class Regression(WindowTask):
    """The `Task` of a bundle whose model answers with values.

    Trust is the least over quantities: 0 outside the bounds of what can be, else one minus the interval's width over
    the widest that is of use.

    Args:
        manifest: the bundle's manifest.
        output: its output.
        threshold: replaces that of its gate.
    """

    kind = "regression"

    def __init__(self, manifest: Manifest, output: RegressionOutput, threshold: float | None) -> None:
        super().__init__(manifest, threshold)
        self._quantities = output.quantities
        self._output = output
        shape = (-1, len(output.quantities))
        self._intervals = all(quantity.half_width for quantity in output.quantities)
        names = ("values", "low", "high") if self._intervals else ("values",)
        self.outputs = tuple(OipTensor(name, "FP32", shape) for name in names)

    def find(self, answers: Float32) -> list[Finding]:
        """See `WindowTask`."""
        return self._read(*self._in_units(answers))

    def offer(self, answers: Float32) -> dict[str, Array]:
        """See `Task`."""
        values, half = self._in_units(answers)
        made = {"values": values, "low": values - half, "high": values + half}
        return {spec.name: made[spec.name].astype(np.float32) for spec in self.outputs}

    def _in_units(self, answers: Float32) -> tuple[Array, Array]:
        """Return values and half widths in the quantities' units, (windows, quantities) float64; 0: not known."""
        n = len(self._quantities)
        numbers = answers.astype(np.float64)
        scale = np.array([one.scale for one in self._quantities])
        values = (numbers[:, :n] - [one.offset for one in self._quantities]) * scale
        half = np.broadcast_to([one.half_width for one in self._quantities], values.shape)
        if self._output.spread:
            half = half * np.maximum(numbers[:, n:], 0) * np.abs(scale)
        return values, half

    def same(self, one: Finding, other: Finding) -> bool:
        """Each value lies in the other's interval; without one, they differ by a hundredth at most."""
        pairs = ((one.own["values"][name.name], other.own["values"][name.name]) for name in self._quantities)
        return all(_near(a, b) for a, b in pairs)

    def read_reply(self, reply: Mapping[str, Array], n: int, _values: ReplyValues, /) -> list[Finding]:
        """See `Task`; ``low`` and ``high`` may be left out."""
        shape = (-1, len(self._quantities))
        given = self._read_numbers(reply, self.outputs[0], n).astype(np.float64)
        if "low" not in reply or "high" not in reply:
            return self._read(given, np.zeros_like(given))
        low, high = (self._read_numbers(reply, OipTensor(name, "FP32", shape), n) for name in ("low", "high"))
        if not (low <= high).all():
            raise CloudRejected("the cloud answered intervals whose low lies above their high", None)
        return self._read(given, np.zeros_like(given), low, high)

    def _read(self, values: Array, half: Array, low: Array | None = None, high: Array | None = None) -> list[Finding]:
        low = values - half if low is None else low
        high = values + half if high is None else high
        rows = zip(values.tolist(), low.tolist(), high.tolist(), strict=True)
        return [self._finding(*row) for row in rows]

    def _finding(self, values: Sequence[float], low: Sequence[float], high: Sequence[float]) -> Finding:
        own: dict[str, Any] = {}
        trusts = []
        for quantity, value, least, most in zip(self._quantities, values, low, high, strict=True):
            known = most > least
            own[quantity.name] = {
                "value": physical(value),
                "unit": quantity.unit,
                "low": physical(least) if known else None,
                "high": physical(most) if known else None,
            }
            trusts.append(_trust(quantity, value, most - least))
        label = ", ".join(_shown(name, one, alone=len(own) == 1) for name, one in own.items())
        scores = [one["value"] for one in own.values()]
        return Finding(label, round(min(trusts), 7), scores, {"values": own, "coverage": self._output.coverage})


def _trust(quantity: Quantity, value: float, width: float) -> float:
    too_low = quantity.low is not None and value < quantity.low
    too_high = quantity.high is not None and value > quantity.high
    if too_low or too_high:
        return 0.0
    return max(0.0, 1 - width / quantity.widest) if quantity.widest else 1.0


def _shown(name: str, one: Mapping[str, Any], *, alone: bool) -> str:
    """Return a value as people write it: ``21.4 Cel``; with its name where there are several."""
    unit = "" if one["unit"] == "1" else f" {one['unit']}"
    return ("" if alone else f"{name} ") + f"{one['value']:.4g}{unit}"


def _near(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    known = [each for each in (one, other) if each["low"] is not None]
    a, b = one["value"], other["value"]
    if not known:
        return bool(abs(a - b) <= _CLOSE * max(abs(a), abs(b)))
    return all(each["low"] <= a <= each["high"] and each["low"] <= b <= each["high"] for each in known)
