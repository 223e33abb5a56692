"""docs/bundle.md is enough to write a bundle: one is written here by the page, without our writer, and opened."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from edge_runtime import manifest
from edge_runtime.manifest import frames, outputs, stages
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.load import load_engine
from tests.models import tiny_net, tiny_onnx_classifier, windows
from tests.stateful import CHANNELS, LABELS, expected, leaky, stream

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "bundle.md").read_text("utf-8")
EXAMPLES = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]

Files = dict[str, bytes]


def npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.ascontiguousarray(array, "<f4"), version=(1, 0))
    return buffer.getvalue()


def write(path: Path, plain: dict[str, Any], files: Files) -> Path:
    """Write a bundle by the page: digests into the manifest, entries in order, one form of header."""
    listed = [*plain["variants"], *(other for variant in plain["variants"] for other in variant.get("others", ()))]
    for entry in (*listed, *plain["files"]):
        data = files[entry["file"]]
        entry |= {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    contents = files | {"manifest.json": json.dumps(plain).encode()}
    with zipfile.ZipFile(path, "w") as archive:
        for name in sorted(contents):
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system, info.external_attr = 3, 0o100644 << 16
            archive.writestr(info, contents[name])
    return path


def test_a_bundle_written_by_the_page_is_opened_and_proven(tmp_path: Path) -> None:
    plain = EXAMPLES[0]
    inputs = windows(4, 2, 100)
    path = write(
        tmp_path / "tiny.edge",
        plain,
        {
            "card.md": b"# tiny\n",
            "golden/inputs.npy": npy(inputs),
            "golden/onnx-fp32.npy": npy(tiny_net(2, 2, 0).probabilities(inputs)),
            "variants/onnx-fp32.onnx": tiny_onnx_classifier(2, 100, 2, 0),
        },
    )
    with open_bundle(path) as bundle:
        assert bundle.manifest.schema_version == 1
        load_engine(bundle, "onnx-fp32").close()


def test_a_chain_written_by_the_page_is_opened_and_proven(tmp_path: Path) -> None:
    plain, stage = json.loads(json.dumps(EXAMPLES[0])), EXAMPLES[1]
    samples = stream(6)
    plain |= {"schema_version": 2, "stages": [stage], "output": {"labels": LABELS, "kind": "probabilities"}}
    plain["input"] |= {"window": 4, "hop": 4}
    plain["variants"][0] |= {"layout": "NWC"}
    answers = np.zeros((6, len(LABELS)), "f4")
    answers[1:] = expected(samples)
    path = write(
        tmp_path / "chain.edge",
        plain,
        {
            "card.md": b"# chain\n",
            "golden/inputs.npy": npy(samples.reshape(6, 4, CHANNELS).transpose(0, 2, 1)),
            "golden/onnx-fp32.npy": npy(answers),
            "variants/onnx-fp32.onnx": leaky(),
        },
    )
    with open_bundle(path) as bundle:
        load_engine(bundle, "onnx-fp32").close()


def described() -> list[type[Any]]:
    """Classes whose fields a manifest may hold, but those of front ends and events, which have pages of their own."""
    kinds = [value.load() for value in outputs.AnyOutput.modules.values()]  # type: ignore[attr-defined]
    own = [stages.ModelStage, stages.Smooth, stages.Activation, stages.Difference, stages.Combine, stages.When]
    parts = [stages.Port, stages.Constant, stages.State, stages.Output, stages.StageFile, frames.Frame]
    tables = [manifest.Manifest, manifest.InputContract, manifest.Channel, manifest.GateSpec, manifest.Variant]
    return [*tables, manifest.File, manifest.Reference, outputs.Quantity, *kinds, *own, *parts]


@pytest.mark.parametrize("cls", described(), ids=lambda cls: cls.__name__)
def test_every_field_of_the_manifest_is_on_the_page(cls: type[Any]) -> None:
    missing = [field.name for field in dataclasses.fields(cls) if f"`{field.name}`" not in PAGE]
    assert not missing


def test_every_stage_and_kind_of_answer_is_on_the_page() -> None:
    names = [*stages.Stage.modules, *outputs.AnyOutput.modules]  # type: ignore[attr-defined]
    assert len(names) > 15
    assert not [name for name in names if f"`{name}`" not in PAGE]
    assert set(get_args(stages.Layout)) <= set(re.findall(r"`(N\w\w)`", PAGE))
