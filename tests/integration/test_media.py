"""Sound and pictures through a real broker into a real process: the answers are those of the files by replay."""

from __future__ import annotations

import signal
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.manifest import Channel
from edge_runtime.manifest.frames import Frame, frame_names
from tests.edge_runtime.base.media.pictures import jpeg, picture, stated, tall_png
from tests.edge_runtime.io.recordings.wav_files import write
from tests.integration.running import Answer, Process, Publisher, assert_same_answers, command, predictions, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, needs_mosquitto

pytestmark = [needs_mosquitto, pytest.mark.slow]

MODEL_HZ = 1600
FRAME = Frame(height=6, width=8)

APP = """
[model]
unsigned = "allow"
bundle = "{bundle}"
[broker.b]
url = "{broker}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["{topic}"]
[source.codec]
{codec}
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""


def replayed(folder: Path, bundle: Path, *files: Path) -> list[Answer]:
    out = folder / "replayed.jsonl"
    finished = command("replay", bundle, *files, "--out", out)
    assert finished.code == 0, finished.err
    return predictions(out)


def live(folder: Path, app: str, messages: Sequence[tuple[str, bytes]], answers: int) -> tuple[list[Answer], str]:
    """Publish messages in their order to an application that runs; its answers, and its log."""
    path = folder / "app.toml"
    with Mosquitto() as broker:
        path.write_text(app.replace("{broker}", broker.url), "utf-8")
        with Process(folder, "run", path) as process, Publisher(broker.port) as publisher:
            process.subscribed(broker)
            for topic, payload in messages:
                publisher.publish(topic, payload, 1)
            publisher.flush()
            sink = folder / "answers.jsonl"
            until(lambda: len(predictions(sink)) >= answers, lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
            return predictions(sink), process.err


@pytest.mark.parametrize("rate_hz", [800, 1600, 4410])
def test_pcm_over_mqtt_gives_the_answers_of_the_wav_file(rate_hz: int, tmp_path: Path) -> None:
    """Mutations that this finds: a scale, a byte order, a filter or a stamp that differs between the two ways."""
    pcm = np.random.default_rng(rate_hz).integers(-32768, 32768, 3 * rate_hz).astype(np.int16)
    bundle = tiny_bundle(tmp_path / "tiny.edge", channels=1, window=160, hop=80, rate_hz=MODEL_HZ)
    expected = replayed(tmp_path, bundle, write(tmp_path / "mic.wav", (pcm / 32768).astype(np.float32), rate_hz))
    held = 0 if rate_hz == MODEL_HZ else 66 / min(rate_hz, MODEL_HZ)  # what the filter waits for
    expected = [answer for answer in expected if answer["end"] <= 3 - held + 1e-6]
    assert len(expected) > 30
    step = rate_hz // 50
    messages = [
        ("home/mic/audio", struct.pack("<QH", round(i * 1e6 / rate_hz), k) + pcm[i : i + step].tobytes())
        for k, i in enumerate(range(0, len(pcm), step))
    ]
    codec = f'type = "pcm"\nrate_hz = {rate_hz}\ntime = "u64_us"\nsequence = "u16"'
    app = APP.format(bundle=bundle, broker="{broker}", topic="home/+/audio", codec=codec)
    found, log = live(tmp_path, app, messages, len(expected))
    assert_same_answers(found[: len(expected)], expected)
    assert "dropped" not in log


@pytest.fixture
def camera_bundle(tmp_path: Path) -> Path:
    return tiny_bundle(
        tmp_path / "camera.edge",
        sensor=[Channel(name=name, unit="1") for name in frame_names("rgb")],
        window=FRAME.pixels,
        rate_hz=1000.0 * FRAME.pixels,
        input_contract={"frame": FRAME},
    )


def scores(found: Sequence[Answer]) -> list[object]:
    return [answer["scores"] for answer in found]


def test_jpegs_over_mqtt_give_the_answers_of_the_folder(camera_bundle: Path, tmp_path: Path) -> None:
    names = ["a.jpg", "b.jpg", "c.jpg"]
    (tmp_path / "photos").mkdir()
    for i, name in enumerate(names):
        (tmp_path / "photos" / name).write_bytes(jpeg(picture(60, 80, seed=i)))
    expected = replayed(tmp_path, camera_bundle, tmp_path / "photos")
    assert [answer["key"] for answer in expected] == names
    messages = [(f"cam/{name}/jpg", (tmp_path / "photos" / name).read_bytes()) for name in names]
    app = APP.format(bundle=camera_bundle, broker="{broker}", topic="cam/+/jpg", codec='type = "frame"')
    found, log = live(tmp_path, app, [("cam/bad/jpg", b"\xff\xd8\xff no picture"), *messages], len(names))
    assert [answer["key"] for answer in found] == names
    assert scores(found) == scores(expected)
    assert "reason=malformed" in log


def test_messages_of_megabytes_go_through(camera_bundle: Path, tmp_path: Path) -> None:
    large = picture(900, 1200)  # 3.2 MB of bare pixels
    codec = 'type = "frame"\nraw = "rgb"\nheight = 900\nwidth = 1200'
    app = APP.format(bundle=camera_bundle, broker="{broker}", topic="cam/+/raw", codec=codec)
    found, log = live(tmp_path, app, [("cam/door/raw", large.tobytes())], 1)
    assert [answer["key"] for answer in found] == ["door"]
    assert "dropped" not in log


def peak_mb(process: Process) -> float:
    """The most memory that a process has had."""
    (line,) = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "VmHWM" in line]
    return int(line.split()[1]) / 1024


def test_hostile_pictures_cost_little_memory_and_no_honest_answer(camera_bundle: Path, tmp_path: Path) -> None:
    """Broken once: a PNG of 2 kB, 1 pixel wide and a million high, took 6 GB and held every key up for minutes."""
    small, large = jpeg(picture(60, 80)), jpeg(picture(2160, 3840))
    hostile = [tall_png(), stated(small, 65_000, 100), stated(small, 2160, 3840), large]
    app = APP.format(bundle=camera_bundle, broker="{broker}", topic="cam/+/jpg", codec='type = "frame"')
    path, sink = tmp_path / "app.toml", tmp_path / "answers.jsonl"
    with Mosquitto() as broker:
        path.write_text(app.replace("{broker}", broker.url), "utf-8")
        with Process(tmp_path, "run", path) as process, Publisher(broker.port) as publisher:
            process.subscribed(broker)
            publisher.publish("cam/first/jpg", small, 1)
            until(lambda: len(predictions(sink)) == 1, lambda: process.err)
            before = peak_mb(process)
            for i in range(20):
                publisher.publish(f"cam/bad {i}/jpg", hostile[i % 4], 1)
                publisher.publish(f"cam/honest {i}/jpg", small, 1)
            publisher.flush()
            until(lambda: len(predictions(sink)) >= 26, lambda: process.err)
            assert peak_mb(process) < before + 64
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
    found = predictions(sink)
    honest = [answer for answer in found if answer["key"].startswith("honest")]
    assert len(honest) == 20
    assert scores(honest) == scores(found[:1]) * 20
    assert len(found) - len(honest) == 6, "the first, and five of 3840 x 2160 pixels"
    assert "a side of at most 11584 is allowed" in process.err
