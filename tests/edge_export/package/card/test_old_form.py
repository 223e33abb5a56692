"""Cards with ``[input]`` and ``[output]``: refused, with a card that makes of the file what the old one asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.cli import main
from edge_export.package.card import OldCardError, load_card

from edge_runtime.model.bundle.bundle import open_bundle
from tests.edge_export.graphs import GraphBuilder, onnx_answers
from tests.edge_export.package.card import models

pytestmark = pytest.mark.usefixtures("models_in_this_process")

CARD = """
name = "borrowed"
version = 7
created = "2026-01-02"
gate = { threshold = 0.6 }
[origin]
name = "made \\"up\\""
source = "this test"
licence = "CC0"

[input]
rate_hz = 50
window = 20
hop = 10
context = 40
max_gap_s = 0.5
channels = [
    { name = "ax", unit = "m/s2", low = -20, high = 20, offset = 0.5, scale = 0.1 },
    { name = "ay", unit = "m/s2", low = -20, high = 20, scale = 0.1, resample = "mean" },
    { name = "p", unit = "kPa", low = 90, high = 110, offset = 100, max_age_s = 60, missing = "last" },
]
[output]
"""
OFFSET, SCALE = np.array([[0.5], [0], [100]], np.float32), np.array([[0.1], [0.1], [1]], np.float32)


def one_number() -> onnx.ModelProto:
    b = GraphBuilder(models.CHANNELS, models.SAMPLES)
    return b.model(models.logits(b, "window", 1))


def softmax(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.exp(x) / np.exp(x).sum(axis=1, keepdims=True))


def sigmoid(x: np.ndarray) -> np.ndarray:
    yes = 1 / (1 + np.exp(-x))
    return np.concatenate([1 - yes, yes], axis=1)


@pytest.mark.parametrize(
    ("model", "output", "finished"),
    [
        (models.plain(), 'labels = ["rest", "walk", "run"]\nvalues = "logits"', softmax),
        (models.samples_first(), 'labels = ["rest", "walk", "run"]\nvalues = "logits"\ntemperature = 2.5',
         lambda x: softmax(x / 2.5)),
        (one_number(), 'labels = ["no", "yes"]\nvalues = "logit"', sigmoid),
    ],
    ids=["logits", "samples first, with a temperature", "one logit"],
)  # fmt: skip
def test_the_card_that_is_printed_packs_the_file_as_the_old_one_did(
    model: onnx.ModelProto,
    output: str,
    finished: Callable[[np.ndarray], np.ndarray],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new, file, out = (tmp_path / name for name in ("old.toml", "new.toml", "net.onnx", "net.edge"))
    old.write_text(CARD + output)
    onnx.save(model, str(file))
    assert main(["pack", str(file), "--card", str(old), "-o", str(out)]) == 2
    said = capsys.readouterr()
    assert "old.toml: cards with [input] and [output] are no longer read; write this one" in said.err
    new.write_text(said.out)
    assert main(["pack", str(file), "--card", str(new), "-o", str(out)]) == 0, capsys.readouterr().err
    with open_bundle(out) as bundle:
        manifest = bundle.manifest
        inputs, answers = bundle.golden("onnx-fp32")
    assert (manifest.version, manifest.created, manifest.gate.threshold) == (7, "2026-01-02", 0.6)
    assert manifest.provenance["origin"]["name"] == 'made "up"'
    contract = manifest.input
    assert (contract.window, contract.hop, contract.context, contract.max_gap_s) == (20, 10, 40, 0.5)
    assert [(one.name, one.unit) for one in contract.channels] == [("ax", "m/s2"), ("ay", "m/s2"), ("p", "kPa")]
    assert (contract.channels[1].resample, contract.channels[2].max_age_s) == ("mean", 60)
    seen = np.asarray((inputs - OFFSET) * SCALE, np.float32)
    if model.graph.input[0].type.tensor_type.shape.dim[1].dim_value == models.SAMPLES:
        seen = seen.transpose(0, 2, 1)[:, :, None]
    np.testing.assert_allclose(answers, finished(onnx_answers(model, seen).reshape(len(inputs), -1)), atol=1e-5)


def test_what_an_old_card_lacks_the_new_one_lacks_too(tmp_path: Path) -> None:
    (tmp_path / "card.toml").write_text('name = "x"\n[input]\nlayout = "samples-first"\n[output]\n')
    with pytest.raises(OldCardError) as refused:
        load_card(tmp_path / "card.toml")
    assert 'layout = "samples-first"' in refused.value.card
