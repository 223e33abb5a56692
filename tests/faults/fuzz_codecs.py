"""Hostile bytes for every codec: mutated good messages, and noise.

Run: ``python -m tests.faults.fuzz_codecs --cases 100000 --seed 1``. Exit code 1, and the message, for the first input
that gives anything but correct readings or an InputError with a known reason.
"""

from __future__ import annotations

import argparse
import base64
import io
import random
import sys
import time
import warnings
import wave
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import cbor2
import numpy as np
import orjson
import ormsgpack

from edge_runtime.errors import InputError
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.cbor import CborConfig
from edge_runtime.io.codecs.cells import BlockConfig
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.codecs.csv import CsvConfig
from edge_runtime.io.codecs.frame import FrameConfig
from edge_runtime.io.codecs.influx import InfluxConfig
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.msgpack import MsgpackConfig
from edge_runtime.io.codecs.pcm import PcmConfig
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.io.codecs.sparkplug import SparkplugConfig
from edge_runtime.manifest import Channel
from edge_runtime.manifest.frames import Frame
from edge_runtime.types import Reading
from tests.edge_runtime.io.codecs.sparkplug_messages import metric, number, payload

REASONS = {
    "malformed",
    "not_a_number",
    "decimal_comma",
    "wrong_channels",
    "wrong_size",
    "wrong_unit",
    "not_finite",
    "bad_time",
    "no_time",
    "no_key",
    "too_large",
    "empty",
    "duplicate",
    "same_stamp",
    "no_birth",
}
NAMES = ("ax", "ay", "az")
CHANNELS = tuple(Channel(name=name, unit="m/s2") for name in NAMES)
NOW = 1.7e9

_PIECES = (
    *(b"\xff", b"\0", b"\x7f\xf0\0\0", b"\xc0", b"\xc3", b"\xf7", b"\x9f", b"\xbf", b"\xd8\x55", b"\xd8\x1c"),
    *(b"\xd8\x1d", b"\xfb\x7f\xf8\0\0\0\0\0\0", b"\xcb\x7f\xf0\0\0\0\0\0\0", b"\xdd\x7f\xff\xff\xff"),
    *(b"\x9b\x3f\xff\xff\xff\xff\xff\xff\xff", b"NaN", b"1e999", b"-1e39", b"null", b"true", b"false"),
    *(b'"', b"-", b"{", b"}", b"[" * 40, b"9" * 400, b"\\ud800"),
)  # fmt: skip


@dataclass
class Target:
    """A codec with messages that it accepts."""

    config: CodecConfig
    codec: Codec
    good: list[bytes] = field(default_factory=list)


