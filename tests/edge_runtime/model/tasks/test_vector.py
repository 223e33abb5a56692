from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from edge_runtime.errors import CloudRejected
from edge_runtime.manifest.outputs import VectorOutput
from edge_runtime.model.tasks import Finding
from edge_runtime.model.tasks.vector import Vector
from tests.edge_runtime.manifests import manifest

ROWS = np.array([[[0.5, -1.0], [0.25, 2.0]]], np.float32)


def task(**output: Any) -> Vector:
    contract = VectorOutput(**{"shape": (2, 2)} | output)
    return Vector(manifest(output=contract), contract, None)


def one(of: Vector) -> Finding:
    (found,) = of.findings(ROWS)
    return found


def test_rows_are_given_as_they_are() -> None:
    found = one(task(unit="Pa", rate_hz=100.0))
    assert (found.label, found.confidence, found.scores) == ("2 x 2", 1.0, [])
    assert found.own == {"encoding": "rows", "unit": "Pa", "rate_hz": 100.0, "rows": [[0.5, -1.0], [0.25, 2.0]]}


def test_sound_is_16_bit_and_does_not_wrap_around() -> None:
    found = one(task(publish="pcm16", rate_hz=16000.0))
    sound = np.frombuffer(base64.b64decode(found.own["rows"]), "<i2")
    assert sound.tolist() == [16384, -32768, 8192, 32767]


def test_nothing_is_given_where_nothing_is_wanted() -> None:
    assert one(task(publish="none")).own["rows"] == []


def test_two_models_agree_to_a_thousandth() -> None:
    of = task()
    assert of.agree(ROWS, ROWS * np.float32(1.0009)) == [True]
    assert of.agree(ROWS, ROWS * np.float32(1.0011)) == [False]
    assert of.agree(np.zeros_like(ROWS), np.zeros_like(ROWS)) == [True]


def test_the_cloud_is_not_asked() -> None:
    of = task()
    assert not of.asked
    with pytest.raises(CloudRejected, match="it is not asked"):
        of.read_reply({"rows": ROWS}, 1, "probabilities")
