"""Each message of docs/payloads*.md and docs/codecs.md through the configuration below it gives what stands there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
from edge_devices.sources.serial import SerialConfig, SerialSource

from edge_runtime.app.config import AppConfig, parse
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.recordings.reader import iter_readings
from edge_runtime.io.sources.build import SourceConfig, build_source
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.io.sources.recording import RecordingConfig
from edge_runtime.io.sources.stdin import StdinConfig, StdinSource
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading
from scripts.site import headings
from tests.edge_devices.sources.sensors import Listener, Port
from tests.edge_runtime.io.codecs.cookbook import APP, ARRIVED, PAGE, PAGES, SETTINGS, Entry, entries
from tests.edge_runtime.io.mqtt.clients import Bench, Inbox, unique
from tests.mosquitto import EXECUTABLE, either_broker

SENDERS = ("Smart home", "Phones", "Radio", "Industry", "Clouds")
"""Sections of programs and devices that exist; their recipes name the page of the maker."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A broker for the whole page: mosquitto, or the demo's where that is not installed."""
    with either_broker("mosquitto" if EXECUTABLE else "embedded") as broker:
        yield broker.url


def source_of(entry: Entry, folder: Path) -> SourceConfig:
    config: AppConfig = parse(APP + entry.source_table, folder / "app.toml")
    (source,) = config.source
    return source


def readings_of(entry: Entry, folder: Path, url: str, metrics: Metrics) -> list[Reading]:
    """What the source makes of the messages."""
    source = source_of(entry, folder)
    if isinstance(source, MqttSourceConfig):
        return published(source, entry, url, metrics)
    (message,) = entry.messages
    if isinstance(source, RecordingConfig):
        path = folder / message.name
        path.write_bytes(message.payload)
        return list(iter_readings(path, entry.contract, source))
    assert isinstance(source, StdinConfig | SerialConfig)
    codec = load_codec(source.codec, entry.contract.channels, rate_hz=entry.contract.rate_hz)
    return streamed(source, Decoder(codec, metrics), message.payload, folder)


def published(source: MqttSourceConfig, entry: Entry, url: str, metrics: Metrics) -> list[Reading]:
    """Through a real broker: retained messages first, as they stand there when the application comes."""
    messages = [
        Message(message.name.encode(), message.payload, b"", 1, retain=message.retained) for message in entry.messages
    ]
    end = f"{unique('end')}/of/page"
    got: list[Reading] = []
    with Bench() as bench:
        sender = bench.connected(url, publish_qos=1)
        stand: list[bool] = []
        sender.publish([message for message in messages if message.retain], lambda: stand.append(True))
        bench.until(lambda: stand or not any(message.retain for message in messages))
        over = Inbox()
        client = bench.broker_client(url, over, (end, 1))
        built = build_source(
            source,
            name="page",
            contract=entry.contract,
            broker_clients={"local": client},
            metrics=metrics,
            clock=SimulatedClock(ARRIVED),
        )

        def deliver(readings: Sequence[Reading], received: float, done: Done | None) -> None:
            got.extend(readings)
            if done is not None:
                done()

        built.open(bench.loop, deliver)
        bench.until(lambda: client.connected and not client._subscribing)
        sender.publish([message for message in messages if not message.retain])
        sender.publish([Message(end.encode(), b"", b"", 1)])
        bench.until(lambda: over.got)
        sender.publish([Message(message.topic, b"", b"", 1, retain=True) for message in messages if message.retain])
    return got


