"""A folder as pages on this machine, and a scenario of a script that looks at them."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.browser.browser import CHROMIUM, HERE, MODULES, NODE
from tests.integration.running import PATIENCE_S


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder until the end of the block; gives its address."""
    handler = functools.partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def found(script: str, scenario: str, url: str, pictures: Path | None = None) -> list[str]:
    """Run a scenario; what it found wrong."""
    environment = os.environ | {"PAGE_MODULES": str(MODULES), "CHROMIUM": CHROMIUM or ""}
    command = [NODE or "", str(HERE / script), scenario, url, *([str(pictures)] if pictures else [])]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
        timeout=5 * PATIENCE_S,
    )  # fmt: skip
    wrong: list[str] = json.loads(done.stdout.splitlines()[-1])["found"]
    return wrong
