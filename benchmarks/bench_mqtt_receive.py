"""CPU per received MQTT message: this package's client beside paho-mqtt's own ``on_message``.

A broker that does nothing but send runs in a process of its own, so the figure is the client's alone: it answers
CONNECT and SUBSCRIBE, then sends ready-made PUBLISH packets as fast as they are taken, and swallows acknowledgements.
Both clients count messages and add up their bytes; the variants take turns, round by round, in one run, the client on
one core, the broker on another. ``client`` is a `BrokerClient` with a callback; ``source`` adds the key and the
way through `Decoder`, with a codec that does nothing.

    python -m benchmarks.bench_mqtt_receive
    python -m benchmarks.bench_mqtt_receive --messages 50000 --rounds 5 --payload 200 --json
    python -m benchmarks.bench_mqtt_receive --buffers    # the read alone, by the size of its buffer
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.report import spread
from edge_runtime.io.mqtt import packets, transport
from edge_runtime.io.mqtt.packets import V5, V311

DEVICES = 64


def stream(version: int, qos: int, count: int, payload: int) -> bytes:
    """PUBLISH packets as a broker sends them for 64 devices in turn."""
    body = os.urandom(payload)
    return b"".join(
        packets.encode_publish(
            b"site/device-%02d/imu" % (i % DEVICES), body, qos, i % 65_535 + 1 if qos else 0, version=version
        )
        for i in range(count)
    )


def serve(port: int, version: int, qos: int, count: int, payload: int) -> None:
    """The sending broker, for one client."""
    data = stream(version, qos, count, payload)
    with socket.create_server(("127.0.0.1", port)) as server:
        print("ready", flush=True)
        conn, _ = server.accept()
        with conn:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            parser = packets.PacketParser(None)
            subscribed = False
            while not subscribed:
                for first, body in parser.feed(conn.recv(65_536)):  # type: ignore[misc]
                    if first == packets.CONNECT:
                        conn.sendall(packets.encode_connack(packets.Connack(False, 0), version))
                    elif first == packets.SUBSCRIBE:
                        granted = packets.Suback(int.from_bytes(body[:2], "big"), (qos,))
                        conn.sendall(packets.encode_suback(granted, version))
                        subscribed = True
            conn.setblocking(False)
            view = memoryview(data)
            owed = 4 * count if qos else 0
            while view or owed > 0:
                try:
                    if view:
                        view = view[conn.send(view[: 2**20]) :]
                except BlockingIOError:
                    pass
                try:
                    owed -= len(conn.recv(2**20))
                except BlockingIOError:
                    time.sleep(0.0005)
            conn.setblocking(True)
            conn.recv(1)  # until the client has seen everything and leaves


def run_paho(port: int, version: int, qos: int, count: int) -> tuple[float, float, int]:
    """CPU and wall seconds and bytes received by a paho client with its own loop."""
    import paho.mqtt.client as mqtt  # noqa: PLC0415 - measured: not loaded before the other variants
    from paho.mqtt.enums import CallbackAPIVersion  # noqa: PLC0415

    client = mqtt.Client(
        CallbackAPIVersion.VERSION2, client_id="bench", protocol=mqtt.MQTTv5 if version == V5 else mqtt.MQTTv311
    )
    seen = size = 0
    began = ended = (0.0, 0.0)

    def on_message(client: Any, _userdata: Any, message: Any) -> None:
        nonlocal seen, size, began, ended
        seen += 1
        size += len(message.payload)
        if seen == 1:
            began = time.process_time(), time.perf_counter()
        elif seen == count:
            ended = time.process_time(), time.perf_counter()
            client.disconnect()

    client.on_message = on_message
    client.on_connect = lambda c, *_: c.subscribe("site/+/imu", qos)
    client.connect("127.0.0.1", port)
    sock: Any = client.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    client.loop_forever()
    return (ended[0] - began[0]) / (count - 1), (ended[1] - began[1]) / (count - 1), size


def run_client(port: int, version: int, qos: int, count: int, *, source: bool = False) -> tuple[float, float, int]:
    """The same with this package."""
    from edge_runtime.base.system.loop import Loop  # noqa: PLC0415
    from edge_runtime.io.mqtt.client import BrokerClient  # noqa: PLC0415
    from edge_runtime.io.mqtt.config import BrokerConfig  # noqa: PLC0415
    from edge_runtime.metrics import Metrics  # noqa: PLC0415

    metrics = Metrics()
    loop = Loop()
    config = BrokerConfig(url=f"mqtt://127.0.0.1:{port}", client_id="bench", protocol="5" if version == V5 else "3.1.1")
    broker_client = BrokerClient(config, "bench", metrics)
    seen = size = 0

    def receive(publishes: list[packets.Publish], _received: float, done: Callable[[], None] | None) -> None:
        nonlocal seen, size
        seen += len(publishes)
        for publish in publishes:
            size += len(publish[1])
        if done is not None:
            done()

    if source:
        from edge_runtime.io.sources.decoding import Decoder  # noqa: PLC0415
        from edge_runtime.io.sources.mqtt import MqttSource, MqttSourceConfig  # noqa: PLC0415

        class Bare:
            name = "bare"

            def decode(self, key: str, payload: bytes, received: float) -> list[Any]:
                return [(key, received, payload)]

        def deliver(readings: Any, received: float, done: Callable[[], None] | None) -> None:  # noqa: ARG001
            nonlocal seen, size
            seen += len(readings)
            for reading in readings:
                size += len(reading[2])
            if done is not None:
                done()

        MqttSource(
            MqttSourceConfig(broker="bench", topics=("site/+/imu",), qos=qos),
            broker_client,
            Decoder(Bare(), metrics),
            metrics,
        ).open(loop, deliver)
    else:
        broker_client.subscribe([("site/+/imu", qos)], receive)
        broker_client.open(loop)
    while not seen:
        loop.iterate(1.0)
    began = time.process_time(), time.perf_counter()
    first = seen
    while seen < count:
        loop.iterate(1.0)
    spent = time.process_time() - began[0], time.perf_counter() - began[1]
    broker_client.close(0.0)
    loop.close()
    return spent[0] / (count - first), spent[1] / (count - first), size


VARIANTS: dict[str, Callable[[int, int, int, int], tuple[float, float, int]]] = {
    "paho": run_paho,
    "client": run_client,
    "source": lambda *args: run_client(*args, source=True),
}


def measure(variant: str, version: int, qos: int, count: int, payload: int) -> tuple[float, float]:
    """One round of one variant, CPU and wall seconds per message."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    args = [sys.executable, __file__, "--serve", str(port), str(version), str(qos), str(count), str(payload)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as broker:
        try:
            assert broker.stdout is not None
            broker.stdout.readline()
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
            cpu, wall, size = VARIANTS[variant](port, version, qos, count)
            if size != count * payload:
                raise RuntimeError(f"{variant} received {size} bytes of {count * payload}")
            return cpu, wall
        finally:
            broker.kill()


