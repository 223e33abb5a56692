"""The server before a fleet: one caller, many, a thousand kept connections, slow and silent clients, memory.

Run: ``python -m benchmarks.bench_serve [--quick] [--beside DIR]``; DIR is another checkout of this project, whose
server takes turns with ours. Everything is on the loopback address; servers have one core, clients another. The model
is one matrix product, so what is measured is everything around it; batch delay 0.
"""

from __future__ import annotations

import argparse
import os
import resource
import select
import selectors
import socket
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_cloud import INFER, Child, batch, encoded, load
from benchmarks.report import Goal, Report

ROOT = str(Path(__file__).resolve().parents[1])
KEPT, SLOW, BODIES = 1000, 500, 200
BODY_BYTES = (16 * 2**20, 60_000)
HONEST = 200
PATIENCE_S = 2.0
FILES = 8192
HEAD = b"GET /v2/models/bench/ready HTTP/1.1\r\nHost: fleet\r\n"


def connect(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def answered(sock: socket.socket) -> bool:
    """Report that a request on this connection is answered within `PATIENCE_S`."""
    try:
        sock.sendall(HEAD + b"\r\n")
        return sock.recv(65536).startswith(b"HTTP/1.1 200 ")
    except OSError:
        return False


def lone(port: int, requests: int) -> list[float]:
    """Milliseconds of each request of one caller on a kept connection, one window each."""
    body, length = encoded(batch(1))
    request = (
        f"POST {INFER} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {length}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    times = []
    with connect(port) as sock:
        sock.sendall(request)
        time.sleep(0.2)
        whole = len(first := sock.recv(65536))
        if not first.startswith(b"HTTP/1.1 200 "):
            raise ConnectionRefusedError(first[:100])
        for _ in range(requests):
            began = time.perf_counter()
            sock.sendall(request)
            left = whole
            while left > 0:
                if not (got := len(sock.recv(65536))):
                    raise ConnectionResetError
                left -= got
            times.append(1e3 * (time.perf_counter() - began))
    return times


def kept(port: int) -> int:
    """Of `KEPT` connections that are all open: how many are answered when they all ask."""
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(KEPT):
            try:
                sock = stack.enter_context(connect(port))
                sock.sendall(HEAD + b"\r\n")
            except OSError:
                continue
            selector.register(sock, selectors.EVENT_READ)
        count, end = 0, time.monotonic() + 5 * PATIENCE_S
        while selector.get_map() and time.monotonic() < end:
            for key, _ in selector.select(0.1):
                selector.unregister(key.fileobj)
                with suppress(OSError):
                    count += key.fileobj.recv(65536).startswith(b"HTTP/1.1 200 ")  # type: ignore[union-attr]
        return count


class Crowd:
    """`SLOW` connections that send a byte of a header each second, and as many that send nothing."""

    def __init__(self, port: int) -> None:
        self._stop = threading.Event()
        self._stack = ExitStack()
        self._slow = []
        for number in range(2 * SLOW):
            try:
                sock = self._stack.enter_context(connect(port))
                if number % 2:
                    sock.sendall(HEAD + b"X-Slow: ")
                    self._slow.append(sock)
            except OSError:
                continue
        self._thread = threading.Thread(target=self._drip)
        self._thread.start()

    def _drip(self) -> None:
        while not self._stop.wait(1.0):
            for sock in self._slow:
                try:
                    sock.send(b"x")
                except OSError:
                    continue

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._stack.close()


def among_slow(port: int, requests: int) -> tuple[int, float]:
    """Of `HONEST` new callers among a crowd of slow ones, how many are denied; and p99 of one on a kept connection."""
    crowd = Crowd(port)
    try:
        denied = 0
        for _ in range(HONEST):
            try:
                with connect(port) as sock:
                    denied += not answered(sock)
            except OSError:
                denied += 1
            if denied >= 10:  # each costs seconds: it is clear by now
                break
        try:
            p99 = float(np.quantile(lone(port, requests), 0.99))
        except OSError:
            p99 = float("inf")
    finally:
        crowd.close()
    return denied, p99


def memory_mb(child: Child) -> float:
    """Resident memory."""
    return int(Path(f"/proc/{child.process.pid}/status").read_text().partition("VmRSS:")[2].split()[0]) / 1024


def slow_body(port: int) -> socket.socket | None:
    """A connection that announced the longest body that is not refused, sent most of it, and stopped."""
    for size in BODY_BYTES:
        sock = connect(port)
        sock.sendall(f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n".encode())
        if select.select([sock], [], [], 0.1)[0]:
            sock.close()
            continue
        with suppress(OSError):  # the server may stop reading
            sock.sendall(b" " * (size - 1))
        return sock
    return None


def slow_bodies(child: Child) -> float:
    """Megabytes that `BODIES` callers cost whose bodies never end."""
    before = memory_mb(child)
    socks = []
    for _ in range(BODIES):
        with suppress(OSError):
            socks.append(slow_body(int(child.hello)))
        if memory_mb(child) - before > 4 * 1024:
            break
    time.sleep(1.0)
    grown = memory_mb(child) - before
    for sock in filter(None, socks):
        sock.close()
    return grown


def fleet(rounds: int, requests: int, beside: Sequence[str]) -> Report:
    """Ask each server everything, in turns."""
    report = Report(
        f"Before a fleet: {KEPT} kept connections; {HONEST} callers among {SLOW} dripping and {SLOW} silent ones; "
        f"{BODIES} slow bodies; medians of {rounds} rounds",
        (
            "server",
            "p50 ms",
            "p99 ms",
            "1 caller/s",
            "16 callers/s",
            "kept",
            "denied",
            "p99 among slow",
            "MB of bodies",
        ),
    )
    with ExitStack() as stack:
        os.sched_setaffinity(0, {1})
        children = {
            root: Child(stack, sys.executable, 0, "server", "edge-runtime", root=root) for root in (ROOT, *beside)
        }
        found: dict[str, list[tuple[float, ...]]] = {root: [] for root in children}
        for child in children.values():
            lone(int(child.hello), 50)
        for _ in range(rounds):
            for root, child in children.items():
                port = int(child.hello)
                times = lone(port, requests)
                rates = (load(port, 1, 0.5), load(port, 16, 0.5))
                p50, p99 = map(float, np.quantile(times, [0.5, 0.99]))
                found[root].append((p50, p99, *rates))
        for root, child in children.items():
            port = int(child.hello)
            stayed = kept(port)
            denied, among = among_slow(port, requests)
            medians = [statistics.median(column) for column in zip(*found[root], strict=True)]
            name = "edge-runtime" if root == ROOT else Path(root).name
            row: tuple[Any, ...] = (
                name,
                *(round(value, 2) for value in medians[:2]),
                *(round(value) for value in medians[2:]),
                stayed,
                denied,
                round(among, 1),
                round(slow_bodies(child)),
            )
            report.rows.append(row)
            if root == ROOT:
                report.goals += [
                    Goal("kept connections answered", stayed, KEPT),
                    Goal("honest callers denied", denied, 0, at_most=True),
                    Goal("p99 among slow callers, ms", among, 100.0, at_most=True),
                    Goal("memory of slow bodies, MB", row[-1], 64.0, at_most=True),
                ]
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_serve", description=str(__doc__).split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--beside", action="append", default=[], metavar="DIR", help="another checkout of this project")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES if hard == resource.RLIM_INFINITY else min(FILES, hard), hard))
    beside = [str(Path(folder).resolve()) for folder in options.beside]
    print(fleet(3 if options.quick else 7, 200 if options.quick else 500, beside).text(), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