def streamed(source: StdinConfig | SerialConfig, decoder: Decoder, data: bytes, folder: Path) -> list[Reading]:
    """Through a real pipe's or port's file descriptor."""
    if isinstance(source, StdinConfig):
        path = folder / "stdin"
        path.write_bytes(data)
        with path.open("rb") as file:
            listener = Listener(StdinSource(source, decoder, clock=SimulatedClock(ARRIVED), fd=file.fileno()))
            listener.open()
            listener.until(lambda: listener.source.finished)
            listener.close()
        return listener.readings
    pytest.importorskip("serial", reason='needs pyserial: pip install "edge-runtime[serial]"')
    port = Port(folder)
    try:
        plugged = SerialConfig(
            **{field: getattr(source, field) for field in source.__slots__} | {"port": str(port.path)}
        )
        listener = Listener(SerialSource(plugged, decoder, Metrics(), SimulatedClock(ARRIVED)))
        listener.open()
        port.send(data)
        listener.until(lambda: listener.readings)
        listener.close()
    finally:
        port.unplug()
    return listener.readings


def table(readings: Sequence[Reading], contract: InputContract) -> list[list[str]]:
    """Readings as the page shows them: a row for each sample."""
    rows = [["key", "time", *(channel.name for channel in contract.channels)]]
    for reading in readings:
        period_s = reading.period_s or 1 / contract.rate_hz
        for i, values in enumerate(reading.values):
            period_s = 0.0 if contract.frame is not None else period_s  # a picture has one stamp
            stamp = reading.t + i * period_s if isinstance(reading.t, float | int) else float(reading.t[i])
            moment = datetime.fromtimestamp(round(stamp, 3), timezone.utc)
            shown = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
            cells = ["-"] * len(contract.channels)
            for channel, value in zip(reading.channels or range(len(cells)), values, strict=True):
                cells[channel] = f"{value:g}"
            rows.append([reading.key, shown, *cells])
    return rows


@pytest.mark.parametrize("entry", [*entries(), *entries(SETTINGS)], ids=lambda entry: entry.name)
def test_a_recipe_gives_what_the_page_says(entry: Entry, tmp_path: Path, url: str) -> None:
    """Mutations that this finds: a field mapping, unit of time, key rule or default that the page has wrong."""
    if any(codec in entry.source_table for codec in ('"cbor"', '"msgpack"')):
        pytest.importorskip("cbor2", reason='needs pip install "edge-runtime[codecs]"')
        pytest.importorskip("ormsgpack", reason='needs pip install "edge-runtime[codecs]"')
    if '"frame"' in entry.source_table and "raw" not in entry.source_table:
        pytest.importorskip("simplejpeg", reason='needs pip install "edge-runtime[pictures]"')
    metrics = Metrics()
    readings = readings_of(entry, tmp_path, url, metrics)
    refused = re.match(r"refused: (\w+)", entry.result)
    kept = 0 if "hold" in entry.source_table else sum(message.retained for message in entry.messages)
    dropped = ({refused[1]: 1} if refused else {}) | ({"retained": kept} if kept else {})
    assert dict(metrics.dropped) == dropped, dict(metrics.examples)
    for reading in readings:
        assert reading.values.dtype == np.float32
    expected = [re.split(r"  +", line.strip()) for line in entry.result.splitlines()]
    assert table(readings, entry.contract) == expected or refused


def test_the_page_has_every_codec_and_enough_real_senders() -> None:
    tables = [entry.table for entry in entries()]
    codecs = {source.get("codec", {}).get("type", "json") for source in tables}
    assert codecs == set(vars(CodecConfig)["modules"])
    assert {source["type"] for source in tables} == {"mqtt", "stdin", "serial", "recording"}
    senders = [entry for entry in entries() if entry.section.startswith(SENDERS)]
    assert [entry.name for entry in senders if not entry.upstream] == []
    assert len({entry.upstream for entry in senders}) >= 35


def test_the_index_of_the_page_names_every_recipe() -> None:
    index = PAGE.read_text("utf-8").split("\n### ")[0]
    linked = re.findall(r"\]\(((?:payloads-\w+\.md)?#[\w-]+)\)", index)
    anchors = [f"{'' if page == PAGE else page.name}#{anchor}" for page in PAGES for anchor in headings(page)]
    recipes = {re.sub(r"[^\w\- ]", "", entry.name.lower()).replace(" ", "-") for entry in entries()}
    assert sorted(linked) == sorted(anchor for anchor in anchors if anchor.partition("#")[2] in recipes)