_M_MMAP_THRESHOLD = -3  # malloc.h of glibc
BUFFERS_KIB = (256, 128, 64, 32, 16)


def buffers(payload: int, rounds: int) -> None:
    """CPU of `Transport.read` a message, by buffer size: one message a read, and as many as a buffer holds.

    The sizes take turns in one process whose heap is as glibc sets it up. The least of all rounds is printed beside
    the median, since other programs can only add to it.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours, theirs = socket.create_connection(server.getsockname()), server.accept()[0]
    with ours, theirs:
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 2**20)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 * 2**20)
        ours.setblocking(False)
        receiver = transport.Transport(ours, V311, 2**20)
        message = stream(V311, 0, 1, payload)

        def read(sent: int, times: int) -> float:
            """Microseconds a message, `sent` at once."""
            spent = 0
            for _ in range(times):
                theirs.sendall(message * sent)
                got = 0
                while got < sent:
                    began = time.process_time_ns()
                    got += len(receiver.read()[0])
                    spent += time.process_time_ns() - began
            return spent / times / sent / 1e3

        figures: dict[tuple[str, int], list[float]] = {}
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 128 * 1024)  # glibc's first value; else it depends on the past
        for _ in range(rounds):
            for kib in BUFFERS_KIB:
                transport.RECEIVE_BYTES = kib * 1024  # type: ignore[misc] # what is measured
                figures.setdefault(("alone", kib), []).append(read(1, 200))
                figures.setdefault(("flood", kib), []).append(read(800, 1))
    print(f"{payload} B payload, CPU us a message: least and median of {rounds} rounds")
    for (kind, kib), values in sorted(figures.items()):
        print(f"{kind:6}{kib:>5} KiB{min(values):>8.2f}{statistics.median(values):>8.2f}")


def main() -> None:
    """Run all variants and print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=50_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--payload", type=int, default=200, help="bytes")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--buffers", action="store_true", help="compare sizes of the receive buffer instead")
    parser.add_argument("--serve", nargs=5, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    if arguments.serve:
        os.sched_setaffinity(0, {cores[-1]})
        serve(*arguments.serve)
        return
    if arguments.buffers:
        buffers(1208, 60)
        return
    figures: dict[tuple[int, int, str], list[tuple[float, float]]] = {}
    for _ in range(arguments.rounds):
        for version in (V311, V5):
            for qos in (0, 1):
                for variant in VARIANTS:
                    os.sched_setaffinity(0, cores)  # the broker inherits it, and then picks the other core
                    figures.setdefault((version, qos, variant), []).append(
                        measure(variant, version, qos, arguments.messages, arguments.payload)
                    )
    rows = []
    for (version, qos, variant), rounds in figures.items():
        paho = [one[0] for one in figures[version, qos, "paho"]]
        rows.append(
            {
                "mqtt": "5" if version == V5 else "3.1.1",
                "qos": qos,
                "variant": variant,
                "cpu_us_per_message": spread([1e6 * cpu for cpu, _ in rounds], 2),
                "messages_per_s": spread([1 / wall for _, wall in rounds]),
                "times_less_cpu_than_paho": spread(
                    [other / cpu for (cpu, _), other in zip(rounds, paho, strict=True)], 1
                ),
            }
        )
    if arguments.json:
        print(json.dumps({"payload_bytes": arguments.payload, "messages": arguments.messages, "rows": rows}, indent=2))
        return
    print(
        f"{arguments.payload} B payload, {arguments.messages:,} messages, least / median / most of {arguments.rounds}"
    )
    print(f"{'MQTT':6}{'QoS':>4}  {'variant':8}{'CPU us/msg':>24}{'msg/s':>34}{'paho / this':>22}")
    for row in rows:
        print(
            f"{row['mqtt']:6}{row['qos']:>4}  {row['variant']:8}{row['cpu_us_per_message']:>24}"
            f"{row['messages_per_s']:>34}{row['times_less_cpu_than_paho']:>22}"
        )


if __name__ == "__main__":
    main()
