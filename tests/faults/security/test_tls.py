"""S5: TLS that does not hold connects nobody: MQTT by both ways of receiving, the cloud over HTTPS.

A server here notes whether a handshake was completed and whether a byte of the application came. Broken on purpose,
each seen to fail: `ClientTls` with ``check_hostname = False``, with ``verify_mode = CERT_NONE``, with TLS 1.0 as its
minimum and ciphers to go with it, an ``mqtts`` URL that gets no TLS, an empty ``ca_file`` that means the system's.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import random
import socket
import ssl
import threading
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pytest

from edge_runtime.app import config as configuration
from edge_runtime.base.system.secrets import ClientTls
from edge_runtime.clock import SystemClock
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.cloud.connect import connect
from edge_runtime.errors import CloudUnavailable, ConfigError
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.sinks.webhook import WebhookSinkConfig
from tests.edge_runtime.io.mqtt.certificates import Authority
from tests.edge_runtime.io.mqtt.clients import Bench
from tests.faults.conftest import Note
from tests.faults.security.certificates import self_signed

CLIENTS = ("mqtt", "mqtt by paho", "https")
WRONG = (
    *("expired", "wrong authority", "wrong name", "self-signed", "no client certificate"),
    *("another one's client certificate", "TLS 1.1", "downgrade to plain text", "nothing but noise"),
)


class TlsServer:
    """Shakes hands, and notes what comes after it.

    Args:
        context: None is no TLS at all.
        says: what it sends first; a server without TLS may begin with a greeting.
    """

    def __init__(self, context: ssl.SSLContext | None, says: bytes = b"") -> None:
        self.accepted = self.shaken = 0
        self.received = b""
        self.encrypted = context is not None
        self._context = context
        self._says = says
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            sock.settimeout(3.0)
            try:
                self._serve(sock)
            except OSError:
                pass
            finally:
                sock.close()

    def _serve(self, sock: socket.socket) -> None:
        if self._context is None:
            sock.sendall(self._says)
            self.received += sock.recv(4096)
            return
        sock.getpeername()  # wrap_socket forgets the socket of a client that has left already (CPython 3.11)
        with self._context.wrap_socket(sock, server_side=True) as secure:
            self.shaken += 1
            self.received += secure.recv(4096)

    def __enter__(self) -> TlsServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


class Authorities:
    """The one that is trusted, and another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ours, self.other = Authority(folder, "ours"), Authority(folder, "other")


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("tls"))


