"""Our server against the client that most callers use: the real ``tritonclient[http]``, in its own environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.conformance.conftest import need, running_ours

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent


def test_tritonclient_gets_what_it_asks_for() -> None:
    python = need("tritonclient")
    with running_ours() as server:
        done = subprocess.run(
            [python, HERE / "drive_tritonclient.py", server.http.removeprefix("http://")],
            env={"PYTHONPATH": str(HERE / "servers")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("passed: ") == 7
