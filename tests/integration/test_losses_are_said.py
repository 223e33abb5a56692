"""Nothing is lost in silence: the log has the reason and what to do, and the exit code is not that of success."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import orjson
import pytest

from edge_runtime.tools.cli import main
from tests.integration.running import (
    Message,
    Process,
    Publisher,
    answers,
    command,
    cut,
    listening,
    payload,
    predictions,
    streams,
    until,
    write_recording,
)
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

LOST = 3
APP = """
silence_s = {silence}
[model]
bundle = "{bundle}"
unsigned = "allow"
variant = "onnx-fp32"
[broker.local]
url = "{url}"
protocol = "{protocol}"
[[source]]
type = "mqtt"
broker = "local"
topics = ["{topic}"]
[[sink]]
{sink}
"""
MQTT_SINK = 'type = "mqtt"\nbroker = "local"'
JSONL_SINK = 'type = "jsonl"\npath = "answers.jsonl"'


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny.edge", variants=("onnx-fp32",))


def write(
    folder: Path, bundle: Path, url: str, *, protocol: str = "5", topic: str = "watch/+/imu", sink: str = JSONL_SINK,
    silence: float = 30.0, name: str = "app.toml",
) -> Path:  # fmt: skip
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(APP.format(bundle=bundle, url=url, protocol=protocol, topic=topic, sink=sink, silence=silence))
    return path


@pytest.fixture
def broker() -> Iterator[Mosquitto]:
    with Mosquitto() as running:
        yield running


def good() -> list[Message]:
    (stream,) = streams(1, 200)
    return cut(stream, lambda: 20)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_answers_over_the_broker_s_limit_are_named_counted_and_no_success(
    bundle: Path, tmp_path: Path, protocol: str
) -> None:
    """MQTT 5 says the limit when we connect. With 3.1.1 the broker closes the connection, each time the message comes;
    the others must get through all the same.
    """
    with Mosquitto("max_packet_size 250") as broker, Publisher(broker.port) as publisher:
        write(tmp_path, bundle, broker.url, protocol=protocol, sink=MQTT_SINK)
        with Process(tmp_path, "run", "app.toml", "--json") as process:
            process.subscribed(broker)
            (stream,) = streams(1, 64)
            for at in range(0, 64, 2):
                small = payload(stream.t[at : at + 2], stream.values[at : at + 2].round(2))
                assert len(small) < 200
                publisher.send([Message("w", small)])
            publisher.flush()
            reason = "publish_too_large" if protocol == "5" else "publish_closes_connection"
            process.says(f"reason={reason}", 120)
            process.send(signal.SIGTERM)
            code = process.wait()
    # With 3.1.1 the next one may still be under suspicion at the end: not handed over in time, which is 1.
    assert code in ({LOST} if protocol == "5" else {LOST, 1}), process.err
    assert "max_packet_size" in process.err
    assert "ended with losses" in process.err
    dropped = orjson.loads(process.out)["dropped"]
    assert dropped[reason] >= 1
    if protocol == "5":
        assert dropped[reason] == orjson.loads(process.out)["counts"]["predictions_total"]
    else:
        assert "connections in a row were lost right after they were accepted" in process.err


@pytest.mark.slow
def test_a_wrong_topic_is_said(bundle: Path, tmp_path: Path, broker: Mosquitto) -> None:
    write(tmp_path, bundle, broker.url, topic="watches/+/imu", silence=1.0)
    with Publisher(broker.port) as publisher, Process(tmp_path, "run", "app.toml") as process:
        process.subscribed(broker)
        publisher.send(good())
        process.says("no readings for")
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert "from topics watches/+/imu of broker local: nothing arrived in that time" in process.err


@pytest.mark.slow
def test_payloads_of_another_shape_are_said_with_one_of_them(bundle: Path, tmp_path: Path, broker: Mosquitto) -> None:
    write(tmp_path, bundle, broker.url, silence=1.0)
    with Publisher(broker.port) as publisher, Process(tmp_path, "run", "app.toml") as process:
        process.subscribed(broker)
        publisher.send([Message("w", orjson.dumps({"t": 1.7e9 + i, "ax": 0.1})) for i in range(60)])
        process.says("no readings for")
        process.send(signal.SIGTERM)
        assert process.wait() == LOST, "not one message was used"
    assert "what arrived was refused: malformed 60: " in process.err
    assert "channels" in process.err
    assert "field 'values' is missing" in process.err


@pytest.mark.slow
def test_a_sensor_that_is_too_slow_and_three_hours_ahead_is_said(
    bundle: Path, tmp_path: Path, broker: Mosquitto
) -> None:
    write(tmp_path, bundle, broker.url, silence=1.0)
    with Publisher(broker.port) as publisher, Process(tmp_path, "run", "app.toml") as process:
        process.subscribed(broker)

        def said() -> bool:
            sample = {"t": time.time() + 3 * 3600, "values": [[0.0, 0.0, 1.0]]}
            publisher.send([Message("w", orjson.dumps(sample))])
            time.sleep(0.3)
            return "made no window" in process.err and "clock: " in process.err

        until(said, lambda: process.err, 120)
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert re.search(r"window: \d+ samples in \d+ s made no window: [01] of \d+ samples of key w\. ", process.err)
    assert "the model needs one every 0.02 s" in process.err
    assert (
        "clock: stamps of key w are 3 h 0 min ahead of this machine's clock. That is the offset of a time zone"
        in process.err
    )


@pytest.mark.slow
def test_stamps_in_whole_seconds_are_said(bundle: Path, tmp_path: Path, broker: Mosquitto) -> None:
    write(tmp_path, bundle, broker.url)
    coarse = [
        Message("w", orjson.dumps({"t": 1_700_000_000 + i // 50, "values": [[0.0, 0.0, 1.0]]})) for i in range(120)
    ]
    with Publisher(broker.port) as publisher, Process(tmp_path, "run", "app.toml", "--json") as process:
        process.subscribed(broker)
        publisher.send(coarse)
        process.says("reason=duplicate")
        process.send(signal.SIGTERM)
        assert process.wait() == LOST
    assert orjson.loads(process.out)["dropped"]["duplicate"] == 117
    assert "time_step_s = 1.0" in process.err


@pytest.mark.slow
def test_a_faster_sensor_with_one_stamp_a_message_is_said(bundle: Path, tmp_path: Path) -> None:
    """360 Hz in messages of 36 samples, for a model at 50 Hz: by the model's rate they overlap sevenfold."""
    (stream,) = streams(1, 3600, rate_hz=360.0)
    lines = [
        orjson.dumps(
            {"key": "w", "t": float(stream.t[at]), "values": stream.values[at : at + 36].astype(float).tolist()}
        )
        for at in range(0, 3600, 36)
    ]
    (tmp_path / "ecg.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    done = command("replay", bundle, "ecg.jsonl", "--out", "answers.jsonl", cwd=tmp_path)
    assert done.code == LOST, done.err
    assert "reason=late" in done.err
    assert "rate_hz" in done.err
    assert "were late or had a stamp twice" in done.err


@pytest.mark.slow
def test_a_recording_of_which_no_row_is_used_is_named(bundle: Path, tmp_path: Path) -> None:
    write_recording(tmp_path / "good.jsonl", streams(1, 100))
    (tmp_path / "bad.jsonl").write_bytes(b'{"key": "w", "t": 1.0}\n' * 40)
    alone = command("replay", bundle, "bad.jsonl", "--out", "answers.jsonl", cwd=tmp_path)
    assert alone.code == LOST, alone.err
    assert "reason=malformed" in alone.err
    beside = command("replay", bundle, "good.jsonl", "bad.jsonl", "--out", "answers.jsonl", cwd=tmp_path)
    assert beside.code == LOST
    assert "recording: used no row: path=bad.jsonl refused=40" in beside.err
    assert predictions(tmp_path / "answers.jsonl")
    fine = command("replay", bundle, "good.jsonl", "--out", "answers.jsonl", cwd=tmp_path)
    assert (fine.code, "WARNING" in fine.err) == (0, False), fine.err


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_the_last_status_reaches_the_broker_before_the_end(
    bundle: Path, tmp_path: Path, broker: Mosquitto, protocol: str
) -> None:
    """With no sink on the broker, whose closing would have waited for it."""
    path = write(tmp_path, bundle, broker.url, protocol=protocol)
    path.write_text(path.read_text().replace("[[source]]", 'status_topic = "status/app"\n[[source]]', 1))
    with listening(broker.port, "status/app") as heard, Process(tmp_path, "run", "app.toml") as process:
        until(lambda: any(one["status"] == "online" for one in heard), lambda: process.err)
        process.send(signal.SIGTERM)
        assert process.wait() == 0, process.err
        until(lambda: heard[-1]["status"] == "offline")
    assert heard[-1]["reason"] == "stopped"
    assert "not handed over" not in process.err
    assert "dropped" not in process.err


@pytest.mark.slow
def test_two_applications_from_the_template_live_on_one_broker(
    bundle: Path, tmp_path: Path, broker: Mosquitto, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--print-default"]) == 0
    template = capsys.readouterr().out
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        text = template.replace("mqtt://localhost:1883", broker.url).replace('"watch.edge"', f'"{bundle}"', 1)
        text = text.replace('# unsigned = "refuse"', 'unsigned = "allow"', 1)
        (folder / "app.toml").write_text(text)
    with ExitStack() as stack:
        heard = stack.enter_context(listening(broker.port, "edge/+/prediction"))
        publisher = stack.enter_context(Publisher(broker.port))
        processes = [stack.enter_context(Process(folder, "run", "app.toml")) for folder in folders]
        until(lambda: broker.log().count("Sending SUBACK to edge-") == 2, lambda: processes[0].err + processes[1].err)
        publisher.send(good())
        until(lambda: len(heard) >= 2 * len({one["id"] for one in heard}) > 0, lambda: processes[0].err)
        first = [process.err.split(" as '")[1].split("'")[0] for process in processes]
        for process in processes:
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
            assert "WARNING" not in process.err.replace("WARNING runtime: in a container", "")
        again = stack.enter_context(Process(folders[0], "run", "app.toml", name="again"))
        again.says("session resumed")
        again.send(signal.SIGTERM)
        assert again.wait() == 0
    assert len(set(first)) == 2
    assert f"as '{first[0]}'" in again.err, "a restart goes on with its own session"
    assert broker.log().count("already connected") == 0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_two_programs_with_one_client_id_are_told_so(
    bundle: Path, tmp_path: Path, broker: Mosquitto, protocol: str
) -> None:
    for name in ("one", "two"):
        path = write(tmp_path / name, bundle, broker.url, protocol=protocol)
        path.write_text(path.read_text().replace("[[source]]", 'client_id = "the-same"\n[[source]]', 1))
    with Process(tmp_path / "one", "run", "app.toml") as one, Process(tmp_path / "two", "run", "app.toml") as two:
        until(lambda: "has the client id 'the-same'" in one.err + two.err, lambda: one.err + two.err)
        for process in (one, two):
            process.send(signal.SIGTERM)
            process.wait()
    assert "under [broker." in one.err + two.err


@pytest.mark.slow
def test_keys_that_look_like_topics_do_not_choose_any(bundle: Path, tmp_path: Path, broker: Mosquitto) -> None:
    path = write(tmp_path, bundle, broker.url, topic="in", sink=MQTT_SINK)
    path.write_text(path.read_text().replace('topics = ["in"]', 'topics = ["in"]\nkey = "payload"'))
    keys = ["w1", "w1/prediction/evil", "x/../../y", "+", "#", "a+b"]
    (stream,) = streams(1, 60)
    rows = stream.t.tolist(), stream.values.astype(np.float64).tolist()
    with (
        listening(broker.port, "#") as heard,
        listening(broker.port, "edge/w1/prediction/+/#", client_id="deeper") as deeper,
        Process(tmp_path, "run", "app.toml") as process,
    ):
        process.subscribed(broker)
        with Publisher(broker.port, topic="in") as publisher:
            publisher.send([Message("", orjson.dumps({"key": key, "t": rows[0], "values": rows[1]})) for key in keys])
            until(lambda: {one.get("key") for one in heard if "label" in one} == set(keys), lambda: process.err)
        process.send(signal.SIGTERM)
        assert process.wait() == 0
    assert deeper == []
    assert not answers(tmp_path / "answers.jsonl")
