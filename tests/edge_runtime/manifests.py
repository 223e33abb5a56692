"""A manifest of two channels and two labels."""

from __future__ import annotations

from typing import Any

from edge_runtime.manifest import (
    AnyOutput,
    Channel,
    File,
    GateSpec,
    InputContract,
    Manifest,
    OutputContract,
    Variant,
    needed_schema,
)
from edge_runtime.manifest.surround import Surround

DIGEST = "0" * 64


LABELS = OutputContract(labels=("low", "high"))


def manifest(
    layout: str = "NCW", output: AnyOutput = LABELS, surround: Surround | None = None, **gate: Any
) -> Manifest:
    contract = InputContract(
        channels=(Channel(name="a", unit="1"), Channel(name="b", unit="1")), rate_hz=10, window=4, hop=2, context=8
    )
    return Manifest(
        schema_version=needed_schema(contract, output=output, surround=surround),
        name="bench",
        version=3,
        input=contract,
        output=output,
        gate=GateSpec(**({"threshold": 0.8} | gate)),
        surround=surround,
        variants=(
            Variant(
                name="null",
                file="variants/null.onnx",
                format="onnx",
                precision="fp32",
                layout=layout,  # type: ignore[arg-type]
                size=1,
                sha256=DIGEST,
                golden="golden/null.npy",
            ),
        ),
        golden_inputs="golden/inputs.npy",
        files=(File(file="golden/inputs.npy", size=1, sha256=DIGEST),),
    )
