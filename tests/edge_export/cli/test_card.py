"""The command that drafts a card: what it prints and writes, and what it refuses in one line."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from edge_export.cli import main

from tests import stateful


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "leaky.onnx"
    path.write_bytes(stateful.leaky())
    return path


def test_a_draft_is_printed_or_written_and_what_is_left_to_do_is_counted(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["card", str(model)]) == 0
    printed = capsys.readouterr().out
    out = tmp_path / "card.toml"
    assert main(["card", str(model), "-o", str(out)]) == 0
    assert out.read_text() == printed
    assert "places to fill in: 3" in capsys.readouterr().out


def test_a_card_that_somebody_filled_in_is_not_overwritten(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "card.toml"
    out.write_text("mine")
    assert main(["card", str(model), "-o", str(out)]) == 2
    assert out.read_text() == "mine"
    assert "is there already" in capsys.readouterr().err


_ZIP = "zip"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("face.task", _ZIP, "unzip face.task face.tflite"),
        ("net.engine", b"x", "TensorRT"),
        ("net.h5", b"x", "TFLiteConverter"),
        ("net.mlmodel", b"x", "Core ML"),
        ("net.onnx", b"# a readme\n", "a text, not a model"),
        ("net.pb", b"x", "tf2onnx.convert --graphdef"),
        ("net.pt", b"x", "edge_export.from_torch"),
        ("net.safetensors", b"x", "optimum-cli"),
        ("net.tflite", b"\xff\xd8\xff\xe0", "a picture, not a model"),
    ],
)
@pytest.mark.parametrize("command", ["card", "pack"])
def test_card_and_pack_refuse_other_files_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, content: bytes | str, why: str, command: str
) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("face.tflite", "")
    card = tmp_path / "card.toml"
    card.write_text(
        'name = "x"\norigin = { name = "a", source = "b", licence = "c" }\nsignal = "audio 16000"\n'
        '[task]\ntype = "embedding"\n'
    )
    more = [] if command == "card" else ["--card", str(card), "-o", str(tmp_path / "out.edge")]
    assert main([command, str(path), *more]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1
