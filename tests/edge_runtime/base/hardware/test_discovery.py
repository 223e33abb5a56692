"""Plug-ins: a vendor's package is found, preferred, and may be broken in any way without stopping the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.base.hardware import Evidence, Profile, discovery, find_devices
from tests.edge_devices import trees

ROOT = Path(__file__).resolve().parents[4]

EVIDENCE = Evidence(tier="simulated", detail="made for this test")


def with_plugins(monkeypatch: pytest.MonkeyPatch, *loads: Any) -> None:
    ours = discovery._entries
    added = [(f"vendor{i}", "vendor-package", f"vendor:detect{i}", load) for i, load in enumerate(loads)]
    monkeypatch.setattr(discovery, "_entries", lambda: [*ours(), *added])


def detect(profile: Any) -> Any:
    return lambda: lambda root: profile


def raises(error: BaseException) -> Any:
    def fail(root: Path) -> Any:
        raise error

    return lambda: fail


def test_a_vendors_board_is_taken_before_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = trees.machine(tmp_path, "raspberry-pi-4")
    with_plugins(monkeypatch, detect(Profile(family="vendor_board", model="Board", evidence=EVIDENCE)))
    assert find_devices(root).profile.family == "vendor_board"


def test_a_board_that_is_no_plain_processor_is_taken_before_one(tmp_path: Path) -> None:
    found = find_devices(trees.machine(tmp_path, "raspberry-pi-4"))
    assert [plugin.name for plugin in found.plugins if plugin.profile] == ["cpu", "raspberry_pi"]
    assert found.profile.family == "raspberry_pi"


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (raises(RuntimeError("no driver\nin two lines")), "RuntimeError: no driver in two lines"),
        (raises(SystemExit(3)), "SystemExit: 3"),
        (raises(RecursionError()), "RecursionError:"),
        (raises(ValueError("x" * 1000)), "ValueError: xxx"),
        (detect("a profile"), "detect returned str, where a Profile or None was due"),
        (lambda: None, "TypeError: 'NoneType' object is not callable"),
        (lambda: lambda: None, "TypeError: "),
    ],
)
def test_a_plug_in_that_misbehaves_is_reported_in_one_line(
    load: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_plugins(monkeypatch, load)
    found = find_devices(trees.machine(tmp_path, "jetson-nano"))
    (broken,) = found.broken
    assert broken.error.startswith(said)
    assert len(broken.error) <= 300
    assert "\n" not in broken.error
    assert found.profile.family == "jetson"


def test_an_entry_point_of_an_installed_package_is_asked(tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "vendor_npu-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor-npu\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[edge_runtime.devices]\nvendor = vendor_npu:detect\nbroken = no_such_module:detect\n"
    )
    (site / "vendor_npu.py").write_text(
        "from edge_runtime.base.hardware import Evidence, Profile\n"
        "def detect(root):\n"
        "    assert root.is_dir()\n"
        "    return Profile(family='vendor', model='Vendor NPU', accelerator=True,\n"
        "                   evidence=Evidence(tier='simulated', detail='made for a test'))\n"
    )
    code = (
        f"import sys; sys.path.insert(0, {str(site)!r})\n"
        "from edge_runtime.base.hardware import find_devices\n"
        "found = find_devices()\n"
        "broken = [f'{p.name} {p.origin} {p.error}' for p in found.broken]\n"
        "print(*(a.model for a in found.accelerators), *broken, sep='|')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=ROOT
    )
    assert done.stdout == "Vendor NPU|broken vendor-npu ModuleNotFoundError: No module named 'no_such_module'\n"


def test_metadata_that_cannot_be_read_leaves_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: Any) -> Any:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")

    monkeypatch.setattr("importlib.metadata.entry_points", fail)
    found = find_devices(trees.machine(tmp_path, "raspberry-pi-4"))
    assert [plugin.name for plugin in found.broken] == ["entry points"]
    assert found.profile.family == "raspberry_pi"


def test_our_own_files_are_asked_once_however_they_are_registered(tmp_path: Path) -> None:
    names = [plugin.name for plugin in find_devices(tmp_path).plugins if plugin.origin == "edge-runtime"]
    assert names == list(discovery.BUILT_IN)
    assert not [
        p
        for p in find_devices(tmp_path).plugins
        if p.reference.startswith("edge_devices.") and p.origin != "edge-runtime"
    ]


@pytest.mark.parametrize("name", ["devices", "export", "hardware"])
def test_a_folder_of_a_common_name_in_front_breaks_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("")
    (tmp_path / name / "cpu.py").write_text("def detect(root): raise SystemExit('not this one')\n")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from edge_runtime.base.hardware import find_devices\n"
        "found = find_devices()\n"
        "print(found.broken, found.profile.family != 'unknown')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["()", "True"]
