"""State file under a SIGKILL at any moment, and on a full disk: whole, as it was before or as it is after."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.manifest.outputs import EmbeddingOutput
from edge_runtime.model.tasks.learnt_examples import read_examples
from edge_runtime.store.durable.state_file import StateFile, read_part
from tests.task_bundles import task_bundle

_PROGRAM = """
import sys
from pathlib import Path
import numpy as np
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.store.durable.state_file import StateFile
from edge_runtime.model.tasks.learnt_examples import LearntExamples, vectors_of
from edge_runtime.base.system.loop import Loop

manifest = open_bundle(Path(sys.argv[1])).manifest
examples = LearntExamples()
examples.use(manifest)
state = StateFile(Path(sys.argv[2]))
state.open(Loop())
state.add("examples", examples.save, examples.restore)
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
    bundle, path = task_bundle(tmp_path / "task.edge", EmbeddingOutput(size=3000)), tmp_path / "outbox.state.db"
    for kill in range(KILLS):
        child = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(bundle), str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        with child:
            told = [int(child.stdout.readline()) for _ in range(kill + 1)]
            child.kill()
            told += [int(line) for line in child.stdout.read().splitlines()]
        data = read_part(path, "examples")
        assert data is not None
        _, found = read_examples(data)
        assert len(found) in (told[-1], told[-1] % 120 + 1)
        assert all((one.numbers == one.numbers[0]).all() for one in found)
    assert not list(tmp_path.glob("*.damaged"))


@pytest.mark.slow
def test_a_full_disk_leaves_the_state_of_before_and_heals(tiny_disk: Path) -> None:
    path, data = tiny_disk / "outbox.state.db", [b"old"]
    state = StateFile(path)
    with closing(Loop()) as loop:
        state.open(loop)
    state.add("gate", lambda: data[0], data.append)
    assert state.write_now()
    ballast = tiny_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    data[0] = b"new" * 10_000
    assert not state.write_now()
    assert read_part(path, "gate") == b"old"
    ballast.unlink()
    assert state.write_now()
    assert read_part(path, "gate") == data[0]
    assert not list(tiny_disk.glob("*.damaged"))
