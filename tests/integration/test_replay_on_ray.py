"""Many recordings on a cluster of Ray: a local one of two processes gives the rows of this machine alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.replaying import many, replay, rows
from tests.integration.running import ROOT
from tests.models import tiny_bundle

pytestmark = pytest.mark.slow
ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray has an environment of its own: make test-ray")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny.edge", variants=("onnx-fp32",))


@ray
def test_a_cluster_gives_the_rows_of_one_machine_in_their_order(bundle: Path, tmp_path: Path) -> None:
    files = many(tmp_path / "in", 6)
    expected, _ = replay(bundle, tmp_path / "expected.jsonl", *files, "--jobs", "1")
    (tmp_path / "in" / "broken.csv").write_text("a,b\n1,2\n")
    found, said = replay(bundle, tmp_path / "out.jsonl", tmp_path / "in", "--ray", "local", code=1)
    assert found == expected
    assert "1 of 7 recordings gave no answers" in said
    assert not (tmp_path / "out.jsonl.parts").exists()


def _actors(parent: int) -> list[int]:
    """Processes of the cluster that this command started, which answer."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name = (path / "cmdline").read_bytes()
            around = (path / "environ").read_bytes()
        except OSError:
            continue
        if name.startswith(b"ray::MapWorker") and f"EDGE_TEST_RAY={parent}".encode() in around:
            found.append(int(path.name))
    return found


@ray
def test_a_process_of_the_cluster_that_is_killed_costs_nothing(bundle: Path, tmp_path: Path) -> None:
    files = many(tmp_path / "in", 12)
    expected, _ = replay(bundle, tmp_path / "expected.jsonl", *files, "--jobs", "2")
    out, parts = tmp_path / "out.jsonl", tmp_path / "out.jsonl.parts"
    process = subprocess.Popen(
        [sys.executable, "-m", "edge_runtime", "replay", str(bundle), str(tmp_path / "in"), "--ray", "local",
         "--out", str(out)],
        cwd=ROOT, stderr=subprocess.PIPE, text=True, env=os.environ | {"EDGE_TEST_RAY": str(os.getpid())},
    )  # fmt: skip
    killed = 0
    while process.poll() is None:
        if not killed and list(parts.glob("*.json")) and (actors := _actors(os.getpid())):
            os.kill(actors[0], signal.SIGKILL)
            killed = actors[0]
        time.sleep(0.02)
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert killed, "the job was over before a process could be killed"
    assert rows(out) == expected


@ray
def test_where_no_cluster_is_it_says_so(bundle: Path, tmp_path: Path) -> None:
    (path,) = many(tmp_path / "in", 1)
    said = replay(bundle, tmp_path / "out.jsonl", path, "--ray", "127.0.0.1:1", code=2)[1]
    assert "--ray 127.0.0.1:1: no cluster there" in said


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed here")
def test_without_ray_it_says_what_to_install(bundle: Path, tmp_path: Path) -> None:
    (path,) = many(tmp_path / "in", 1)
    said = replay(bundle, tmp_path / "out.jsonl", path, "--ray", "local", code=2)[1]
    assert 'pip install "edge-runtime[ray]"' in said
