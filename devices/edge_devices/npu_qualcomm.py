"""Qualcomm Hexagon (HTP): the QNN execution provider, a plug-in for ONNX Runtime 1.24 and later.

Options, as documented in docs/execution_providers/QNN-ExecutionProvider.md of github.com/onnxruntime/onnxruntime-qnn:
``backend_type`` (``htp`` is the NPU), ``htp_graph_finalization_optimization_mode`` (3: longest preparation, best
graph), ``enable_htp_fp16_precision`` (floats are computed in half precision). It takes no free shapes, so the batch is
fixed to 1. Of int8 it wants unsigned activations.

The NPU is reached through FastRPC: the kernel's driver makes ``/dev/fastrpc-cdsp`` where it is there.
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.profile import EngineChoice, Evidence, Profile

EVIDENCE = Evidence(
    tier="simulated",
    detail=(
        "detection over modelled file trees; registration as a plug-in and options against a fake onnxruntime. The "
        "library of onnxruntime-qnn 2.7.0 for Arm Linux holds every option by name; it was not run"
    ),
)


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the Hexagon NPU of this machine, or None."""
    compatible = files.strings(root, "/proc/device-tree/compatible")
    chip = next((name.removeprefix("qcom,") for name in reversed(compatible) if name.startswith("qcom,")), "")
    nodes = files.entries(root, "/dev/fastrpc-cdsp*")
    if not chip or not nodes:
        return None
    return Profile(
        family="npu_qualcomm",
        model=f"Qualcomm Hexagon NPU ({chip})",
        evidence=EVIDENCE,
        accelerator=True,
        fp16=True,
        int8=True,
        choices=(
            EngineChoice(
                name="qnn",
                engine="onnxruntime",
                providers={
                    "QNNExecutionProvider": {
                        "library": "package:onnxruntime_qnn",
                        "fixed_batch": "1",
                        "backend_type": "htp",
                        "htp_graph_finalization_optimization_mode": "3",
                        "enable_htp_fp16_precision": "1",
                    }
                },
                schemes=("u8s8", "u8u8"),
                install="pip install onnxruntime-qnn",
            ),
        ),
        details={"chip": chip, "nodes": ", ".join(nodes)},
    )
