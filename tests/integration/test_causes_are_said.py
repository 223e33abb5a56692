"""The whole program reads what other people's encoders write, and names the cause of what it cannot read first."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import cbor2
import orjson
import ormsgpack
import pytest

from edge_runtime.manifest import Channel
from tests.integration.running import answers, command
from tests.models import tiny_bundle

pytestmark = pytest.mark.slow

NOW = 1_700_000_000
CLIMATE = (Channel(name="temperature", unit="Cel"), Channel(name="humidity", unit="%RH"))
SOURCE = """
[[source]]
type = "mqtt"
broker = "local"
topics = ["home/+"]
[source.codec]
type = "{type}"
{settings}
"""
MAPPED = 'channels = {temperature = "temperature", humidity = "humidity"}'


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bundle") / "climate.edge"
    return tiny_bundle(path, channels=2, window=4, rate_hz=0.1, hop=2, sensor=CLIMATE)


def played(
    folder: Path, bundle: Path, payloads: Iterable[bytes], *, kind: str = "json", settings: str = MAPPED
) -> tuple[int, str, int]:
    """Replay captured messages; the exit code, the log and the number of answers."""
    lines = [
        {
            "tst": f"2023-11-14T22:{13 + i // 6:02}:{i % 6 * 10:02}Z",
            "topic": "home/a",
            "payload_base64": base64.b64encode(one).decode(),
        }
        for i, one in enumerate(payloads)
    ]
    (folder / "heard.txt").write_text("\n".join(map(json.dumps, lines)) + "\n")
    (folder / "app.toml").write_text(SOURCE.format(type=kind, settings=settings))
    out = folder / "out.jsonl"
    done = command("replay", bundle, folder / "heard.txt", "--source", folder / "app.toml", "--out", out)
    return done.code, done.err, len(answers(out)) if out.exists() else 0


def documents(encode: Callable[[Any], bytes], **changes: Any) -> list[bytes]:
    return [encode({"t": NOW + 10 * i, "temperature": 21.5, "humidity": 40} | changes) for i in range(20)]


def date(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)


def stamped(seconds: int) -> bytes:
    """A document of MessagePack whose time has the format's own type."""
    head = b"\x83\xa1t\xd6\xff" + seconds.to_bytes(4, "big")
    return head + b"\xabtemperature" + ormsgpack.packb(21.5) + b"\xa8humidity" + ormsgpack.packb(40)


def test_a_time_of_messagepack_or_cbor_is_a_time_and_a_decimal_fraction_a_number(tmp_path: Path, bundle: Path) -> None:
    cbor = [
        cbor2.dumps(
            cbor2.CBORTag(
                55799, {"t": date(NOW + 10 * i), "temperature": Decimal("21.5"), "humidity": 40, 7: date(NOW)}
            )
        )
        for i in range(20)
    ]
    for kind, payloads in (("msgpack", [stamped(NOW + 10 * i) for i in range(20)]), ("cbor", cbor)):
        code, said, windows = played(tmp_path, bundle, payloads, kind=kind)
        assert (code, windows) == (0, 9), said
        assert "dropped: nothing" in said


CAUSES = {
    "decimal comma": (
        documents(orjson.dumps, temperature="21,5 °C"),
        'reason=decimal_comma: a number is written with a decimal comma: write decimal = "," under [source.codec]',
    ),
    "gzip": (documents(lambda one: gzip.compress(orjson.dumps(one))), "the payload is gzip data"),
    "zlib": (
        documents(lambda one: zlib.compress(orjson.dumps(one))),
        "reason=compressed: their payload is compressed: no",
    ),
    "word": (
        documents(orjson.dumps, humidity="dry"),
        "reason=not_a_number: a channel's field holds something else than",
    ),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_is_said_first_and_what_fits_it(tmp_path: Path, bundle: Path, cause: str) -> None:
    payloads, expected = CAUSES[cause]
    code, said, windows = played(tmp_path, bundle, payloads)
    assert (code, windows) == (3, 0)
    assert expected in said
    assert "set type" not in said
    assert "clock" not in said


def test_the_setting_that_the_log_names_mends_it(tmp_path: Path, bundle: Path) -> None:
    settings = f'{MAPPED}\ndecimal = ","\nunits = {{temperature = "Cel", humidity = "%RH"}}'
    code, said, windows = played(tmp_path, bundle, CAUSES["decimal comma"][0], settings=settings)
    assert (code, windows) == (0, 9), said


def test_a_decimal_comma_is_proposed_by_listen_and_no_time_stamp_as_temperature(tmp_path: Path, bundle: Path) -> None:
    payloads = [
        orjson.dumps({"zeit": NOW + 10 * i, "temperature": f"2{i % 5},{i % 7} °C", "humidity": "40"}) for i in range(60)
    ]
    played(tmp_path, bundle, payloads)
    said = command("listen", tmp_path / "heard.txt", "--bundle", bundle, "--no-ask")
    assert 'decimal = ","' in said.out
    assert 'temperature = "temperature"' in said.out
    assert 'time = "zeit"' in said.out
    assert "NO WINDOW" not in said.out


def test_a_sensor_that_sends_seldom_is_told_so_and_not_to_set_its_clock(tmp_path: Path, bundle: Path) -> None:
    payloads = [orjson.dumps({"t": NOW + 100 * i, "temperature": 21.5, "humidity": i}) for i in range(60)]
    code, said, windows = played(tmp_path, bundle, payloads)
    assert (code, windows) == (0, 0)
    assert "this key has a sample every 100 s, the model takes no gap longer than 50 s" in said
    assert "dropped: nothing" in said
    assert "clock" not in said


def test_messages_that_repeat_their_history_lose_nothing(tmp_path: Path, bundle: Path) -> None:
    """Each message holds its last four samples; the answers are those of one sample a message."""
    settings = 'samples = "."\n' + MAPPED
    rows = [{"t": NOW + 10 * i, "temperature": 20 + i, "humidity": 40 + i % 3} for i in range(20)]
    payloads = [orjson.dumps(rows[max(0, i - 3) : i + 1]) for i in range(20)]
    code, said, windows = played(tmp_path, bundle, payloads, settings=settings)
    assert (code, windows) == (0, 9), said
    assert "WARNING" not in said
    assert "54 duplicate" in said
