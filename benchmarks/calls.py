"""Calls that a lone message costs, which do not depend on time: ``python -m benchmarks.calls [BUNDLE] [--json]``.

A message that completes a window lies in the kernel; then the program's own loop runs until its answer is there.
Counted are calls of Python functions, calls of functions in C, and those of the latter that enter the kernel, by their
names: waiting, reading and writing. ``blocks`` is by how many blocks of memory the interpreter held more afterwards:
what a message leaves behind. The hand-written loop is beside it, with the same library for the model.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Final

import orjson

from benchmarks.report import Report
from edge_runtime.model.bundle.variants import engine_for
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import load_model
from edge_runtime.tools.bench import BenchConfig, Driver, PacketStream, handwritten, runtime
from edge_runtime.tools.bench.feeder import Feeder
from edge_runtime.tools.bench.handwritten import library_call

BUNDLE: Final = Path("examples/exercise-watch/watch.edge")
MESSAGES: Final = 600
KERNEL: Final = frozenset(
    {"poll", "select", "recv", "recv_into", "recvmsg", "send", "sendall", "sendmsg", "read", "write"}
)


@dataclass(frozen=True)
class Calls:
    """Of one message: medians over the messages, but for `blocks`, which is the mean of all."""

    python: int
    c: int
    kernel: int
    blocks: float


class Counter:
    """Counts calls while it is the profiler of this thread."""

    def __init__(self) -> None:
        self.python = self.c = self.kernel = 0

    def __call__(self, _frame: FrameType, event: str, function: object) -> None:
        if event == "call":
            self.python += 1
        elif event == "c_call":
            self.c += 1
            self.kernel += getattr(function, "__name__", "") in KERNEL


def counted(driver: Driver, feeder: Feeder, packets: Sequence[bytes]) -> Calls:
    """Give a program messages one at a time, and count its calls."""
    third = len(packets) // 3
    for part in (packets[:third], packets[third : 2 * third]):  # the first one fills what is kept once
        before = _blocks()
        for packet in part:
            driver.handle([packet])
        feeder.results.clear()
        blocks = (_blocks() - before) / third
    counters = [_one(driver, feeder, packet) for packet in packets[2 * third :]]
    feeder.results.clear()
    return Calls(
        python=round(statistics.median(one.python for one in counters)),
        c=round(statistics.median(one.c for one in counters)),
        kernel=round(statistics.median(one.kernel for one in counters)),
        blocks=blocks,
    )


def _one(driver: Driver, feeder: Feeder, packet: bytes) -> Counter:
    feeder.send(packet)
    target, counter = driver.seen() + 1, Counter()
    while driver.seen() < target or driver.busy():
        sys.setprofile(counter)
        driver.step()
        sys.setprofile(None)
        counter.python -= 1  # the function around the step
        counter.c -= 1  # setprofile itself
    while feeder.serve():
        pass
    return counter


def _blocks() -> int:
    gc.collect()
    return sys.getallocatedblocks()


def calls(bundle: Path, messages: int) -> dict[str, Calls]:
    """Count for edge-runtime and for the hand-written loop.

    Args:
        bundle: whose windows and model.
        messages: in all, for each of the two.
    """
    config = BenchConfig(bundle=bundle, streams=4)
    model = load_model(ModelConfig(bundle=bundle, unsigned="allow"))
    found = {}
    with ExitStack() as stack:
        stack.callback(model.close)
        golden, _ = model.bundle.golden(model.variant.name)
        call = library_call(model.variant, model.bundle.read_variant(model.variant.name), engine_for(model.variant))
        for name, started in (
            ("edge-runtime", runtime(model, config)),
            ("hand-written loop", handwritten(model.manifest, call)),
        ):
            driver, feeder = stack.enter_context(started)
            stream = PacketStream(model.manifest, golden, config.streams)
            windows = -(-model.manifest.input.window // stream.samples)
            driver.handle(stream.next(config.streams * windows))
            found[name] = counted(driver, feeder, stream.next(messages))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__.splitlines()[0])
    parser.add_argument("bundle", nargs="?", type=Path, default=BUNDLE, metavar="BUNDLE")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="of each program (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="one JSON object, for programs")
    options = parser.parse_args()
    found = calls(options.bundle, options.messages)
    if options.json:
        print(orjson.dumps({name: asdict(one) for name, one in found.items()}).decode())
        return 0
    made = Report(
        "calls of a lone message that completes a window", ("program", "Python", "C", "kernel", "blocks kept")
    )
    made.rows += [(name, one.python, one.c, one.kernel, one.blocks) for name, one in found.items()]
    print(made.text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
