"""The documentation's site in a real browser: no page scrolls to the side, asks another host, or lacks a picture."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.browser import NEEDS_A_BROWSER
from tests.browser.serving import found, serving
from tests.built_site import MKDOCS, build

pytestmark = [*NEEDS_A_BROWSER, pytest.mark.skipif(not MKDOCS.exists(), reason="no MkDocs to build with: make docs")]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(build(tmp_path_factory.mktemp("site"))) as address:
        yield address


def test_no_page_scrolls_to_the_side_or_asks_another_host_at_390_and_1280_px(url: str) -> None:
    assert found("site.mjs", "every_page", url) == []


def test_the_search_finds_a_setting(url: str) -> None:
    assert found("site.mjs", "searching", url) == []
