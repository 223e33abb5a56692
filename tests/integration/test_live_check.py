"""``run --check --seconds``: what the sources of an application get now, and what comes on other topics instead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest

from edge_runtime.tools.cli import main
from tests.integration.running import Message, Publisher, cut, streams
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

APP = """
[model]
bundle = "{bundle}"
unsigned = "allow"
variant = "onnx-fp32"
[broker.local]
url = "{url}"
status_topic = "status/app"
[[source]]
type = "mqtt"
broker = "local"
topics = ["{topic}"]
[[sink]]
type = "stdout"
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny.edge", variants=("onnx-fp32",))


@pytest.fixture(scope="module")
def broker() -> Iterator[Mosquitto]:
    with Mosquitto() as running:
        yield running


@contextmanager
def publishing(port: int, messages: list[Message]) -> Iterator[None]:
    """The same messages again and again, until the end."""
    ended = threading.Event()

    def publish() -> None:
        with Publisher(port) as publisher:
            while not ended.wait(0.05):
                publisher.send(messages)

    thread = threading.Thread(target=publish, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def check(
    folder: Path, bundle: Path, broker: Mosquitto, topic: str, capsys: pytest.CaptureFixture[str], *more: str
) -> tuple[int, str]:
    path = folder / "app.toml"
    path.write_text(APP.format(bundle=bundle, url=broker.url, topic=topic))
    code = main(["run", "--check", str(path), "--seconds", "1", *more])
    return code, capsys.readouterr().out


@pytest.mark.slow
def test_a_wrong_topic_is_shown_with_the_one_that_is_meant(
    bundle: Path, tmp_path: Path, broker: Mosquitto, capsys: pytest.CaptureFixture[str]
) -> None:
    (stream,) = streams(1, 40)
    with publishing(broker.port, cut(stream, lambda: 40)):
        code, said = check(tmp_path, bundle, broker, "watches/+/imu", capsys)
    assert code == 1
    assert "source[0]: in 1 s nothing on watches/+/imu, but on watch/watch-0/imu (" in said
    assert "set topics under [[source]]" in said
    assert "status/app" not in broker.log(), "it does not take the application's place"


@pytest.mark.slow
def test_readings_are_shown_and_refused_ones_with_their_reason(
    bundle: Path, tmp_path: Path, broker: Mosquitto, capsys: pytest.CaptureFixture[str]
) -> None:
    (stream,) = streams(1, 400)
    with publishing(broker.port, cut(stream, lambda: 400)):
        code, said = check(tmp_path, bundle, broker, "watch/+/imu", capsys, "--json")
    assert code == 0, said
    first, second, *_ = orjson.loads(said)["live"]
    assert first.endswith(" messages on watch/+/imu")
    assert "of 1 key (watch-0)" in second
    with publishing(broker.port, [Message("w", b'{"t": 1, "ax": 2}')]):
        code, said = check(tmp_path, bundle, broker, "watch/+/imu", capsys)
    assert code == 1
    assert "malformed; the last one: " in said


@pytest.mark.slow
def test_a_silent_broker_is_said(
    bundle: Path, tmp_path: Path, broker: Mosquitto, capsys: pytest.CaptureFixture[str]
) -> None:
    code, said = check(tmp_path, bundle, broker, "watch/+/imu", capsys)
    assert code == 1
    assert (
        "nothing on watch/+/imu, nor on any other topic: is [broker.local] the broker that the sensors publish to?"
        in said
    )
