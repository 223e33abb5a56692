"""Apple Neural Engine and GPU: the CoreML execution provider, which onnxruntime's wheels for macOS have.

Options, as documented at onnxruntime.ai/docs/execution-providers/CoreML-ExecutionProvider.html: ``ModelFormat``
(``MLProgram``, macOS 12 and later), ``MLComputeUnits`` (``ALL``), ``RequireStaticInputShapes`` (with the batch fixed to
1, nothing else is left), ``ModelCacheDirectory``.

macOS says what it is in one file and everything else through calls, so the profile knows neither cores nor sensors.
"""

from __future__ import annotations

import plistlib
from pathlib import Path

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.profile import CACHE, EngineChoice, Evidence, Profile

EVIDENCE = Evidence(
    tier="simulated",
    detail=(
        "detection over a modelled file; provider and options against a fake onnxruntime; the library of onnxruntime "
        "1.31.1 for macOS holds every option by name; no Mac was at hand"
    ),
)

_FIRST = (12, 0)


def detect(root: Path = files.ROOT) -> Profile | None:
    """Detect the CoreML of this Mac, or None."""
    written = files.data(root, "/System/Library/CoreServices/SystemVersion.plist")
    if written is None:
        return None
    try:
        about = plistlib.loads(written)
        name, version = str(about["ProductName"]), str(about["ProductVersion"])
        numbers = tuple(int(part) for part in version.split(".")[:2])
    except Exception:  # noqa: BLE001 - plistlib raises whatever its parsers do
        return None
    if not name.startswith("mac"):
        return None
    old = (*numbers, 0)[:2] < _FIRST
    return Profile(
        family="npu_apple",
        model=f"CoreML of {name} {version}",
        evidence=EVIDENCE,
        accelerator=True,
        fp16=True,
        choices=()
        if old
        else (
            EngineChoice(
                name="coreml",
                engine="onnxruntime",
                providers={
                    "CoreMLExecutionProvider": {
                        "ModelFormat": "MLProgram",
                        "MLComputeUnits": "ALL",
                        "RequireStaticInputShapes": "1",
                        "ModelCacheDirectory": CACHE,
                        "fixed_batch": "1",
                    }
                },
                precisions=("fp32", "fp16"),
                install='pip install "edge-runtime[onnx]"',
            ),
        ),
        notes=("CoreML needs macOS 12 or later",) if old else (),
    )
