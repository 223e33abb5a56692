"""``edge-runtime bench``: what the runtime costs on this machine, beside the bare engine and a hand-written loop.

Three things are measured in turns, round by round, in one process on one core, with a bundle's own model, windows and
golden signals:

- *bare*: the engine's library called for one window, and our engine for 1, 8 and 32;
- *hand-written*: the loop that a competent user writes (`edge_runtime.tools.bench.handwritten`), from bytes on a TCP
  connection to results on it;
- *edge-runtime*: the same, by the application as `edge-runtime run` builds it, with the model alone (``alone = true``).

The two programs get the same bytes from a stand-in for a broker, and their answers are compared. CPU is the time of the
thread that works; medians over the rounds.
"""

from __future__ import annotations

import itertools
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from edge_runtime.app.application import App
from edge_runtime.app.config import AppConfig
from edge_runtime.base.system.progress import Progress
from edge_runtime.errors import ConfigError, ConnectionFailed
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.packets import encode_publish
from edge_runtime.io.sinks.mqtt import MqttSinkConfig
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.manifest import Manifest
from edge_runtime.model.bundle.variants import arrange, engine_for
from edge_runtime.model.engines.base import Engine
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import Model, load_model
from edge_runtime.tools.bench.feeder import RESULTS, Feeder
from edge_runtime.tools.bench.handwritten import Call, HandWritten, library_call, no_delay
from edge_runtime.tools.bench.result import BareCall, BenchResult, Cost, machine
from edge_runtime.types import Float32

__all__ = ["BareCall", "BenchConfig", "BenchResult", "Cost", "bench", "compare"]

