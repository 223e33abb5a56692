"""LiteRT's own converter and quantiser, in an environment of theirs, against our writer."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from edge_export.onnx_graph.canonicalise import clean
from edge_export.quantize import Scheme
from edge_export.quantize import quantize as quantize_onnx
from edge_export.tflite.convert import convert as to_tflite
from edge_export.tflite.litert_torch import INSTALL, Environment, compare, convert, quantize

from edge_runtime.engines.base import EngineOptions
from edge_runtime.engines.litert import load_litert
from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import device_net, onnx_answers, windows

_PYTHON = os.environ.get("LITERT_PYTHON", "")
needs_litert = pytest.mark.skipif(not _PYTHON, reason=f"LITERT_PYTHON names no interpreter; make one: {INSTALL}")


def answers(model: bytes, x: np.ndarray) -> np.ndarray:
    """By the device's engine, which turns floats into the file's own integers."""
    engine = load_litert(model, EngineOptions(), {})
    try:
        return np.concatenate([engine.run(x[i : i + 1])[0].copy() for i in range(len(x))])
    finally:
        engine.close()


def sqnr_db(exact: np.ndarray, answer: np.ndarray) -> float:
    return float(10 * np.log10(np.square(exact).sum() / np.square(exact - answer).sum()))


@needs_litert
def test_our_float_file_goes_through_their_quantiser() -> None:
    """Its int8 file and ours, made from the same network and windows, agree layer by layer to the size of a step."""
    model, x = clean(device_net()), windows(64, 3, 40)
    theirs = quantize(to_tflite(model), {"window": x}, Environment(python=Path(_PYTHON)))
    small = clean(quantize_onnx(model, x, Scheme(activations="int8", weight_bits=8)))
    ours = to_tflite(small)
    exact = onnx_answers(model, x)
    assert sqnr_db(exact, answers(ours, x)) > 25
    assert sqnr_db(exact, answers(ours, x)) > sqnr_db(exact, answers(theirs, x)) - 1
    differences = compare(ours, theirs, x[:1])
    assert len(differences) == 4
    assert all(difference.sqnr_db > 20 for difference in differences)


@needs_litert
def test_their_float_file_has_the_same_layers_as_ours() -> None:
    torch = pytest.importorskip("torch", reason="litert-torch starts from a torch network")
    from tests.edge_export.tflite.older_exporter import older  # noqa: PLC0415 - needs torch

    torch.set_num_threads(1)
    torch.manual_seed(3)
    nn = torch.nn
    network = nn.Sequential(
        nn.Conv1d(3, 8, 5, padding=2), nn.ReLU(), nn.Conv1d(8, 8, 3, padding=1, groups=8), nn.ReLU(),
        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip
    theirs = convert(network, channels=3, samples=40, environment=Environment(python=Path(_PYTHON)))
    ours = to_tflite(older(network, channels=3, samples=40))
    x = windows(1, 3, 40)
    assert all(difference.largest < 1e-5 for difference in compare(ours, theirs, x))
    assert len(ours) < len(theirs)


def test_files_of_different_networks_are_not_compared() -> None:
    with pytest.raises(ConfigError, match="do not hold the same layers"):
        compare(to_tflite(device_net()), to_tflite(device_net(classes=5)), windows(1, 3, 40))


def test_a_file_is_the_same_as_itself() -> None:
    written = to_tflite(device_net())
    differences = compare(written, written, windows(1, 3, 40))
    assert [difference.largest for difference in differences] == [0.0] * 4
    assert differences[0].sqnr_db == float("inf")


def test_a_missing_environment_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot run python for LiteRT"):
        quantize(b"", {}, Environment(python=tmp_path / "python"))


def test_a_missing_library_is_named_with_the_remedy(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho \"ModuleNotFoundError: No module named 'litert_torch'\" >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(ConfigError, match=r"make the environment with: python3\.11 -m venv"):
        quantize(b"", {"window": np.zeros((1, 3), np.float32)}, Environment(python=python))
