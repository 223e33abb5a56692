"""Sensors that the Linux kernel offers on any machine: temperature, power and batteries.

Sources: Documentation/ABI/testing/sysfs-class-thermal (millidegrees Celsius, trip points ``active``, ``passive``,
``hot``, ``critical``), Documentation/hwmon/sysfs-interface.rst (millidegrees, millivolts, milliamperes, microwatts),
Documentation/ABI/testing/sysfs-class-power (percent, status words), Documentation/power/powercap/powercap.rst
(microjoules, range before the wrap) and Documentation/admin-guide/thermal/intel_powerclamp.rst of the kernel.
"""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.profile import Battery, Counter, Flag, Gauge

# A trip point that is switched off holds numbers like -274000 or 0.
_PLAUSIBLE_MILLIDEGREES = range(1, 200_001)
_TRIPS = ("passive", "hot", "critical")


def thermal_zones(root: Path, skip: Container[str] = ()) -> tuple[Gauge, ...]:
    """List the machine's thermal zones, lowest limit first.

    A zone's limit is its lowest trip point at which the kernel holds the processor back (``passive``), else the
    ``hot`` or ``critical`` one; fan trips (``active``) do not count.

    Args:
        root: folder of the machine's files.
        skip: types of zones that are known to lie.
    """
    found = []
    for zone in files.entries(root, "/sys/class/thermal/thermal_zone*"):
        kind = files.text(root, f"{zone}/type")
        if not kind or kind in skip or not files.exists(root, f"{zone}/temp"):
            continue
        trips: dict[str, int] = {}
        for path in files.entries(root, f"{zone}/trip_point_*_type"):
            trip = files.text(root, path)
            at = files.number(root, f"{path.removesuffix('_type')}_temp")
            if trip in _TRIPS and at is not None and at in _PLAUSIBLE_MILLIDEGREES:
                trips[trip] = min(at, trips.get(trip, at))
        limit = next((trips[trip] / 1000 for trip in _TRIPS if trip in trips), None)
        found.append(Gauge(name=kind, unit="degC", paths=(f"{zone}/temp",), scale=0.001, limit=limit))
    return tuple(sorted(found, key=lambda gauge: gauge.limit if gauge.limit is not None else 1e9))


def hwmon_temperatures(root: Path, drivers: Container[str]) -> tuple[Gauge, ...]:
    """Temperatures of hardware monitors.

    Args:
        root: folder of the machine's files.
        drivers: names of those to look at, for example ``coretemp``.
    """
    found = []
    for path in files.entries(root, "/sys/class/hwmon/hwmon*/temp*_input"):
        folder, _, name = path.rpartition("/")
        driver = files.text(root, f"{folder}/name")
        if driver not in drivers:
            continue
        stem = name.removesuffix("_input")
        label = files.text(root, f"{folder}/{stem}_label") or stem
        limits = (files.number(root, f"{folder}/{stem}_{kind}") for kind in ("max", "crit"))
        limit = next((n / 1000 for n in limits if n is not None and n in _PLAUSIBLE_MILLIDEGREES), None)
        found.append(Gauge(name=f"{driver} {label}", unit="degC", paths=(path,), scale=0.001, limit=limit))
    return tuple(found)


def cooling_flags(root: Path, kinds: tuple[str, ...]) -> tuple[Flag, ...]:
    """Cooling devices that slow the processor down: their state is above 0 while they do.

    Args:
        root: folder of the machine's files.
        kinds: beginnings of the types to look at, for example ``cpufreq-``, ``thermal-cpufreq-``.
    """
    found = []
    for device in files.entries(root, "/sys/class/thermal/cooling_device*"):
        kind = files.text(root, f"{device}/type") or ""
        if kind.startswith(kinds) and files.exists(root, f"{device}/cur_state"):
            found.append(Flag(name=f"cooling_{kind.replace('-', '_')}", path=f"{device}/cur_state"))
    return tuple(found)


def batteries(root: Path) -> tuple[Battery, ...]:
    """Batteries that supply the machine; those of mice and keyboards (``scope`` is ``Device``) do not count."""
    found = []
    for supply in files.entries(root, "/sys/class/power_supply/*"):
        if files.text(root, f"{supply}/type") != "Battery" or files.text(root, f"{supply}/scope") == "Device":
            continue
        if not files.exists(root, f"{supply}/capacity"):
            continue
        name = supply.rpartition("/")[2]
        charge = Gauge(name=name, unit="percent", paths=(f"{supply}/capacity",), scale=1.0)
        found.append(Battery(name=name, charge=charge, status=f"{supply}/status"))
    return tuple(found)


def energy_counters(root: Path) -> tuple[Counter, ...]:
    """Intel's and AMD's running average power limit (RAPL) counters of whole packages."""
    found = []
    for zone in files.entries(root, "/sys/class/powercap/intel-rapl:*"):
        if zone.count(":") != 1 or not files.exists(root, f"{zone}/energy_uj"):
            continue
        name = files.text(root, f"{zone}/name") or zone.rpartition("/")[2]
        wraps = files.number(root, f"{zone}/max_energy_range_uj") or 0
        found.append(Counter(name=name, path=f"{zone}/energy_uj", scale=1e-6, wraps_at=wraps))
    return tuple(found)


def throttle_counts(root: Path) -> tuple[Flag, ...]:
    """Intel's counts of thermal events, of the first processor of each package.

    Source: arch/x86/kernel/cpu/mce/therm_throt.c, which makes them.
    """
    found: dict[int | None, Flag] = {}
    for path in files.entries(root, "/sys/devices/system/cpu/cpu*/thermal_throttle/package_throttle_count"):
        package = files.number(
            root, f"{path.removesuffix('thermal_throttle/package_throttle_count')}topology/physical_package_id"
        )
        found.setdefault(package, Flag(name="package_throttled", path=path, kind="counter"))
    return tuple(found.values())
