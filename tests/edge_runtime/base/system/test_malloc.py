"""What glibc does with memory that each iteration takes and gives back."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

ITERATIONS = 50
PROGRAM = f"""
import resource
import numpy as np
from edge_runtime.base.system.malloc import tune_malloc

def faults_of_an_iteration():
    def iteration():
        windows = np.ones((64, 4800), np.float32)
        samples = [np.ones(4800, np.float32) for _ in range(64)]
        return windows, samples
    iteration()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range({ITERATIONS}):
        iteration()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / {ITERATIONS}

print(tune_malloc(), faults_of_an_iteration())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the thresholds are glibc's")
def test_windows_of_sound_find_the_memory_of_the_iteration_before() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout.split()
    assert said[0] == "True"
    assert float(said[1]) < 30  # 600 pages of 4 KiB are written
