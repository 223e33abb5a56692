"""The wheels, installed where no checkout is: their commands run beside anything, and the demo finds what it plays."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "exercise-watch"
MOST_BYTES = 3_750_000
"""Of the wheel: 0.92 MB of code, 2.65 MB of the demo's models, recordings and the page, and a little room."""
WORKSTATION = ("edge_export", "torch", "onnx", "onnx_ir", "onnxscript", "sklearn", "flatbuffers", "tests", "benchmarks")
COMMON = ("devices", "export", "hardware")
"""Names that other packages and the user's own folders may have, too."""
TRAP = "raise SystemExit('a folder of the user was imported')\n"

New = Callable[..., Path]
"""Makes an environment that holds the given wheels; returns its folder of commands."""


def build(project: Path, folder: Path) -> Path:
    """A wheel, by the installed hatchling, without a network."""
    pytest.importorskip("hatchling", reason="builds the wheel; it is in locks/build.txt")
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, capture_output=True, timeout=300)
    (built,) = folder.iterdir()
    return built


def build_from(files: Mapping[str, str], folder: Path) -> Path:
    """A wheel of somebody else's, from the text of its files."""
    for name, text in files.items():
        path = folder / "project" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return build(folder / "project", folder / "dist")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("device"))


@pytest.fixture(scope="module")
def devices_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT / "devices", tmp_path_factory.mktemp("boards"))


@pytest.fixture(scope="module")
def export_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT / "export", tmp_path_factory.mktemp("workstation"))


def pip(commands: Path, *arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--python", str(commands / "python"), *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=300)


@pytest.fixture(scope="module")
def new(tmp_path_factory: pytest.TempPathFactory) -> New:
    def made(*wheels: Path) -> Path:
        home = tmp_path_factory.mktemp("environment")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=300)
        for each in wheels:
            pip(home / "bin", "install", "--no-index", "--no-deps", str(each))
        (packages,) = home.glob("lib/python*/site-packages")
        # A path in a .pth is searched, but the .pth files that lie there are not read: the checkout stays out of reach.
        (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
        return home / "bin"

    return made


@pytest.fixture(scope="module")
def device(wheel: Path, devices_wheel: Path, new: New) -> Path:
    """The commands of an environment that holds the device's wheels; the tests' own lends their dependencies."""
    return new(wheel, devices_wheel)


@pytest.mark.slow
def test_the_core_alone_knows_the_processor_and_says_what_is_missing(wheel: Path, new: New, tmp_path: Path) -> None:
    found = doctor(new(wheel), tmp_path)
    assert found["device"]["family"] != "unknown"
    assert [plugin["name"] for plugin in found["plugins"]] == ["cpu", "null"]
    assert any("pip install edge-devices" in note for note in found["notes"])


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Standard output of a command that has to succeed; no PYTHONPATH but the one given."""
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd, env=inherited | environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def doctor(commands: Path, cwd: Path, **environment: str) -> dict[str, Any]:
    """What the command says of this machine; no device file may have failed."""
    found: dict[str, Any] = json.loads(run(commands / "edge-runtime", "doctor", "--json", cwd=cwd, **environment))
    assert len(found["plugins"]) > 1
    assert not [plugin for plugin in found["plugins"] if plugin["error"]]
    return found


def names_of(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def requirements_of(wheel: Path) -> list[tuple[str, str]]:
    """Each distribution that it requires, with the whole requirement."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        lines = re.findall(r"^Requires-Dist: (([\w.-]+).*)$", archive.read(name).decode(), re.MULTILINE)
    return [(distribution, line) for line, distribution in lines]


@pytest.mark.slow
def test_the_wheel_holds_the_demo_s_files_once_and_little_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name: archive.read(name) for name in archive.namelist() if not name.endswith(".py")}
    data = {name.rsplit("/", 1)[1]: content for name, content in held.items() if "demo/data/" in name}
    assert data.keys() == {"LICENSE.seglearn", "app.toml", "recordings.npz", "teacher.edge", "watch.edge"}
    assert all((DEMO / name).read_bytes() == content for name, content in data.items())
    assert not [name for name in held if name.startswith(("examples", "tests", "benchmarks"))]
    assert wheel.stat().st_size < MOST_BYTES


@pytest.mark.slow
def test_the_wheels_share_no_file_and_no_common_name(wheel: Path, devices_wheel: Path, export_wheel: Path) -> None:
    held: list[str] = []
    for each, package in ((wheel, "edge_runtime"), (devices_wheel, "edge_devices"), (export_wheel, "edge_export")):
        assert {name.split("/")[0] for name in names_of(each) if ".dist-info" not in name} == {package}
        held += names_of(each)
    assert len(held) == len(set(held))
    assert not [name for name in held if name.rsplit("/", 1)[1].startswith(("test_", "conftest"))]


@pytest.mark.slow
def test_a_device_installs_nothing_of_a_workstation(wheel: Path, export_wheel: Path) -> None:
    needs = requirements_of(wheel)
    assert {name for name, line in needs if "extra ==" not in line} == {"numpy", "orjson", "paho-mqtt", "tomli"}
    workstation = {name for name, _ in requirements_of(export_wheel)}
    assert {"edge-runtime", "onnx", "onnx-ir", "torch", "scikit-learn"} <= workstation
    assert {name for name, _ in needs} & workstation <= {"cryptography"}


