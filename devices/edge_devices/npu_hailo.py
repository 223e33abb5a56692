"""Hailo-8, 8L and 10H: reported, not used.

HailoRT runs ``.hef`` files that Hailo's Dataflow Compiler makes on a workstation from a model and calibration data; a
bundle holds ONNX and TFLite files, so there is nothing in it for that runtime. (Hailo's execution provider lives in a
fork of onnxruntime 1.11 and takes ONNX files with a ``.hef`` inside, which no wheel for a present Python runs.)

Sources: hailo.ai developer zone, HailoRT user guide; the driver (github.com/hailo-ai/hailort-drivers) makes
``/dev/hailo0`` and registers PCI vendor 1e60.
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.base.hardware import buses, files
from edge_runtime.base.hardware.profile import Evidence, Profile

EVIDENCE = Evidence(tier="simulated", detail="detection over modelled file trees; nothing of a model runs on it")

_VENDOR = 0x1E60
_MODELS = {0x2864: "Hailo-8"}


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the Hailo accelerator of this machine, or None."""
    found = [device for vendor, device in buses.pci(root) if vendor == _VENDOR]
    nodes = files.entries(root, "/dev/hailo*")
    if not found and not nodes:
        return None
    note = "the Hailo accelerator takes .hef files; edge-runtime runs none of those, so models run on the processor"
    if not nodes:
        note += "; its driver is missing too: sudo apt install hailo-all"
    return Profile(
        family="npu_hailo",
        model=_MODELS.get(found[0], "Hailo") if found else "Hailo",
        evidence=EVIDENCE,
        accelerator=True,
        int8=True,
        details={"nodes": ", ".join(nodes)} if nodes else {},
        notes=(note,),
    )
