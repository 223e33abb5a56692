from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import CloudRejected
from edge_runtime.manifest.outputs import TextOutput
from edge_runtime.model.tasks import Finding
from edge_runtime.model.tasks.text import Text
from tests.edge_runtime.manifests import manifest


def read(places: list[int], *, characters: str = "abc", p: float = 0.9, **more: Any) -> Finding:
    """Read rows in which one class has the probability p, and the others share the rest."""
    output = TextOutput(characters=tuple(characters), rows=len(places), **more)
    rows = np.full((len(places), len(characters) + 1), (1 - p) / len(characters), np.float32)
    rows[np.arange(len(places)), places] = p
    (found,) = Text(manifest(output=output), output, None).findings(rows[None])
    return found


@pytest.mark.parametrize(
    ("places", "text"), [([0, 1, 1, 0, 2, 0], "ab"), ([1, 1, 0, 1, 1, 2], "aab"), ([3, 2, 1], "cba"), ([0, 0], "")]
)
def test_equal_characters_next_to_each_other_are_one_and_the_blank_parts_them(places: list[int], text: str) -> None:
    found = read(places)
    assert found.own["text"] == found.label == text
    assert found.scores == pytest.approx([0.9] * len(text))
    assert found.confidence == pytest.approx(0.9)


def test_the_blank_may_be_the_last_class() -> None:
    assert read([3, 0, 0, 3, 0, 2], blank="last").label == "aac"


def test_a_class_without_a_character_says_nothing() -> None:
    output = TextOutput(characters=("a", ""), rows=3)
    (found,) = Text(manifest(output=output), output, None).findings(np.eye(3, dtype=np.float32)[None, [1, 2, 1]])
    assert found.label == "aa"


def test_the_least_certain_character_is_the_trust() -> None:
    output = TextOutput(characters=("a", "b"), rows=3, values="logits")
    rows = np.log(np.array([[0.1, 0.8, 0.1], [0.05, 0.9, 0.05], [0.3, 0.1, 0.6]], np.float32)) + 7
    (found,) = Text(manifest(output=output), output, None).findings(rows[None])
    assert found.label == "ab"
    assert found.scores == pytest.approx([0.9, 0.6])
    assert found.confidence == pytest.approx(0.6)


@given(st.lists(st.integers(0, 2), max_size=12))
def test_a_text_written_with_blanks_between_is_read_again(text: list[int]) -> None:
    places = [0, *(place for one in text for place in (one + 1, 0))]
    assert read(places).label == "".join("abc"[one] for one in text)


def test_a_reply_of_the_cloud_may_be_empty_but_must_be_text() -> None:
    output = TextOutput(characters=("a",), rows=2)
    task = Text(manifest(output=output), output, None)
    (found,) = task.read_reply({"label": np.array([[b""]], object)}, 1, "probabilities")
    assert (found.label, found.confidence) == ("", 1.0)
    with pytest.raises(CloudRejected, match="no text"):
        task.read_reply({"label": np.array([[b"\xff"]], object)}, 1, "probabilities")
