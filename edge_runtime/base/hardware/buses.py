"""Devices on the buses of a machine: USB and PCI by their numbers, accelerators by their kernel driver.

Sources: Documentation/ABI/testing/sysfs-bus-usb (``idVendor``, ``idProduct``: four hexadecimal digits), sysfs-bus-pci
(``vendor``, ``device``: with ``0x``) and Documentation/accel/introduction.rst (``/dev/accel/accelN``) of the kernel;
the ``uevent`` file of a device names the driver that has taken it.
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.base.hardware import files


def usb(root: Path) -> tuple[tuple[int, int], ...]:
    """Vendor and product of each USB device."""
    return _pairs(root, "/sys/bus/usb/devices/*/idVendor", "idProduct")


def pci(root: Path) -> tuple[tuple[int, int], ...]:
    """Vendor and device of each PCI function."""
    return _pairs(root, "/sys/bus/pci/devices/*/vendor", "device")


def _pairs(root: Path, pattern: str, other: str) -> tuple[tuple[int, int], ...]:
    found = []
    for path in files.entries(root, pattern):
        vendor = files.number(root, path, 16)
        device = files.number(root, f"{path.rpartition('/')[0]}/{other}", 16)
        if vendor is not None and device is not None:
            found.append((vendor, device))
    return tuple(found)


def driver(root: Path, device: str) -> str:
    """Find the driver that has taken a device, for example ``intel_vpu``; empty if none has, or nothing says so.

    Args:
        root: folder of the machine's files.
        device: its folder on the machine, for example ``/sys/class/accel/accel0/device``.
    """
    for line in (files.text(root, f"{device}/uevent") or "").splitlines():
        key, _, value = line.partition("=")
        if key == "DRIVER":
            return value.strip()
    return ""


def accelerators(root: Path, name: str) -> tuple[str, ...]:
    """Device nodes of compute accelerators that this driver has taken, for example ``/dev/accel/accel0``."""
    return tuple(
        f"/dev/accel/{path.rpartition('/')[2]}"
        for path in files.entries(root, "/sys/class/accel/accel*")
        if driver(root, f"{path}/device") == name
    )


def render_nodes(root: Path, names: tuple[str, ...]) -> tuple[str, ...]:
    """Device nodes of GPUs that one of these drivers has taken, for example ``/dev/dri/renderD128``."""
    return tuple(
        f"/dev/dri/{path.rpartition('/')[2]}"
        for path in files.entries(root, "/sys/class/drm/renderD*")
        if driver(root, f"{path}/device") in names
    )
