"""Type of int8 by architecture: unsigned activations (u8s8) for ONNX on x86, signed ones (s8s8) on Arm and in TFLite.

Both types are written (`edge_export.selection.candidates`). A bundle marks each file with the architectures below, and
a device takes the first one that is made for it. Why: docs/decisions/0004-engine-options.md.
"""

from __future__ import annotations


def targets_for(format: str, scheme: str) -> tuple[str, ...]:  # noqa: A002 - the manifest's own word
    """Architectures that an int8 file is made for, as `VariantSource.targets` holds them; empty means any.

    ONNX Runtime's fast kernels take unsigned activations on x86 and signed ones on Arm; the other type runs too, with
    conversions around every addition. TensorFlow Lite files are s8s8 everywhere.
    """
    if format == "onnx" and scheme == "u8s8":
        return ("x86_64",)
    if format == "onnx" and scheme == "s8s8":
        return ("aarch64", "armv7l")
    return ()
