"""Which channels are the axes of one sensor."""

from __future__ import annotations

import pytest

from edge_runtime.manifest import Channel
from edge_runtime.signal.intake.triads import find_triads


@pytest.mark.parametrize(
    ("names", "triads"),
    [
        (["ax", "ay", "az", "wx", "wy", "wz"], [(0, 1, 2), (3, 4, 5)]),
        (["z", "y", "x"], [(2, 1, 0)]),
        (["Accel.X", "temp", "Accel.Y", "Accel.Z"], [(0, 2, 3)]),
        (["xacc_x", "xacc_y", "xacc_z"], [(0, 1, 2)]),
        (["acc_x", "acc_y"], []),
        (["flux", "temperature"], []),
    ],
)
def test_axes_differ_in_one_letter(names: list[str], triads: list[tuple[int, int, int]]) -> None:
    assert find_triads([Channel(name=name, unit="g") for name in names]) == triads


def test_axes_have_one_unit_and_are_no_masks() -> None:
    x, y = Channel(name="x", unit="g"), Channel(name="y", unit="g")
    assert find_triads([x, y, Channel(name="z", unit="m/s2")]) == []
    assert find_triads([x, y, Channel(name="z", unit="g", mask_of="x")]) == []
