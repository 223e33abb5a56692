"""TOML is bounded before the library sees it, and says in one line what is beyond."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.base.system import toml
from tests.integration.running import command

BEYOND = {
    "nested": ("a = " + "[" * 5000 + "]" * 5000, "nest deeper than 32"),
    "tables in each other": ("a = " + "{b=" * 40 + "1" + "}" * 40, "nest deeper than 32"),
    "dotted": (".".join("a" * 20_000) + " = 1", "a dotted name has more than 32 parts"),
    "dotted in a list": ("a = [1.5, {" + " . ".join("b" * 40) + " = 1}]", "a dotted name has more than 32 parts"),
    "behind a text of many quotes": ('a = ["""x"""""], ' + "[" * 99, "nest deeper than 32"),
    "digits": ("a = " + "9" * 200_000, "a number has more than 128 digits"),
    "digits of sixteen": ("a = 0x" + "f" * 200_000, "a number has more than 128 digits"),
    "tables": ("[[a]]\n" * 20_000, "more than 10,000 tables"),
    "size": ("#" * (2**20 + 1), "at most 1,048,576 are read"),
    "fails": ("a = 1e999_\n", "not valid TOML"),
}


@pytest.mark.parametrize("text", BEYOND.values(), ids=BEYOND)
def test_what_costs_too_much_is_one_line_of_a_command(text: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "app.toml"
    path.write_text(text[0])
    done = command("run", "--check", path)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert text[1] in done.err


_TEXT = st.text(st.characters(exclude_categories=["C"]), max_size=40)
_TREES: Any = st.recursive(
    st.one_of(st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False), _TEXT),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=20,
)


def written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{written(name)} = {written(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return str(value).lower()


@pytest.mark.slow
@given(st.dictionaries(_TEXT, _TREES, max_size=5))
def test_everything_that_people_write_is_read_as_before(tree: dict[str, Any]) -> None:
    text = "".join(f"{written(name)} = {written(value)} # [[[ {{ '\n" for name, value in tree.items())
    assert toml.loads(text) == tree


def test_brackets_and_dots_in_texts_and_comments_do_not_count() -> None:
    marks = "[" * 100 + ".a" * 100 + "1" * 200
    text = f"# {marks}\na = '{marks}'\nb = \"{marks}\"\nc = '''\n{marks}'''\nd = \"\"\"{marks}\n\"\"\"\n"
    assert list(toml.loads(text)) == ["a", "b", "c", "d"]
