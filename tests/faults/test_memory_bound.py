"""R12: a sink that is slower than the sensors, and a process that may not grow: back-pressure, and not memory.

The application reads a pipe that is always full, each answer takes its time to hand over, and once it is warm the
process gets no more than 48 MiB of address space on top of what it has (RLIMIT_AS).

Mutation that was seen to fail here: a source that reads on whatever waits (`stdin.IN_FLIGHT` = 10**9).
"""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import orjson

from tests.faults.conftest import Note
from tests.integration.running import ROOT, environment
from tests.long_tier import Tier
from tests.models import tiny_bundle

PROGRAM = """
    import json, resource, sys
    from pathlib import Path
    from edge_runtime.app.application import App
    from edge_runtime.app.config import load_config
    from tests.faults.resident_memory import resident
    from tests.integration.running import load_model

    class Slow:
        "Hands over one lot of answers after the other, each in its own time."

        name = "slow"
        answers = handed = most = 0
        free_at = 0.0
        warm = 0

        def open(self, loop):
            self.loop = loop

        def send(self, answers, done):
            self.answers += len(answers)
            if not self.warm and self.answers > int(sys.argv[2]) // 10:
                self.warm = resident()
                pages = int(Path("/proc/self/statm").read_text().split()[0])
                limit = pages * resource.getpagesize() + 48 * 2**20
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            now = self.loop.clock.monotonic()
            self.free_at = max(now, self.free_at) + len(answers) * 1.5e-3
            self.most = max(self.most, self.answers - self.handed)
            self.loop.call_later(self.free_at - now, lambda: self.hand_over(answers, done))

        def hand_over(self, answers, done):
            self.handed += len(answers)
            done()

        def close(self, timeout_s):
            pass

    config = load_config(Path(sys.argv[1]))
    slow = Slow()
    app = App(config, model=load_model(config.model.bundle, config.model.variant), sinks=[slow])
    drained = app.run()
    print(json.dumps({
        "drained": drained, "answers": slow.answers, "most": slow.most, "growth": resident() - slow.warm,
        "readings": app.metrics.counts["readings_total"], "dropped": dict(app.metrics.dropped),
    }))
"""
APP = """
drain_timeout_s = 60.0
[model]
bundle = "tiny.edge"
unsigned = "allow"
variant = "onnx-fp32"
[[source]]
type = "stdin"
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""
WINDOW = 16
FLAT_BYTES = 10 * 2**20
MOST_HELD = 2_500
"""Answers that wait for the sink: eight lots of what a full pipe (64 KiB) gives at a time, some 2,000 at most."""


def test_a_slow_sink_slows_the_source_and_nothing_grows(memory: Path, tier: Tier, note: Note) -> None:
    readings = tier(6_000, 1_000_000)
    tiny_bundle(memory / "tiny.edge")
    (memory / "app.toml").write_text(APP)
    values = orjson.dumps(np.random.default_rng(12).normal(size=(WINDOW, 3)).tolist())
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(memory / "app.toml"), str(readings)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, env=environment(),
    ) as process:  # fmt: skip
        assert process.stdin is not None
        for number in range(readings):  # each one window; the pipe is full, so this waits for the application
            start = 1_700_000_000.0 + number * WINDOW / 50.0
            try:
                process.stdin.write(b'{"key":"k","t":%.3f,"values":%b}\n' % (start, values))
            except BrokenPipeError:
                break
        out, err = process.communicate(timeout=600)
    assert process.returncode == 0, err.decode()[-3_000:]
    said = json.loads(out)
    assert said["drained"]
    assert (said["readings"], said["answers"]) == (readings, readings)
    assert not said["dropped"]
    assert said["growth"] <= FLAT_BYTES, said
    assert said["most"] <= MOST_HELD, said
    grown = said["growth"] / 2**20
    note("R12", f"{readings:,} readings into a slow sink: at most {said['most']:,} held, memory {grown:+.1f} MiB")
