"""What strangers wrote cannot steer a terminal, forge a line of the log, or fill the screen."""

from __future__ import annotations

import io
import json
import logging
import sys
import unicodedata
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.system.printing import LONGEST, LogFormatter, escaped, escaped_output, raw, shortened
from edge_runtime.model.bundle import archive
from tests.integration.running import command
from tests.models import tiny_bundle

LABELS = ["\x1b[2J\x07", "b" * 300_000, "c\nfake: line"]
CONTROLS = "\x1b]0;title\x07\x1b[2J\x9b31m\u202ereversed\u2066\u2028\x7f"


@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    left = {char for char in escaped("." + text) if unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp")}
    assert left <= {"\n", "\t", "\r"}
    assert "\r" not in escaped("." + text).replace("\r\n", "")


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_json_stays_the_same_json(text: str) -> None:
    assert json.loads(escaped(json.dumps({"label": text}, ensure_ascii=False))) == {"label": text}


@given(st.text(), st.integers(9, 60))
def test_a_line_is_one_line_and_keeps_its_end(text: str, most: int) -> None:
    line = shortened(text, most)
    assert "\n" not in line
    assert len(line) <= most + 40
    whole = escaped(text).replace("\n", "\\n")
    assert line.endswith(whole[-(most // 3) :] if len(whole) > most else whole)


def test_a_log_line_cannot_be_forged_and_a_traceback_follows_it() -> None:
    record = logging.LogRecord("n", logging.WARNING, "", 0, "source: key=%s", ("a\nERROR all is lost\x1b[2J",), None)
    assert LogFormatter("%(levelname)s %(message)s").format(record) == (
        "WARNING source: key=a\\nERROR all is lost\\u001b[2J"
    )
    record.exc_text = "Traceback:\n  line"
    assert LogFormatter("%(message)s").format(record).splitlines()[1:] == ["Traceback:", "  line"]


def test_screens_of_our_own_are_drawn_past_it(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr(sys, "stdout", out)
    with escaped_output(), escaped_output():
        print("\rhalf \x1b[1mbold")
        raw(sys.stdout).write("\x1b[1mbold")
    assert sys.stdout is out
    assert out.getvalue() == "\rhalf \\u001b[1mbold\n\x1b[1mbold"


def strange_bundle(folder: Path) -> Path:
    """A whole bundle whose texts are hostile."""
    with zipfile.ZipFile(tiny_bundle(folder)) as file:
        files = {name: file.read(name) for name in file.namelist()}
    manifest = json.loads(files["manifest.json"])
    manifest["description"] = CONTROLS
    manifest["output"]["labels"] = LABELS
    path = folder / "strange.edge"
    path.write_bytes(archive.pack({**files, "manifest.json": json.dumps(manifest).encode()}))
    return path


@pytest.mark.slow
def test_a_bundle_of_a_stranger_is_inspected_harmlessly(tmp_path: Path) -> None:
    path = strange_bundle(tmp_path)
    done = command("inspect", path)
    assert done.code == 0, done.err
    assert not set(done.out) & set("\x1b\x07\x9b\u202e\u2066\u2028\x7f")
    assert "\\u001b]0;title\\u0007" in done.out
    assert "\nfake" not in done.out
    assert max(map(len, done.out.splitlines())) < LONGEST + 100
    assert json.loads(command("inspect", "--json", path).out)["manifest"]["output"]["labels"] == LABELS


@pytest.mark.slow
def test_an_error_about_labels_without_end_is_a_short_line(tmp_path: Path) -> None:
    app = tmp_path / "app.toml"
    app.write_text(
        f'[model]\nbundle = "{strange_bundle(tmp_path).name}"\nunsigned = "allow"\n'
        '[[source]]\ntype = "stdin"\n[[sink]]\ntype = "stdout"\n[[events]]\nname = "e"\nlabel = "unknown"\n'
    )
    done = command("run", "--check", app)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert "unknown" in done.err
    assert len(done.err) < LONGEST + 100
