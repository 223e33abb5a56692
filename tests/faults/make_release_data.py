"""Write down what this release writes, for every later one to open: ``python -m tests.faults.make_release_data``.

Run it once for each release, before its tag, and commit ``tests/data/v<version>/``: two outboxes and two journals (one
closed in order, one as a kill leaves it, with its log) and a signed bundle with its public key. The private key is
thrown away. A release whose folder is there already is never written again: it would no longer be what that release
wrote. The journals of v0.1.0 were written by its commit b6cee38, later than the rest.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from edge_export.package.sign import SigningKey, new_key

from edge_runtime._version import __version__
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock, SystemClock
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.store.durable.config import ReadingLogConfig
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig
from edge_runtime.store.durable.reading_log import ReadingLog
from edge_runtime.types import Reading
from tests.models import tiny_bundle

CONTRACT = InputContract(
    channels=(Channel(name="a", unit="1"), Channel(name="b", unit="1")), rate_hz=10.0, window=8, hop=4, context=16
)
"""Of the windows that a journal was written for."""
DATA = Path(__file__).resolve().parents[1] / "data"
CASES = 24


def cases() -> list[HardCase]:
    rng = random.Random(16)
    return [
        HardCase(f"watch-{n % 3}@{n}", f"watch-{n % 3}", 1_000.0 + n, 30.0, n % 2, n / CASES, rng.randbytes(200), b"{}")
        for n in range(CASES)
    ]


def expectation(case: HardCase, attempts: int) -> dict[str, Any]:
    body = base64.b64encode(case.body).decode()
    return {"key": case.key, "priority": case.priority, "body": body, "attempts": attempts}


def write_outbox(path: Path, *, closed: bool) -> dict[str, Any]:
    """An outbox with queued, waiting and dead cases; returns what it must be found to hold."""
    with tempfile.TemporaryDirectory() as folder:
        config = OutboxConfig(path=Path(folder) / path.name, max_bytes=256 * 1024, live_share=0.0)
        clock = SimulatedClock()
        outbox = Outbox(config, clock)
        outbox.put(cases())
        clock.advance(5.0)
        delivered = [case.id for case in outbox.lease(4, 2**20)]
        outbox.ack(delivered)
        waiting = [case.id for case in outbox.lease(3, 2**20)]
        outbox.retry(waiting, 60.0, "no answer")
        dead = [case.id for case in outbox.lease(2, 2**20)]
        outbox.move_to_dead_letters(dead, "rejected", "no")
        outbox.put_state("budget", b"7")
        if closed:
            outbox.close()
        for file in Path(folder).glob("outbox.db*"):
            if not file.name.endswith(".lock"):
                (path.parent / file.name.replace("outbox", path.stem)).write_bytes(file.read_bytes())
        outbox.close()
    there = {case.id: expectation(case, int(case.id in waiting)) for case in cases() if case.id not in delivered}
    return {"accepted": CASES, "delivered": len(delivered), "dead": sorted(dead), "cases": there, "budget": "7"}


def readings() -> list[Reading]:
    """Of two keys in turns, five samples each."""
    rng = np.random.default_rng(17)
    return [
        Reading(f"watch-{n % 2}", 1_000.0 + n // 2 * 0.5, rng.normal(size=(5, 2)).astype(np.float32))
        for n in range(2 * CASES)
    ]


def write_journal(folder: Path, *, closed: bool) -> None:
    """A journal of the first half of `readings`; the windows of the last four were not answered."""
    with tempfile.TemporaryDirectory() as scratch:
        loop, windower = Loop(), Windower(CONTRACT)
        config = ReadingLogConfig(path=Path(scratch) / "journal.db")
        reading_log = ReadingLog(config, loop=loop, metrics=Metrics(), clock=SystemClock())
        reading_log.recover(CONTRACT, WindowConfig(), windower, lambda _windows, _settled: None)[1]()
        for n, reading in enumerate(readings()[:CASES]):
            reading_log.write([reading], lambda: None)
            settled = reading_log.flush_iteration(windower.push([reading]), windower)
            if settled is not None and n < CASES - 4:
                settled()
            while not reading_log.drained():
                loop.iterate(1.0)
        if closed:
            reading_log.stop(windower, 60.0)
        for file in Path(scratch).glob("journal.db*"):
            if not file.name.endswith(".lock"):
                (folder / file.name).write_bytes(file.read_bytes())
        reading_log.close(60.0)
        loop.close()


def main() -> int:
    """Write the folder of the present version."""
    folder = DATA / f"v{__version__}"
    if folder.exists():
        print(f"{folder} is there already; a release's data is written once")
        return 1
    folder.mkdir(parents=True)
    expected = {}
    for name, closed in (("closed", True), ("killed", False)):
        (folder / name).mkdir()
        expected[name] = write_outbox(folder / name / "outbox.db", closed=closed)
        write_journal(folder / name, closed=closed)
    with tempfile.TemporaryDirectory() as keys:
        new_key(Path(keys) / "release.pem")
        signer = SigningKey(Path(keys) / "release.pem")
        tiny_bundle(
            folder / "tiny.edge", hop=8, variants=("onnx-fp32", "onnx-int8", "tflite-int8"), card="# Tiny\n",
            signer=signer,
        )  # fmt: skip
        (folder / "release.pub.pem").write_bytes((Path(keys) / "release.pub.pem").read_bytes())
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(f"wrote {folder}; commit it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
