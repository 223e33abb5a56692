"""Accelerators without their driver, of a kind that is too old, or of no use to a bundle: said, never claimed."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge_devices import npu

from tests.edge_devices import trees

PLIST = "/System/Library/CoreServices/SystemVersion.plist"


def pci(vendor: int, device: int) -> dict[str, str]:
    folder = "/sys/bus/pci/devices/0000:01:00.0"
    return {f"{folder}/vendor": f"0x{vendor:04x}\n", f"{folder}/device": f"0x{device:04x}\n"}


@pytest.mark.parametrize("ids", [("1a6e", "089a"), ("18d1", "9302")])
def test_an_edge_tpu_is_found_before_and_after_its_firmware_is_loaded(ids: tuple[str, str], tmp_path: Path) -> None:
    stick = "/sys/bus/usb/devices/2-1"
    root = trees.plant(tmp_path, {f"{stick}/idVendor": f"{ids[0]}\n", f"{stick}/idProduct": f"{ids[1]}\n"})
    profile = npu.npu_coral(root)
    assert profile is not None
    assert [choice.options(None) for choice in profile.choices] == [{"libedgetpu.so.1": {"device": "usb"}}] * 2


def test_an_edge_tpu_card_has_a_temperature_and_may_lack_its_driver(tmp_path: Path) -> None:
    root = trees.plant(tmp_path, pci(0x1AC1, 0x089A))
    profile = npu.npu_coral(root)
    assert profile is not None
    assert "install gasket-dkms" in profile.notes[0]
    apex = "/sys/class/apex/apex_0"
    trees.plant(root, {"/dev/apex_0": "", f"{apex}/temp": "44800\n", f"{apex}/trip_point0_temp": "84800\n"})
    profile = npu.npu_coral(root)
    assert profile is not None
    assert profile.notes == ()
    (gauge,) = profile.temperatures
    assert gauge.read(root) == pytest.approx(44.8)
    assert gauge.limit == pytest.approx(84.8)
    assert profile.choices[0].options(None)["libedgetpu.so.1"] == {"device": "pci"}


def test_an_i_mx_without_its_npu_driver_offers_nothing_and_says_so(tmp_path: Path) -> None:
    root = trees.machine(tmp_path, "imx93-evk")
    (root / "dev/ethosu0").unlink()
    profile = npu.npu_ethos(root)
    assert profile is not None
    assert profile.choices == ()
    assert "no /dev/ethosu0" in profile.notes[0]


def test_a_hailo_is_reported_and_not_offered(tmp_path: Path) -> None:
    profile = npu.npu_hailo(trees.plant(tmp_path, pci(0x1E60, 0x2864)))
    assert profile is not None
    assert (profile.model, profile.choices) == ("Hailo-8", ())
    assert "runs none of those" in profile.notes[0]
    assert "sudo apt install hailo-all" in profile.notes[0]


def test_rockchips_own_driver_is_reported_and_mainlines_is_offered(tmp_path: Path) -> None:
    vendor = npu.npu_rockchip(trees.machine(tmp_path / "vendor", "orange-pi-5-plus"))
    mainline = npu.npu_rockchip(trees.machine(tmp_path / "mainline", "orange-pi-5-plus-mainline"))
    assert vendor is not None
    assert mainline is not None
    assert (vendor.choices, vendor.details["driver"]) == ((), "0.9.8")
    assert ".rknn" in vendor.notes[0]
    assert [choice.name for choice in mainline.choices] == ["teflon"]


def test_a_gpu_of_another_vendor_is_none_of_intels(tmp_path: Path) -> None:
    assert npu.npu_intel(trees.machine(tmp_path / "amd", "laptop-ryzen-ai")) is None
    root = trees.machine(tmp_path / "intel", "laptop-core-ultra")
    (root / "sys/class/accel/accel0/device/uevent").unlink()
    profile = npu.npu_intel(root)
    assert profile is not None
    assert [choice.name for choice in profile.choices] == ["openvino-gpu"]


@pytest.mark.parametrize(("version", "offered"), [("11.7", 0), ("12.0", 1), ("15", 1)])
def test_core_ml_needs_macos_12(version: str, offered: int, tmp_path: Path) -> None:
    plist = trees.read("macos")[PLIST].replace("14.5", version)
    profile = npu.npu_apple(trees.plant(tmp_path, {PLIST: plist}))
    assert profile is not None
    assert (len(profile.choices), len(profile.notes)) == (offered, 1 - offered)


@pytest.mark.parametrize("content", ["", "<plist>", "<plist><dict/></plist>", "not a list"])
def test_a_plist_that_says_nothing_is_no_mac(content: str, tmp_path: Path) -> None:
    assert npu.npu_apple(trees.plant(tmp_path, {PLIST: content})) is None


@pytest.mark.parametrize(("level", "offered", "noted"), [("26", 0, 0), ("27", 1, 0), ("34", 1, 0), ("35", 1, 1)])
def test_nnapi_is_offered_where_it_is(level: str, offered: int, noted: int, tmp_path: Path) -> None:
    profile = npu.npu_android(trees.plant(tmp_path, {"/system/build.prop": f"ro.build.version.sdk={level}\n"}))
    assert profile is not None
    assert (len(profile.choices), len(profile.notes)) == (offered, noted)
