"""S3: a model that was signed by who is trusted, and kills the process that loads it. A child dies, and nobody else.

The model is a TFLite file whose one ``IF`` runs the very graph that it stands in: LiteRT prepares it, and it in turn,
until the stack is full. No Python code can catch that.

Mutation that was seen to fail here: without the probe in `model._load` the test itself dies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as tfl
from edge_export.package.pack import VariantSource
from edge_export.package.sign import SigningKey, new_key

from edge_runtime.errors import EngineError
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import load_model
from edge_runtime.signal.windowing.window import Window
from tests.faults.conftest import Note
from tests.integration.running import command, streams, write_recording
from tests.models import Floats, tiny_bundle, usable, windows

pytestmark = pytest.mark.skipif(not usable("litert"), reason="LiteRT is not installed")

CHANNELS, SAMPLES = 3, 16


def endless() -> bytes:
    """A TFLite model that prepares itself for ever."""

    def tensor(name: str, shape: tuple[int, ...], kind: int, buffer: int) -> Any:
        made = tfl.TensorT()
        made.name, made.shape, made.type, made.buffer = name, list(shape), kind, buffer
        return made

    model, graph, constant, code, step, options = (
        *(tfl.ModelT(), tfl.SubGraphT(), tfl.BufferT(), tfl.OperatorCodeT(), tfl.OperatorT(), tfl.IfOptionsT()),
    )  # fmt: skip
    constant.data = np.array([1], np.uint8)
    window = (1, SAMPLES, CHANNELS)
    graph.name = "main"
    graph.tensors = [
        tensor("x", window, tfl.TensorType.FLOAT32, 0),
        tensor("y", window, tfl.TensorType.FLOAT32, 0),
        tensor("always", (1,), tfl.TensorType.BOOL, 1),
    ]
    graph.inputs, graph.outputs = [0], [1]
    code.builtinCode = code.deprecatedBuiltinCode = tfl.BuiltinOperator.IF
    code.version = 1
    options.thenSubgraphIndex = options.elseSubgraphIndex = 0  # itself
    step.opcodeIndex, step.inputs, step.outputs = 0, [2, 0], [1]
    step.builtinOptions, step.builtinOptionsType = options, tfl.BuiltinOptions.IfOptions
    graph.operators = [step]
    model.version, model.buffers, model.subgraphs, model.operatorCodes = 3, [tfl.BufferT(), constant], [graph], [code]
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


@pytest.fixture
def signer(tmp_path: Path) -> SigningKey:
    new_key(tmp_path / "release.pem")
    return SigningKey(tmp_path / "release.pem")


@pytest.fixture
def deadly(tmp_path: Path, signer: SigningKey, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Signed by who is trusted, with golden vectors that no engine has computed."""

    def made_up(_source: object, inputs: Floats, _output: object, _options: object) -> Floats:
        return np.full((len(inputs), 3), 1 / 3, np.float32)

    source = VariantSource(name="deadly", model=endless(), format="tflite", precision="fp32", layout="NWC")
    with monkeypatch.context() as patched:
        patched.setattr("edge_export.package.pack.golden_outputs", made_up)
        return tiny_bundle(tmp_path / "deadly.edge", variants=[source], name="deadly", version=2, signer=signer)


def test_the_process_that_tries_it_lives_and_keeps_its_model(
    tmp_path: Path, deadly: Path, signer: SigningKey, note: Note
) -> None:
    keys = (tmp_path / "release.pub.pem",)
    old = tiny_bundle(tmp_path / "old.edge", signer=signer)
    some = [
        Window("k", i, 0.0, values.T.copy(), values.T.copy(), 0.0)
        for i, values in enumerate(windows(4, CHANNELS, SAMPLES))
    ]
    model = load_model(ModelConfig(bundle=old, trusted_keys=keys))
    before = model.predict(some).rows.copy()
    for _ in range(3):
        with pytest.raises(EngineError, match="SIGSEGV") as caught:
            load_model(ModelConfig(bundle=deadly, trusted_keys=keys))
        assert "\n" not in str(caught.value)
        assert (model.predict(some).rows == before).all()
    model.close()
    note("S3", "a signed model that dies of SIGSEGV: 3 children dead, the parent answers on with its old model")


def test_the_command_says_so_once_and_nothing_is_left_behind(tmp_path: Path, deadly: Path, note: Note) -> None:
    recording = write_recording(tmp_path / "recording.jsonl", streams(1, 100, channels=CHANNELS))
    (tmp_path / "app.toml").write_text(
        f'[model]\nbundle = "{deadly.name}"\ntrusted_keys = ["release.pub.pem"]\n'
        f'[[source]]\ntype = "recording"\nfiles = ["{recording.name}"]\n'
        '[[sink]]\ntype = "jsonl"\npath = "answers.jsonl"\n'
    )
    done = command("run", tmp_path / "app.toml", cwd=tmp_path)
    assert done.code == 1, done
    assert done.err.count("\n") == 1
    assert "SIGSEGV" in done.err
    assert not (tmp_path / "answers.jsonl").exists()
    assert not list(tmp_path.glob("core*"))
    note("S3", "the command ends with 1 and one line, and has answered nothing")
