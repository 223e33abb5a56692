"""CPU of one plain `InferenceSession.run` of a single window: the yardstick for everything around the model.

Run as ``python -m benchmarks.bare MODEL.onnx NET CALLS``; NET is one of `benchmarks.models.NETS`.
It prints microseconds of CPU per call.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from benchmarks.models import NETS

DISTINCT = 256


def main() -> None:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime as ort  # noqa: PLC0415 - not before telemetry is off

    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(Path(sys.argv[1]).read_bytes(), options, providers=["CPUExecutionProvider"])
    calls = int(sys.argv[3])
    windows = NETS[sys.argv[2]].windows(DISTINCT, seed=7)
    feeds = [{"x": windows[i : i + 1]} for i in range(DISTINCT)]
    for feed in feeds:
        session.run(None, feed)
    began = time.process_time()
    for i in range(calls):
        session.run(None, feeds[i % DISTINCT])
    print(1e6 * (time.process_time() - began) / calls)


if __name__ == "__main__":
    main()
