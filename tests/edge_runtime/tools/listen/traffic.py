"""Traffic as senders make it, for tests of ``listen``."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from edge_runtime.io.recordings.capture import Captured
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.propose import Proposal, observations_of, propose
from edge_runtime.tools.listen.trial import DraftTrial, try_table

T0 = 1_700_000_000.0


def contract(units: dict[str, str], rate_hz: float = 50.0, window: int = 50) -> InputContract:
    channels = tuple(Channel(name=name, unit=unit) for name, unit in units.items())
    return InputContract(channels=channels, rate_hz=rate_hz, window=window, hop=window)


MOTION = contract({"ax": "g", "ay": "g", "az": "g"})
IMU = contract({"ax": "g", "ay": "g", "az": "g", "wx": "rad/s", "wy": "rad/s", "wz": "rad/s"})
CLIMATE = contract({"temperature": "Cel", "humidity": "%RH"}, 0.1, 3)


def triad(i: int, size: float = 1.0) -> list[float]:
    """A sensor that is turned a little, in units of which gravity is `size`."""
    a = 0.3 * math.sin(i / 9)
    return [round(size * math.sin(a), 5), round(0.1 * size * math.sin(i / 5), 5), round(size * math.cos(a), 5)]


def messages(
    payload: Callable[[int], Any], n: int = 120, *, topic: str = "hall/m1", step_s: float = 0.02, delay_s: float = 0.1
) -> list[Captured]:
    """`n` messages, one each `step_s`; what is no bytes is written as JSON."""
    made = []
    for i in range(n):
        body = payload(i)
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        made.append(Captured(topic, data, T0 + i * step_s + delay_s, retained=False))
    return made


def mixed(*parts: Sequence[Captured], seed: int = 1) -> list[Captured]:
    """All messages by their time of arrival; those of the same moment in any order."""
    rng = random.Random(seed)
    return sorted((message for part in parts for message in part), key=lambda one: (one.received, rng.random()))


def best(
    traffic: Sequence[Captured], wanted: InputContract, filters: Sequence[str] = ()
) -> tuple[Proposal, DraftTrial]:
    """The first proposal, and what it makes of the traffic."""
    capture = Capture(traffic)
    proposals = propose(capture, observations_of(capture), wanted, filters)
    assert proposals, "nothing is proposed"
    return proposals[0], try_table([table.data() for table in proposals[0].tables], capture, wanted)