def targets() -> list[Target]:
    """Every codec, in every shape it reads."""
    x = np.random.default_rng(5).normal(size=(4, 3)).astype("<f4")
    rows, mapping = x.tolist(), {name: name for name in NAMES}
    own = {"key": "k", "t": NOW, "values": rows}
    stamped = {"key": "k", "t": [NOW + i for i in range(4)], "values": x.ravel().tolist()}
    packed = {"key": "k", "t": NOW, "values": x.tobytes()}
    objects = [
        {"ts": NOW * 1e3 + i, "id": "ab"[i % 2], **dict(zip(NAMES, row, strict=True))} for i, row in enumerate(rows)
    ]
    columns = {"key": "k", "t": "2024-01-01T00:00:00Z", **{name: x[:, i].tolist() for i, name in enumerate(NAMES)}}
    tag = cbor2.CBORTag
    typed = {"key": "k", "t": tag(86, np.arange(4.0).tobytes()), "values": tag(85, x.tobytes())}
    tagged = {"key": "k", "t": 1, "ax": tag(85, x[:, 0].tobytes()), "ay": x[:, 1].tobytes(), "az": x[:, 2].tolist()}
    pack: list[dict[str, Any]] = [
        {"bn": "urn:x:", "bt": NOW, "n": "ax", "v": 1.5, "u": "m/s2"},
        {"n": "ay", "v": 2},
        {"n": "az", "v": 3, "bv": 1},
        {"n": "ax", "t": 1},
        {"n": "ay", "t": 1, "v": 2},
        {"n": "az", "t": 1, "v": 2},
        {"n": "door", "vs": "open"},
    ]
    labels = {"bver": -1, "bn": -2, "bt": -3, "bu": -4, "bv": -5, "n": 0, "u": 1, "v": 2, "vs": 3, "t": 6}
    cbor_pack: list[dict[int, Any]] = [{labels[name]: value for name, value in record.items()} for record in pack]
    cbor_pack[1][2] = tag(4, [-2, 2731])

    lines = (
        b"imu,host=a,room=x\\ y ax=1,ay=2i,az=-.5e1 1700000000000000000\n"
        b'# note\nimu,host=a az=0,ax=1,ay=2,note="a \\" b" 1700000000020000000\ndoor,host=b open=t'
    )
    alone = b"imu ax=1 1700000000000000000\nimu ay=2 1700000000000000000\nimu az=3 1700000000040000000"
    table = b'key,t,ax,"ay",az\n# note\na,1700000000.5,1,"2",-.5e1\nb,1700000000.52,4,5,6,\n'
    european = b"date;ax (m/s2);ay (g);az (mg)\n2023-11-14 22:13:20;1,5;;2\n2023-11-14 22:13:21;1;2;nan\n"
    birth = payload(
        *(metric(1.5, name=name, alias=i, datatype=10) for i, name in enumerate(NAMES)), ms=1_700_000_000_000
    )
    data = payload(*(metric(2.5, alias=i, ms=1_700_000_000_020) for i in range(3)), ms=1_700_000_000_020)
    some = payload(metric(2.5, alias=1), metric(number(10, 7), name="az", datatype=2), metric(name="ax", null=True))

    phone = {
        "key": "p",
        "payload": [
            {"name": "acc", "t": NOW, "values": {"x": 1, "y": "2", "z": None}},
            {"name": "gyro", "t": str(NOW), "values": {"x": 3}},
            {"name": "light", "t": NOW, "lux": "unavailable"},
        ],
    }
    part = {"t": "1700000000000", "ax": "1.5 m/s\u00b2", "ay": "ON", "az": "-127"}
    block = {"key": "k", "t": NOW, "values": base64.b64encode(x.astype(">i2").tobytes()).decode()}

    wav = _wav(bytes(240), rate_hz=40, channels=2)

    def target(config: CodecConfig, *good: bytes) -> Target:
        codec = load_codec(config, CHANNELS, rate_hz=50.0, frame=Frame(height=2, width=3))
        return Target(config, codec, list(good))

    return [
        target(JsonConfig(), orjson.dumps(own), orjson.dumps(stamped)),
        target(JsonConfig(time="ts", time_unit="ms", key="id", channels=mapping, samples="."), orjson.dumps(objects)),
        target(JsonConfig(time_unit="iso8601", channels=mapping), orjson.dumps(columns)),
        target(
            JsonConfig(
                samples="payload",
                partial=True,
                channels={"ax": "[name=acc].values.x", "ay": "[name=acc].values.y", "az": "[name=gyro].values.x"},
            ),
            orjson.dumps(phone),
        ),
        target(
            JsonConfig(
                partial=True,
                time_unit="auto",
                units=dict.fromkeys(NAMES, "m/s2"),
                words={"ON": 1},
                missing=("-127",),
            ),
            orjson.dumps(part),
        ),
        target(
            JsonConfig(samples="*", partial=True, channels={"ax": "a", "az": "[n=2].b"}, time_step_s=1.0),
            orjson.dumps({"d1": [{"t": NOW, "a": 1}, {"t": NOW, "n": 2, "b": "3"}], "d2": {"t": NOW, "a": "-"}}),
        ),
        target(JsonConfig(block=BlockConfig(dtype="int16", byte_order="big", scale=0.5)), orjson.dumps(block)),
        target(JsonConfig(values=".", order=("az", "ay", "ax"), time=""), b"[1,2,3]", b'[[1,2,3],["4",5,6]]'),
        target(MsgpackConfig(order=("ay", "-", "az"), partial=True), ormsgpack.packb(own), ormsgpack.packb(packed)),
        target(SenmlConfig(partial=True), orjson.dumps(pack), orjson.dumps(pack[:2])),
        target(RawConfig(units=dict.fromkeys(NAMES, "g")), x.tobytes()),
        target(MsgpackConfig(), ormsgpack.packb(own), ormsgpack.packb(stamped), ormsgpack.packb(packed)),
        target(CborConfig(), cbor2.dumps(own), cbor2.dumps(stamped), cbor2.dumps(packed), cbor2.dumps(typed)),
        target(CborConfig(channels=mapping), cbor2.dumps(tagged)),
        target(RawConfig(), x.tobytes()),
        target(RawConfig(time="f64"), np.float64(NOW).tobytes() + x.tobytes()),
        target(RawConfig(time="u32_ms", dtype="int16", scale=(0.1,), byte_order="big"), b"\0\1\2\3" + x.tobytes()),
        target(PcmConfig(time="f64", drift_s=5.0), np.float64(NOW).tobytes() + x.astype("<i2").tobytes()),
        target(PcmConfig(sequence="u8", sequence_at=1, header_bytes=4), b"abcd" + bytes(120), wav[:4] + wav),
        target(PcmConfig(take=(0, 1, 0)), wav, wav[:40] + b"\xff" * 4 + wav[44:]),
        target(FrameConfig(raw="rgb", height=5, width=4), bytes(60)),
        target(SenmlConfig(), orjson.dumps(pack)),
        target(SenmlConfig(encoding="cbor"), cbor2.dumps(cbor_pack)),
        target(CsvConfig(), table),
        target(
            CsvConfig(separator=";", decimal=",", time="date", time_unit="auto", partial=True, key="ax (m/s2)"),
            european,
        ),
        target(CsvConfig(columns=("t", "-", "ax", "ay", "az")), b"1700000000,x,1,2,3\n1700000001,y,4,5,6"),
        target(CsvConfig(separator=" ", pair="=", time=""), b"ax=1 ay=2  az=3 key=k\nax=4 ay=5 az=6 key=k"),
        target(InfluxConfig(), lines),
        target(InfluxConfig(partial=True, measurement="imu"), lines, alone),
        target(SparkplugConfig(), birth, data),
        target(SparkplugConfig(partial=True), birth, data, some),
    ]


