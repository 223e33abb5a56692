"""The cloud client beside tritonclient and a hand-written one, and the server beside one on `http.server`.

Run: ``python -m benchmarks.bench_cloud [--quick]``. Everything is on the loopback address; the server has one core, the
clients another. Clients (and servers) take turns in short rounds, and medians count. tritonclient needs its
environment (``python tests/conformance/environments.py tritonclient``) and is left out without it.

The file is also the program of the child processes (``--child ...``): at its top it imports nothing but the standard
library and numpy, so that it runs in tritonclient's environment as well.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np

CHANNELS, SAMPLES, CLASSES = 6, 128, 5
WEIGHTS = np.linspace(-1, 1, CHANNELS * SAMPLES * CLASSES, dtype=np.float32).reshape(-1, CLASSES)
BATCH = 4
ROUNDS, REQUESTS, LOAD_S = 9, 400, 1.0
INFER = "/v2/models/bench/infer"


def predict(window: Any) -> Any:
    """The model: one matrix product, so that what is measured is everything around it."""
    return (window.reshape(len(window), -1) @ WEIGHTS).astype(np.float32)


ACCELERATOR = threading.Lock()


def slow_predict(window: Any) -> Any:
    """A model on an accelerator: one call at a time, 2 ms each whatever the batch, the interpreter free meanwhile."""
    with ACCELERATOR:
        time.sleep(0.002)
        return predict(window)


def batch(n: int = BATCH) -> Any:
    return np.random.default_rng(0).normal(size=(n, CHANNELS, SAMPLES)).astype(np.float32)


def encoded(window: Any) -> tuple[bytes, int]:
    """A binary request by hand: body, and length of its JSON."""
    tensor = {
        "name": "window",
        "datatype": "FP32",
        "shape": list(window.shape),
        "parameters": {"binary_data_size": window.nbytes},
    }
    head = json.dumps({"id": "1", "parameters": {"binary_data_output": True}, "inputs": [tensor]}).encode()
    return head + window.tobytes(), len(head)


# -- servers, each a process of its own --------------------------------------------------------------------------------


def serve_ours(model: Callable[[Any], Any], delay_ms: float) -> None:
    from edge_runtime.base.oip import OipTensor  # noqa: PLC0415 - see the module
    from edge_runtime.operate.server.batcher import ServedModel  # noqa: PLC0415
    from edge_runtime.operate.server.server import ServeConfig, Server  # noqa: PLC0415

    served = ServedModel(
        name="bench",
        inputs=(OipTensor("window", "FP32", (-1, CHANNELS, SAMPLES)),),
        outputs=(OipTensor("scores", "FP32", (-1, CLASSES)),),
        predict=lambda x: {"scores": model(x["window"])},
        max_batch=32,
    )
    with Server({"bench": served}, ServeConfig(port=0, max_queue_delay_ms=delay_ms)) as server:
        print(server.url.rpartition(":")[2], flush=True)
        sys.stdin.read()


def serve_plain(model: Callable[[Any], Any]) -> None:
    """Serve with an hour's work: `http.server`, the binary extension, no limits, no batching."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            length = int(self.headers["Inference-Header-Content-Length"])
            request = json.loads(body[:length])
            window = np.frombuffer(body, "<f4", offset=length).reshape(request["inputs"][0]["shape"])
            scores = model(window)
            output = {
                "name": "scores",
                "datatype": "FP32",
                "shape": list(scores.shape),
                "parameters": {"binary_data_size": scores.nbytes},
            }
            answer = {"model_name": "bench", "id": request["id"], "outputs": [output]}
            head = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Inference-Header-Content-Length", str(len(head)))
            self.send_header("Content-Length", str(len(head) + scores.nbytes))
            self.end_headers()
            self.wfile.write(head + scores.tobytes())

        def log_message(self, *_: Any) -> None:
            pass

    class PlainServer(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A caller that hung up."""

    server = PlainServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


# -- clients, each a process of its own --------------------------------------------------------------------------------


def ask_ours(port: int, **options: Any) -> Callable[[Any], Any]:
    from edge_runtime.cloud.config import CloudConfig  # noqa: PLC0415
    from edge_runtime.cloud.connect import connect  # noqa: PLC0415

    client = connect(CloudConfig(url=f"http://127.0.0.1:{port}", model="bench", **options))
    return lambda window: client.infer({"window": window}, request_id="1")["scores"]


def ask_tritonclient(port: int) -> Callable[[Any], Any]:
    from tritonclient.http import InferenceServerClient, InferInput  # noqa: PLC0415

    client = InferenceServerClient(f"127.0.0.1:{port}")

    def ask(window: Any) -> Any:
        tensor = InferInput("window", list(window.shape), "FP32")
        tensor.set_data_from_numpy(window)
        return client.infer("bench", [tensor], request_id="1").as_numpy("scores")

    return ask


def ask_plain(port: int) -> Callable[[Any], Any]:
    """Ask with an hour's work: `http.client`, the binary extension, no limits, no retries, no checks."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.connect()
    connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(window: Any) -> Any:
        request, head = encoded(window)
        connection.request("POST", INFER, request, {"Inference-Header-Content-Length": str(head)})
        answer = connection.getresponse()
        body = answer.read()
        length = int(answer.headers["Inference-Header-Content-Length"])
        output = json.loads(body[:length])["outputs"][0]
        return np.frombuffer(body, "<f4", offset=length).reshape(output["shape"])

    return ask


CLIENTS: dict[str, Callable[[int], Callable[[Any], Any]]] = {
    "edge-runtime": lambda port: ask_ours(port, binary="always"),
    "edge-runtime, JSON": lambda port: ask_ours(port, binary="never"),
    "tritonclient[http]": ask_tritonclient,
    "http.client by hand": ask_plain,
}
SERVERS: dict[str, Callable[[], None]] = {
    "edge-runtime": lambda: serve_ours(predict, 0.0),
    "http.server by hand": lambda: serve_plain(predict),
    "edge-runtime, 2 ms model": lambda: serve_ours(slow_predict, 0.0),
    "http.server by hand, 2 ms model": lambda: serve_plain(slow_predict),
}


def drive(name: str, port: int) -> None:
    """Run a round of requests for each line on standard input, and print what it cost."""
    ask, window = CLIENTS[name](port), batch()
    expected = predict(window)
    for _ in range(50):
        assert np.allclose(ask(window), expected, rtol=1e-4)
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        began_cpu = time.process_time()
        for _ in range(int(line)):
            began = time.perf_counter()
            ask(window)
            times.append(time.perf_counter() - began)
        cpu = (time.process_time() - began_cpu) / len(times)
        p50, p99 = np.quantile(times, [0.5, 0.99])
        print(json.dumps([1e6 * p50, 1e6 * p99, 1e6 * cpu]), flush=True)


# -- the benchmark -----------------------------------------------------------------------------------------------------


class Child:
    """A process of this file, on one core; `root` is the checkout whose edge-runtime it uses."""

    def __init__(self, stack: ExitStack, python: str, core: int, *arguments: str, root: str | None = None) -> None:
        root = root or str(Path(__file__).resolve().parents[1])
        self.process = subprocess.Popen(
            [python, __file__, "--child", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),  # noqa: PLW1509 - no thread has been started yet
        )
        stack.callback(self.end)
        self.hello = self.read()

    def read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def ask(self, line: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.read()

    def cpu_s(self) -> float:
        """CPU time used so far, from /proc."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()


def load(port: int, connections: int, seconds: float) -> float:
    """Answers per second to `connections` callers that each send their next request when the last one is answered."""
    body, length = encoded(batch(1))
    request = (
        f"POST {INFER} HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: {length}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body
    with ExitStack() as stack, selectors.DefaultSelector() as selector:
        waiting: dict[socket.socket, int] = {}
        for _ in range(connections):
            sock = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.sendall(request)  # the first answer tells how long answers are: all are alike
            answer = sock.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200"), answer[:200]
            time.sleep(0.01)
            answer_bytes = len(answer)
            with_rest = answer.partition(b"\r\n\r\n")[2]
            if not with_rest:
                answer_bytes += len(sock.recv(65536))
            selector.register(sock, selectors.EVENT_READ)
            waiting[sock] = answer_bytes
        began = time.perf_counter()
        for sock in waiting:
            sock.sendall(request)
        answers, missing = 0, dict(waiting)
        while time.perf_counter() - began < seconds:
            for key, _ in selector.select(1.0):
                sock = key.fileobj  # type: ignore[assignment]  # the type of a file number or a file
                missing[sock] -= len(sock.recv(65536))
                if missing[sock] == 0:
                    answers += 1
                    missing[sock] = waiting[sock]
                    sock.sendall(request)
        return answers / (time.perf_counter() - began)


def clients(rounds: int) -> Any:
    from benchmarks.report import Goal, Report  # noqa: PLC0415

    pythons = dict.fromkeys(CLIENTS, sys.executable)
    pythons["tritonclient[http]"] = str(Path(__file__).resolve().parents[1] / ".venvs/tritonclient/bin/python")
    present = {name: python for name, python in pythons.items() if Path(python).exists()}
    samples: dict[str, list[list[float]]] = {name: [] for name in present}
    with ExitStack() as stack:
        server = Child(stack, sys.executable, 0, "server", "edge-runtime")
        drivers = {name: Child(stack, python, 1, "client", name, server.hello) for name, python in present.items()}
        for _ in range(rounds):
            for name, driver in drivers.items():
                samples[name].append(json.loads(driver.ask(str(REQUESTS))))
    report = Report(
        f"One request at a time, {BATCH} windows of {CHANNELS} x {SAMPLES} float32, against our server; medians of "
        f"{rounds} rounds of {REQUESTS}",
        ("client", "p50 us", "p99 us", "CPU us/request"),
    )
    medians = {name: np.median(np.array(values), axis=0) for name, values in samples.items()}
    for name, (p50, p99, cpu) in medians.items():
        report.rows.append((name, round(p50), round(p99), round(cpu)))
    ours, other = medians["edge-runtime"], medians.get("tritonclient[http]")
    if other is None:
        report.notes.append("tritonclient is not installed: python tests/conformance/environments.py tritonclient")
    else:
        report.goals.append(Goal("p50 / tritonclient's p50", float(ours[0] / other[0]), 1.0, at_most=True))
        report.goals.append(Goal("CPU / tritonclient's CPU", float(ours[2] / other[2]), 1.0, at_most=True))
    return report


def servers(rounds: int, seconds: float) -> Any:
    from benchmarks.report import Goal, Report  # noqa: PLC0415

    report = Report(
        f"Requests of one window, keep-alive, server on one core; medians of {rounds} rounds of {seconds:g} s",
        ("server", "callers", "requests/s", "server CPU us/request"),
    )
    rates: dict[tuple[str, int], float] = {}
    with ExitStack() as stack:
        os.sched_setaffinity(0, {1})
        children = {name: Child(stack, sys.executable, 0, "server", name) for name in SERVERS}
        for callers in (1, 4, 16):
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in children}
            for _ in range(rounds):
                for name, child in children.items():
                    before = child.cpu_s()
                    rate = load(int(child.hello), callers, seconds)
                    found[name].append((rate, 1e6 * (child.cpu_s() - before) / max(1.0, rate * seconds)))
            for name, values in found.items():
                rate, cpu = (statistics.median(column) for column in zip(*values, strict=True))
                rates[name, callers] = rate
                report.rows.append((name, callers, round(rate), round(cpu)))
    for model, goal in (("", 0.9), (", 2 ms model", 3.0)):
        ratio = rates[f"edge-runtime{model}", 16] / rates[f"http.server by hand{model}", 16]
        report.goals.append(Goal(f"16 callers{model}: ours / http.server by hand", ratio, goal))
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_cloud", description=str(__doc__).split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        kind, name, *rest = options.child
        if kind == "server":
            SERVERS[name]()
        else:
            drive(name, int(rest[0]))
        return 0
    rounds = 3 if options.quick else ROUNDS
    print(clients(rounds).text(), flush=True)
    print(f"\n{servers(3, 0.4 if options.quick else LOAD_S).text()}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
