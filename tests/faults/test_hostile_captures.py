"""No message ends a command: ``listen`` on captured messages that are mutated, huge or both."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import cbor2
import orjson
import pytest

from edge_runtime.io.codecs.numbers import MAX_BYTES
from edge_runtime.tools.cli import main
from tests.faults.fuzz_codecs import mutate, targets
from tests.long_tier import Tier

LARGE = (
    b"x" * (MAX_BYTES + 1),
    b'{"a":[' + b"1," * MAX_BYTES + b"1]}",
    b"\xff\xd8\xff" + bytes(10**6),
    cbor2.dumps({"t": 1, "ax": 10**400, "ay": [10**400, -(10**400)], "az": [[10**400]]}),
)


def captured(path: Path, messages: list[tuple[str, bytes]]) -> Path:
    """A file of messages, as ``mosquitto_sub -F %j`` would write them."""
    lines = [
        orjson.dumps({"tst": 1.7e9 + i * 0.1, "topic": topic, "payload_base64": base64.b64encode(payload).decode()})
        for i, (topic, payload) in enumerate(messages)
    ]
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.mark.parametrize("payload", LARGE, ids=["noise", "numbers", "picture", "whole numbers of any size"])
def test_a_large_message_ends_nothing(payload: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = [("hall/a", orjson.dumps({"t": 1.7e9 + i * 0.1, "ax": i % 7 / 4})) for i in range(20)]
    path = captured(tmp_path / "heard.jsonl", [("large", payload), ("large", payload), *good])
    assert main(["listen", str(path), "--no-ask"]) in (0, 1)
    out, err = capsys.readouterr()
    assert "heard 22 messages on 2 topics" in out
    assert "Traceback" not in err


@pytest.mark.slow
def test_mutated_messages_of_every_codec_end_nothing(
    tmp_path: Path, rng: random.Random, tier: Tier, capsys: pytest.CaptureFixture[str]
) -> None:
    for turn in range(tier(12, 400)):
        messages = [
            (f"topic/{number % 3}/{target.codec.name}", mutate(rng, rng.choice(target.good)))
            for number, target in enumerate(rng.sample(targets(), 6))
            for _ in range(rng.randrange(1, 12))
        ]
        assert main(["listen", str(captured(tmp_path / f"{turn}.jsonl", messages)), "--no-ask"]) in (0, 1)
        assert "Traceback" not in capsys.readouterr().err
