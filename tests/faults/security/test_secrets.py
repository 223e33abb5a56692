"""S7: a canary in every secret; then everything that can be made to talk is made to talk, and none of it tells.

Flows run with DEBUG logging: the application as a process of its own, with cloud and webhook that repeat whatever they
are sent, in every kind of answer; errors with their tracebacks; `repr` of everything that holds a secret; the outbox
file, exported rows, answers; the command line. Broken on purpose, each seen to fail here: a ``repr`` that shows the
value, `hide` that does nothing, an error that repeats a URL with its query (as it was when the test was written).
"""

from __future__ import annotations

import base64
import json
import logging
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.base.system.secrets import ClientTls, SecretFile
from edge_runtime.clock import SystemClock
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.cloud.connect import connect
from edge_runtime.errors import EdgeError
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.tools.demo.broker.broker import Broker
from tests.edge_runtime.io.mqtt.certificates import Authority
from tests.faults.conftest import Note
from tests.integration.running import Process, Publisher, cut, streams, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, needs_mosquitto
from tests.oip_servers import read_request

SECRETS = ("username", "password", "token", "header", "webhook")


class Canaries:
    """A file for each secret, and a private key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.values = {
            name: f"canary-{name}-{base64.b32encode(name.encode() * 3).decode().lower()}" for name in SECRETS
        }
        for name, value in self.values.items():
            (folder / name).write_text(value + "\n")
        self.authority = Authority(folder, "authority")
        self.certificate, self.key = self.authority.issue("device")
        inside = "".join(line for line in self.key.read_text().splitlines() if not line.startswith("-"))
        self.values["key"] = inside[40:80]

    def check(self, where: str, text: str | bytes) -> None:
        """None of them is in there: not plain, not in base64 at any offset, not eight characters of it in a row."""
        data = text.encode("utf-8", "replace") if isinstance(text, str) else text
        for name, value in self.values.items():
            unlike = value.removeprefix(f"canary-{name}-")
            pieces = [unlike[at : at + 8] for at in range(len(unlike) - 7)]
            found = [piece for piece in pieces if piece.encode() in data]
            for shift in range(3):
                coded = base64.b64encode(b"x" * shift + unlike.encode()).decode()[4:-4]
                found += [coded] if coded.encode() in data else []
            assert not found, f"{name} is told by {where}: {found[0]} in {data[:2000]!r}"


@pytest.fixture(scope="module")
def canaries(tmp_path_factory: pytest.TempPathFactory) -> Canaries:
    return Canaries(tmp_path_factory.mktemp("secrets"))


def test_the_check_finds_what_it_is_to_find(canaries: Canaries) -> None:
    token = canaries.values["token"]
    for text in (token, token[20:36], base64.b64encode(f"Bearer {token}".encode()).decode(), f"x{token}y"):
        with pytest.raises(AssertionError, match="token is told"):
            canaries.check("this", text)
    canaries.check("this", "canary-token-")  # the common part is no secret


# -- servers that repeat what they hear --------------------------------------------------------------------------------

Echo = Callable[[bytes], bytes]


def answer(status: str, body: bytes, header: bytes = b"") -> bytes:
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n" % (status.encode(), len(body), header) + body


def flat(head: bytes) -> bytes:
    return head.replace(b"\r\n", b" ")


def bearer(head: bytes) -> bytes:
    return head[head.find(b"Bearer") :].partition(b"\r\n")[0]


def canary(head: bytes) -> bytes:
    return head[head.find(b"canary") :].partition(b"\r\n")[0]


ECHOES: dict[str, Echo] = {
    "500 in JSON": lambda head: answer("500 Oops", json.dumps({"error": head.decode("latin-1")}).encode()),
    "500, the secret first": lambda head: answer("500 Oops", flat(head)[::1][-300:] + head),
    "400": lambda head: answer("400 Bad Request", b"your request: " + head),
    "422 in JSON": lambda head: answer("422 No", json.dumps({"detail": {"headers": head.decode("latin-1")}}).encode()),
    "413": lambda head: answer("413 Too Large", flat(head)),
    "401": lambda head: answer("401 Who", flat(head)[100:]),
    "302": lambda head: answer("302 Found", head, b"Location: http://x/?" + flat(head).replace(b" ", b"+") + b"\r\n"),
    "200 garbage": lambda head: answer("200 OK", flat(head)),
    "200 garbage, from the token on": lambda head: answer("200 OK", bearer(head)),
    "200 with the token as id": lambda head: answer(
        "200 OK", json.dumps({"model_name": "m", "id": head.decode("latin-1"), "outputs": []}).encode()
    ),
    "200 with the token as tensor name": lambda head: answer(
        "200 OK", json.dumps({"outputs": [{"name": bearer(head).decode("latin-1"), "datatype": "?"}]}).encode()
    ),
    "not HTTP": lambda head: bearer(head) + b"\r\n\r\n",
    "a bad header": lambda head: b"HTTP/1.1 200 OK\r\n" + bearer(head) + b"\r\n\r\n",
    "a bad status": lambda head: b"HTTP/1.1 " + canary(head) + b"\r\n\r\n",
    "a bad length": lambda head: b"HTTP/1.1 200 OK\r\nContent-Length: " + canary(head) + b"\r\n\r\n",
    "a bad encoding": lambda head: answer("200 OK", b"x", b"Content-Encoding: " + canary(head) + b"\r\n"),
    "a bad chunk": lambda head: b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + canary(head) + b"\r\n",
}  # fmt: skip


class EchoServer:
    """Answers each request with what the echo of the day makes of its head."""

    def __init__(self) -> None:
        self.echo: Echo | None = None
        self.heads: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(10)
        with suppress(OSError), sock:
            while (request := read_request(sock)) != (b"", b""):
                self.heads.append(request[0])
                echoes = list(ECHOES.values())
                echo = self.echo or echoes[len(self.heads) % len(echoes)]
                sock.sendall(echo(request[0]))

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    @contextmanager
    def open(self) -> Iterator[EchoServer]:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join(10)


@pytest.mark.parametrize("echo", ECHOES)
def test_no_answer_makes_the_cloud_client_tell(canaries: Canaries, caplog: pytest.LogCaptureFixture, echo: str) -> None:
    """Whatever a server repeats, neither the error nor its traceback nor a log line holds a piece of a secret."""
    with EchoServer().open() as server, caplog.at_level(logging.DEBUG):
        server.echo = ECHOES[echo]
        config = CloudConfig(
            url=server.url, model="m", token_file=canaries.folder / "token", timeout_s=0.2, deadline_s=0.5,
            header_files={"X-Api-Key": canaries.folder / "header"},
        )  # fmt: skip
        with connect(config, SystemClock()) as client:
            for call in (
                lambda: client.infer({"x": np.zeros((1, 2), np.float32)}, request_id="one"),
                client.metadata,
            ):
                try:
                    call()
                except EdgeError:
                    canaries.check("the error", traceback.format_exc())
            canaries.check("repr", repr(client) + repr(config) + repr(vars(client)))
        assert canaries.values["token"].encode() in b"".join(server.heads), "it was never sent"
    canaries.check("the log", caplog.text)


def test_no_repr_tells(canaries: Canaries) -> None:
    folder = canaries.folder
    broker = BrokerConfig(
        url="mqtts://b", username_file=folder / "username", password_file=folder / "password",
        cert_file=canaries.certificate, key_file=canaries.key,
    )  # fmt: skip
    tls = ClientTls(None, canaries.certificate, canaries.key)
    secret = SecretFile(folder / "token", "token_file")
    for thing in (broker, broker.secrets(), tls, tls.context(), secret, [secret], {"a": secret}):
        canaries.check(type(thing).__name__, f"{thing!r} {thing} {thing!s:>10}")


# -- the whole application ---------------------------------------------------------------------------------------------

APP = """
[model]
bundle = "{bundle}"
unsigned = "allow"
variant = "onnx-fp32"
[broker.b]
url = "mqtt://127.0.0.1:{broker}"
username_file = "{secrets}/username"
password_file = "{secrets}/password"
status_topic = "status"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[[sink]]
type = "webhook"
url = "{webhook}/hook"
token_file = "{secrets}/webhook"
patience_s = 0.5
[gate]
threshold = 0.99
[cloud]
url = "{cloud}"
model = "m"
token_file = "{secrets}/token"
timeout_s = 0.5
[cloud.header_files]
X-Api-Key = "{secrets}/header"
[escalation]
unreadable_attempts = 1
[outbox]
path = "outbox.db"
"""


def test_an_application_that_meets_only_trouble_tells_nothing(canaries: Canaries, tmp_path: Path, note: Note) -> None:
    """Logs at DEBUG, answers, the outbox with its retries and dead letters, exported rows, and the end by a crash."""
    bundle = tiny_bundle(tmp_path / "tiny.edge", hop=8, variants=("onnx-fp32",))
    with Broker() as broker, EchoServer().open() as cloud, EchoServer().open() as webhook:
        text = APP.format(
            bundle=bundle, broker=broker.port, cloud=cloud.url, webhook=webhook.url, secrets=canaries.folder
        )  # fmt: skip
        (tmp_path / "app.toml").write_text(text)
        with Process(tmp_path, "-v", "run", "app.toml") as process, Publisher(broker.port) as publisher:
            process.subscribed(broker)
            (stream,) = streams(1, 400)
            publisher.send(cut(stream, lambda: 20))
            until(lambda: len(cloud.heads) > 3 and len(webhook.heads) > 1, lambda: process.err)
            argv = Path(f"/proc/{process.pid}/cmdline").read_bytes() + Path(f"/proc/{process.pid}/environ").read_bytes()
            with Process(tmp_path, "outbox", "export", "app.toml", "--queued", name="export") as export:
                assert export.wait() == 0, export.err
            with Process(tmp_path, "outbox", "list", "app.toml", "--queued", "--json", name="list") as listed:
                assert listed.wait() == 0, listed.err
            process.kill()
        said = process.err + process.out
        assert "DEBUG" in said or "INFO" in said
    assert canaries.values["token"].encode() in b"".join(cloud.heads)
    assert canaries.values["webhook"].encode() in b"".join(webhook.heads)
    canaries.check("the log", said)
    canaries.check("the command line and environment", argv)
    canaries.check("export", export.out + export.err)
    canaries.check("list", listed.out + listed.err)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"outbox.db", "answers.jsonl"} <= {path.name for path in files}
    for path in files:
        canaries.check(path.name, path.read_bytes())
    note("S7", f"{len(ECHOES)} kinds of echo, {len(said.splitlines())} log lines, {len(files)} files: 0 occurrences")


@needs_mosquitto
def test_a_broker_that_refuses_the_password_hears_it_and_nobody_else(canaries: Canaries, tmp_path: Path) -> None:
    bundle = tiny_bundle(tmp_path / "tiny.edge", hop=8, variants=("onnx-fp32",))
    (tmp_path / "passwords").write_text("someone:$7$101$AAAAAAAAAAAAAAAA$" + "A" * 86 + "==\n")
    with Mosquitto("allow_anonymous false", f"password_file {tmp_path / 'passwords'}") as broker:
        text = APP.format(
            bundle=bundle, broker=broker.port, cloud="http://127.0.0.1:9", webhook="http://127.0.0.1:9",
            secrets=canaries.folder,
        )  # fmt: skip
        (tmp_path / "app.toml").write_text(text)
        with Process(tmp_path, "-v", "run", "app.toml") as process:
            process.says("it refuses us")
            process.kill()
    canaries.check("the log", process.err + process.out)


def test_secrets_are_refused_where_they_would_be_seen(tmp_path: Path, canaries: Canaries) -> None:
    """In a URL, in a header of the configuration, over plain text: the message does not repeat them."""
    token = canaries.values["token"]
    for wrong in (
        {"url": f"https://user:{token}@cloud.example"},
        {"url": "https://cloud.example", "headers": {"Authorization": f"Bearer {token}"}},
        {"url": f"https://cloud.example/?token={token}"},
    ):
        with pytest.raises(ValueError) as caught:
            CloudConfig(model="m", **wrong)
        canaries.check("the error", str(caught.value))
    with pytest.raises(ValueError) as refused:
        BrokerConfig(url=f"mqtts://user:{token}@broker.example")
    canaries.check("the error", str(refused.value))