BATCHES = (1, 8, 32)
_CHUNK_BYTES = 64 * 1024
"""Sent at a time: fits the buffers of a connection, as feeder and program share a thread."""
_MESSAGE_BYTES = 16 * 1024
_CONNECT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchConfig:
    """Settings of a benchmark: the bundle to measure, and for how long."""

    bundle: Path
    variant: str = "auto"
    threads: int = 1
    streams: int = 64
    rounds: int = 9
    messages: int = 1024
    """In each round, for each program."""
    singles: int = 256
    """Messages sent one at a time, for the latency."""

    def __post_init__(self) -> None:
        for name in ("threads", "streams", "rounds", "messages", "singles"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")


class PacketStream:
    """The signals of many devices, made of the bundle's golden windows, as PUBLISH packets without an end.

    Args:
        manifest: what a window is.
        golden: (n, channels, samples) float32.
        streams: devices; each begins at another place of the signal.
    """

    def __init__(self, manifest: Manifest, golden: Float32, streams: int) -> None:
        contract = manifest.input
        self._signal = np.ascontiguousarray(golden.transpose(0, 2, 1).reshape(-1, len(contract.channels)))
        self._rate = contract.rate_hz
        self.samples = max(1, min(contract.hop, _MESSAGE_BYTES // (4 * len(contract.channels))))
        """In a message: a hop, so that from the first window on every message completes one."""
        # A moment whose grid point divides by the hop, so that counting from the first sample and counting from the
        # epoch give the same windows.
        self._slot = round(1_700_000_000 * self._rate) // contract.hop * contract.hop
        self._keys = [f"device-{i:04d}" for i in range(streams)]
        self._round = itertools.count()
        self._packets = self._generate()

    def _generate(self) -> Iterator[bytes]:
        n = self.samples
        total = len(self._signal)
        for turn in self._round:
            t = (self._slot + turn * n) / self._rate
            for i, key in enumerate(self._keys):
                at = (i * 7919 + turn * n) % total
                values = self._signal[np.arange(at, at + n) % total]
                yield encode_publish(f"sensors/{key}/raw".encode(), struct.pack("<d", t) + values.tobytes())

    def next(self, messages: int) -> list[bytes]:
        """Return the next messages, as packets of MQTT 3.1.1 at QoS 0."""
        return list(itertools.islice(self._packets, messages))


class Driver:
    """One program on one connection, driven step by step.

    Args:
        feeder: the other end.
        step: lets the program handle what has come.
        seen: how many messages it has handled so far.
        busy: it holds results back that the next step will send.
    """

    def __init__(
        self,
        feeder: Feeder,
        step: Callable[[], object],
        seen: Callable[[], int],
        busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._feeder = feeder
        self.step = step
        self.seen = seen
        self.busy = busy

    def handle(self, packets: Sequence[bytes]) -> float:
        """Have messages handled, as many at a time as the connection holds; returns CPU seconds of the program."""
        spent = 0.0
        at = 0
        while at < len(packets):
            end, size = at, 0
            while end < len(packets) and (end == at or size + len(packets[end]) <= _CHUNK_BYTES):
                size += len(packets[end])
                end += 1
            self._feeder.send(b"".join(packets[at:end]))
            spent += self._run(end - at, time.thread_time)
            at = end
        return spent

    def latency(self, packet: bytes) -> float | None:
        """Wall seconds from a message that waits in the kernel to its result in the kernel; None if it made none."""
        before = len(self._feeder.results)
        self._feeder.send(packet)
        spent = self._run(1, time.perf_counter)
        return spent if len(self._feeder.results) > before else None

    def _run(self, messages: int, clock: Callable[[], float]) -> float:
        target = self.seen() + messages
        began = clock()
        while self.seen() < target or self.busy():
            self.step()
        spent = clock() - began
        while self._feeder.serve():
            pass
        return spent


@contextmanager
def runtime(model: Model, config: BenchConfig) -> Iterator[tuple[Driver, Feeder]]:
    """Run the application, as `edge-runtime run` builds it: MQTT in, MQTT out, QoS 0, every answer local."""
    with Feeder() as feeder:
        app = App(
            AppConfig(
                model=ModelConfig(
                    bundle=config.bundle,
                    unsigned="allow",
                    variant=config.variant,
                    threads=config.threads,
                    alone=True,  # the loop by hand knows nothing of answers over time
                ),
                broker={"bench": BrokerConfig(url=f"mqtt://127.0.0.1:{feeder.port}", protocol="3.1.1")},
                source=(
                    MqttSourceConfig(broker="bench", topics=("sensors/+/raw",), qos=0, codec=RawConfig(time="f64")),
                ),
                sink=(MqttSinkConfig(broker="bench", topic=f"{RESULTS.decode()}{{key}}", qos=0),),
            ),
            model=model,
        )
        try:
            app.loop.each_iteration(app.pipeline.flush_iteration)
            for sink in app.sinks:
                sink.open(app.loop)
            for source in app.sources:
                source.open(app.loop, app.pipeline.deliver)
            _until_subscribed(feeder, lambda: app.loop.iterate(0.01))
            counts = app.metrics.counts
            yield Driver(feeder, lambda: app.loop.iterate(0.0), lambda: counts["messages_total"]), feeder
        finally:
            app.close()


@contextmanager
def handwritten(manifest: Manifest, call: Call) -> Iterator[tuple[Driver, Feeder]]:
    """Run the hand-written loop, driven as paho's own `loop_forever` drives it."""
    import paho.mqtt.client as paho  # noqa: PLC0415 - heavy
    from paho.mqtt.enums import CallbackAPIVersion  # noqa: PLC0415

    seen = 0
    with Feeder() as feeder:
        client = paho.Client(CallbackAPIVersion.VERSION2)
        program = HandWritten.for_bundle(client, call, manifest)

        def on_message(_client: Any, _userdata: Any, message: paho.MQTTMessage) -> None:
            nonlocal seen
            program.handle(message.topic, message.payload)
            seen += 1

        client.on_socket_open = no_delay
        client.on_connect = lambda c, *_: c.subscribe("sensors/+/raw", 0)
        client.on_message = on_message
        client.connect("127.0.0.1", feeder.port)
        try:
            _until_subscribed(feeder, lambda: client.loop(0.01))
            # What is published within on_message is sent in the next turn of paho's loop.
            yield Driver(feeder, lambda: client.loop(0.0), lambda: seen, client.want_write), feeder
        finally:
            client.disconnect()
            client.loop(0.0)


def _until_subscribed(feeder: Feeder, step: Callable[[], object]) -> None:
    deadline = time.monotonic() + _CONNECT_S
    while not feeder.subscribed:
        if time.monotonic() > deadline:
            raise ConnectionFailed("the program under test did not subscribe; is 127.0.0.1 reachable?")
        step()
        feeder.serve()
    for _ in range(3):
        step()  # SUBACK


def bench(config: BenchConfig) -> BenchResult:
    """Measure.

    Raises:
        ConfigError: there is no such bundle, its variant is not called so, or it has stages.
        BundleError, EngineError: the bundle cannot be trusted, or nothing of it runs here.
        ConnectionFailed: this machine has no loopback interface to measure over.
    """
    model = load_model(
        ModelConfig(
            bundle=config.bundle,
            unsigned="allow",  # who names a file by hand has said what is to run
            variant=config.variant,
            threads=config.threads,
            max_batch=max(BATCHES),
            alone=True,
        )
    )
    with ExitStack() as stack:
        stack.callback(model.close)
        if model.manifest.stages:
            raise ConfigError(
                f"bench: {config.bundle} has stages, and the loop by hand runs one model; time it with: "
                f"edge-runtime time {config.bundle}"
            )
        manifest, variant = model.manifest, model.variant
        golden, _ = model.bundle.golden(variant.name)
        call = library_call(variant, model.bundle.read_variant(variant.name), engine_for(variant))
        ours, our_feeder = stack.enter_context(runtime(model, config))
        hand, hand_feeder = stack.enter_context(handwritten(manifest, call))
        our_stream, hand_stream = (PacketStream(manifest, golden, config.streams) for _ in range(2))
        # Fill every stream's first window, warm every path.
        first = config.streams * -(-manifest.input.window // our_stream.samples)
        for driver, stream in ((ours, our_stream), (hand, hand_stream)):
            driver.handle(stream.next(first + config.streams))
        rounds = []
        with Progress("rounds", config.rounds) as progress:
            for _ in range(config.rounds):
                rounds.append(_round(model, golden, call, (ours, our_stream), (hand, hand_stream), config))
                progress.advance()
        singles = [
            (ours.latency(a), hand.latency(b))
            for a, b in zip(our_stream.next(config.singles), hand_stream.next(config.singles), strict=True)
        ]
        rows, worst, labels = compare(our_feeder.results, hand_feeder.results)
        windows = our_stream.samples / manifest.input.hop
        return BenchResult(
            model=manifest.model,
            variant=variant.name,
            engine=model.engine.name,
            machine=machine(),
            streams=config.streams,
            samples_per_message=our_stream.samples,
            windows_per_message=windows,
            bare_us=_median(one.bare for one in rounds),
            calls=tuple(
                BareCall(batch=batch, cpu_us_per_window=_median(one.calls[i] for one in rounds))
                for i, batch in enumerate(BATCHES)
            ),
            edge_runtime=_cost([one.ours for one in rounds], windows, [a for a, _ in singles]),
            handwritten=_cost([one.hand for one in rounds], windows, [b for _, b in singles]),
            rows=rows,
            labels_differ=labels,
            worst_difference=worst,
        )


@dataclass(frozen=True, slots=True)
class _Round:
    """Microseconds of CPU: per window for the calls, per message for the programs."""

    bare: float
    calls: tuple[float, ...]
    ours: float
    hand: float


def _round(
    model: Model,
    golden: Float32,
    call: Call,
    ours: tuple[Driver, PacketStream],
    hand: tuple[Driver, PacketStream],
    config: BenchConfig,
) -> _Round:
    windows = np.ascontiguousarray(golden.transpose(0, 2, 1))  # (n, samples, channels), as the loop's ring has them
    many = max(32, config.messages // 4)
    bare = _timed(lambda i: call(windows[i % len(windows)]), many)
    arranged = arrange(np.resize(golden, (max(BATCHES), *golden.shape[1:])), model.variant)
    calls = tuple(_engine_us(model.engine, np.ascontiguousarray(arranged[:batch]), many) for batch in BATCHES)
    (our_driver, our_stream), (hand_driver, hand_stream) = ours, hand
    n = config.messages
    return _Round(
        bare=bare,
        calls=calls,
        ours=1e6 * our_driver.handle(our_stream.next(n)) / n,
        hand=1e6 * hand_driver.handle(hand_stream.next(n)) / n,
    )


def _engine_us(engine: Engine, windows: Float32, many: int) -> float:
    """Microseconds of CPU per window."""
    n = len(windows)
    return _timed(lambda _: engine.run(windows), max(8, many // n)) / n


def _timed(call: Callable[[int], object], times: int) -> float:
    """Microseconds of CPU of one call."""
    began = time.thread_time()
    for i in range(times):
        call(i)
    return 1e6 * (time.thread_time() - began) / times


def _median(values: Iterator[float] | Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def _cost(per_message: Sequence[float], windows: float, latencies: Sequence[float | None]) -> Cost:
    known: npt.NDArray[np.float64] = np.array([one for one in latencies if one is not None])
    p50, p99 = (1e6 * np.quantile(known, (0.5, 0.99))).round(1).tolist() if len(known) else (0.0, 0.0)
    us = _median(per_message)
    return Cost(
        cpu_us_per_message=us,
        cpu_us_per_window=round(us / windows, 3),
        messages_per_s=round(1e6 / us, 1),
        latency_p50_us=p50,
        latency_p99_us=p99,
    )


def compare(left: Sequence[bytes], right: Sequence[bytes]) -> tuple[int, float, int]:
    """Compare results by id.

    Args:
        left: results of one program, JSON.
        right: those of the other.

    Returns:
        How many ids both have, the largest difference of a score, and how many labels differ.
    """
    known = {row["id"]: row for row in map(orjson.loads, left)}
    rows = labels = 0
    worst = 0.0
    for other in map(orjson.loads, right):
        row = known.get(other["id"])
        if row is None:
            continue
        rows += 1
        labels += row["label"] != other["label"]
        worst = max(worst, *(abs(a - b) for a, b in zip(row["scores"], other["scores"], strict=True)))
    return rows, worst, labels
