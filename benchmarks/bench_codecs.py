"""Cost of decoding: microseconds per message of 50 samples x 6 channels, for every codec.

Run: ``python -m benchmarks.bench_codecs``. The codecs take turns in many short rounds. The best round of a turn counts,
so that other work on the machine shows as little as it can; least, median and most are those of the turns. ``parse`` is
the format's library alone, without any check. The ``plain`` rows are what a user would write by hand: no check of
anything, and no time stamp, key or limits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cbor2
import numpy as np
import orjson
import ormsgpack

from benchmarks.report import spread
from edge_runtime.io.codecs import Codec
from edge_runtime.io.codecs.cbor import CborConfig
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.msgpack import MsgpackConfig
from edge_runtime.io.codecs.raw import RawCodec, RawConfig
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.io.sources.decoding import BatchCodec
from edge_runtime.manifest import Channel
from edge_runtime.types import Reading

SAMPLES, NAMES = 50, ("ax", "ay", "az", "gx", "gy", "gz")
CHANNELS = [Channel(name=name, unit="m/s2") for name in NAMES]
START = 1_700_000_000.0


@dataclass
class Case:
    name: str
    payload: bytes
    codec: Codec
    parse: Callable[[bytes], Any] | None = None
    batch: int = 1
    us: list[float] = field(default_factory=list)
    """Best round of each turn."""
    parse_us: list[float] = field(default_factory=list)


class Plain:
    """Decoding as one writes it by hand."""

    name = "plain"

    def __init__(self, values: Callable[[bytes], Any]) -> None:
        self._values = values

    def decode(self, key: str, payload: bytes, received: float) -> list[Reading]:
        return [Reading(key, received, self._values(payload))]


def cases() -> list[Case]:
    rng = np.random.default_rng(7)
    exact = rng.normal(0, 3, (SAMPLES, len(NAMES))).astype(np.float32)
    rows = [[round(float(v), 4) for v in row] for row in exact]
    nested = {"key": "watch-3", "t": START, "values": rows}
    flat = {"key": "watch-3", "t": START, "values": [v for row in rows for v in row]}
    stamped = nested | {"t": [START + i / 50 for i in range(SAMPLES)]}
    packed = {"key": "watch-3", "t": START, "values": exact.tobytes()}
    objects = [{"ts": (START + i / 50) * 1e3, **dict(zip(NAMES, row, strict=True))} for i, row in enumerate(rows)]
    columns = {"ts": START * 1e3, **{name: [row[i] for row in rows] for i, name in enumerate(NAMES)}}
    mapping = {name: name for name in NAMES}
    typed = {"key": "watch-3", "t": START, "values": cbor2.CBORTag(85, exact.tobytes())}
    pack: list[dict[str, Any]] = [
        {"n": name, "t": i / 50, "v": row[j]} for i, row in enumerate(rows) for j, name in enumerate(NAMES)
    ]
    pack[0] = {"bn": "urn:dev:mac:0024befffe804ff1:", "bt": START, **pack[0]}
    stamp = np.float64(START).tobytes()
    ints = np.round(exact / 0.001).astype("<i2").tobytes()

    def case(name: str, config: CodecConfig, payload: bytes, parse: Callable[[bytes], Any] | None = None) -> Case:
        return Case(name, payload, load_codec(config, CHANNELS, rate_hz=50.0), parse)

    own_json, own_msgpack, own_cbor = JsonConfig(), MsgpackConfig(), CborConfig()
    mapped = JsonConfig(time="ts", time_unit="ms", channels=mapping)
    mapped_objects = JsonConfig(time="ts", time_unit="ms", channels=mapping, samples=".")
    return [
        Case(
            "plain raw: np.frombuffer",
            stamp + exact.tobytes(),
            Plain(lambda p: np.frombuffer(p, "<f4", -1, 8).reshape(-1, 6)),
        ),
        case("raw float32, f64 stamp", RawConfig(time="f64"), stamp + exact.tobytes()),
        Case("the same, 32 together", stamp + exact.tobytes(), RawCodec(RawConfig(time="f64"), NAMES), batch=32),
        case("raw float32, no stamp", RawConfig(), exact.tobytes()),
        case("raw int16, scaled", RawConfig(time="f64", dtype="int16", scale=(0.001,)), stamp + ints),
        Case(
            "plain json: orjson + np.array",
            orjson.dumps(nested),
            Plain(lambda p: np.array(orjson.loads(p)["values"], "f4")),
        ),
        case("json nested", own_json, orjson.dumps(nested), orjson.loads),
        case("json flat", own_json, orjson.dumps(flat), orjson.loads),
        case("json nested, stamp per sample", own_json, orjson.dumps(stamped), orjson.loads),
        case("json mapped, lists", mapped, orjson.dumps(columns), orjson.loads),
        case("json mapped, objects", mapped_objects, orjson.dumps(objects), orjson.loads),
        case("msgpack bytes", own_msgpack, ormsgpack.packb(packed), ormsgpack.unpackb),
        case("msgpack nested", own_msgpack, ormsgpack.packb(nested), ormsgpack.unpackb),
        case("cbor bytes", own_cbor, cbor2.dumps(packed), cbor2.loads),
        case("cbor typed array", own_cbor, cbor2.dumps(typed), cbor2.loads),
        case("cbor nested", own_cbor, cbor2.dumps(nested), cbor2.loads),
        case("senml json", SenmlConfig(), orjson.dumps(pack), orjson.loads),
    ]


def mean_us(call: Callable[..., Any], arguments: tuple[Any, ...], calls: int) -> float:
    began = time.perf_counter()
    for _ in range(calls):
        call(*arguments)
    return (time.perf_counter() - began) / calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=40, help="in a turn")
    parser.add_argument("--calls", type=int, default=200, help="calls in a round")
    parser.add_argument("--json", action="store_true", help="print JSON")
    arguments = parser.parse_args()
    table = cases()
    for case in table:
        (reading,) = case.codec.decode("watch-3", case.payload, START)
        if reading.values.shape != (SAMPLES, len(NAMES)):
            raise SystemExit(f"{case.name}: wrong shape {reading.values.shape}")
    for _ in range(arguments.turns):
        turn(table, arguments.rounds, arguments.calls)
    rows = [(c.name, f"{len(c.payload):,}", spread(c.us, 2), spread(c.parse_us, 2) if c.parse else "") for c in table]
    columns = ("codec", "bytes", "us a message", "parse alone")
    if arguments.json:
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2))
        return
    print(f"least / median / most of {arguments.turns} turns")
    for row in (columns, *rows):
        print(f"{row[0]:<32}{row[1]:>7}{row[2]:>28}{row[3]:>28}")


def turn(table: Sequence[Case], rounds: int, calls: int) -> None:
    """Take the best of some rounds of each codec."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for case in table:
            if case.batch > 1 and isinstance(case.codec, BatchCodec):
                messages = [("watch-3", case.payload)] * case.batch
                took = mean_us(case.codec.decode_many, (messages, START), calls // 8) / case.batch
            else:
                took = mean_us(case.codec.decode, ("watch-3", case.payload, START), calls)
            best[case.name] = min(best.get(case.name, took), took)
            if case.parse is not None:
                parsed = mean_us(case.parse, (case.payload,), calls)
                best[f"{case.name} parse"] = min(best.get(f"{case.name} parse", parsed), parsed)
    for case in table:
        case.us.append(best[case.name])
        if case.parse is not None:
            case.parse_us.append(best[f"{case.name} parse"])


if __name__ == "__main__":
    main()
