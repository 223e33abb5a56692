"""S9: hostile, mutated and valid messages on every topic, to the whole application as a process that takes updates.

Real mosquitto, several subscriptions, a kill in the middle, a resumed session with retained messages. What is sent is
in `tests/integration/hostile.py`; single attacks are in `test_outside_never_ends_it.py` beside it.

Mutation that was seen to fail here: `keys.successor` without RecursionError (which is how that was found).
"""

from __future__ import annotations

import random
from pathlib import Path

from tests.faults.conftest import Note
from tests.integration.hostile import Site, fuzz
from tests.integration.running import Publisher
from tests.long_tier import Tier
from tests.mosquitto import Mosquitto, needs_mosquitto


@needs_mosquitto
def test_inference_outlives_every_message(tmp_path: Path, rng: random.Random, tier: Tier, note: Note) -> None:
    count = tier(5_000, 100_000)
    with (
        Mosquitto("max_queued_messages 0", "log_type error", "log_type subscribe") as mosquitto,
        Publisher(mosquitto.port) as publisher,
    ):
        answered, figures = fuzz(Site(tmp_path, mosquitto, publisher), rng, count)
    assert answered == count // 500
    errors = figures["counts"].get("side_channel_errors_total", 0)
    internal = figures["dropped"].get("internal_error", 0)
    assert (errors, internal) == (0, 0)
    note("S9", f"{count:,} messages on every topic: {answered} of {answered} good readings answered, 0 ends, 0 errors")
