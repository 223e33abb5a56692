"""A bundle whose model takes its process with it: one line, code 1, and nobody else is harmed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from edge_export.package.pack import VariantSource

from tests.integration.running import command, streams, write_recording
from tests.models import tiny_bundle, usable, variant

pytestmark = pytest.mark.skipif(not usable("litert"), reason="LiteRT is not installed")

KILLS, REFUSED = "keyword_scrambled_8bit.tflite", "person_detect.tflite"
CASES = {
    KILLS: "SIG",  # its first inference frees memory twice
    REFUSED: "quantized_dimension",  # politely
}


def hard_case(shared: Path, name: str) -> bytes:
    path = shared / "models" / "hard-cases" / name
    if not path.exists():
        pytest.skip(f"no {path.name} among the shared models")
    return path.read_bytes()


@pytest.fixture(params=CASES)
def deadly(request: pytest.FixtureRequest, shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle that an exporter would never write: golden vectors that no engine has computed."""
    monkeypatch.setattr(
        "edge_export.package.pack.golden_outputs",
        lambda _source, inputs, _output, _options: np.full((len(inputs), 2), 0.5, "f4"),
    )
    model = hard_case(shared, request.param)
    source = VariantSource(name="deadly", model=model, format="tflite", precision="int8", layout="NWC")
    return tiny_bundle(tmp_path / "deadly.edge", channels=1, window=96, labels=("a", "b"), variants=[source])


@pytest.fixture
def why(request: pytest.FixtureRequest) -> str:
    return CASES[request.node.callspec.params["deadly"]]


@pytest.mark.slow
def test_verify_says_so(deadly: Path, why: str) -> None:
    done = command("verify", deadly, cwd=deadly.parent)
    assert done.code == 1
    assert done.err == ""
    _, line = done.out.splitlines()
    assert line.split()[0] == "deadly"
    assert why in line
    found = command("verify", deadly, "--json", cwd=deadly.parent)
    assert found.code == 1
    report = json.loads(found.out)
    assert report["ok"] is False
    assert report["variants"][0]["outcome"] in {"died", "refused"}
    assert not list(deadly.parent.glob("core*"))


# A polite refusal comes by the same way for all commands: one of them shows it.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("deadly", "how"),
    [*((KILLS, how) for how in ("run", "run --check", "replay", "serve", "bench")), (REFUSED, "run")],
    indirect=["deadly"],
)
def test_nothing_starts_with_it(deadly: Path, why: str, how: str) -> None:
    folder = deadly.parent
    recording = write_recording(folder / "recording.jsonl", streams(1, 200, channels=1))
    app = folder / "app.toml"
    app.write_text(
        f'[model]\nbundle = "{deadly.name}"\nunsigned = "allow"\n'
        f'[[source]]\ntype = "recording"\nfiles = ["{recording.name}"]\n'
        '[[sink]]\ntype = "jsonl"\npath = "answers.jsonl"\n'
    )
    arguments = {
        "run": ["run", str(app)],
        "run --check": ["run", "--check", str(app)],
        "replay": ["replay", str(deadly), str(recording), "--out", "answers.jsonl"],
        "serve": ["serve", str(deadly), "--allow-unsigned", "--port", "0"],
        "bench": ["bench", str(deadly)],
    }[how]
    done = command(*arguments, cwd=folder)
    assert done.code == 1, done
    assert done.out == ""
    assert done.err.count("\n") == 1
    assert why in done.err
    assert not (folder / "answers.jsonl").exists()
    assert not list(folder.glob("core*"))


@pytest.mark.slow
@pytest.mark.parametrize("deadly", [KILLS], indirect=True)
def test_an_earlier_result_survives_a_bundle_that_does_not(deadly: Path) -> None:
    recording = write_recording(deadly.parent / "recording.jsonl", streams(1, 200, channels=1))
    earlier = deadly.parent / "answers.jsonl"
    earlier.write_text("precious\n")
    assert command("replay", deadly, recording, "--out", earlier).code == 1
    assert earlier.read_text() == "precious\n"


@pytest.mark.slow
def test_a_sound_variant_beside_it_can_still_be_asked_for(
    shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edge_export.package import pack  # noqa: PLC0415 - patched below

    real = pack.golden_outputs

    def golden(source: VariantSource, inputs: pack.Floats, *rest: object) -> pack.Floats:
        if source.name == "deadly":
            return np.full((len(inputs), 3), 1 / 3, "f4")
        return real(source, inputs, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("edge_export.package.pack.golden_outputs", golden)
    model = hard_case(shared, "keyword_scrambled_8bit.tflite")
    source = VariantSource(name="deadly", model=model, format="tflite", precision="int8", layout="NWC")
    bundle = tiny_bundle(tmp_path / "mixed.edge", variants=[source, variant("onnx-fp32")])
    recording = write_recording(tmp_path / "recording.jsonl", streams(1, 100))
    assert command("replay", bundle, recording).code == 1
    done = command("replay", bundle, recording, "--variant", "onnx-fp32")
    assert done.code == 0
    assert done.out.count("\n") > 0
