"""docs/payloads.md: every message of the page goes through the configuration below it, and gives what stands there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from edge_runtime.codecs.config import load_codec
from edge_runtime.config import AppConfig, parse
from edge_runtime.errors import InputError
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.recordings.reader import iter_readings
from edge_runtime.sources.build import SourceConfig
from edge_runtime.sources.decoding import Decoder
from edge_runtime.sources.mqtt import MqttSourceConfig, key_of
from edge_runtime.sources.recording import RecordingConfig
from edge_runtime.sources.serial import SerialConfig, SerialSource
from edge_runtime.sources.stdin import StdinConfig, StdinSource
from edge_runtime.system import toml
from edge_runtime.types import Reading
from tests.edge_runtime.sources.sensors import Listener, Port
from tests.integration.running import ROOT

PAGE = (ROOT / "docs/payloads.md").read_text("utf-8")
ARRIVED = 1_700_000_000.0
MODELS = {
    ("ax", "ay", "az"): ("m/s2", "m/s2", "m/s2", 50.0),
    ("temperature", "humidity"): ("Cel", "%RH", 0.1),
}
APP = """
[model]
bundle = "model.edge"
unsigned = "allow"
[broker.local]
url = "mqtt://localhost"
[[sink]]
type = "stdout"
"""
_EXAMPLE = re.compile(
    r"^(Topic|Standard input|Serial port|File)(?: `([^`]+)`)?(?:, bytes in hexadecimal)?:\n+"
    r"```(\w+)\n(.*?)^```\n+```toml\n(.*?)^```\n+```text\n(.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


class Example(NamedTuple):
    """One recipe of the page."""

    title: str
    where: str
    name: str
    """Topic or file; empty for streams."""
    message: bytes
    toml: str
    result: str

    @property
    def contract(self) -> InputContract:
        """The model that the result's column names belong to."""
        words = self.result.splitlines()[0].replace(")", "").split()
        names = tuple(words[words.index("(channels") + 1 :] if "(channels" in words else words[2:])
        *units, rate_hz = MODELS[names]
        channels = tuple(Channel(name=name, unit=str(unit)) for name, unit in zip(names, units, strict=True))
        return InputContract(channels=channels, rate_hz=float(rate_hz), window=100, hop=50)


def examples() -> list[Example]:
    found = []
    for section in PAGE.split("\n### ")[1:]:
        match = _EXAMPLE.search(section)
        title = section.split("\n", 1)[0]
        assert match, f"the recipe '{title}' has not the form message, toml, text"
        where, name, kind, message, toml, result = match.groups()
        data = bytes.fromhex(message) if kind == "hex" else message.encode()
        found.append(Example(title, where, name or "", data, toml, result))
    return found


EXAMPLES = examples()


def source_of(example: Example, folder: Path) -> SourceConfig:
    config: AppConfig = parse(APP + example.toml, folder / "app.toml")
    (source,) = config.source
    return source


def readings_of(example: Example, folder: Path) -> list[Reading]:
    """What the source and its codec make of the message."""
    source, contract = source_of(example, folder), example.contract
    if isinstance(source, RecordingConfig):
        path = folder / example.name
        path.write_bytes(example.message)
        return list(iter_readings(path, contract, source))
    assert isinstance(source, MqttSourceConfig | StdinConfig | SerialConfig)
    codec = load_codec(source.codec, contract.channels, rate_hz=contract.rate_hz)
    if isinstance(source, MqttSourceConfig):
        key = key_of(source)(example.name.encode())
        assert key is not None, "the topic is not among those asked for"
        return codec.decode(key, example.message.rstrip(b"\n"), ARRIVED)
    return streamed(source, Decoder(codec, Metrics()), example.message, folder)


def streamed(source: StdinConfig | SerialConfig, decoder: Decoder, data: bytes, folder: Path) -> list[Reading]:
    """Through a real pipe's or port's file descriptor."""
    if isinstance(source, StdinConfig):
        path = folder / "stdin"
        path.write_bytes(data)
        with path.open("rb") as file:
            listener = Listener(StdinSource(source, decoder, fd=file.fileno()))
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
        listener = Listener(SerialSource(plugged, decoder, Metrics()))
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
            stamp = reading.t + i * period_s if isinstance(reading.t, float | int) else float(reading.t[i])
            moment = datetime.fromtimestamp(round(stamp, 3), timezone.utc)
            shown = f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"
            rows.append([reading.key, shown, *(f"{value:g}" for value in values)])
    return rows


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.title)
def test_a_recipe_gives_what_the_page_says(example: Example, tmp_path: Path) -> None:
    """Mutations that this finds: a field mapping, unit of time, key rule or default that the page has wrong."""
    if any(codec in example.toml for codec in ('"cbor"', '"msgpack"')):
        pytest.importorskip("cbor2", reason='needs pip install "edge-runtime[codecs]"')
        pytest.importorskip("ormsgpack", reason='needs pip install "edge-runtime[codecs]"')
    refused = re.match(r"refused: (\w+)", example.result)
    if refused:
        with pytest.raises(InputError) as error:
            readings_of(example, tmp_path)
        assert error.value.reason == refused[1]
        return
    readings = readings_of(example, tmp_path)
    for reading in readings:
        assert reading.values.dtype == np.float32
    expected = [re.split(r"  +", line.strip()) for line in example.result.splitlines()]
    assert table(readings, example.contract) == expected


def test_the_page_has_every_codec_and_enough_real_senders() -> None:
    tables: list[dict[str, Any]] = [toml.loads(example.toml)["source"][0] for example in EXAMPLES]
    codecs = {source.get("codec", {}).get("type", "json") for source in tables}
    assert codecs == {"json", "msgpack", "cbor", "raw", "senml"}
    assert {source["type"] for source in tables} == {"mqtt", "stdin", "serial", "recording"}
    assert len(EXAMPLES) >= 25
