"""What this machine answers: each variant of the demo's bundle to the demo's recordings, and each tiny int8 model.

    python -m tests.arm.answers OUT.npz MODELS [ENGINE ...]

Run on both machines; the two files are then compared. Prints, as one JSON object, the
versions and which variants are meant for this kind of machine.
"""

from __future__ import annotations

import itertools
import json
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.model import engines
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.bundle.variants import refusals
from edge_runtime.model.engines.base import Engine, EngineOptions

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "exercise-watch"
BATCH = 32
CHANNELS, WINDOW, TINY_WINDOWS = 3, 16, 64  # as tests/contracts/test_engine.py has them

Floats = npt.NDArray[np.float32]


def windows(length: int, hop: int) -> Floats:
    """(n, channels, length): every window of the demo's recordings, in physical units."""
    with np.load(EXAMPLE / "recordings.npz") as file:
        x = (file["x"] * file["scale"]).astype(np.float32)
        offset = file["offset"]
    cut = [
        np.lib.stride_tricks.sliding_window_view(x[start:stop], length, axis=0)[::hop]
        for start, stop in itertools.pairwise(offset)
        if stop - start >= length
    ]
    return np.ascontiguousarray(np.concatenate(cut))


def tiny_windows() -> Floats:
    """(n, WINDOW, CHANNELS) standard normal samples, the same on every machine."""
    return np.random.default_rng(7).standard_normal((TINY_WINDOWS, WINDOW, CHANNELS)).astype(np.float32)


def ask(engine: Engine, x: Floats) -> Floats:
    """All answers, as the runtime asks for them."""
    return np.concatenate([np.array(engine.run(x[i : i + BATCH])[0]) for i in range(0, len(x), BATCH)])


def main(out: Path, models: Path, wanted: list[str]) -> int:
    """Write the answers of the engines `wanted`, all that are installed without names."""
    from tests.arm.recorded_models import file_of  # noqa: PLC0415 - the reference has no pytest

    answers: dict[str, Any] = {}
    told: dict[str, Any] = {"python": platform.python_version(), "machine": platform.machine(), "numpy": np.__version__}
    with open_bundle(EXAMPLE / "watch.edge", trusted=None) as bundle:
        contract = bundle.manifest.input
        x = windows(contract.window, contract.hop)
        for variant in bundle.manifest.variants:
            for kind in engines.available(variant.format):
                if wanted and kind.name not in wanted:
                    continue
                engine = load_engine(bundle, variant.name, EngineOptions(), engine=kind.name, probe_first=False)
                arranged = x if variant.layout == "NCW" else np.ascontiguousarray(x.transpose(0, 2, 1))
                answers[f"{kind.name} {variant.name}"] = ask(engine, arranged)
                told[kind.name] = engine.name
                engine.close()
        meant = [variant.name for variant in bundle.manifest.variants if not refusals(variant)]
    for case in ("onnx int8 s8s8", "litert int8", "litert int8, float edges"):
        for kind in engines.available("onnx" if case.startswith("onnx") else "tflite"):
            if wanted and kind.name not in wanted:
                continue
            tiny = engines.load(kind.name, file_of(models, case).read_bytes(), EngineOptions())
            y = tiny_windows()
            answers[f"{kind.name} tiny {case}"] = ask(tiny, y if kind.name != "onnxruntime" else y.transpose(0, 2, 1))
            tiny.close()
    np.savez(out, **answers)
    print(json.dumps(told | {"variants": meant}))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
