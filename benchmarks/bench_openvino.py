"""OpenVINO beside ONNX Runtime: microseconds a call of the same model on one thread of a processor.

Not an engine of this project (docs/decisions/0025-no-openvino-engine.md); this is what the decision rests on. In an
environment of its own:

    pip install openvino onnxruntime onnx
    python -m benchmarks.bench_openvino examples/exercise-watch/*.edge FOLDER/*.onnx

The two take turns, call by call; the least of a turn counts, and least, median and most are of five turns. Numbers are
random. OpenVINO is told to compute in float32 (it may take bfloat16 where a processor has it), and the difference of
the answers is printed. Of a bundle, its float32 file is taken.
"""

from __future__ import annotations

import argparse
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from benchmarks.report import Report, machine, median_of, spread

TURNS, CALLS_S, LEAST_CALLS = 5, 0.3, 5
EXACT = {
    "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY",
}  # fmt: skip
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int8)": np.int8, "tensor(uint8)": np.uint8}


def read(path: Path) -> bytes:
    """The model, without constants among its inputs: ONNX Runtime would not fold them."""
    data = path.read_bytes()
    if path.suffix == ".edge":
        with zipfile.ZipFile(path) as bundle:
            data = bundle.read(next(name for name in bundle.namelist() if name.endswith("fp32.onnx")))
    model = onnx.load_model_from_string(data)
    constants = {one.name for one in model.graph.initializer}
    inputs = [one for one in model.graph.input if one.name not in constants]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    serialized: bytes = model.SerializeToString()
    return serialized


def feed_of(session: Any, batch: int) -> dict[str, Any] | None:
    """Random inputs; None where the model has a batch of its own."""
    rng, feed = np.random.default_rng(0), {}
    for spec in session.get_inputs():
        shape = [d if isinstance(d, int) and d > 0 else batch if i == 0 else 1 for i, d in enumerate(spec.shape)]
        if shape[0] != batch:
            return None
        feed[spec.name] = np.ones(shape, TYPES[spec.type]) * rng.normal(size=shape).astype(TYPES[spec.type])
    return feed


def turn(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Least microseconds of each."""
    best = [float("inf")] * len(calls)
    ends, count = time.perf_counter() + CALLS_S, 0
    while time.perf_counter() < ends or count < LEAST_CALLS:
        count += 1
        for i, call in enumerate(calls):
            began = time.perf_counter()
            call()
            best[i] = min(best[i], (time.perf_counter() - began) * 1e6)
    return best


def rows(path: Path) -> list[tuple[str, int, str, str, str, float]]:
    import onnxruntime as ort  # noqa: PLC0415 - in an environment of its own
    import openvino  # noqa: PLC0415

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    model = read(path)
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    core, found = openvino.Core(), []
    for batch in (1, 32):
        feed = feed_of(session, batch)
        if feed is None:
            continue
        theirs = core.read_model(model)
        theirs.reshape({name: values.shape for name, values in feed.items()})
        request = core.compile_model(theirs, "CPU", EXACT).create_infer_request()
        ours, answers = session.run(None, feed), request.infer(feed)
        apart = max(float(np.abs(one - answers[i]).max()) for i, one in enumerate(ours))

        def first(feed: Any = feed) -> Any:
            return session.run(None, feed)

        def second(request: Any = request, feed: Any = feed) -> Any:
            return request.infer(feed, share_inputs=True)

        turns = [turn((first, second)) for _ in range(TURNS)]
        ratios = [a / b for a, b in turns]
        found.append(
            (
                path.name,
                batch,
                spread([a for a, _ in turns], 1),
                spread([b for _, b in turns], 1),
                spread(ratios, 2),
                apart,
            )
        )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    files: list[Path] = parser.parse_args().files
    print("\n".join(f"{key}: {value}" for key, value in machine().items()))
    report = Report(
        f"one thread, float32; us a call, least / median / most of {TURNS} turns",
        ("model", "batch", "ONNX Runtime", "OpenVINO", "times as fast", "answers apart by"),
    )
    gains = []
    for path in files:
        try:
            report.rows += (own := rows(path))
            gains += [float(row[4].split(" / ")[1]) for row in own]
        except Exception as error:
            report.notes.append(f"{path.name}: not run: {' '.join(str(error).split())[:100]}")
    if gains:
        report.notes.append(f"median of {len(gains)} rows: {median_of(gains):.2f} times as fast")
    print(report.text())


if __name__ == "__main__":
    main()
