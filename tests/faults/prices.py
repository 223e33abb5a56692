"""Price of a message: the most memory and time that the worst known one of each format takes, and what a fuzzer finds.

Run: ``python -m tests.faults.prices --cases 200``. Each format is tried in a process of its own; a line of the table is
the worst of its messages and their mutants, and the table is that of docs/SECURITY.md.
"""

from __future__ import annotations

import argparse
import base64
import json
import random
import re
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import cbor2
import numpy as np
import orjson
import ormsgpack

from edge_runtime.base.system import toml
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
from edge_runtime.io.codecs.numbers import MAX_BYTES
from edge_runtime.io.codecs.pcm import PcmConfig
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.io.codecs.sparkplug import SparkplugConfig
from edge_runtime.manifest import Channel
from edge_runtime.manifest.frames import Frame, frame_names
from tests.edge_runtime.base.media.pictures import bmp, jpeg, png, stated
from tests.edge_runtime.io.codecs.sparkplug_messages import metric, payload
from tests.edge_runtime.io.recordings.wav_files import write
from tests.faults.fuzz_codecs import mutate

NAMES = ("ax", "ay", "az")
NOW = 1.7e9


class Price(NamedTuple):
    """Of the worst message of a format."""

    bytes: int
    """Of that message."""
    peak_mb: float
    """Memory that it took more than there was."""
    ms: float
    """Processor time of the slowest; a machine that does other things, too, does not change it much."""


def _objects() -> list[Any]:
    """Documents of 256 kB, of many small things."""
    rows = [[1.5, 2, 3]] * 15_000
    return [
        {"key": "k", "t": NOW, "values": rows},
        {"key": "k", "t": NOW, "values": [[]] * 60_000},
        {"key": "k", "t": NOW, "values": [{}] * 60_000},
        {"key": "k", "t": NOW, **{f"{i:x}": i for i in range(24_000)}},
        {"key": "k", "t": NOW, "values": ["1.5"] * 40_000},
        {"key": "k", "t": [NOW] * 5000, "values": rows[:5000]},
    ]


