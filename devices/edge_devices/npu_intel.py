"""Intel NPU and GPU: OpenVINO's execution provider for ONNX Runtime.

Options, as documented at onnxruntime.ai/docs/execution-providers/OpenVINO-ExecutionProvider.html: ``device_type`` (one
device, so that OpenVINO does not fall back to its own CPU kernels behind our back) and ``cache_dir`` for compiled
models (from 1.23 on also as ``CACHE_DIR`` in ``load_config``; the older key works in both). The NPU's compiler wants
shapes without a free axis, so its batch is fixed to 1.

``onnxruntime-openvino`` takes the place of ``onnxruntime``: both install a module of that name.
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.base.hardware import buses, files
from edge_runtime.base.hardware.profile import CACHE, EngineChoice, Evidence, Profile

EVIDENCE = Evidence(
    tier="simulated",
    detail=(
        "NPU and GPU over modelled file trees only. The provider itself was run on 2026-11-21 on an x86-64 processor "
        "(onnxruntime-openvino 1.24.1, device_type CPU): it took 17 of 17 nodes of a small int8 network with the same "
        "answers, and asked for an NPU or GPU that is not there it was refused out loud"
    ),
)

INSTALL = "pip uninstall -y onnxruntime && pip install onnxruntime-openvino"
PROVIDER = "OpenVINOExecutionProvider"


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the Intel NPU and GPUs of this machine, or None."""
    npus = buses.accelerators(root, "intel_vpu")
    gpus = buses.render_nodes(root, ("i915", "xe"))
    if not npus and not gpus:
        return None
    choices = []
    if npus:
        choices.append(
            EngineChoice(
                name="openvino-npu",
                engine="onnxruntime",
                providers={PROVIDER: {"device_type": "NPU", "cache_dir": CACHE, "fixed_batch": "1"}},
                requires=tuple(
                    f"{folder}/libze_intel_{name}.so*" for folder in files.LIBRARIES for name in _LEVEL_ZERO
                ),
                install=INSTALL,
                driver="Intel's NPU driver, from github.com/intel/linux-npu-driver/releases",
            )
        )
    if gpus:
        choices.append(
            EngineChoice(
                name="openvino-gpu",
                engine="onnxruntime",
                providers={PROVIDER: {"device_type": "GPU", "cache_dir": CACHE}},
                install=INSTALL,
                requires=tuple(f"{folder}/intel-opencl/libigdrcl.so" for folder in files.LIBRARIES),
                driver="sudo apt install intel-opencl-icd",
            )
        )
    return Profile(
        family="npu_intel",
        model=" and ".join([*(["Intel NPU"] if npus else []), *(["Intel GPU"] if gpus else [])]),
        evidence=EVIDENCE,
        accelerator=True,
        fp16=True,
        int8=True,
        choices=tuple(choices),
        details={"nodes": ", ".join((*npus, *gpus))},
    )


_LEVEL_ZERO = ("npu", "vpu")  # the library was renamed in 2025
