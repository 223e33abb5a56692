"""One signal in every format, through a real broker into a real process: the same answers, whatever carried it."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from tests.edge_runtime.io.codecs.sparkplug_messages import metric
from tests.edge_runtime.io.codecs.sparkplug_messages import payload as sparkplug_payload
from tests.integration.running import Answer, Floats, Process, Publisher, predictions, streams, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, needs_mosquitto

NAMES = ("c0", "c1", "c2")
SAMPLES, WINDOWS = 64, 7
START_MS = 1_700_000_000_000
FLOAT = 9

APP = """
[model]
unsigned = "allow"
bundle = "{bundle}"
variant = "onnx-fp32"
[broker.b]
url = "{broker}"
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""
SOURCES = {
    "json": 'topics = ["json/+/data"]',
    "csv": 'topics = ["csv/+/data"]\n[source.codec]\ntype = "csv"',
    "senml": 'topics = ["senml/+/data"]\n[source.codec]\ntype = "senml"',
    "influx": 'topics = ["influx/+/data"]\n[source.codec]\ntype = "influx"\npartial = true',
    "sparkplug": 'topics = ["sparkplug/+/+"]\n[source.codec]\ntype = "sparkplug"\npartial = true',
    "axes": (
        'channels = {c0 = "axes/+/c0", c1 = "axes/+/c1", c2 = "axes/+/c2"}\n'
        '[source.codec]\ntype = "json"\ntime_unit = "ms"\nvalues = "v"'
    ),
}
"""Source table of each format, which is the first level of its topics and the beginning of its keys."""

Sent = list[tuple[str, bytes]]


def ms(i: int) -> int:
    return START_MS + 20 * i


def in_json(x: Floats) -> Sent:
    return [("data", orjson.dumps({"t": ms(i) / 1e3, "values": x[i : i + 8].tolist()})) for i in range(0, len(x), 8)]


def in_csv(x: Floats) -> Sent:
    rows = [f"{ms(i) / 1e3},{','.join(map(str, row))}" for i, row in enumerate(x.tolist())]
    return [("data", "\n".join(["t,c0,c1,c2", *rows[i : i + 8]]).encode()) for i in range(0, len(rows), 8)]


def in_senml(x: Floats) -> Sent:
    return [
        ("data", orjson.dumps([{"n": name, "t": ms(i) / 1e3, "v": v} for name, v in zip(NAMES, row, strict=True)]))
        for i, row in enumerate(x.tolist())
    ]


def in_line_protocol(x: Floats) -> Sent:
    """A line for each value, as some gateways write them."""
    return [
        ("data", "\n".join(f"imu {name}={v} {ms(i)}000000" for name, v in zip(NAMES, row, strict=True)).encode())
        for i, row in enumerate(x.tolist())
    ]


def in_sparkplug(x: Floats) -> Sent:
    """A birth with the first sample, then a message for each value, by alias alone."""
    births = [
        metric(v, name=name, alias=j, ms=ms(0), datatype=FLOAT)
        for j, (name, v) in enumerate(zip(NAMES, x[0].tolist(), strict=True))
    ]
    data = [
        ("DDATA", sparkplug_payload(metric(v, alias=j, ms=ms(i)), ms=ms(i) + 7))
        for i, row in enumerate(x.tolist())
        for j, v in enumerate(row)
        if i
    ]
    return [("DBIRTH", sparkplug_payload(*births, ms=ms(0))), *data]


def on_axes(x: Floats) -> Sent:
    """The axes one after another, a second of each at a time."""
    return [
        (name, orjson.dumps({"t": ms(i), "v": v}))
        for begin in range(0, len(x), 16)
        for j, name in enumerate(NAMES)
        for i, v in enumerate(x[begin : begin + 16, j].tolist(), begin)
    ]


FORMATS: dict[str, Callable[[Floats], Sent]] = {
    "json": in_json,
    "csv": in_csv,
    "senml": in_senml,
    "influx": in_line_protocol,
    "sparkplug": in_sparkplug,
    "axes": on_axes,
}


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return tiny_bundle(tmp_path / "tiny.edge", hop=8)


def app(bundle: Path, broker: Mosquitto, folder: Path, *formats: str) -> Path:
    tables = [f'[[source]]\ntype = "mqtt"\nbroker = "b"\nkey = "{{0}}-{{1}}"\n{SOURCES[name]}\n' for name in formats]
    path = folder / "app.toml"
    path.write_text(APP.format(bundle=bundle, broker=broker.url) + "".join(tables), "utf-8")
    return path


def of(found: list[Answer], key: str) -> list[Answer]:
    return [answer for answer in found if answer["key"] == key]


@needs_mosquitto
@pytest.mark.slow
def test_every_format_gives_the_same_answers(bundle: Path, tmp_path: Path) -> None:
    """Mutations that this finds: a stamp, value or channel that one format rounds, shifts or swaps."""
    recorded = {device: stream.values for device, stream in zip("ab", streams(2, SAMPLES), strict=True)}
    with Mosquitto() as broker:
        path = app(bundle, broker, tmp_path, *FORMATS)
        with Process(tmp_path, "run", path) as process, Publisher(broker.port) as publisher:
            process.subscribed(broker)
            for name, write in FORMATS.items():
                for device, values in recorded.items():
                    for level, message in write(values):
                        publisher.publish(f"{name}/{device}/{level}", message, 1)
            publisher.flush()
            sink = tmp_path / "answers.jsonl"
            until(lambda: len(predictions(sink)) >= WINDOWS * len(recorded) * len(FORMATS), lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
    found = predictions(tmp_path / "answers.jsonl")
    for device in recorded:
        expected = [(a["start"], a["label"], a["scores"]) for a in of(found, f"json-{device}")]
        assert len(expected) == WINDOWS
        for name in FORMATS:
            assert [(a["start"], a["label"], a["scores"]) for a in of(found, f"{name}-{device}")] == expected, name
    assert "dropped" not in process.err


@needs_mosquitto
@pytest.mark.slow
def test_a_start_between_two_births_says_what_to_do_and_goes_on_with_the_next(bundle: Path, tmp_path: Path) -> None:
    (stream,) = streams(1, SAMPLES)
    birth, *data = in_sparkplug(stream.values)
    with Mosquitto() as broker:
        path = app(bundle, broker, tmp_path, "sparkplug")
        with Process(tmp_path, "run", path) as process, Publisher(broker.port) as publisher:
            process.subscribed(broker)
            for level, message in data[:9]:
                publisher.publish(f"sparkplug/a/{level}", message, 1)
            process.says("reason=no_birth")
            assert "Node Control/Rebirth" in process.err
            for level, message in [birth, *data]:
                publisher.publish(f"sparkplug/a/{level}", message, 1)
            until(lambda: len(predictions(tmp_path / "answers.jsonl")) >= WINDOWS, lambda: process.err)
