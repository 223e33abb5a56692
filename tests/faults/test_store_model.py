"""R14: the outbox against a plain dict, in random sequences of calls, crashes and clock jumps.

The machine and its model stand in tests/edge_runtime/store/durable/outbox/test_model.py; here they run for longer, a
process on each core, with a seed that is printed.

Mutation that was seen to fail here: taking the newest first (``ORDER BY priority, seq DESC`` in `queries._READY`).
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.faults.conftest import Note
from tests.integration.running import ROOT, environment
from tests.long_tier import Tier

STEPS = 50


@pytest.mark.slow
def test_random_sequences_do_not_diverge_from_a_dict(seed: int, tier: Tier, note: Note) -> None:
    processes = min(2, os.cpu_count() or 1)
    each = tier(100, 50_000) // processes
    running = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.edge_runtime.store.durable.outbox.test_model", "--sequences", str(each)),
                *("--steps", str(STEPS), "--seed", str(seed + number)),
            ],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT, env=environment(),
        )
        for number in range(processes)
    ]  # fmt: skip
    said = [process.communicate()[0] for process in running]
    for process, text in zip(running, said, strict=True):
        assert process.returncode == 0, text[-6_000:]
        assert "no divergence" in text
    note("R14", f"{processes} x {each:,} sequences of up to {STEPS} steps: no divergence from a plain dict")
