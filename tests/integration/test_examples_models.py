"""Examples with models that people have: their pages' commands, figures and pictures, on real models and recordings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import example_pictures, example_results, example_runs
from tests.long_tier import some

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NEEDS = {"detection": "simplejpeg", "sound-event": "soundfile"}
"""Packages that read an example's recordings."""


@pytest.mark.slow
@pytest.mark.parametrize("name", some(sorted(example_runs.EXAMPLES), ["voice-activity", "anomaly"]))
def test_the_commands_of_the_page_give_its_figures_and_its_picture(name: str, shared: Path, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert")
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} reads the recordings: pip install {NEEDS[name]}")
    built = example_results.CHECKOUT / example_runs.EXAMPLES[name].built
    if not built.is_dir():
        pytest.skip(f"{built} is not there: the page's first command builds it")
    words, picture = example_runs.play(name, shared, tmp_path)
    page = " ".join((EXAMPLES / name / "README.md").read_text("utf-8").split())
    assert [figure for figure in words if figure not in page] == []
    stored = (EXAMPLES / name / "picture.svg").read_text("utf-8")
    assert example_pictures.words_of(picture) == example_pictures.words_of(stored)


@pytest.mark.parametrize("name", sorted(example_runs.EXAMPLES))
def test_a_page_is_short_and_shows_its_picture(name: str) -> None:
    page = (EXAMPLES / name / "README.md").read_text("utf-8")
    assert len(page.splitlines()) <= 45
    assert re.search(r'<img src="picture.svg" width="640" alt="[^"]{40,}">', page)
    programs = [command.split()[:2] for command in example_runs.commands(name)]
    assert programs == [
        ["edge-export", "build" if name == "heartbeat-ecg" else "pack"],
        ["edge-runtime", "replay"],
        ["edge-runtime", "run"],
    ]
    size = (EXAMPLES / name / "picture.svg").stat().st_size
    assert size < 100_000