def server_for(wrong: str, authorities: Authorities) -> TlsServer:
    ours, other = authorities.ours, authorities.other
    if wrong == "downgrade to plain text":
        return TlsServer(None, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    if wrong == "nothing but noise":
        return TlsServer(None, random.Random(1).randbytes(500))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    if wrong == "expired":
        files = ours.issue("expired", host="127.0.0.1", expired=True)
    elif wrong == "wrong authority":
        files = other.issue("elsewhere", host="127.0.0.1")
    elif wrong == "wrong name":
        files = ours.issue("named", host="another.example")
    elif wrong == "self-signed":
        files = self_signed(authorities.folder)
    else:
        files = ours.issue("good", host="127.0.0.1")
    context.load_cert_chain(*files)
    if "client certificate" in wrong:
        context.load_verify_locations(ours.file)
        context.verify_mode = ssl.CERT_REQUIRED
        # TLS 1.3 lets a client speak before the server has looked at its certificate; 1.2 shows who was let in.
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    if wrong == "TLS 1.1":
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    return TlsServer(context)


def attempt(kind: str, port: int, authorities: Authorities, wrong: str, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Try to connect twice; what the user is told."""
    shown: dict[str, Any] = {}
    if wrong == "another one's client certificate":
        certificate, key = authorities.other.issue("stranger")
        shown = {"cert": certificate, "key": key}
    if kind.startswith("mqtt"):
        options = {"cert_file": shown["cert"], "key_file": shown["key"]} if shown else {}
        with caplog.at_level(logging.INFO), Bench() as bench:
            broker_client = bench.broker_client(
                f"mqtts://127.0.0.1:{port}", ca_file=authorities.ours.file, protocol="5", connect_timeout_s=2.0,
                receive="paho" if "paho" in kind else "batched", **options,
            )  # fmt: skip
            bench.until(lambda: broker_client._attempts.failures >= 2 or broker_client.connected, 30)
            assert not broker_client.connected
        return [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]
    options = {"client_cert_file": shown["cert"], "client_key_file": shown["key"]} if shown else {}
    config = CloudConfig(
        url=f"{kind}://127.0.0.1:{port}", model="m", ca_file=authorities.ours.file, connect_timeout_s=2.0,
        timeout_s=2.0, deadline_s=4.0, **options,
    )  # fmt: skip
    told = []
    with connect(config, SystemClock()) as client:
        for _ in range(2):
            with pytest.raises(CloudUnavailable) as caught:
                client.infer({"x": np.zeros((1, 2), np.float32)}, request_id="one")
            told.append(str(caught.value))
    return told


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", CLIENTS)
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_tls_that_does_not_hold_connects_nobody(
    authorities: Authorities, caplog: pytest.LogCaptureFixture, note: Note, kind: str, wrong: str
) -> None:
    with server_for(wrong, authorities) as server, warnings.catch_warnings():
        # paho leaves the socket of a handshake that failed to the garbage collector.
        warnings.simplefilter("ignore" if "paho" in kind else "error", ResourceWarning)
        told = attempt(kind, server.port, authorities, wrong, caplog)
        gc.collect()
        assert server.accepted > 0, "nobody came, so nothing was refused"
    assert server.shaken == 0
    if server.encrypted:
        assert server.received == b""
    else:
        assert server.received[:1] in {b"\x16", b""}  # a ClientHello, or not even that
    assert told
    if kind.startswith("mqtt"):
        assert len(told) == 1, told  # once, however often it is tried
    for text in told:
        assert "\n" not in text
        assert f"127.0.0.1:{server.port}" in text
        assert len(text) < 400
    clear = {"expired": "expired", "self-signed": "self", "wrong authority": "issuer", "wrong name": "mismatch"}
    if wrong in clear:
        assert clear[wrong] in told[0].lower(), told[0]
    note("S5", f"{kind}: {wrong}: 0 connections: {told[0].split(': ', 1)[-1][:90]}")


@pytest.mark.parametrize("kind", CLIENTS)
def test_the_same_server_with_a_good_certificate_is_reached(authorities: Authorities, kind: str) -> None:
    """Or the refusals above would prove nothing."""
    with server_for("nothing", authorities) as server:
        if kind.startswith("mqtt"):
            with Bench() as bench:
                bench.broker_client(
                    f"mqtts://127.0.0.1:{server.port}", ca_file=authorities.ours.file,
                    receive="paho" if "paho" in kind else "batched", connect_timeout_s=2.0,
                )  # fmt: skip
                bench.until(lambda: server.received)
        else:
            url = f"{kind}://127.0.0.1:{server.port}"
            config = CloudConfig(url=url, model="m", ca_file=authorities.ours.file, timeout_s=1.0, deadline_s=3.0)
            with connect(config, SystemClock()) as client:
                assert not client.ready()
        assert server.shaken >= 1
    assert server.received


# -- nothing switches it off -------------------------------------------------------------------------------------------

APP = """
[model]
bundle = "x.edge"
[broker.b]
url = "mqtts://127.0.0.1:8883"
{broker}
[[source]]
type = "mqtt"
broker = "b"
topics = ["t"]
[[sink]]
type = "webhook"
url = "https://127.0.0.1:8443/"
{webhook}
[cloud]
url = "https://127.0.0.1:8443"
model = "m"
{cloud}
[outbox]
path = "outbox.db"
"""
OFF = ('""', "false", "0", '"none"', '"/dev/null"')


def start(path: Path) -> None:
    """As far as an application goes before it connects."""
    config = configuration.load_config(path)
    config.broker["b"].check()
    assert config.cloud is not None
    connect(config.cloud, SystemClock()).close()
    (sink,) = config.sink
    assert isinstance(sink, WebhookSinkConfig)
    ClientTls(sink.ca_file, sink.client_cert_file, sink.client_key_file)


@pytest.mark.parametrize("value", OFF)
@pytest.mark.parametrize(
    ("part", "name"),
    [
        *(("broker", name) for name in ("ca_file", "cert_file")),
        *(("cloud", name) for name in ("ca_file", "client_cert_file")),
        ("webhook", "ca_file"),
        *((part, name) for part in ("broker", "cloud", "webhook") for name in ("verify", "insecure", "tls")),
    ],
)
def test_an_empty_or_false_setting_is_an_error_and_no_way_out(tmp_path: Path, part: str, name: str, value: str) -> None:
    """It stops the start, in one line, before anything connects."""
    parts = dict.fromkeys(("broker", "webhook", "cloud"), "") | {part: f"{name} = {value}"}
    path = tmp_path / "app.toml"
    path.write_text(APP.format(**parts))
    with pytest.raises(ConfigError) as caught:
        start(path)
    assert str(caught.value).count("\n") == 0


def test_no_setting_is_about_not_verifying() -> None:
    names = {
        field.name for kind in (BrokerConfig, CloudConfig, WebhookSinkConfig) for field in dataclasses.fields(kind)
    }
    assert not [name for name in names if any(word in name for word in ("verify", "insecure", "check_host", "unsafe"))]


def test_the_environment_does_not_switch_it_off(
    authorities: Authorities, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name, value in {
        "PYTHONHTTPSVERIFY": "0", "SSL_NO_VERIFY": "1", "CURL_CA_BUNDLE": "", "REQUESTS_CA_BUNDLE": "",
        "NODE_TLS_REJECT_UNAUTHORIZED": "0", "https_proxy": "http://127.0.0.1:9",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for kind in ("mqtt", "https"):
        with server_for("self-signed", authorities) as server:
            attempt(kind, server.port, authorities, "self-signed", caplog)
        assert server.accepted > 0
        assert server.shaken == 0


def test_a_url_that_says_tls_gets_tls_and_nothing_else() -> None:
    """And one that does not say so takes no certificate that would be of no use, unnoticed."""
    assert BrokerConfig(url="mqtts://b").address().tls
    assert BrokerConfig(url="wss://b/mqtt").address().tls
    assert CloudConfig(url="https://c", model="m").endpoint.encrypted
    with pytest.raises(ValueError, match="need TLS"):
        BrokerConfig(url="mqtt://b", ca_file=Path("ca.pem"))
    with pytest.raises(ValueError, match="not encrypted"):
        CloudConfig(url="http://c", model="m", ca_file=Path("ca.pem"))
    with pytest.raises(ValueError, match="clear text"):
        CloudConfig(url="http://c", model="m", token_file=Path("token"))
