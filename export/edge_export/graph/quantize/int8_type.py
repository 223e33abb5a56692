"""Type of int8 by architecture: unsigned activations (u8s8) for ONNX on x86, signed ones (s8s8) on Arm and in TFLite.

`int8_type` picks it. A build writes both types (`edge_export.choose.selection.candidates`), marks each file with the
architectures that it is picked for, and a device takes the first file that is made for it. Why:
docs/decisions/0004-engine-options.md.
"""

from __future__ import annotations

from typing import Final, Literal

ARCHITECTURES: Final = ("x86_64", "aarch64", "armv7l")
"""Those that ONNX files are made for, as `platform.machine` names them."""


def int8_type(architecture: str) -> Literal["u8s8", "s8s8"]:
    """Pick the type of an ONNX file's activations: unsigned or signed, the weights signed in both.

    ONNX Runtime's fast kernels take unsigned activations on x86 and signed ones on Arm. The other type runs too, with
    conversions around every addition.
    """
    return "u8s8" if architecture == "x86_64" else "s8s8"


def targets_for(format: str, scheme: str) -> tuple[str, ...]:  # noqa: A002 - the manifest's own word
    """List the architectures that a file is made for, as `VariantSource.targets` holds them; empty means any.

    Args:
        format: TensorFlow Lite files are s8s8 everywhere.
        scheme: ``u8s8``, ``s8s8``, or empty for floats.
    """
    if format != "onnx" or not scheme:
        return ()
    return tuple(architecture for architecture in ARCHITECTURES if int8_type(architecture) == scheme)
