"""Cost of our engines over the bare library call, and the gain of each choice inside them.

Every figure is processor time of one thread in microseconds, the smallest mean of several rounds in which the
contenders take turns. Read the ratios: other work may share the machine.

    python -m benchmarks.engines [--channels 6] [--window 128] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from edge_runtime.model import engines
from edge_runtime.model.engines.base import Engine, EngineOptions
from edge_runtime.model.engines.onnx import _library
from tests import models

Work = Callable[[], object]

ROUNDS = 15
LABELS = 6


def race(contenders: dict[str, Work], seconds: float = 0.01) -> dict[str, float]:
    """Microseconds of processor time per call, best of the rounds."""
    calls = {}
    for name, work in contenders.items():
        work()
        started = time.perf_counter()
        work()
        calls[name] = max(1, int(seconds / max(time.perf_counter() - started, 1e-6)))
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, work in contenders.items():
            n = calls[name]
            started_ns = time.thread_time_ns()
            for _ in range(n):
                work()
            best[name] = min(best[name], (time.thread_time_ns() - started_ns) / n / 1e3)
    return best


def onnx_contenders(model: bytes, engine: Engine, windows: dict[int, Any]) -> dict[str, Work]:
    """Bare sessions with the options in question, and our engine."""
    ort = _library()

    def session(*, arena: bool = True, pattern: bool = True) -> Any:
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_cpu_mem_arena, options.enable_mem_pattern = arena, pattern
        return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    plain, no_arena, no_pattern = session(), session(arena=False), session(pattern=False)
    contenders: dict[str, Work] = {}
    for n, x in windows.items():
        for title, bare in (("bare run", plain), ("  arena off", no_arena), ("  memory pattern off", no_pattern)):
            contenders[f"{title}, batch {n}"] = partial(bare.run, ["y"], {"x": x})
        inside, outside = np.empty_like(x), np.empty((n, LABELS), np.float32)
        binding = plain.io_binding()
        binding.bind_input("x", "cpu", 0, np.float32, x.shape, inside.ctypes.data)
        binding.bind_output("y", "cpu", 0, np.float32, outside.shape, outside.ctypes.data)

        def bound(x: Any = x, inside: Any = inside, binding: Any = binding, _keep: Any = outside) -> None:
            np.copyto(inside, x)
            plain.run_with_iobinding(binding)

        contenders[f"  bound buffers, batch {n}"] = bound
        contenders[f"our engine, batch {n}"] = partial(engine.run, x)
    return contenders


def litert_contenders(model: bytes, engine: Engine, windows: dict[int, Any], dtype: Any) -> dict[str, Work]:
    """Bare interpreters of the batch in question, a loop over batch 1, and our engine."""
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - only where it is installed

    contenders: dict[str, Work] = {}
    for n, x in windows.items():
        interpreter = Interpreter(model_content=model, num_threads=1)
        index, out = interpreter.get_input_details()[0]["index"], interpreter.get_output_details()[0]["index"]
        interpreter.resize_tensor_input(index, x.shape)
        interpreter.allocate_tensors()
        raw = x.astype(dtype)

        def bare(i: Any = interpreter, index: int = index, out: int = out, raw: Any = raw) -> object:
            i.set_tensor(index, raw)
            i.invoke()
            return i.get_tensor(out)

        contenders[f"bare set, invoke, get, batch {n}"] = bare
        contenders[f"our engine, batch {n}"] = partial(engine.run, x)
    loop = engines.load("litert", model, EngineOptions(max_batch=1))
    n, x = list(windows.items())[-1]
    contenders[f"our engine row by row, batch {n}"] = lambda: loop.run(x)
    sizes = [x[: n - 1], x[: n - 2]]

    def changing() -> object:
        sizes.reverse()
        return engine.run(sizes[0])

    contenders[f"our engine, batch {n - 1} and {n - 2} by turns"] = changing
    return contenders


def main() -> int:
    """Measure what is installed here and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--channels", type=int, default=6)
    parser.add_argument("--window", type=int, default=128)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args()
    shape = (options.channels, options.window, LABELS)
    windows = {n: models.windows(n, options.channels, options.window) for n in (1, 32)}
    turned = {n: np.ascontiguousarray(x.transpose(0, 2, 1)) for n, x in windows.items()}
    results: dict[str, dict[str, float]] = {}
    if models.usable("onnxruntime"):
        for name, model in (("fp32", models.tiny_onnx_classifier(*shape)), ("int8", models.tiny_onnx_int8(*shape))):
            engine = engines.load("onnxruntime", model, EngineOptions())
            results[f"{engine.name}, {name}"] = race(onnx_contenders(model, engine, windows))
    if models.usable("litert"):
        for name, int8, edges in (("fp32", False, False), ("int8", True, False), ("int8, float edges", True, True)):
            model = models.tiny_tflite(*shape, int8=int8, float_edges=edges)
            engine = engines.load("litert", model, EngineOptions())
            contenders = litert_contenders(model, engine, turned, np.int8 if int8 and not edges else np.float32)
            results[f"{engine.name}, {name}"] = race(contenders)
    if options.json:
        print(json.dumps(results))
        return 0
    for title, figures in results.items():
        print(f"\n{title}, window {options.channels} x {options.window}: microseconds a call")
        for name, value in figures.items():
            print(f"  {name:44s} {value:8.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
