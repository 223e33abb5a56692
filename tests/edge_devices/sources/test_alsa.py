"""A microphone, played by a script in the recorder's place."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_devices.sources.alsa import IN_FLIGHT, AlsaConfig, AlsaSource

from edge_runtime import schema
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from tests.edge_devices.sources.sensors import Listener, recorder
from tests.edge_runtime.base.media.sounds import resampled

RATE = 8000
COUNT = "out(b''.join((i * 256).to_bytes(2, 'little', signed=True) for i in range(100)))\n"


class Recording(Listener):
    """A source whose recorder is a script."""

    def __init__(self, program: Path | str, channels: int = 1, model_hz: float = RATE, **config: Any) -> None:
        self.metrics = Metrics()
        self.config = AlsaConfig(program=str(program), **config)
        contract = InputContract(
            channels=tuple(Channel(name=f"c{i}", unit="1") for i in range(channels)),
            rate_hz=model_hz,
            window=64,
            hop=64,
        )
        source = AlsaSource(self.config, contract, self.metrics, rng=random.Random(0))
        super().__init__(source)

    def stamps(self) -> list[float]:
        return [float(reading.t) for reading in self.readings]

    def process(self) -> subprocess.Popen[bytes] | None:
        return self.source._process  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Callable[..., Recording]]:
    made: list[Recording] = []

    def start(body: str, **config: Any) -> Recording:
        one = Recording(recorder(tmp_path, body), **config)
        made.append(one)
        one.open()
        return one

    yield start
    for one in made:
        one.close()


Record = Callable[..., Recording]


def test_samples_arrive_with_full_scale_one(record: Record) -> None:
    one = record(COUNT + "wait()")
    one.until(lambda: len(one.values()) == 100)
    np.testing.assert_allclose(one.values(), np.arange(100) / 128)
    (reading, *_) = one.readings
    assert reading.key == "microphone"
    assert reading.values.shape[1] == 1
    assert reading.period_s == 1 / RATE
    assert reading.t == pytest.approx(one.loop.clock.wall(), abs=30)


def test_frames_of_several_channels_are_put_together_from_pieces(record: Record) -> None:
    body = (
        "import struct, time\n"
        "data = struct.pack('<8i', *(i << 28 for i in range(-4, 4)))\n"
        "for i in range(0, len(data), 3):\n    out(data[i:i + 3]); time.sleep(0.01)\n"
        "wait()"
    )
    one = record(body, channels=2, format="S32_LE", gain=2.0)
    one.until(lambda: len(one.values()) == 8)
    np.testing.assert_allclose(one.values(), np.arange(-4, 4) / 4)
    assert {reading.values.shape[1] for reading in one.readings} == {2}


def test_the_recorder_is_asked_for_what_the_model_needs(record: Record, tmp_path: Path) -> None:
    told = tmp_path / "arguments"
    body = f"open({str(told)!r}, 'w').write(' '.join(arguments))\nout(bytes(8))\nwait()"
    one = record(body, channels=2, device="plughw:CARD=Mic", period_ms=20, buffer_ms=400, arguments=("--fatal-errors",))
    one.until(lambda: one.readings)
    assert told.read_text() == (
        "-q -t raw -D plughw:CARD=Mic -f S16_LE -c 2 -r 8000 --period-time=20000 --buffer-time=400000 --fatal-errors"
    )


def test_a_card_of_another_rate_is_resampled(record: Record, tmp_path: Path) -> None:
    told = tmp_path / "arguments"
    body = (
        f"open({str(told)!r}, 'w').write(' '.join(arguments))\n"
        "out(b''.join((i * 7 % 999 * 30).to_bytes(2, 'little') for i in range(4000)))\nwait()"
    )
    one = record(body, rate_hz=24000)
    card = ((np.arange(4000) * 7 % 999 * 30) / 32768).astype(np.float32)[:, None]
    expected = resampled(card, 24000, RATE)[:, 0]
    one.until(lambda: len(one.values()) > 1200)
    assert one.values() == expected[: len(one.values())].tolist()
    assert {reading.period_s for reading in one.readings} == {1 / RATE}
    assert "-r 24000 " in told.read_text()


def test_stamps_count_samples(record: Record) -> None:
    body = "import time\nfor _ in range(20):\n    out(bytes(320)); time.sleep(0.005)\nwait()"
    one = record(body)
    one.until(lambda: len(one.values()) == 20 * 160)
    stamps = one.stamps()
    lengths = [len(reading.values) for reading in one.readings]
    expected = [stamps[0] + sum(lengths[:i]) / RATE for i in range(len(lengths))]
    np.testing.assert_allclose(stamps, expected, rtol=0, atol=1e-6)


def test_overruns_are_counted_and_the_stamps_set_anew(record: Record) -> None:
    body = (
        "import time\nout(bytes(800))\ntime.sleep(0.2)\nsay('overrun!!! (at least 152.431 ms long)')\n"
        "time.sleep(0.2)\nout(bytes(800))\nwait()"
    )
    one = record(body)
    one.until(lambda: len(one.values()) == 800)
    one.until(lambda: one.metrics.dropped["overrun"] == 1)
    assert "at least 152.431 ms long" in one.metrics.examples["overrun"]
    assert one.stamps()[-1] - one.stamps()[0] > 0.3, "the gap does not show"


def test_a_clock_that_has_drifted_away_is_followed(record: Record) -> None:
    one = record("import time\nout(bytes(160))\ntime.sleep(0.7)\nout(bytes(160))\nwait()")
    one.until(lambda: len(one.values()) == 160)
    assert one.stamps()[-1] - one.stamps()[0] > 0.6


def test_a_recorder_that_ends_is_started_again(
    record: Record, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flag = tmp_path / "second"
    body = (
        f"flag = {str(flag)!r}\n"
        "if not os.path.exists(flag):\n"
        "    open(flag, 'w').close()\n    out(bytes(3))\n"
        "    say('arecord: pcm_read:2221: read error: Input/output error')\n    sys.exit(1)\n" + COUNT + "wait()"
    )
    one = record(body)
    one.until(lambda: len(one.values()) == 101)
    np.testing.assert_allclose(one.values()[1:], np.arange(100) / 128, err_msg="the odd byte of before was kept")
    assert one.metrics.counts["source_reopens_total"] == 1
    assert "recorder ended: arecord: pcm_read:2221: read error" in caplog.text


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("arecord: main:850: audio open error: Permission denied", "usermod -aG audio"),
        ("arecord: main:850: audio open error: No such file or directory", "-L lists what there is"),
        ("arecord: set_params:1416: Channels count non available: Invalid argument", "-L lists what there is"),
    ],
)
def test_why_it_ended_is_said_with_the_remedy(
    record: Record, said: str, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    one = record(f"say({said!r})\nsys.exit(1)")
    one.until(lambda: "ended" in caplog.text)
    assert said in caplog.text
    assert remedy in caplog.text


def test_a_program_that_is_not_installed_is_a_mistake_with_the_line_that_installs_it() -> None:
    one = Recording("no-such-recorder")
    with pytest.raises(ConfigError, match="apt-get install alsa-utils"):
        one.open()
    one.close()


def test_the_pipe_is_left_alone_while_the_pipeline_is_behind(record: Record) -> None:
    body = "import time\nfor i in range(200):\n    out(bytes([i, 0])); time.sleep(0.005)\nwait()"
    one = record(body)
    one.held = []
    one.until(lambda: len(one.held or ()) == IN_FLIGHT)
    for _ in range(10):
        one.loop.iterate(0.02)
    assert len(one.held) == IN_FLIGHT
    for done in one.held:
        done()
    one.held = None
    one.until(lambda: len(one.values()) == 200)
    np.testing.assert_allclose(one.values(), np.arange(200) / 32768)


def test_closing_ends_the_recorder_even_one_that_does_not_listen(record: Record) -> None:
    one = record("signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + COUNT + "while True:\n    wait()")
    one.until(lambda: one.readings)
    process = one.process()
    assert process is not None
    assert process.poll() is None
    one.source.close()
    assert process.poll() is not None


def test_a_rate_that_no_sound_card_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"wants 12.5 samples a second"):
        Recording("arecord", model_hz=12.5)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"device": ""}, "must not be empty"),
        ({"format": "FLOAT_LE"}, "must be one of 'S16_LE', 'S32_LE'"),
        ({"period_ms": 600}, "period_ms <= buffer_ms"),
        ({"gain": 0}, "gain must not be 0"),
        ({"rate": 16000}, "unknown key 'rate'"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(schema.SchemaError, match=complaint):
        schema.load(AlsaConfig, table)
