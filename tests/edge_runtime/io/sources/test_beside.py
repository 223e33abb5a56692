"""Costly pictures in a child process: order, turns, bounds, acknowledgements, and a child that hangs or dies."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import InputError
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.frame import FrameCodec, FrameConfig
from edge_runtime.io.codecs.pcm import PcmCodec, PcmConfig
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.io.sources import beside as module
from edge_runtime.io.sources.beside import Beside, DecodingProcess, Way
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.manifest.frames import Frame, frame_names
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading
from tests.edge_runtime.base.media.pictures import bmp, picture
from tests.edge_runtime.io.recordings.wav_files import write
from tests.faults.fuzz_codecs import CHANNELS, mutate, targets

FRAME = Frame(height=6, width=8)
CONTRACT = InputContract(
    channels=tuple(Channel(name=name, unit="1") for name in frame_names("rgb")),
    rate_hz=1000.0 * FRAME.pixels, window=FRAME.pixels, hop=FRAME.pixels, frame=FRAME,
)  # fmt: skip
LARGE, SMALL = bmp(picture(400, 500)), bmp(picture(12, 16))


class Site:
    """A source's decoder with its loop."""

    def __init__(self) -> None:
        self.metrics, self.loop = Metrics(), Loop()
        codec = FrameCodec(FrameConfig(), FRAME, jpeg=False)
        self.codec = codec
        self.process = DecodingProcess(FrameConfig(), CONTRACT, lambda _name, _advice: None)
        self.decoder = Decoder(codec, self.metrics)
        self.beside = Beside(self.metrics, self.process, costly=codec.is_costly)
        self.readings: list[Reading] = []
        self.acknowledged: Counter[int] = Counter()
        self.beside.open(self.loop, self._deliver)

    def _deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        self.readings += readings
        if done is not None:
            done()

    def send(self, number: int, *messages: tuple[str, bytes], qos: int = 1) -> list[bytes]:
        """Messages that arrive together; those that the loop decodes itself."""
        publishes: list[Publish] = [(key.encode(), payload, 0, qos, 0, None) for key, payload in messages]
        done = partial(self.acknowledged.update, [number]) if qos else None
        others, rest = self.beside.part(publishes, self._way_of, 0.0, float(number), done)
        if rest is not None:
            rest()
        return [publish[1] for publish in others]

    def _way_of(self, topic: bytes) -> Way:
        return topic.decode(), topic.decode(), self.decoder

    def until(self, back: int) -> None:
        """Turn until so many messages are counted."""
        self.loop.call_every(0.01, lambda: None)
        while self.metrics.counts["messages_total"] < back:
            self.loop.iterate(1.0)


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.beside.close()
    made.loop.close()


def test_costly_pictures_are_those_of_the_loop_and_acknowledged_once(site: Site) -> None:
    assert site.send(1, ("a", LARGE), ("b", SMALL), ("c", LARGE)) == [SMALL]
    assert not site.acknowledged
    site.until(2)
    assert site.acknowledged == {1: 1}
    (expected,) = site.codec.decode("a", LARGE, 1.0)
    for reading, key in zip(site.readings, "ac", strict=True):
        assert (reading.key, reading.t) == (key, 1.0)
        np.testing.assert_array_equal(reading.values, expected.values)


def test_the_order_within_a_key_stays_and_keys_take_turns(site: Site) -> None:
    site.send(0, *[("a", LARGE)] * 4)
    site.send(1, ("a", SMALL), ("b", LARGE))
    assert site.send(2, ("a", SMALL), ("c", SMALL)) == [SMALL]
    site.until(7)
    assert [reading.t for reading in site.readings if reading.key == "a"] == [0, 0, 0, 0, 1, 2]
    assert [reading.key for reading in site.readings].index("b") < 3
    assert site.acknowledged == {0: 1, 1: 1, 2: 1}
    assert site.send(3, ("a", SMALL)) == [SMALL]


@pytest.mark.slow
def test_a_backlog_waits_and_what_takes_more_than_may_wait_is_counted_and_acknowledged(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 40 * (len(LARGE) + 1024))
    site.send(0, *[("a", LARGE)] * 38)
    assert not site.metrics.dropped, "what the broker sends before it waits for acknowledgements"
    site.send(1, *[("b", LARGE)] * 2, ("c", LARGE))
    assert site.metrics.dropped == {"too_expensive": 1}
    site.until(41)
    site.send(2, *[("a", LARGE)] * 25, qos=0)
    site.send(3, ("b", LARGE))
    assert site.metrics.dropped == {"too_expensive": 1 + 5}, "one key leaves room for others"
    site.until(67)
    assert site.acknowledged == {0: 1, 1: 1, 3: 1}
    assert len(site.readings) + site.metrics.dropped["too_expensive"] == 67


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_message_that_ends_or_stops_the_child_is_refused_and_the_next_one_is_not(
    site: Site, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "DEADLINE_S", 5.0 if number == signal.SIGKILL else 0.5)
    site.send(0, ("a", LARGE))
    site.until(1)
    assert site.process._worker is not None
    pid = site.process._worker.pid
    os.kill(pid, number)
    site.send(1, ("a", LARGE))
    site.until(2)
    assert site.metrics.dropped == {"too_large": 1}
    monkeypatch.setattr(module, "DEADLINE_S", 60.0)
    site.send(2, ("a", LARGE))
    site.until(3)
    assert [reading.t for reading in site.readings] == [0, 2]
    assert site.acknowledged == {0: 1, 1: 1, 2: 1}
    assert site.process._worker.pid != pid


