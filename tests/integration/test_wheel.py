"""The wheel, installed where no checkout is: its commands run, and the demo finds what it plays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "exercise-watch"
MOST_BYTES = 3_000_000
"""Of the wheel: 0.8 MB of code, 1.6 MB of the demo's models and recordings, and room for a fifth more."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built by the installed hatchling, without a network."""
    pytest.importorskip("hatchling", reason="builds the wheel; it is in locks/build.txt")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (built,) = folder.glob("edge_runtime-*.whl")
    return built


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``edge-runtime`` of an environment that holds the wheel; what it depends on is lent by the one of the tests."""
    home = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=300)
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, str(wheel)], check=True, capture_output=True, timeout=300)
    (packages,) = home.glob("lib/python*/site-packages")
    # A path in a .pth is searched, but the .pth files that lie there are not read: the checkout stays out of reach.
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin" / "edge-runtime"


def test_the_wheel_holds_the_demo_s_files_once_and_little_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".py")}
    data = {name.rsplit("/", 1)[1]: content for name, content in held.items() if "demo/data/" in name}
    assert data.keys() == {"LICENSE.seglearn", "app.toml", "recordings.npz", "teacher.edge", "watch.edge"}
    assert all((DEMO / name).read_bytes() == content for name, content in data.items())
    assert not [name for name in held if name.startswith(("examples", "tests", "benchmarks"))]
    assert wheel.stat().st_size < MOST_BYTES


@pytest.mark.slow
def test_the_demo_runs_from_an_installed_wheel_in_an_empty_folder(command: Path, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    where = [str(command.with_name("python")), "-I", "-c", "import edge_runtime; print(edge_runtime.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.startswith(str(command.parents[1])), "the checkout is what would be tested"

    done = subprocess.run(
        [str(command), "demo", "--speed", "40", "--json"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["windows"] > 900
    assert outcome["corrected"] == outcome["forwarded"] > 0
    assert outcome["balances"]
    assert not {3, 6, 9} & set(outcome["people"])
