"""Our server against the client that most callers use: the real ``tritonclient[http]``, in its own environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edge_runtime.operate.server.bundle_model import served_model
from edge_runtime.operate.server.server import ServeConfig, Server
from tests.conformance.conftest import need, running_ours
from tests.integration.running import load_model
from tests.stateful import stateful_bundle

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


def test_tritonclient_gets_the_answers_of_its_sequences(tmp_path: Path) -> None:
    python = need("tritonclient")
    with (
        load_model(stateful_bundle(tmp_path / "leaky.edge"), "onnx-fp32") as model,
        Server({"leaky": served_model(model, 8)}, ServeConfig(port=0)) as server,
    ):
        done = subprocess.run(
            [python, HERE / "drive_tritonclient_sequences.py", server.url.removeprefix("http://")],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("passed: ") == 3
