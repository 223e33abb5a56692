"""Pictures at the top of pages say what the tables of these pages say."""

from __future__ import annotations

import pytest

from benchmarks.page_pictures import DOCS, PICTURES, rows


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_of_the_figures_of_its_page(name: str) -> None:
    """Mutation that this finds: a table gets new figures, and the picture above it keeps the old ones."""
    assert (DOCS / name).read_text("utf-8") == PICTURES[name](), "python -m benchmarks.page_pictures"


def test_every_row_of_the_table_is_drawn() -> None:
    drawn = PICTURES["accuracy.svg"]()
    sets = [row["set"] for row in rows("accuracy.md", "set")]
    assert len(sets) == 10
    assert all(f">{one}</text>" in drawn for one in sets)
