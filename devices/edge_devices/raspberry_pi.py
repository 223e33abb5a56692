"""Raspberry Pi 3, 4, 5 and Zero 2, and whatever else calls itself so: the processor alone.

Threads and cores. All cores of a Pi are of one kind, so there is nothing to pin to; `Profile.thread_counts` is what
``tune`` times. LiteRT (and tflite-runtime) run XNNPACK's kernels without being asked. onnxruntime has XNNPACK as an
execution provider that its wheels for Linux leave out; a build of your own that has it is offered two-dimensional
convolutions, and the options are those that its documentation recommends.

Source: onnxruntime.ai/docs/execution-providers/Xnnpack-ExecutionProvider.html ("intra_op_num_threads", the physical
cores; onnxruntime's own pool at 1 without spinning, which is our default).

Throttling. The firmware of Pi 4 and before answers ``get_throttled`` through sysfs as bare hexadecimal digits
(drivers/firmware/raspberrypi.c of the Raspberry Pi kernel; bits: raspberrypi.com/documentation/computers/os.html). Pi 5
kernels were seen without that file, and ``vcgencmd`` is then the only way to the bits, so what is left are the
``rpi_volt`` monitor (drivers/hwmon/raspberrypi-hwmon.c: ``in0_lcrit_alarm``) and the temperature: the firmware slows
the cores down from 80 degrees on and hard at 85 (raspberrypi.com/documentation/computers/raspberry-pi.html,
"Frequency management and thermal control"). No Pi measures its power where a program without rights can read it.
"""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from edge_runtime.base.hardware import cpu, files
from edge_runtime.base.hardware.profile import EngineChoice, Evidence, Flag, Profile

EVIDENCE = Evidence(
    tier="emulated",
    detail=(
        "detection and sensors over file trees modelled on the documented layout; both engines and the demo's bundle "
        "on arm64 and armv7 under qemu (docs/devices.md); no figure of speed, heat or power was taken on a board"
    ),
)

SOFT_LIMIT_DEGC = 80.0

_MODELS = {
    "5": r"Raspberry Pi (Compute Module )?5",
    "4": r"Raspberry Pi (Compute Module )?4|Raspberry Pi 400",
    "3": r"Raspberry Pi (Compute Module )?3",
    "Zero 2": r"Raspberry Pi Zero 2",
}

# Bits of get_throttled that hold now; bits 16 to 19 say the same of any time since boot.
_BITS = {"under_voltage": 0x1, "frequency_capped": 0x2, "throttled": 0x4, "soft_temperature_limit": 0x8}
_THROTTLED = ("/sys/devices/platform/soc/soc:firmware/get_throttled", "/sys/devices/platform/soc@*/*/get_throttled")


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the Raspberry Pi that this is, or None."""
    model = files.text(root, "/proc/device-tree/model") or ""
    if not model.startswith("Raspberry Pi"):
        return None
    board = cpu.detect(root)
    generation = next((name for name, pattern in _MODELS.items() if re.match(pattern, model)), "")
    notes = [] if generation else [f"{model} is not one of the boards that were looked at; it is run as an Arm board"]
    flags = throttling(root)
    if not any(flag.name == "throttled" for flag in flags):
        notes.append("this kernel does not say when the firmware throttles; the temperature has to serve")
    temperatures = tuple(
        dataclasses.replace(gauge, limit=min(gauge.limit or SOFT_LIMIT_DEGC, SOFT_LIMIT_DEGC))
        for gauge in board.temperatures
    )
    return dataclasses.replace(
        board,
        family="raspberry_pi",
        model=model,
        evidence=EVIDENCE,
        choices=(*board.choices[:-1], *xnnpack(board), *board.choices[-1:]),
        temperatures=temperatures,
        throttling=(*flags, *board.throttling),
        details={"generation": generation} if generation else {},
        notes=tuple(notes),
    )


def throttling(root: Path) -> tuple[Flag, ...]:
    """List the throttling flags of the firmware and the voltage monitor."""
    for pattern in _THROTTLED:
        for path in files.entries(root, pattern):
            return tuple(Flag(name=name, path=path, base=16, mask=bit) for name, bit in _BITS.items())
    for folder in files.entries(root, "/sys/class/hwmon/hwmon*"):
        if files.text(root, f"{folder}/name") == "rpi_volt":
            return (Flag(name="under_voltage", path=f"{folder}/in0_lcrit_alarm"),)
    return ()


def xnnpack(board: Profile) -> tuple[EngineChoice, ...]:
    """Onnxruntime with XNNPACK, for builds that have it; after the plain CPU, since it is not known to be faster."""
    if board.architecture != "aarch64":
        return ()
    threads = str(len(board.fast_cpus))
    return (
        EngineChoice(
            name="xnnpack",
            engine="onnxruntime",
            providers={"XnnpackExecutionProvider": {"intra_op_num_threads": threads}},
            install="a build of onnxruntime with --use_xnnpack, which no wheel for Linux has; LiteRT needs none",
        ),
    )
