"""Android's NNAPI, where Python runs on Android: the NNAPI execution provider.

No wheel of onnxruntime for Python has it, and its options are flags of the C and Java interfaces, so none is given
(onnxruntime.ai/docs/execution-providers/NNAPI-ExecutionProvider.html, Android 8.1 and later, which is API level 27).
Android 15 (level 35) has deprecated NNAPI (developer.android.com/ndk/guides/neuralnetworks/migration-guide). LiteRT on
the processor is the way that works; this is for a build of your own.
"""

from __future__ import annotations

from pathlib import Path

from edge_runtime.base.hardware import files
from edge_runtime.base.hardware.profile import EngineChoice, Evidence, Profile

EVIDENCE = Evidence(
    tier="simulated",
    detail="detection over a modelled file; provider against a fake onnxruntime; no Android device was at hand",
)

_FIRST, _DEPRECATED = 27, 35


def detect(root: Path = files.ROOT) -> Profile | None:
    """NNAPI of this Android, or None."""
    properties = {}
    for line in (files.text(root, "/system/build.prop") or "").splitlines():
        key, _, value = line.partition("=")
        properties[key.strip()] = value.strip()
    level = properties.get("ro.build.version.sdk", "")
    if not level.isdigit() or len(level) > 4:
        return None
    notes = []
    if int(level) >= _DEPRECATED:
        notes.append("this Android has deprecated NNAPI; LiteRT on the processor is likely as fast")
    return Profile(
        family="npu_android",
        model=f"NNAPI of Android API level {level}",
        evidence=EVIDENCE,
        accelerator=True,
        choices=(
            EngineChoice(
                name="nnapi",
                engine="onnxruntime",
                providers={"NnapiExecutionProvider": {"fixed_batch": "1"}},
                install="a build of onnxruntime for Android with --use_nnapi (no wheel for Python has it)",
            ),
        )
        if int(level) >= _FIRST
        else (),
        details={"model": properties["ro.product.system.model"]} if "ro.product.system.model" in properties else {},
        notes=tuple(notes),
    )
