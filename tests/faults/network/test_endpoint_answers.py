"""R9: whatever an endpoint answers, retryable cases are kept, refused ones are dead letters, and nobody blocks another.

Broken on purpose, each seen to fail here: `_FINAL` without 413 (nothing is buried), `_rejected` without singling out
(good rows are buried with the bad one), a breaker that opens at the fifth failure only, Retry-After or not (requests
before the time; it was like this when the test was written).
"""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from edge_runtime.base.system.retry import Retry
from edge_runtime.cloud.config import EscalationConfig
from tests.faults.conftest import Note
from tests.faults.network.endpoint import PATIENCE_S, RIGHT, Answer, Device, Endpoint
from tests.long_tier import Tier

SOON = Retry(base_s=0.01, cap_s=0.05)
SLOW_S = 0.1
"""A row's share of all the waiting for late answers and between attempts, on a busy machine."""
ERROR = b'{"error": "no"}'
ALWAYS = {
    "413": Answer(413, ERROR),
    "400": Answer(400, ERROR),
    "422": Answer(422, b"<html>no</html>"),
    "garbage": Answer(200, b"\x00\xff garbage"),
    "another answer": Answer(200, b'{"outputs": [{"name": "p", "datatype": "FP32", "shape": [1, 9], "data": [1]}]}'),
}
"""Will never be anything else: the case is to be buried."""
AT_FIRST = {
    "500": Answer(500, ERROR),
    "503": Answer(503, ERROR),
    "401": Answer(401, b"who are you?"),
    "302": Answer(302, b"", (("Location", "http://portal.example"),)),
    "late": Answer(after_s=0.3),
}
"""Time heals it: the case is to be kept."""
POISON = Answer(500, b'{"error": "the model crashed"}')


class Moods:
    """Judges a request by its worst row, as servers do; some rows heal after a few attempts."""

    def __init__(self, rng: random.Random, rows: int) -> None:
        kinds = [*ALWAYS, *AT_FIRST, "poison"]
        self.kind = {n: rng.choice(kinds) if rng.random() < 0.08 else "good" for n in range(rows)}
        self.kind[3] = "poison"
        self._bad = {n: rng.randrange(1, 3) for n, kind in self.kind.items() if kind in AT_FIRST}

    def judge(self, rows: list[int]) -> Answer:
        for n in rows:
            kind = self.kind.get(n, "good")
            if kind == "poison":
                return POISON
            if kind in ALWAYS:
                return ALWAYS[kind]
            if self._bad.get(n):
                self._bad[n] -= 1
                return AT_FIRST[kind]
        return RIGHT

    def rows(self, *kinds: str) -> set[int]:
        return {n for n, kind in self.kind.items() if kind in kinds}


def test_each_case_gets_its_verdict_and_blocks_nobody(
    tmp_path: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    """One row in twelve is bad; one crashes the model each time, and stays in the queue, alone."""
    count = tier(600, 20_000)
    moods = Moods(rng, count)
    good = moods.rows("good", *AT_FIRST)
    bad, poison = moods.rows(*ALWAYS), moods.rows("poison")
    config = EscalationConfig(unreadable_attempts=3)
    with Endpoint(moods.judge) as endpoint, Device(
        tmp_path, endpoint.port, retry=SOON, config=config, timeout_s=0.2, deadline_s=1.0
    ) as device:  # fmt: skip
        left = list(range(count))
        while left:
            part, left = left[:25], left[25:]
            device.submit(part)
            device.until(device.escalator.drained)
        fresh = iter(range(count, 10**6))
        answered: set[int] = set()
        heard = 0

        def finished() -> bool:
            nonlocal heard
            answered.update(int(correction.id.removeprefix("k@")) for correction in device.corrections[heard:])
            heard = len(device.corrections)
            counts = device.outbox.counts()
            if counts.queued <= len(poison) + len(bad) - counts.dead:
                device.submit([next(fresh)])  # good answers in between tell a bad row from a bad endpoint
            return counts.dead == len(bad) and good <= answered

        device.until(finished, PATIENCE_S + count * SLOW_S)
        assert answered & (bad | poison) == set()
        letters = {int(letter.case.id.removeprefix("k@")): letter for letter in device.outbox.dead_letters()}
        assert set(letters) == bad
        assert {letter.reason for letter in letters.values()} == {"rejected"}
        device.until(lambda: min(endpoint.asked[n] for n in poison) >= 5)
        assert {f"k@{n}" for n in poison} <= device.held()
        kinds = Counter(moods.kind.values())
    note("R9", f"{count} cases, {len(good)} answered, {len(bad)} buried, {len(poison)} kept: {dict(kinds)}")


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_silences_the_whole_device(tmp_path: Path, status: int, note: Note) -> None:
    """One request is told to come back later: none of the others, and no probe, goes out before."""
    told: list[float] = []

    def judge(_rows: list[int]) -> Answer:
        if not told:
            told.append(time.monotonic())
            return Answer(status, ERROR, (("Retry-After", "2"),))
        return RIGHT

    with Endpoint(judge) as endpoint, Device(
        tmp_path, endpoint.port, retry=SOON, config=EscalationConfig(max_batch=2)
    ) as device:  # fmt: skip
        device.submit(range(40))
        device.until(device.settled)
        after = min(when for when in endpoint.requests if when > told[0]) - told[0]
        assert after >= 2.0
        assert len(device.corrections) == 40
    note("R9", f"Retry-After 2 with {status}: silent for {after:.2f} s, 40 of 40 answered")


def test_an_answer_that_comes_too_late_is_asked_for_again_under_the_same_id(tmp_path: Path) -> None:
    late = [Answer(after_s=0.4)] * 2
    with Endpoint(lambda _rows: late.pop() if late else RIGHT) as endpoint, Device(
        tmp_path, endpoint.port, retry=SOON, timeout_s=0.1
    ) as device:  # fmt: skip
        device.submit(range(5))
        device.until(device.settled)
        assert {correction.id for correction in device.corrections} == {f"k@{n}" for n in range(5)}
        assert sum(endpoint.asked.values()) > 5
