"""Cost of front ends: microseconds of CPU per row, for one key and for 32 keys at once.

Run: ``python -m benchmarks frontends``. The stages are those of docs/front-ends.md. The best of many short rounds
counts, so that other work on the machine shows as little as it can.
"""

from __future__ import annotations

import time

import numpy as np

from edge_runtime.manifest.frontends import Bands, FrontendSpec, Spectrum, Statistic
from edge_runtime.manifest.mel import Mel
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.signal.frontends import Frontend
from edge_runtime.signal.frontends.build import build

YAMNET = Mel(
    frame=400, fft=512, hop=160, bands=64, low_hz=125, high_hz=7500, mel="htk", norm="none", power=1, log="ln",
    floor=1e-3, stream=True,
)  # fmt: skip
KEYWORD = Mel(
    definition="tensorflow", frame=480, hop=320, bands=40, coefficients=10, low_hz=20, high_hz=4000, normalise="max"
)
CASES: list[tuple[str, FrontendSpec, tuple[int, ...]]] = [
    ("keyword MFCC, a second", KEYWORD, (16000, 1)),
    ("YAMNet, a second", YAMNET, (16000, 1)),
    ("YAMNet, a frame", YAMNET, (512, 1)),
    ("anomaly log-mel, a second", Mel(frame=1024, hop=512, top_db=0), (16000, 1)),
    ("micro-frontend, 3 frames", MicroFrontend(), (800, 1)),
    ("spectrum of 512, a frame", Spectrum(frame=512, hop=128, values="complex"), (512, 1)),
    ("mad of 200 samples, 3 channels", Statistic(what=("mad",)), (200, 3)),
    ("envelope of 2,048 samples", Bands(rate_hz=12000, edges_hz=(20, 200), envelope_hz=(2000, 4500)), (2048, 1)),
]


def us_per_row(frontend: Frontend, cut: tuple[int, ...], batch: int) -> float:
    """Return the least CPU time of a row over some rounds."""
    cuts = np.random.default_rng(0).normal(0, 0.1, (batch, 1, *cut)).astype(np.float32)
    states = [np.broadcast_to(s.initial, (batch, *s.shape)).astype(s.dtype) for s in frontend.states]
    best = float("inf")
    for _ in range(15):
        calls, begin = 0, time.process_time()
        while (spent := time.process_time() - begin) < 0.02:
            frontend(cuts, states)
            calls += 1
        best = min(best, spent / calls)
    return 1e6 * best / (batch * frontend.rows)


def main() -> None:
    print("| us of CPU per row | rows | 1 key | 32 keys |\n|---|---|---|---|")
    for name, spec, cut in CASES:
        frontend = build(spec, cut)
        times = [us_per_row(frontend, cut, batch) for batch in (1, 32)]
        print(f"| {name} | {frontend.rows} | {times[0]:.1f} | {times[1]:.1f} |")


if __name__ == "__main__":
    main()