def _wav(frames: bytes, rate_hz: int, channels: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate_hz)
        writer.writeframes(frames)
    return file.getvalue()


def mutate(rng: random.Random, message: bytes) -> bytes:
    """A message with a few of the changes that cables, bugs and people make."""
    data = bytearray(message)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(7):
            case 0 if data:
                data[at % len(data)] = rng.randrange(256)
            case 1 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 2:
                data[at:at] = rng.choice(_PIECES)
            case 3:
                del data[at : at + rng.randrange(1, 9)]
            case 4:
                data[at:at] = data[at : at + rng.randrange(1, 40)]
            case 5:
                del data[at:]
            case _:
                data[at:at] = rng.randbytes(rng.randrange(1, 6))
    return bytes(data)


def check(readings: list[Reading]) -> None:
    """What the `Codec` protocol promises of its result."""
    for reading in readings:
        values, t = reading.values, np.asarray(reading.t)
        assert values.dtype == np.float32
        assert values.ndim == 2
        assert values.shape[0] >= 1
        assert values.shape[1] == len(NAMES if reading.channels is None else reading.channels)
        assert values.flags.c_contiguous
        assert np.isfinite(values).all()
        assert isinstance(reading.t, float) or (t.dtype == np.float64 and t.shape == (len(values),))
        assert (t >= -2_208_988_800).all()
        assert (t < 253_402_300_800).all()
        assert isinstance(reading.key, str)
        assert reading.key


def fuzz(cases: int, seed: int) -> tuple[Counter[tuple[str, str]], list[float]]:
    """Decode hostile messages.

    Returns:
        How often each codec gave what, and the seconds that each message took, sorted.

    Raises:
        AssertionError: a codec broke its promise; the message is part of the text.
    """
    rng = random.Random(seed)
    everyone = targets()
    seen: Counter[tuple[str, str]] = Counter()
    took: list[float] = []
    for _ in range(cases):
        target = rng.choice(everyone)
        message = mutate(rng, rng.choice(target.good)) if rng.random() < 0.97 else rng.randbytes(rng.randrange(60))
        refused: InputError | None = None
        readings: list[Reading] = []
        began = time.perf_counter()
        try:
            readings = target.codec.decode(rng.choice(("", "topic")), message, NOW)
        except InputError as error:
            refused = error
        except Exception as error:
            raise AssertionError(f"codec {target.codec.name}, seed {seed}: {error!r} for {message!r}") from error
        took.append(time.perf_counter() - began)
        if refused is None:
            check(readings)
        else:
            assert refused.reason in REASONS, (refused.reason, message)
            assert "\n" not in str(refused), (str(refused), message)
            assert len(str(refused)) < 500, (str(refused), message)
        seen[target.codec.name, refused.reason if refused else "ok" if readings else "nothing"] += 1
    return seen, sorted(took)


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    warnings.simplefilter("error")
    try:
        seen, took = fuzz(arguments.cases, arguments.seed)
    except AssertionError as error:
        print(error)
        return 1
    for (name, outcome), count in sorted(seen.items()):
        print(f"{name:<10}{outcome:<16}{count:>9}")
    p99, worst = took[int(0.99 * len(took))] * 1e6, took[-1] * 1e3
    print(f"{arguments.cases} messages, seed {arguments.seed}: nothing else; p99 {p99:.0f} us, slowest {worst:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
