from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.manifest.surround import Fusion
from edge_runtime.model.tasks.fusion import fuse
from edge_runtime.types import Float32

weights = st.floats(2**-6, 3)


def drawn(n: int, seed: int) -> Float32:
    return np.random.default_rng(seed).dirichlet(np.full(4, 0.3), n).astype(np.float32)


def test_half_of_each_is_the_geometric_mean_of_both() -> None:
    device, cloud = np.array([[0.8, 0.2]], np.float32), np.array([[0.4, 0.6]], np.float32)
    mean = np.sqrt(device * cloud)
    np.testing.assert_allclose(fuse(Fusion(device=0.5, cloud=0.5), device, cloud), mean / mean.sum(), rtol=1e-6)


@given(st.integers(1, 30), st.integers(0, 999))
def test_a_weight_of_one_leaves_one_as_it_is_and_a_weight_of_none_leaves_the_other_out(n: int, seed: int) -> None:
    device, cloud = drawn(n, seed), drawn(n, seed + 1)
    np.testing.assert_allclose(fuse(Fusion(device=0, cloud=1), device, cloud), cloud, atol=1e-6)
    np.testing.assert_allclose(fuse(Fusion(device=1, cloud=0), device, cloud), device, atol=1e-6)


@given(weights, weights, st.integers(2, 20), st.integers(0, 999))
def test_rows_are_probabilities_the_same_alone_and_among_others(one: float, other: float, n: int, seed: int) -> None:
    fusion = Fusion(device=one, cloud=other, bias=(0.5, 0.0, -0.5, 0.0))
    device, cloud = drawn(n, seed), drawn(n, seed + 1)
    fused = fuse(fusion, device, cloud)
    np.testing.assert_allclose(fused.sum(axis=1), 1, atol=1e-5)
    for i in range(n):
        np.testing.assert_array_equal(fuse(fusion, device[i : i + 1], cloud[i : i + 1])[0], fused[i])


def test_two_that_are_certain_of_different_labels_make_neither_infinite() -> None:
    fused = fuse(Fusion(device=0.5, cloud=1.5), np.array([[1, 0]], np.float32), np.array([[0, 1]], np.float32))
    assert fused[0] == pytest.approx([1e-7, 1], rel=1e-3)


def test_the_bias_of_a_label_counts_beside_the_logarithms() -> None:
    even = np.full((1, 2), 0.5, np.float32)
    fused = fuse(Fusion(device=0.5, cloud=0.5, bias=(float(np.log(3)), 0.0)), even, even)
    assert fused[0] == pytest.approx([0.75, 0.25])
