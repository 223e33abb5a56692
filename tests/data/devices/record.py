"""Write what the device files read of this machine as a tree for the tests.

Run it as ``python tests/data/devices/record.py "where it is from" > tests/data/devices/NAME.json``.

Nothing that names its owner is read: no serial numbers, addresses or host names.
"""

from __future__ import annotations

import json
import re
import sys

from edge_runtime.base.hardware import files

PATTERNS = (
    "/proc/cpuinfo", "/proc/meminfo", "/proc/self/status", "/proc/device-tree/model", "/proc/device-tree/compatible",
    "/sys/devices/system/cpu/online", "/sys/devices/system/cpu/cpu*/cpu_capacity",
    "/sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq", "/sys/devices/cpu_*/cpus",
    "/sys/devices/system/cpu/cpu*/topology/physical_package_id",
    "/sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_count",
    "/sys/class/thermal/*/type", "/sys/class/thermal/*/temp", "/sys/class/thermal/*/trip_point_*",
    "/sys/class/thermal/*/cur_state", "/sys/class/hwmon/*/name", "/sys/class/hwmon/*/temp*", "/sys/class/hwmon/*/in*",
    "/sys/class/hwmon/*/curr*", "/sys/class/hwmon/*/oc*", "/sys/class/power_supply/*/type",
    "/sys/class/power_supply/*/capacity", "/sys/class/power_supply/*/status", "/sys/class/power_supply/*/scope",
    "/sys/class/powercap/*/name", "/sys/class/powercap/*/max_energy_range_uj",
    "/sys/devices/platform/soc*/*/get_throttled", "/sys/class/apex/*/temp", "/sys/class/accel/*/device/uevent",
    "/sys/class/drm/renderD*/device/uevent", "/sys/bus/usb/devices/*/idVendor", "/sys/bus/usb/devices/*/idProduct",
    "/sys/bus/pci/devices/*/vendor", "/sys/bus/pci/devices/*/device", "/sys/bus/pci/devices/*/class",
    "/sys/bus/i2c/devices/*/iio:device*/rail_name_*", "/sys/bus/i2c/devices/*/iio:device*/in_power*_input",
    "/etc/nv_tegra_release", "/etc/nvpmodel.conf", "/var/lib/nvpmodel/status",
)  # fmt: skip
DROPPED = {
    "/proc/cpuinfo": r"serial",
    "/proc/meminfo": r"^(?!MemTotal)",
    "/proc/self/status": r"^(?!Cpus_allowed_list)",
}


def content(path: str) -> object:
    data = files.data(files.ROOT, path)
    if data is None:
        return None
    try:
        lines = data.decode("utf-8").splitlines(keepends=True)
    except UnicodeDecodeError:
        return {"hex": data.hex()}
    drop = DROPPED.get(path)
    return "".join(line for line in lines if drop is None or not re.search(drop, line, re.IGNORECASE))


def main() -> None:
    found = {path: content(path) for pattern in PATTERNS for path in files.entries(files.ROOT, pattern)}
    found["/proc/self/exe"] = {"hex": (files.data(files.ROOT, "/proc/self/exe", 20) or b"").hex()}
    tree = {path: held for path, held in found.items() if held is not None}
    json.dump({"source": sys.argv[1], "files": tree}, sys.stdout, indent=1)
    print()


main()
