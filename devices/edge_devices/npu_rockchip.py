"""Rockchip RKNPU (RK3588, RK3576, RK356x): Mesa's Teflon delegate on mainline kernels; reported only on the vendor's.

Rockchip's own runtime (``rknn-toolkit-lite2``) runs ``.rknn`` files that its toolkit makes on a workstation. A bundle
holds ONNX and TFLite files, so there is nothing in it for that runtime: the NPU is reported, and the processor used.
(onnxruntime's RKNPU provider is for the older RK1808 and was a preview.)

With the mainline driver ``rocket`` (Linux 6.18, RK3588) Mesa from 25.3 on has a TFLite delegate, which takes int8
convolutions and additions of a plain file. Source: docs.mesa3d.org/teflon.html, docs.mesa3d.org/drivers/rocket.html.
The vendor's driver is known by ``/sys/module/rknpu`` or its devfreq device ``*.npu``.
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.base.hardware import buses, files
from edge_runtime.base.hardware.profile import EngineChoice, Evidence, Profile

EVIDENCE = Evidence(
    tier="simulated",
    detail="detection over modelled file trees; no NPU was run, not with Mesa's delegate and not with Rockchip's",
)

CHIPS = ("rk3588", "rk3588s", "rk3576", "rk3568", "rk3566", "rk3562")

TEFLON = EngineChoice(
    name="teflon",
    engine="litert",
    providers={"/usr/lib/teflon/libteflon.so": {}},
    precisions=("int8",),
    install='pip install "edge-runtime[tflite]"',
    requires=("/usr/lib/teflon/libteflon.so",),
    driver="sudo apt install mesa-teflon-delegate  # Mesa 25.3 or newer",
)


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the RKNPU of this machine, or None."""
    compatible = files.strings(root, "/proc/device-tree/compatible")
    names = [name.removeprefix("rockchip,") for name in compatible if name.startswith("rockchip,")]
    chip = next((name for name in reversed(names) if name in CHIPS), "")
    mainline = buses.accelerators(root, "rocket")
    vendor = files.exists(root, "/sys/module/rknpu") or bool(files.entries(root, "/sys/class/devfreq/*.npu"))
    if not chip or not (mainline or vendor):
        return None
    notes = []
    if not mainline:
        notes.append(
            "the Rockchip NPU has the vendor's driver, whose runtime takes .rknn files; edge-runtime runs none of "
            "those and uses the processor (a mainline kernel with Mesa's Teflon delegate takes int8 TFLite)"
        )
    details = {"chip": chip}
    if version := files.text(root, "/sys/module/rknpu/version"):
        details["driver"] = version
    return Profile(
        family="npu_rockchip",
        model=f"Rockchip NPU ({chip})",
        evidence=EVIDENCE,
        accelerator=True,
        int8=True,
        choices=(TEFLON,) if mainline else (),
        details=details,
        notes=tuple(notes),
    )
