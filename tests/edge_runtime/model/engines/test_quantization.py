"""Floats to integers and back, as the kernels do it."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from edge_runtime.model.engines import quantization
from edge_runtime.model.engines.quantization import Affine, Floats

DTYPES = [np.int8, np.uint8, np.int16, np.int32]


def affines() -> st.SearchStrategy[Affine]:
    def build(dtype: type[Any], scale: float, where: float) -> Affine:
        limits = np.iinfo(dtype)
        # As in TFLite, wide types are symmetric.
        zero = 0 if limits.bits > 8 else round(limits.min + where * (limits.max - limits.min))
        return Affine(float(np.float32(scale)), zero, np.dtype(dtype))

    return st.builds(build, st.sampled_from(DTYPES), st.floats(1e-6, 1e3), st.floats(0, 1))


floats = hnp.arrays(
    np.float32,
    hnp.array_shapes(max_dims=3, max_side=6),
    elements=st.floats(allow_nan=False, allow_infinity=False, width=32),
)


@pytest.mark.slow
@given(affine=affines(), x=floats)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_any_finite_sample_lands_on_the_nearest_integer_or_at_an_end(affine: Affine, x: Floats) -> None:
    q = affine.quantize(x)
    assert q.dtype == affine.dtype
    assert q.shape == x.shape
    limits = np.iinfo(affine.dtype)
    exact = x.astype(np.float64) / np.float32(affine.scale) + affine.zero
    # Half a step, and the rounding of a float32 division.
    slack = 0.5 + 2e-7 * np.abs(exact - affine.zero).clip(0, limits.max - limits.min)
    assert (np.abs(q - exact.clip(limits.min, limits.max)) <= slack).all()


@pytest.mark.slow
@given(affine=affines(), data=st.data())
@settings(derandomize=True, deadline=None, max_examples=200)
def test_integers_survive_the_way_out_and_back(affine: Affine, data: st.DataObject) -> None:
    limits = np.iinfo(affine.dtype)
    # float32 holds integers up to 2**24.
    reach = min(limits.max, 2**23)
    low, high = max(limits.min, -reach), reach
    q = data.draw(hnp.arrays(affine.dtype, 16, elements=st.integers(low, high)))
    np.testing.assert_array_equal(affine.quantize(affine.dequantize(q)), q)


def test_halves_go_to_the_even_integer() -> None:
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], np.float32)
    np.testing.assert_array_equal(Affine(1.0, 0, np.dtype(np.int8)).quantize(halves), [-2, -2, 0, 0, 2, 2])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_it_gives_the_integers_of_the_onnx_operator(dtype: type[Any]) -> None:
    rng = np.random.default_rng(0)
    kind = TensorProto.INT8 if dtype is np.int8 else TensorProto.UINT8
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"])
    graph = helper.make_graph(
        [node],
        "q",
        [helper.make_tensor_value_info(n, t, None) for n, t in (("x", 1), ("s", 1), ("z", kind))],
        [helper.make_tensor_value_info("q", kind, None)],
    )
    reference = ReferenceEvaluator(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)]))
    assert onnx.__version__
    for _ in range(50):
        scale = np.float32(10 ** rng.uniform(-3, 1))
        zero = int(rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, endpoint=True))
        x = (rng.standard_normal(500) * scale * 100).astype(np.float32)
        x[:200] = np.float32(scale) * rng.integers(-200, 200, 200).astype(np.float32) / 2
        (expected,) = reference.run(None, {"x": x, "s": scale, "z": np.array(zero, dtype)})
        np.testing.assert_array_equal(Affine(float(scale), zero, np.dtype(dtype)).quantize(x), expected)


@pytest.mark.parametrize(
    ("scale", "zero"), [(0.0, 0), (-1.0, 0), (float("nan"), 0), (float("inf"), 0), (1.0, 128), (1.0, -129)]
)
def test_parameters_that_make_no_sense_are_refused(scale: float, zero: int) -> None:
    with pytest.raises(ValueError, match=r"scale|zero point"):
        Affine(scale, zero, np.dtype(np.int8))


def test_the_examples_in_its_documentation_hold() -> None:
    result = doctest.testmod(quantization)
    assert result.attempted > 0
    assert result.failed == 0