def test_what_the_child_refuses_is_counted_under_its_reason(site: Site) -> None:
    site.send(0, ("a", LARGE[:-100].replace(LARGE[2:6], (len(LARGE) - 100).to_bytes(4, "little"), 1)))
    site.until(1)
    assert site.metrics.dropped == {"malformed": 1}
    assert "a BMP that is not read" in site.metrics.examples["malformed"]
    assert site.acknowledged == {0: 1}


def test_what_is_not_back_at_the_end_is_not_acknowledged(site: Site) -> None:
    site.send(0, *[("a", LARGE)] * 4)
    site.send(1, *[("b", LARGE)] * 4, qos=0)
    site.beside.close()
    site.beside.close()
    for _ in range(5):
        site.loop.iterate(0.0)
    assert not site.acknowledged
    assert not site.readings
    assert 3 <= site.metrics.dropped["paused"] <= 4
    assert not site.beside._thread.is_alive()


def test_sound_of_new_rates_and_of_many_samples_is_costly_and_gives_what_the_loop_gives() -> None:
    def wav(rate_hz: int, samples: int, folder: Path) -> bytes:
        sound = np.random.default_rng(rate_hz).uniform(-1, 1, samples).astype(np.float32)
        return write(folder / "sound.wav", sound, rate_hz).read_bytes()

    with TemporaryDirectory() as folder:
        sounds = [
            wav(rate, n, Path(folder)) for rate, n in ((15_984, 24), (16_000, 100), (44_100, 50_000), (15_984, 24))
        ]
    codec, alone = (PcmCodec(PcmConfig(), ("mono",), 16_000.0) for _ in range(2))
    assert [codec.is_costly(one) for one in sounds] == [True, False, True, True]
    metrics, loop, taken = Metrics(), Loop(), list[Reading]()
    beside, decoder = Beside(metrics, costly=codec.is_costly), Decoder(codec, metrics)
    beside.open(loop, lambda readings, _received, _done: taken.extend(readings))
    publishes: list[Publish] = [(b"mic", one, 0, 0, 0, None) for one in sounds]
    assert beside.part(publishes, lambda topic: (topic.decode(), "", decoder), 0.0, 1e9, None)[0] == []
    loop.call_every(0.01, lambda: None)
    while metrics.counts["messages_total"] < len(sounds):
        loop.iterate(1.0)
    beside.close()
    loop.close()
    expected = [reading for one in sounds for reading in alone.decode("mic", one, 1e9)]
    assert [(one.key, one.t, one.values.tolist()) for one in taken] == [
        (one.key, one.t, one.values.tolist()) for one in expected
    ]
    assert not codec.is_costly(sounds[0])


def test_a_wav_that_becomes_more_samples_than_a_message_may_have_is_refused() -> None:
    codec = PcmCodec(PcmConfig(max_samples=1000), ("mono",), 16_000.0)
    with TemporaryDirectory() as folder:
        sound = write(Path(folder) / "slow.wav", np.zeros(100, np.float32), 1000).read_bytes()
    with pytest.raises(InputError, match="more than 1000 samples") as caught:
        codec.decode("mic", sound, 0.0)
    assert caught.value.reason == "too_large"


CODECS = [target.config for target in targets() if target.config.type not in ("pcm", "raw", "sparkplug", "frame")]


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CODECS)), ids=[f"{one.type}-{i}" for i, one in enumerate(CODECS)])
def test_a_child_gives_what_the_codec_of_the_loop_gives(number: int) -> None:
    (target,) = [one for one in targets() if one.config == CODECS[number]]
    contract = InputContract(channels=CHANNELS, rate_hz=50.0, window=4, hop=4)
    noticed: dict[str, list[tuple[str, str]]] = {"here": [], "there": []}
    here = load_codec(target.config, CHANNELS, rate_hz=50.0, notice=lambda *one: noticed["here"].append(one))
    process = DecodingProcess(target.config, contract, lambda *one: noticed["there"].append(one))
    rng = random.Random(number)
    for message in (*target.good, *(mutate(rng, rng.choice(target.good)) for _ in range(60))):
        found: list[Any] = []
        for codec in (here, process):
            try:
                found.append([(*one._replace(t=np.asarray(one.t), values=one.values),) for one in
                              codec.decode("k/\u00e4", message, 1.7e9)])  # fmt: skip
            except InputError as error:
                found.append((error.reason, str(error)))
        np.testing.assert_equal(found[1], found[0])
    assert noticed["there"] == noticed["here"]
    process.kill()
    process.close()
