"""Bills of materials follow CycloneDX's schema, name what the locks name, and are the same each time.

Mutations that were seen to fail: a serial number that is drawn; the time of the build; parts of one extra left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.validation.json import JsonStrictValidator

from edge_runtime._version import __version__
from edge_runtime.base.system import toml
from scripts import locks, sbom, wheels

WHEN = 1_790_000_000


@pytest.fixture(scope="module")
def device() -> list[locks.Pin]:
    return wheels.parts_of([])[0]


def bill(folder: Path, parts: list[locks.Pin], *, content: bytes = b"a wheel", name: str = "edge-runtime") -> Path:
    folder.mkdir(exist_ok=True)
    wheel = folder / f"{name}.whl"
    wheel.write_bytes(content)
    return sbom.write(sbom.Product(wheel, "pypi", name, __version__, {}), parts, sbom.licences(), WHEN)


def read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_bytes())
    return found


def test_it_is_valid(tmp_path: Path, device: list[locks.Pin]) -> None:
    text = bill(tmp_path, device).read_text("utf-8")
    validator = JsonStrictValidator(sbom.VERSION)
    assert validator.validate_str(text) is None
    assert validator.validate_str(text.replace('"library"', '"libary"', 1)) is not None


def test_the_same_file_has_the_same_bill_and_another_file_another(tmp_path: Path, device: list[locks.Pin]) -> None:
    one = bill(tmp_path / "1", device)
    assert one.name == "edge-runtime.whl.cdx.json"
    assert one.read_bytes() == bill(tmp_path / "2", device[::-1]).read_bytes()
    assert read(one)["serialNumber"] != read(bill(tmp_path / "3", device, content=b"another"))["serialNumber"]
    assert read(one)["metadata"]["timestamp"] == "2026-09-21T14:13:20+00:00"


def test_it_names_every_version_that_the_locks_name(tmp_path: Path, device: list[locks.Pin]) -> None:
    found = read(bill(tmp_path, device))
    named = {(one["name"], one["version"]) for one in found["components"]}
    extras = toml.loads((wheels.CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert len(extras) > 8
    texts = [(locks.FOLDER / f"{name}.txt").read_text("utf-8") for name in extras]
    assert named == {(name, version) for text in texts for name, version, _ in locks.pins(text)}
    numpy = [one for one in found["components"] if one["name"] == "numpy"]
    assert len(numpy) > 1
    assert all(one["properties"][0]["name"] == "edge-runtime:marker" for one in numpy if one["version"] != "1.26.4")


def test_it_says_who_needs_whom_and_under_which_licence(tmp_path: Path, device: list[locks.Pin]) -> None:
    found = read(bill(tmp_path, device))
    needs = {one["ref"]: set(one.get("dependsOn", [])) for one in found["dependencies"]}
    refs = {one["bom-ref"] for one in found["components"]} | {found["metadata"]["component"]["bom-ref"]}
    assert needs.keys() == refs
    assert set().union(*needs.values()) < refs

    def of(name: str) -> set[str]:
        return {need.partition("@")[0] for ref in needs if f"/{name}@" in ref for need in needs[ref]}

    assert {"pkg:pypi/numpy", "pkg:pypi/orjson", "pkg:pypi/onnxruntime"} <= of("edge-runtime")
    assert "pkg:pypi/packaging" not in of("edge-runtime")
    assert {"pkg:pypi/numpy", "pkg:pypi/protobuf"} <= of("onnxruntime")
    licences = {one["name"]: one["licenses"] for one in found["components"] if "licenses" in one}
    assert licences["onnxruntime"] == [{"license": {"id": "MIT"}}]
    assert len(licences) > 15


def test_the_workstation_s_bill_holds_the_device_s_wheel_and_what_no_lock_names(tmp_path: Path) -> None:
    _, _, parts = wheels.parts_of(["torch==2.13.0"])
    found = read(bill(tmp_path, parts, name="edge-export"))
    versions = {one["name"]: one["version"] for one in found["components"]}
    assert versions["edge-runtime"] == __version__
    assert versions["torch"] == "2.13.0"
    assert {"scikit-learn", "onnx", "onnxruntime", "jinja2"} <= versions.keys()
