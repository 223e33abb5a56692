"""The float ONNX files that every quantiser starts from answer as the reference files do."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from benchmarks.anomaly import auc
from benchmarks.mlperf_tiny import NETWORKS, Network, inputs_for, read_png, read_variables, to_onnx
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions
from tests import models

pytestmark = pytest.mark.skipif(
    not (models.usable("onnxruntime") and models.usable("litert")), reason="onnxruntime or LiteRT is not installed"
)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_the_float_onnx_answers_as_the_reference_does(network: Network, shared: Path) -> None:
    model = to_onnx(network, shared).SerializeToString()
    file = (shared / "models" / "mlperf-tiny" / network.file).read_bytes()
    ours, reference = (engines.load(n, m, EngineOptions()) for n, m in (("onnxruntime", model), ("litert", file)))
    shape = reference.inputs[0].shape[1:]
    x = np.random.default_rng(0).uniform(0, 1, (8, *shape)).astype(np.float32)
    if network.name in ("kws", "ad"):
        x = inputs_for(network.name, shared).unseen
    one, other = ours.run(x)[0], reference.run(x)[0]
    if network.name == "kws":  # the reference's weights are int8 in that file
        assert (one.argmax(axis=1) == other.argmax(axis=1)).mean() > 0.95
    else:
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 if network.name != "ad" else 0.02)


def test_the_keyword_network_is_right_about_real_words(shared: Path) -> None:
    inputs = inputs_for("kws", shared)
    assert inputs.labels is not None
    engine = engines.load("onnxruntime", to_onnx(NETWORKS[0], shared).SerializeToString(), EngineOptions())
    right = (engine.run(inputs.unseen)[0].argmax(axis=1) == inputs.labels).mean()
    assert right > 0.95
    assert len(inputs.calibration) + len(inputs.unseen) == 213


def test_variables_of_the_checkpoint_are_float(shared: Path) -> None:
    variables = read_variables(shared / "models/mlperf-tiny/kws_ref_model_savedmodel/variables")
    kernel = variables["layer_with_weights-0/kernel/.ATTRIBUTES/VARIABLE_VALUE"]
    assert kernel.shape == (10, 4, 1, 64)
    assert len(np.unique(kernel)) > 2000


@pytest.mark.parametrize("channels", [3, 4])
def test_every_filter_of_a_png_is_undone(tmp_path: Path, channels: int) -> None:
    picture = np.random.default_rng(2).integers(0, 256, (10, 7, channels), dtype=np.uint8)
    rows = b"".join(_filtered(picture, y, y % 5) for y in range(10))
    head = struct.pack(">IIBBBBB", 7, 10, 8, 2 if channels == 3 else 6, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    path = tmp_path / "picture.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(d)) + k + d + bytes(4) for k, d in chunks))
    np.testing.assert_array_equal(read_png(path), picture[:, :, :3])


def _filtered(picture: np.ndarray, y: int, kind: int) -> bytes:
    """One row as the specification's table of filters writes it, pixel by pixel."""
    row = picture[y].astype(int)
    above = picture[y - 1].astype(int) if y else np.zeros_like(row)
    left, corner = (np.concatenate([np.zeros((1, row.shape[1]), int), line[:-1]]) for line in (row, above))
    guess = left + above - corner
    nearest = np.select(
        [
            (abs(guess - left) <= abs(guess - above)) & (abs(guess - left) <= abs(guess - corner)),
            abs(guess - above) <= abs(guess - corner),
        ],
        [left, above],
        corner,
    )
    predicted = [0 * row, left, above, (left + above) // 2, nearest][kind]
    filtered: np.ndarray = (row - predicted) % 256
    return bytes([kind, *filtered.ravel().tolist()])


def test_auc_counts_pairs() -> None:
    assert auc(np.array([1, 2, 3, 4.0]), np.array([0, 0, 1, 1])) == 1
    assert auc(np.array([1, 3, 2, 4.0]), np.array([0, 0, 1, 1])) == 0.75
    assert auc(np.array([1, 1.0]), np.array([0, 1])) == 0.5
