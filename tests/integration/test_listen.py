"""From lines of mosquitto_pub to the first label: ``listen`` writes the application, and nobody edits it.

The messages are those of docs/payloads.md, which names the program that sends each. They come again and again, with
their stamps moved on, as their senders would send them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.edge_runtime.io.codecs.cookbook import ARRIVED, Entry, entries
from tests.integration.running import PATIENCE_S, Process, command, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, needs_mosquitto

ROUNDS = 10
STEP_S = 1
"""Seconds from one round of messages to the next, as their stamps say it."""
RATE_HZ = 4.0
LISTEN_S = 4.0
WITHOUT = {
    "Raw float32": "bytes without names: nothing tells them from other bytes",
    "Homie, version 5": "one channel comes in words: which of them is 1?",
    "Modbus gateway: Wiren Board": "its topics are called Urms, Irms and P",
    "DSMR-reader (smart meters)": "its power is called currently delivered",
    "Victron Venus OS": "its current is null in every message",
    "LoRaWAN without a payload formatter": "bytes without names, in base64",
    "Ruuvi Gateway": "bytes without names, in hexadecimal",
    "EMS-ESP (boilers and heat pumps)": "one of two channels, of which heating circuit?",
    "OGC SensorThings": "one of two channels, and topics have numbers in place of names",
    "CSV text as spreadsheets of continental Europe write it": "its rows are 10 s apart, and this test's rounds 1 s",
}
"""Formats that are not read unedited, and why. Anything else has to be."""

pytestmark = [
    needs_mosquitto,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="needs Debian's mosquitto-clients"),
]

_EPOCH = re.compile(r"(?<![\d.])1[67]\d{8}(?:\.\d+|\d{3}|\d{6}|\d{9})?(?![\d])")
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?")
_OWN_START = re.compile(r'(?<="t": \[)(0\.\d+), (0\.\d+)(?=\])')


def later(payload: bytes, seconds: int) -> bytes:
    """The same message with its stamps moved on."""
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return later_binary(payload, seconds)

    def number(match: re.Match[str]) -> str:
        digits = match[0]
        if "." in digits:
            return f"{float(digits) + seconds:.6f}"
        return str(int(digits) + seconds * 10 ** (len(digits) - 10))

    def date(match: re.Match[str]) -> str:
        whole, _, fraction = match[0].partition(".")
        moment = datetime.fromisoformat(whole) + timedelta(seconds=float(f"0.{fraction or 0}") + seconds)
        return moment.isoformat(whole[10], "milliseconds" if fraction else "seconds")

    def own_start(match: re.Match[str]) -> str:
        return ", ".join(f"{float(one) + seconds:.2f}" for one in match.groups())

    return _OWN_START.sub(own_start, _DATE.sub(date, _EPOCH.sub(number, text))).encode()


def later_binary(payload: bytes, seconds: int) -> bytes:
    """Move stamps on: whole seconds in four bytes, as CBOR and MessagePack have them, and milliseconds as varints."""

    def varint(match: re.Match[bytes]) -> bytes:
        stamp = sum((byte & 127) << 7 * i for i, byte in enumerate(match[0]))
        if abs(stamp / 1e3 - ARRIVED) > 3600:
            return match[0]
        stamp += 1000 * seconds
        return bytes((stamp >> 7 * i & 127) | (128 if i < 5 else 0) for i in range(6))

    moved = payload.replace(int(ARRIVED).to_bytes(4, "big"), (int(ARRIVED) + seconds).to_bytes(4, "big"))
    return re.sub(rb"[\x80-\xff]{5}[\x01-\x7f]", varint, moved, flags=re.DOTALL)


def publish(broker: Mosquitto, entry: Entry, begin: int) -> None:
    """Type the recipe's messages, round after round."""
    for k in range(begin, begin + ROUNDS):
        for message in entry.messages:
            subprocess.run(
                ["mosquitto_pub", "-h", "127.0.0.1", "-p", str(broker.port), "-t", message.name, "-s",
                 *(["-r"] if message.retained else [])],
                input=later(message.payload, k * STEP_S),
                check=True, timeout=PATIENCE_S,
            )  # fmt: skip
        time.sleep(1 / RATE_HZ)  # senders without a clock are dated by their arrival


def bundle_for(entry: Entry, folder: Path) -> Path:
    channels = entry.contract.channels
    return tiny_bundle(
        folder / f"{channels[0].name}.edge",
        channels=len(channels),
        window=4,
        hop=2,
        rate_hz=RATE_HZ,
        input_contract={"max_gap_s": 3.0},
        sensor=channels,
    )


def first_label(entry: Entry, folder: Path) -> str:
    """Listen, check, run; empty if a label came, else why not."""
    folder.mkdir()
    bundle, app = bundle_for(entry, folder), folder / "app.toml"
    levels = entry.messages[0].name.split("/")
    wanted = f"{levels[0]}/#" if len(levels) > 1 else levels[0]
    with Mosquitto() as broker:
        address = f"127.0.0.1:{broker.port}"
        options = ("--bundle", bundle, "--seconds", str(LISTEN_S), "--out", app, "--no-ask")
        with Process(folder, "listen", address, wanted, *options, name="listen") as listen:
            until(lambda: broker.log().count("Sending SUBACK") == 1, lambda: listen.err)
            publish(broker, entry, 0)
            listen.wait()
            if not app.exists():
                return f"no table: {(listen.out + listen.err)[-300:]}"
        checked = command("run", "--check", app)
        if checked.code:
            return f"--check refuses it: {checked.err[-300:]}"
        with Process(folder, "run", app, name="run") as run:
            until(lambda: broker.log().count("Sending SUBACK") == 2, lambda: run.err)
            publish(broker, entry, ROUNDS)
            try:
                until(lambda: '"label"' in run.out, seconds=5.0)
            except AssertionError:
                return f"no label: {run.err[-300:]}\n{app.read_text('utf-8')}"
    return ""


def recipes() -> Iterator[Entry]:
    """Those of numbers: sound and pictures have no names that a listener could know."""
    for entry in entries():
        if entry.section == "Sound and pictures":
            continue
        if entry.messages[0].where == "Topic" and not entry.result.startswith("refused"):
            yield entry


def test_listen_writes_the_table_of_most_formats(tmp_path: Path) -> None:
    """Mutations that this finds: a name, a unit, a stamp or a key that is not recognised any more; text instead of a
    number; a table that ``run --check`` refuses."""
    found = list(recipes())
    with ThreadPoolExecutor(4) as pool:
        results = pool.map(lambda pair: first_label(pair[1], tmp_path / str(pair[0])), enumerate(found))
        reasons = dict(zip([entry.name for entry in found], results, strict=True))
    for name, reason in reasons.items():
        print(f"{'first label' if not reason else 'no':12} {name}{': ' + WITHOUT.get(name, reason) if reason else ''}")
    failed = {name: reason for name, reason in reasons.items() if reason and name not in WITHOUT}
    assert not failed
    assert sum(not reason for reason in reasons.values()) >= 15
