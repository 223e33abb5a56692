"""Checkpoints of Hugging Face as teachers, for real where an environment with optimum is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from edge_export.learn.training.huggingface import INSTALL, import_checkpoint

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import windows

MAKE = """
import sys, numpy, torch
from transformers import (
    ASTConfig, ASTForAudioClassification, ASTFeatureExtractor, PatchTSTConfig, PatchTSTForClassification,
    Wav2Vec2Config, Wav2Vec2FeatureExtractor, Wav2Vec2ForSequenceClassification,
)
kind, folder, inputs = sys.argv[1:]
torch.manual_seed(0)
x = numpy.load(inputs)
if kind == "sound":
    names = {0: "yes", 1: "no", 2: "go", 3: "stop"}
    config = Wav2Vec2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, conv_dim=(16, 16),
        conv_stride=(8, 4), conv_kernel=(16, 8), num_feat_extract_layers=2, num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4, classifier_proj_size=16, num_labels=4, id2label=names,
        label2id={v: k for k, v in names.items()},
    )
    model = Wav2Vec2ForSequenceClassification(config).eval()
    extractor = Wav2Vec2FeatureExtractor(sampling_rate=8000, do_normalize=True)
    extractor.save_pretrained(folder)
    prepared = extractor(list(x[:, 0]), sampling_rate=8000, return_tensors="pt").input_values
    logits = model(prepared).logits
elif kind == "series":
    config = PatchTSTConfig(
        num_input_channels=3, context_length=64, patch_length=8, patch_stride=8, d_model=16, num_attention_heads=2,
        ffn_dim=32, num_hidden_layers=2, num_targets=5, use_cls_token=True,
    )
    model = PatchTSTForClassification(config).eval()
    logits = model(past_values=torch.from_numpy(x).transpose(1, 2)).prediction_logits
else:
    config = ASTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, max_length=64,
        num_mel_bins=32, num_labels=4,
    )
    model = ASTForAudioClassification(config).eval()
    ASTFeatureExtractor(max_length=64, num_mel_bins=32).save_pretrained(folder)
    logits = torch.zeros(1, 4)
model.save_pretrained(folder)
numpy.save(folder + "/expected.npy", torch.softmax(logits, dim=1).detach().numpy())
"""


@pytest.fixture(scope="module")
def interpreter() -> Path:
    """Python of an environment with optimum-onnx."""
    named = os.environ.get("EDGE_OPTIMUM_PYTHON", "")
    if not named:
        pytest.skip(f"set EDGE_OPTIMUM_PYTHON to the Python of an environment made by: {INSTALL}")
    return Path(named)


def checkpoint(kind: str, folder: Path, interpreter: Path, x: np.ndarray) -> np.ndarray:
    """Initialise a tiny checkpoint in that environment; returns what it answers to `x` there."""
    folder.mkdir()
    np.save(folder / "inputs.npy", x)
    subprocess.run(
        [str(interpreter), "-c", MAKE, kind, str(folder), str(folder / "inputs.npy")],
        check=True,
        capture_output=True,
        timeout=300,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": ""},
    )
    expected: np.ndarray = np.load(folder / "expected.npy")
    return expected


@pytest.mark.slow
def test_a_sound_classifier_comes_with_its_preparation_labels_and_rate(tmp_path: Path, interpreter: Path) -> None:
    x = windows(5, 1, 2000) + np.float32(3.0)  # an offset that only its normalisation takes away
    expected = checkpoint("sound", tmp_path / "tiny", interpreter, x)
    found = import_checkpoint(tmp_path / "tiny", interpreter=interpreter, channels=1, samples=2000)
    assert found.labels == ("yes", "no", "go", "stop")
    assert found.rate_hz == 8000
    assert found.architecture == "Wav2Vec2ForSequenceClassification"
    assert "unit variance" in found.preparation
    np.testing.assert_allclose(np.exp(found.teacher().answer(x)), expected, atol=2e-5)
    assert b"site-packages" not in found.model.SerializeToString()
    assert str(tmp_path).encode() not in found.model.SerializeToString()
    with pytest.raises(ConfigError, match="takes sound of one channel, not 2"):
        import_checkpoint(tmp_path / "tiny", interpreter=interpreter, channels=2, samples=2000)


@pytest.mark.slow
def test_a_time_series_classifier_is_exported_without_optimum_s_help(tmp_path: Path, interpreter: Path) -> None:
    x = windows(5, 3, 64)
    expected = checkpoint("series", tmp_path / "tiny", interpreter, x)
    found = import_checkpoint(tmp_path / "tiny", interpreter=interpreter, channels=3, samples=64)
    assert found.labels == ()
    np.testing.assert_allclose(np.exp(found.teacher().answer(x)), expected, atol=2e-5)
    with pytest.raises(ConfigError, match="takes 3 channels of 64 samples, not 3 of 100"):
        import_checkpoint(tmp_path / "tiny", interpreter=interpreter, channels=3, samples=100)


@pytest.mark.slow
def test_a_checkpoint_with_features_outside_its_graph_is_refused(tmp_path: Path, interpreter: Path) -> None:
    checkpoint("picture", tmp_path / "tiny", interpreter, windows(1, 1, 800))
    with pytest.raises(ConfigError, match="which its own feature extractor makes outside the graph"):
        import_checkpoint(tmp_path / "tiny", interpreter=interpreter, channels=1, samples=800)


def folder_with(tmp_path: Path, *names: str) -> Path:
    folder = tmp_path / "given"
    folder.mkdir()
    for name in names:
        (folder / name).write_text(json.dumps({}))
    return folder


def test_a_folder_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'given' is no checkpoint: it has no config\.json"):
        import_checkpoint(folder_with(tmp_path), interpreter=Path(sys.executable), channels=1, samples=100)


def test_weights_that_run_code_are_refused_before_anything_runs(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "config.json", "pytorch_model.bin")
    with pytest.raises(ConfigError, match=r"no weights as \.safetensors; other formats run code"):
        import_checkpoint(folder, interpreter=tmp_path / "nobody", channels=1, samples=100)


def test_an_environment_without_optimum_is_refused_with_the_line_that_makes_one(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, "config.json", "model.safetensors")
    with pytest.raises(ConfigError, match=r"has no optimum-onnx; make an environment: python3\.11 -m venv optimum"):
        import_checkpoint(folder, interpreter=Path(sys.executable), channels=1, samples=100)
    with pytest.raises(ConfigError, match="does not start"):
        import_checkpoint(folder, interpreter=tmp_path / "nobody", channels=1, samples=100)