@pytest.mark.slow
def test_every_module_of_the_wheel_imports_without_a_workstation_s_packages(device: Path, tmp_path: Path) -> None:
    """Mutation that this finds: ``import onnx`` anywhere in edge_runtime."""
    code = (
        "import importlib, pkgutil, sys\n"
        f"for name in {WORKSTATION!r}: sys.modules[name] = None\n"
        "import edge_devices, edge_runtime\n"
        "for package in (edge_devices, edge_runtime):\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not found.name.endswith('__main__'): importlib.import_module(found.name)\n"
        "print(edge_runtime.__file__, sum(name.startswith('edge_') for name in sys.modules))"
    )
    where, count = run(device / "python", "-I", "-c", code, cwd=tmp_path).split()
    assert where.startswith(str(device.parent)), "the checkout is what would be tested"
    assert int(count) > 200


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["{}/__init__.py", "{}.py"])
def test_a_users_own_folders_break_no_command(device: Path, tmp_path: Path, layout: str) -> None:
    """They lie in the current directory and are searched first, as in a shell that sets PYTHONPATH."""
    for name in COMMON:
        trap = tmp_path / layout.format(name)
        trap.parent.mkdir(exist_ok=True)
        trap.write_text(TRAP)
    first = {"PYTHONPATH": str(tmp_path)}
    module = (device / "python", "-m", "edge_runtime")
    for command in ((device / "edge-runtime",), module):
        assert "doctor" in run(*command, "--help", cwd=tmp_path, **first)
        assert "--broker" in run(*command, "demo", "--help", cwd=tmp_path, **first)
    assert json.loads(run(*module, "doctor", "--json", cwd=tmp_path))["device"]["family"] != "unknown"
    assert doctor(device, tmp_path, **first)["device"]["family"] != "unknown"


@pytest.mark.slow
def test_another_package_called_export_and_devices_neither_breaks_nor_is_broken(
    wheel: Path, export_wheel: Path, new: New, tmp_path: Path
) -> None:
    """Both are installed, both work, and removing ours leaves theirs whole."""
    theirs = build_from(
        {
            "pyproject.toml": '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
            '[project]\nname = "home-automation"\nversion = "1.0"\n'
            '[tool.hatch.build.targets.wheel]\npackages = ["devices", "export"]\n',
            "devices/__init__.py": "LAMPS = 3\n",
            "devices/cpu.py": TRAP,
            "export/__init__.py": "FORMAT = 'csv'\n",
        },
        tmp_path,
    )
    commands = new(theirs, wheel, export_wheel)
    ask = "import devices, export; print(devices.LAMPS, export.FORMAT)"
    assert run(commands / "python", "-c", ask, cwd=tmp_path) == "3 csv\n"
    assert doctor(commands, tmp_path)["device"]["family"] != "unknown"
    assert "pack" in run(commands / "edge-export", "--help", cwd=tmp_path)
    pip(commands, "uninstall", "--yes", "edge-runtime", "edge-export")
    assert run(commands / "python", "-c", ask, cwd=tmp_path) == "3 csv\n"
    assert not (commands / "edge-runtime").exists()


@pytest.mark.slow
def test_the_device_file_of_a_vendors_wheel_is_asked(wheel: Path, new: New, tmp_path: Path) -> None:
    vendors = build_from(
        {
            "pyproject.toml": '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
            '[project]\nname = "vendor-npu"\nversion = "1.0"\ndependencies = ["edge-runtime"]\n'
            '[project.entry-points."edge_runtime.devices"]\nvendor = "vendor_npu:detect"\n',
            "vendor_npu.py": "from edge_runtime.base.hardware import Evidence, Profile\n\n\n"
            "def detect(root):\n"
            "    return Profile(family='vendor', model='Vendor NPU', accelerator=True,\n"
            "                   evidence=Evidence(tier='simulated', detail='made for a test'))\n",
        },
        tmp_path,
    )
    commands = new(wheel, vendors)
    assert [found["family"] for found in doctor(commands, tmp_path)["accelerators"]] == ["vendor"]
    pip(commands, "uninstall", "--yes", "vendor-npu")
    assert doctor(commands, tmp_path)["accelerators"] == []


@pytest.mark.slow
def test_the_demo_runs_from_an_installed_wheel_in_an_empty_folder(device: Path, tmp_path: Path) -> None:
    where = run(device / "python", "-I", "-c", "import edge_runtime; print(edge_runtime.__file__)", cwd=tmp_path)
    assert where.startswith(str(device.parent)), "the checkout is what would be tested"
    outcome = json.loads(run(device / "edge-runtime", "demo", "--speed", "40", "--json", cwd=tmp_path))
    assert outcome["windows"] > 900
    assert outcome["corrected"] == outcome["forwarded"] > 0
    assert outcome["balances"]
    assert not {3, 6, 9} & set(outcome["people"])


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="what is built is what git tracks")
def test_two_machines_build_the_same_bytes(tmp_path: Path) -> None:
    """Mutations that this finds: times of the files, or their permissions, get into a wheel."""
    pytest.importorskip("hatchling", reason="builds the wheel; it is in locks/build.txt")
    done = subprocess.run(
        [sys.executable, "-m", "scripts.wheels", "--out", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name.partition("-")[0] for path in tmp_path.glob("*.whl")) == [
        "edge_devices",
        "edge_export",
        "edge_runtime",
    ]
    assert done.stdout.count("the same twice") == 3
