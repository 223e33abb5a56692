"""The documentation's site in a real browser: no page scrolls to the side, asks another host, or lacks a picture."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.browser import CHROMIUM, HERE, MODULES, NEEDS_A_BROWSER, NODE
from tests.built_site import MKDOCS, build
from tests.integration.running import PATIENCE_S

pytestmark = [*NEEDS_A_BROWSER, pytest.mark.skipif(not MKDOCS.exists(), reason="no MkDocs to build with: make docs")]


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(build(tmp_path_factory.mktemp("site"))))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def found(scenario: str, url: str) -> list[str]:
    environment = os.environ | {"PAGE_MODULES": str(MODULES), "CHROMIUM": CHROMIUM or ""}
    done = subprocess.run(
        [NODE or "", str(Path(HERE, "site.mjs")), scenario, url], env=environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, check=True, timeout=5 * PATIENCE_S,
    )  # fmt: skip
    wrong: list[str] = json.loads(done.stdout.splitlines()[-1])["found"]
    return wrong


def test_no_page_scrolls_to_the_side_or_asks_another_host_at_390_and_1280_px(url: str) -> None:
    assert found("every_page", url) == []


def test_the_search_finds_a_setting(url: str) -> None:
    assert found("searching", url) == []
