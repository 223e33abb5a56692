from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge_runtime.errors import CloudRejected
from edge_runtime.manifest.outputs import Quantity, RegressionOutput
from edge_runtime.model.tasks import Finding
from edge_runtime.model.tasks.regression import Regression
from tests.edge_runtime.manifests import manifest

AIR = Quantity(name="air", unit="Cel", offset=10.0, scale=2.0, half_width=1.5, widest=6.0, low=-40.0, high=60.0)


def task(*quantities: Quantity, **output: Any) -> Regression:
    contract = RegressionOutput(quantities=quantities or (AIR,), **output)
    return Regression(manifest(output=contract), contract, None)


def one(of: Regression, *numbers: float) -> Finding:
    (found,) = of.findings(np.array([numbers], np.float32))
    return found


def test_a_value_has_its_unit_and_its_interval() -> None:
    found = one(task(), 20.7)
    assert found.label == "21.4 Cel"
    assert found.scores == [21.4]
    assert found.own == {"values": {"air": {"value": 21.4, "unit": "Cel", "low": 19.9, "high": 22.9}}, "coverage": 0.9}
    assert found.confidence == pytest.approx(0.5), "3 Cel wide, and 6 would be of no use"


@pytest.mark.parametrize("number", [-16.0, 41.0])
def test_a_value_that_cannot_be_has_no_trust(number: float) -> None:
    assert one(task(), number).confidence == 0


def test_several_quantities_are_told_with_their_names() -> None:
    found = one(task(Quantity(name="a"), Quantity(name="b", unit="kW", half_width=1.0)), 1.25, 3.0)
    assert found.label == "a 1.25, b 3 kW"
    assert found.own["values"]["a"]["low"] is None, "no interval is known"
    assert found.confidence == 1


def test_a_spread_of_the_models_own_widens_the_interval() -> None:
    of = task(Quantity(name="t", scale=2.0, half_width=1.5, widest=12.0), spread=True)
    assert one(of, 5.0, 0.5).own["values"]["t"] == {"value": 10.0, "unit": "1", "low": 8.5, "high": 11.5}
    assert one(of, 5.0, 1.0).confidence == pytest.approx(0.5)
    assert one(of, 5.0, -1.0).own["values"]["t"]["low"] is None, "a spread below 0 says nothing"


def test_models_agree_where_each_value_lies_in_the_others_interval() -> None:
    numbers = np.array([[20.0], [20.7], [20.8]], np.float32)  # 20, 21.4 and 21.6 Cel, 1.5 to each side
    assert task().agree(numbers[[0, 0]], numbers[[1, 2]]) == [True, False]


def test_the_cloud_may_leave_its_interval_out() -> None:
    values = np.array([[21.0]], np.float32)
    (found,) = task().read_reply({"values": values}, 1, "probabilities")
    assert found.own["values"]["air"] == {"value": 21.0, "unit": "Cel", "low": None, "high": None}
    (found,) = task().read_reply({"values": values, "low": values - 1, "high": values + 2}, 1, "probabilities")
    assert found.own["values"]["air"] == {"value": 21.0, "unit": "Cel", "low": 20.0, "high": 23.0}
    with pytest.raises(CloudRejected, match="low lies above their high"):
        task().read_reply({"values": values, "low": values + 1, "high": values}, 1, "probabilities")


def test_numbers_of_any_size_keep_seven_digits() -> None:
    assert one(task(Quantity(name="q")), 1.2345678e-12).scores == [1.234568e-12]