def wav(rate_hz: int, samples: int) -> bytes:
    """Noise as a WAV message."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sound.wav"
        return write(path, np.random.default_rng(0).uniform(-1, 1, samples).astype(np.float32), rate_hz).read_bytes()


def pictures() -> Iterator[bytes]:
    """Yield the costliest pictures that are known, the tall PNG last."""
    noise = np.random.default_rng(0).integers(0, 256, (1024, 1024, 3), dtype=np.uint8)
    yield png(noise, (4,))
    yield bmp(np.tile(noise, (3, 1, 1))[:2600])
    with suppress(BaseException):  # skipped without the library
        large = jpeg(np.tile(noise, (3, 4, 1))[:2160, :3840])
        yield from (large, stated(jpeg(noise), 11_584, 724), stated(jpeg(noise), 65_000, 1))
        for height, width in ((2160, 3840), (2554, 2554)):
            yield stated(jpeg(noise), height, width).replace(b"\xff\xc0", b"\xff\xc2", 1) + b"\xff\xda" * 15
    head = b"IHDR" + struct.pack(">IIBBBBB", 1, 2**20, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(2**22))
    chunks = (struct.pack(">I", len(one) - 4) + one + struct.pack(">I", zlib.crc32(one)) for one in (head, data))
    yield b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _texts(line: bytes) -> list[bytes]:
    return [line * (MAX_BYTES // len(line))]


def formats() -> dict[str, Callable[[], tuple[Callable[[bytes], object], list[bytes]]]]:
    """By name: what makes the reader of a format, and the worst of its messages that are known."""
    channels = tuple(Channel(name=name, unit="m/s2") for name in NAMES)

    def of(config: CodecConfig, messages: Callable[[], list[bytes]], **more: Any) -> Any:
        def made() -> tuple[Callable[[bytes], object], list[bytes]]:
            codec: Codec = load_codec(config, more.pop("channels", channels), rate_hz=more.pop("rate_hz", 50.0), **more)
            return lambda message: codec.decode("key", message, NOW), messages()

        return made

    frame = Frame(height=224, width=224)
    pixels = [Channel(name=name, unit="1") for name in frame_names("rgb")]
    mono = (Channel(name="mono", unit="1"),)
    block = orjson.dumps({"key": "k", "t": NOW, "values": base64.b64encode(bytes(180_000)).decode()})
    record = b'{"n":"ax","t":1,"v":2},'
    big = [cbor2.dumps({"key": "k", "t": NOW, "values": [10**70_000, -(10**70_000)]})]
    return {
        "picture": of(FrameConfig(), lambda: list(pictures()), frame=frame, channels=pixels),
        "bare pixels": of(
            FrameConfig(raw="rgb565", height=2048, width=2048), lambda: [bytes(2**23)], frame=frame, channels=pixels
        ),
        "sound": of(
            PcmConfig(),
            lambda: [wav(44_100, 500_000), wav(15_984, 500_000), wav(1000, 32_000), wav(1000, 500_000)],
            channels=mono, rate_hz=16_000.0,
        ),
        "raw": of(RawConfig(), lambda: [bytes(12 * (MAX_BYTES // 12))]),
        "json": of(JsonConfig(), lambda: [*map(orjson.dumps, _objects()), b"[" * MAX_BYTES, b"9" * MAX_BYTES]),
        "json block": of(JsonConfig(block=BlockConfig(dtype="int16")), lambda: [block]),
        "msgpack": of(MsgpackConfig(), lambda: [ormsgpack.packb(one) for one in _objects()]),
        "cbor": of(CborConfig(), lambda: [cbor2.dumps(one) for one in _objects()] + big),
        "sparkplug": of(
            SparkplugConfig(partial=True),
            lambda: [payload(*[metric(1.5, name="ax", alias=1, datatype=10, ms=i) for i in range(4096)], ms=1)],
        ),
        "csv": of(CsvConfig(), lambda: [b"t,ax,ay,az\n" + one for one in _texts(b"1,2,3,4\n")] + _texts(b'"a",')),
        "influx": of(InfluxConfig(partial=True), lambda: _texts(b"m ax=1 1\n") + _texts(b"m,a=b,")),
        "senml": of(SenmlConfig(partial=True), lambda: [b"[" + one[:-1] + b"]" for one in _texts(record)]),
        "toml file": lambda: (
            lambda message: toml.loads(message.decode("utf-8", "replace")),
            [b"a=[" + b"[]," * 340_000 + b"]", b"a=0x" + b"f" * 10**6, b"[" * 5000, b"a." * 20_000 + b"=1"],
        ),
    }  # fmt: skip


def _peak_mb() -> float:
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def worst_of(name: str, cases: int, seed: int) -> Price:
    """Try a format in this process."""
    read, messages = formats()[name]()
    rng = random.Random(seed)
    with suppress(InputError, toml.TOMLDecodeError):
        read(min(messages, key=len))
    mutants = (mutate(rng, rng.choice(messages)) for _ in range(cases))
    worst = Price(0, 0.0, 0.0)
    for message in (*messages, *mutants):
        Path("/proc/self/clear_refs").write_text("5")
        before, began = _peak_mb(), time.process_time()
        with suppress(InputError, toml.TOMLDecodeError):
            read(message)
        ms, peak_mb = (time.process_time() - began) * 1e3, _peak_mb() - before
        size = len(message) if peak_mb > worst.peak_mb else worst.bytes
        worst = Price(size, max(peak_mb, worst.peak_mb), max(ms, worst.ms))
    return worst


def price_of(name: str, cases: int, seed: int) -> Price:
    """Try a format in a process of its own."""
    command = [sys.executable, "-m", "tests.faults.prices"]
    done = subprocess.run([*command, "--cases", str(cases), "--seed", str(seed), "--only", name],
                          check=True, capture_output=True)  # fmt: skip
    return Price(*json.loads(done.stdout))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=formats())
    arguments = parser.parse_args()
    if arguments.only:
        print(json.dumps(worst_of(arguments.only, arguments.cases, arguments.seed)))
        return
    print("| format | worst message, bytes | memory, MB | processor, ms |\n|---|---|---|---|")
    for name in formats():
        size, peak_mb, ms = price_of(name, arguments.cases, arguments.seed)
        print(f"| {name} | {size:,} | {peak_mb:.0f} | {ms:.0f} |", flush=True)


if __name__ == "__main__":
    main()
