"""Examples that a user added are whole after a SIGKILL at any moment: those of before, or those of after."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from edge_runtime.manifest.outputs import EmbeddingOutput
from edge_runtime.model.tasks.learnt_examples import read_examples
from tests.task_bundles import task_bundle

_PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.store.durable.soft_state import SoftState
from edge_runtime.model.tasks.learnt_examples import LearntExamples, vectors_of
from edge_runtime.base.system.loop import Loop

manifest = open_bundle(Path(sys.argv[1])).manifest
examples = LearntExamples()
examples.use(manifest)
state = SoftState(Path(sys.argv[2]), examples.save, examples.restore)
state.open(Loop())
number = examples.counts().get("door", 0)
while True:
    if number == 120:
        number -= examples.remove(labels=["door"])
    examples.add("door", [(f"k@{number}", np.full(3000, number, np.float32))], vectors_of(manifest))
    number += 1
    assert state.write_now()
    print(number, flush=True)
"""
KILLS = 12


@pytest.mark.slow
def test_a_kill_leaves_whole_examples_and_none_that_was_told_is_lost(tmp_path: Path) -> None:
    """Mutations that this finds: a file written in place, and an answer before the write."""
    bundle, path = task_bundle(tmp_path / "task.edge", EmbeddingOutput(size=3000)), tmp_path / "outbox.examples"
    for kill in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(bundle), str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        with child:
            told = [int(child.stdout.readline()) for _ in range(kill + 1)]
            child.kill()
            told += [int(line) for line in child.stdout.read().splitlines()]
        _, found = read_examples(path.read_bytes())
        assert len(found) in (told[-1], told[-1] % 120 + 1)
        assert all((one.numbers == one.numbers[0]).all() for one in found)
    assert not list(tmp_path.glob("*.damaged"))
