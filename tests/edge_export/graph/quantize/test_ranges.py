"""Ranges: the histogram forgets no value and no order, and each method does what its name says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.quantize import Method
from edge_export.graph.quantize.histogram import BINS, Histogram
from edge_export.graph.quantize.ranges import affine, calibrate, choose, collect
from edge_export.graph.quantize.write import prepare
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnxruntime import quantization as ort_quantization

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import GraphBuilder, device_net, windows

METHODS: tuple[Method, ...] = ("minmax", "mse", "percentile", "entropy")
FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)
VALUES = arrays(np.float32, st.integers(1, 200), elements=FLOATS)


def counted(*parts: np.ndarray) -> Histogram:
    histogram = Histogram()
    for part in parts:
        histogram.add(part)
    return histogram


@given(values=VALUES, cuts=st.lists(st.integers(0, 200), max_size=4), seed=st.integers(0, 99))
@settings(derandomize=True, deadline=None)
def test_batches_and_their_order_make_no_difference(values: np.ndarray, cuts: list[int], seed: int) -> None:
    whole = counted(values)
    shuffled = np.random.default_rng(seed).permutation(values)
    parts = counted(*np.split(shuffled, sorted(min(cut, len(values)) for cut in cuts)))
    np.testing.assert_array_equal(parts.counts, whole.counts)
    np.testing.assert_array_equal(parts.centers, whole.centers)
    assert (parts.low, parts.high, parts.zeros) == (whole.low, whole.high, whole.zeros)


@given(values=VALUES)
@settings(derandomize=True, deadline=None)
def test_memory_is_bounded_and_no_value_is_lost(values: np.ndarray) -> None:
    histogram = counted(values, values[::-1])
    assert histogram.counts.size <= BINS
    assert histogram.total == 2 * len(values)
    assert histogram.counts_without_zeros.sum() == 2 * np.count_nonzero(values)
    assert (histogram.counts >= 0).all()
    assert (histogram.low, histogram.high) == (values.min(), values.max())
    assert np.abs(histogram.centers[0] - float(values.min())) <= histogram.width


@given(values=VALUES, share=st.floats(0, 1))
@settings(derandomize=True, deadline=None)
def test_a_quantile_is_right_to_the_width_of_a_bin(values: np.ndarray, share: float) -> None:
    histogram = counted(values)
    lower, upper = (np.quantile(values.astype(np.float64), share, method=method) for method in ("lower", "higher"))
    # Between the two neighbours any value is a quantile, and definitions differ by one rank.
    order = np.sort(values.astype(np.float64))
    rank = int(np.clip(round(share * len(order)), 0, len(order) - 1))
    low, high = order[max(0, rank - 1)], order[min(len(order) - 1, rank + 1)]
    assert min(low, lower) - histogram.width <= histogram.quantile(share) <= max(high, upper) + histogram.width


def test_bins_are_fine_enough_for_eight_bits() -> None:
    histogram = counted(np.random.default_rng(0).standard_normal(10_000).astype(np.float32))
    assert (histogram.high - histogram.low) / 255 > 7.9 * histogram.width


def ort_minmax(model: onnx.ModelProto, x: np.ndarray, folder: Path) -> dict[str, tuple[float, float]]:
    class Reader(ort_quantization.CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
        batches = iter([{"window": x[i : i + 16]} for i in range(0, len(x), 16)])

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.batches, None)

    onnx.save(model, str(folder / "model.onnx"))
    calibrator = ort_quantization.create_calibrator(
        str(folder / "model.onnx"), [], augmented_model_path=str(folder / "augmented.onnx")
    )
    calibrator.collect_data(Reader())
    data = calibrator.compute_data().data
    return {name: tuple(float(np.ravel(end)[0]) for end in found.range_value) for name, found in data.items()}  # type: ignore[misc]


def test_minmax_is_what_onnxruntime_s_calibrator_finds(tmp_path: Path) -> None:
    model, x = prepare(canonicalise(device_net())), windows(150, 3, 40)
    found, theirs = calibrate(model, x), ort_minmax(model, x, tmp_path)
    assert len(found) >= 9
    for name, (low, high) in found.items():
        # Ours include zero, as a stored range must.
        np.testing.assert_allclose((low, high), (min(0, theirs[name][0]), max(0, theirs[name][1])), rtol=1e-6)


def squared_error(values: np.ndarray, low: float, high: float) -> float:
    scale, zero = affine(low, high)
    q = np.clip(np.rint(values / scale) + zero, 0, 255)
    return float(np.square((q - zero) * scale - values).mean())


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", ["normal", "relu", "outlier", "long tails"])
def test_mse_is_never_worse_than_minmax(shape: str, seed: int) -> None:
    random = np.random.default_rng(seed)
    values = random.standard_normal(20_000) if shape != "long tails" else random.laplace(size=300_000)
    if shape == "relu":
        values = np.maximum(values, 0)
    if shape == "outlier":
        values[7] = 200
    collected = {"t": counted(values)}
    ranges = {method: choose(collected, method)["t"] for method in METHODS[:2]}
    errors = {method: squared_error(values, *ends) for method, ends in ranges.items()}
    assert errors["mse"] <= errors["minmax"] * 1.0001
    if shape == "long tails":
        assert errors["mse"] < 0.95 * errors["minmax"]


def test_percentile_leaves_out_the_ends() -> None:
    values = np.concatenate([np.linspace(-1, 1, 99_000), np.full(400, 50.0)])
    low, high = choose({"t": counted(values)}, "percentile", percentile=99)["t"]
    assert low == pytest.approx(-0.99, abs=0.03)
    assert 0.97 < high < 1.03
    assert choose({"t": counted(values)}, "minmax")["t"] == (-1, 50)


def test_entropy_keeps_a_plain_range_and_cuts_a_long_tail() -> None:
    random = np.random.default_rng(0)
    flat = random.uniform(-1, 1, 200_000)
    low, high = choose({"t": counted(flat)}, "entropy")["t"]
    assert low < -0.9
    assert high > 0.9
    tailed = np.concatenate([flat, [40.0, 55.0]])
    assert choose({"t": counted(tailed)}, "entropy")["t"][1] < 10


@pytest.mark.parametrize("method", METHODS)
def test_ranges_hold_zero_are_frozen_and_symmetric_if_asked(method: Method) -> None:
    collected = {
        "positive": counted(np.linspace(3, 4, 500)),
        "negative": counted(np.linspace(-4, -3, 500)),
        "zero": counted(np.zeros(50)),
    }
    ranges = choose(collected, method)
    assert all(low <= 0 <= high for low, high in ranges.values())
    assert ranges["positive"][0] == 0
    assert ranges["zero"] == (0.0, 0.0)
    assert type(ranges).__name__ == "mappingproxy"
    if method != "percentile":
        for low, high in choose(collected, method, symmetric=True).values():
            assert low == -high


def test_an_activation_that_is_not_finite_is_named() -> None:
    b = GraphBuilder(2, 8)
    t = b.node("Relu", b.conv(b.node("Log", "window"), 2, 2, 3))
    with pytest.raises(ConfigError, match=r"tensor '\w+' is not finite on the calibration windows"):
        collect(prepare(b.model(t)), windows(8, 2, 8))


def test_a_large_model_runs_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = prepare(canonicalise(device_net())), windows(20, 3, 40)
    expected = dict(calibrate(model, x))
    monkeypatch.setattr("edge_export.graph.quantize.ranges._LARGEST_RUN", 1)
    assert dict(calibrate(model, x)) == expected
