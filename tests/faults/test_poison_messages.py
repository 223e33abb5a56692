"""S1: hostile messages. Each is refused, in well under a millisecond, and counted; memory stays flat.

Mutation that was seen to fail here: not counting a refusal (``self._metrics.dropped[reason] += 1`` in `Refusals`).
"""

from __future__ import annotations

import json
import logging
import random
import time
from collections import Counter

import pytest

from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.metrics import Metrics
from tests.faults.conftest import Note
from tests.faults.fuzz_codecs import NOW, REASONS, Target, check, mutate, targets
from tests.faults.resident_memory import resident
from tests.long_tier import Tier

MOST_REFUSED_S = 1e-3
FLAT_BYTES = 10 * 2**20


def bombs() -> list[bytes]:
    """What people send to see it fall: depth, digits, sizes, numbers that are none, text that is none."""
    rows = [[0.0, 0.0, 0.0]] * 4

    def own(**fields: object) -> bytes:
        return json.dumps({"key": "k", "t": NOW, "values": rows} | fields).encode()

    return [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"key":"k","t":' + b"9" * 5_000 + b',"values":[[1,2,3]]}',
        b'{"key":"k","t":1e999,"values":[[1,2,3]]}',
        b'{"key":"k","t":NaN,"values":[[NaN,2,3]]}',
        b'{"key":"k","t":1,"values":[[Infinity,2,-Infinity]]}',
        b'{"key":"\\ud800","t":1,"values":[[1,2,3]]}',
        b'{"key":"k","key":"l","t":1,"t":2,"values":[[1,2,3]],"values":[]}',
        own(values=[[1e39, 0.0, 0.0]]),
        own(values=[[0.0] * 4] * 4),
        own(values=[[0.0, 0.0]] * 4),
        own(values=[[[0.0]]]),
        own(values=[]),
        own(values="0,0,0"),
        own(values={"ax": [1]}),
        own(t="yesterday"),
        own(t=[]),
        own(t=-1e300),
        own(key=""),
        own(key="k" * 100_000),
        own(key=None, unit="furlong"),
        b"\xff\xfe" * 1_000,
        b"\x9f" * 50_000,
        b"\xdd\xff\xff\xff\xff",
        b"\x9b\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\0" * 10_000_000,
        b'"' + b"a" * 10_000_000 + b'"',
        b"",
    ]


class Counted:
    """A codec behind the runtime's own decoder, which counts what it refuses."""

    def __init__(self, target: Target) -> None:
        self.metrics = Metrics()
        self.good = target.good
        self.decoder = Decoder(target.codec, self.metrics)

    def send(self, message: bytes, key: str) -> tuple[str, float]:
        """Returns ``ok``, ``missing`` or the reason that was counted, and the seconds of processor time that it took.

        ``missing``: the message says so itself of each value, which loses nothing; it is counted as arrived.
        """
        before = self.metrics.dropped.total()
        arrived = self.metrics.counts["messages_total"]
        reasons = Counter(self.metrics.dropped)
        began = time.thread_time()  # of this thread alone: a busy machine is not the message's fault
        readings = self.decoder([(key, message)], NOW)
        took = time.thread_time() - began
        if readings:
            check(readings)
            assert self.metrics.dropped.total() == before, message[:80]
            return "ok", took
        assert self.metrics.counts["messages_total"] == arrived + 1, message[:80]
        if self.metrics.dropped.total() == before:
            return "missing", took
        (reason,) = +(self.metrics.dropped - reasons)
        assert self.metrics.dropped.total() == before + 1, message[:80]
        assert reason in REASONS, reason
        return reason, took


@pytest.fixture(autouse=True)
def quiet() -> None:
    """Refusals are counted, and their few lines of log are of no interest here."""
    logging.getLogger("edge_runtime.io.sources.decoding").setLevel(logging.CRITICAL)


def test_hostile_messages_are_refused_counted_and_cheap(rng: random.Random, tier: Tier, note: Note) -> None:
    messages = tier(100_000, 10_000_000)
    everyone = [Counted(target) for target in targets()]
    seen: Counter[str] = Counter()
    refused_s: list[float] = []
    warm = messages // 5
    for number in range(messages):
        counted = rng.choice(everyone)
        message = mutate(rng, rng.choice(counted.good)) if rng.random() < 0.97 else rng.randbytes(rng.randrange(60))
        outcome, took = counted.send(message, rng.choice(("", "topic")))
        seen[outcome] += 1
        if outcome not in ("ok", "missing") and len(refused_s) < 200_000:
            refused_s.append(took)
        if number == warm:
            before = resident()
    growth = resident() - before
    refused_s.sort()
    p99 = refused_s[int(0.99 * len(refused_s))]
    assert seen.total() == messages
    assert growth <= FLAT_BYTES, f"{growth} bytes more after {messages - warm} messages"
    assert p99 <= MOST_REFUSED_S, f"p99 {p99 * 1e3:.2f} ms"
    refused = messages - seen["ok"] - seen["missing"]
    assert seen["missing"] < messages // 100, "only what names every value as missing"
    note(
        "S1",
        f"{messages:,} messages: {refused:,} refused and counted, 0 crashes, 0 uncounted; refusal p99 "
        f"{p99 * 1e6:.0f} us, slowest {refused_s[-1] * 1e3:.1f} ms; memory +{growth / 2**20:.1f} MiB",
    )


def test_bombs_are_refused_and_counted_by_every_codec(note: Note) -> None:
    """Ten megabytes, a hundred thousand levels, five thousand digits: nobody falls, and memory comes back."""
    outcomes: Counter[str] = Counter()
    slowest = 0.0
    for counted in [Counted(target) for target in targets()]:
        for bomb in bombs():
            outcome, took = counted.send(bomb, "topic")
            outcomes[outcome] += 1
            slowest = max(slowest, took)
            for good in counted.good[:1]:
                # And the next good one is read as ever. A codec of sound may know it again, or hold its few samples.
                assert counted.send(good, "topic")[0] in ("ok", "duplicate", "missing")
    assert slowest < 10, f"{slowest:.0f} s of processor time for one message"
    note("S1", f"{outcomes.total()} bombs of up to 10 MB: {dict(outcomes)}; slowest {slowest * 1e3:.0f} ms")
