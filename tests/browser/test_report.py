"""The report of a build in a real browser, by the demo's figures and by figures with everything that a report can show.

``--page-pictures FOLDER`` writes what was seen; not into docs, whose report.png is of a build with its recordings.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from edge_export.report import write_report

from tests.browser.browser import NEEDS_A_BROWSER
from tests.browser.serving import found, serving
from tests.edge_export.report import figures
from tests.integration.running import ROOT

pytestmark = NEEDS_A_BROWSER


def demo() -> dict[str, Any]:
    loaded: dict[str, Any] = orjson.loads((ROOT / "examples" / "exercise-watch" / "report.json").read_bytes())
    return loaded


@pytest.mark.parametrize("known", [figures.full, demo])
def test_at_every_size_and_colour_all_can_be_read_and_nothing_scrolls_to_the_side(
    known: Callable[[], dict[str, Any]], tmp_path: Path, pictures_folder: Path | None
) -> None:
    pictures = None
    if pictures_folder is not None and pictures_folder.name != "docs":
        pictures = pictures_folder / f"report-{known.__name__}"
        pictures.mkdir(exist_ok=True)
    page = write_report(known(), tmp_path)
    # Browsers ask for an icon that the page does not name.
    (tmp_path / "favicon.ico").write_bytes(b"")
    with serving(tmp_path) as url:
        assert found("report.mjs", "every_look", f"{url}/{page.name}", pictures) == []
