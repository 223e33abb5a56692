"""The picture of the terminal view, made of screens with colours."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from benchmarks.terminal_picture import PICTURE, svg
from edge_runtime.operate.watch.screen import Painter, ViewState, draw
from tests.edge_runtime.operate.watch.pictured import DETAIL, KEY, report


def test_screens_become_text_at_their_columns() -> None:
    paint = Painter(colours=True)
    found = report(keys=[KEY | {"key": "<b>", "hard": True}])
    screens = [
        draw(found, detail, ViewState(page=page), 80, 20, paint) for page, detail in (("keys", None), ("key", DETAIL))
    ]
    root = ET.fromstring(svg(screens))
    texts = ["".join(one.itertext()) for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert any(text.startswith("<b>") for text in texts)
    assert any("what moved it" in text for text in texts)
    assert not any("\x1b" in text for text in texts)


def test_the_picture_in_the_docs_is_one() -> None:
    ET.parse(PICTURE)
