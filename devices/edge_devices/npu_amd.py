"""AMD XDNA (Ryzen AI): the Vitis AI execution provider.

Options, as documented at onnxruntime.ai/docs/execution-providers/Vitis-AI-ExecutionProvider.html: ``cache_dir`` for the
compiled model (the folder within it is named after the model's digest by default). Compiling takes minutes. It takes
int8 and bfloat16; that page lists Ryzen AI for Windows alone and Linux for the adaptable chips, so on a Linux laptop
whether the provider starts is only known when it is loaded.

The kernel's driver is ``amdxdna`` (Documentation/accel/amdxdna of the kernel).
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.base.hardware import buses, files
from edge_runtime.base.hardware.profile import CACHE, EngineChoice, Evidence, Profile

EVIDENCE = Evidence(
    tier="simulated",
    detail="detection over a modelled file tree; provider and options against a fake onnxruntime; no NPU was run",
)


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the XDNA NPU of this machine, or None."""
    nodes = buses.accelerators(root, "amdxdna")
    if not nodes:
        return None
    return Profile(
        family="npu_amd",
        model="AMD XDNA NPU",
        evidence=EVIDENCE,
        accelerator=True,
        int8=True,
        choices=(
            EngineChoice(
                name="vitisai",
                engine="onnxruntime",
                providers={"VitisAIExecutionProvider": {"cache_dir": CACHE, "fixed_batch": "1"}},
                precisions=("int8",),
                install="AMD's Ryzen AI Software with its onnxruntime: ryzenai.docs.amd.com/en/latest/inst.html",
                requires=("/opt/xilinx/xrt",),
                driver="AMD's XRT and XDNA driver: github.com/amd/xdna-driver",
            ),
        ),
        details={"nodes": ", ".join(nodes)},
    )
