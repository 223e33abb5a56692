"""The client over TLS, against mosquitto: what it trusts, what it shows, and what it says when that fails."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from edge_runtime.io.mqtt import transport
from tests.edge_runtime.io.mqtt.certificates import Authority
from tests.edge_runtime.io.mqtt.clients import Bench, Inbox, messages, numbers, unique
from tests.mosquitto import Mosquitto, needs_mosquitto

pytestmark = needs_mosquitto
receives = pytest.mark.parametrize("receive", ["batched", "paho"])


class Files(NamedTuple):
    """What the tests choose from."""

    folder: Path
    ours: Authority
    other: Authority
    client: tuple[Path, Path]
    stranger: tuple[Path, Path]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    ours, other = Authority(folder, "ours"), Authority(folder, "other")
    return Files(folder, ours, other, ours.issue("client"), other.issue("stranger"))


def tls_broker(files: Files, *, mutual: bool = False, **issued: Any) -> Mosquitto:
    certificate, key = files.ours.issue(unique("server"), **{"host": "127.0.0.1", **issued})
    return Mosquitto(
        f"certfile {certificate}",
        f"keyfile {key}",
        f"cafile {files.ours.file}",
        f"require_certificate {str(mutual).lower()}",
    )


@pytest.fixture(scope="module")
def url(files: Files) -> Iterator[str]:
    with tls_broker(files) as broker:
        yield broker.url.replace("mqtt://", "mqtts://")


@pytest.fixture(scope="module")
def mutual_url(files: Files) -> Iterator[str]:
    with tls_broker(files, mutual=True) as broker:
        yield broker.url.replace("mqtt://", "mqtts://")


@receives
@pytest.mark.parametrize("size", [10, 100_000])
def test_messages_pass_over_tls(url: str, files: Files, bench: Bench, receive: str, size: int) -> None:
    inbox, topic = Inbox(), unique("tls")
    broker_client = bench.connected(url, inbox, (topic, 1), ca_file=files.ours.file, receive=receive)
    broker_client.publish(messages(60, 1, topic.encode(), size))
    bench.until(lambda: len(inbox.got) == 60)
    assert numbers(inbox.payloads) == list(range(60))


def test_no_byte_stays_behind_in_the_tls_layer(
    url: str, files: Files, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The second record is decrypted in the first read, which has no room for all of it; no selector sees the rest.
    monkeypatch.setattr(transport, "RECEIVE_BYTES", 20_000)
    inbox, topic = Inbox(), unique("burst")
    bench.connected(url, inbox, (topic, 0), ca_file=files.ours.file)
    with Bench() as other:
        sender = other.connected(url, ca_file=files.ours.file)
        for i in range(10):
            sender.publish(messages(2, 0, topic.encode(), 15_000, start=2 * i))
            other.turns(0.02)
            bench.until(lambda i=i: len(inbox.got) == 2 * i + 2, 2.0)  # type: ignore[misc]
    assert numbers(inbox.payloads) == list(range(20))


@receives
def test_a_client_certificate_is_shown(mutual_url: str, files: Files, bench: Bench, receive: str) -> None:
    certificate, key = files.client
    bench.connected(mutual_url, ca_file=files.ours.file, cert_file=certificate, key_file=key, receive=receive)


@pytest.mark.parametrize("shown", ["none", "stranger"])
def test_without_a_good_client_certificate_nothing_connects(
    mutual_url: str, files: Files, bench: Bench, caplog: pytest.LogCaptureFixture, shown: str
) -> None:
    options: dict[str, Any] = {} if shown == "none" else {"cert_file": files.stranger[0], "key_file": files.stranger[1]}
    broker_client = bench.broker_client(mutual_url, ca_file=files.ours.file, protocol="5", **options)
    bench.until(lambda: broker_client._attempts.failures == 2)
    assert not broker_client.connected
    assert "TLS failed" in caplog.text or "connection" in caplog.text
    assert "Traceback" not in caplog.text


def test_an_unknown_authority_is_not_trusted(
    url: str, files: Files, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    broker_clients = [bench.broker_client(url), bench.broker_client(url, ca_file=files.other.file)]
    bench.until(lambda: all(broker_client._attempts.failures >= 2 for broker_client in broker_clients))
    assert [record.getMessage().count("certificate is not trusted") for record in caplog.records] == [1, 1]


@pytest.mark.parametrize("issued", [{"host": "another.example"}, {"expired": True}], ids=["wrong name", "expired"])
def test_a_bad_server_certificate_is_not_trusted(
    files: Files, bench: Bench, caplog: pytest.LogCaptureFixture, issued: dict[str, Any]
) -> None:
    with tls_broker(files, **issued) as broker:
        broker_client = bench.broker_client(broker.url.replace("mqtt://", "mqtts://"), ca_file=files.ours.file)
        bench.until(lambda: broker_client._attempts.failures >= 2)
        broker_client.close(0)
    assert len(caplog.records) == 1
    assert "certificate is not trusted" in caplog.text


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion:DeprecationWarning")
def test_an_old_tls_version_is_refused(files: Files, bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files.ours.issue(unique("server"), host="127.0.0.1"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    refusals: list[str] = []

    def serve(server: socket.socket) -> None:
        sock, _ = server.accept()
        try:
            context.wrap_socket(sock, server_side=True).close()
        except ssl.SSLError as error:
            refusals.append(str(error))
        finally:
            sock.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        broker_client = bench.broker_client(f"mqtts://127.0.0.1:{server.getsockname()[1]}", ca_file=files.ours.file)
        bench.until(lambda: broker_client._attempts.failures >= 1)
        thread.join(10)
        broker_client.close(0)
    assert len(refusals) == 1
    assert "TLS failed" in caplog.text


def test_tls_towards_a_plain_broker_is_said(bench: Bench, files: Files, caplog: pytest.LogCaptureFixture) -> None:
    with Mosquitto() as broker:
        broker_client = bench.broker_client(
            broker.url.replace("mqtt://", "mqtts://"), ca_file=files.ours.file, connect_timeout_s=1.0
        )
        bench.until(lambda: broker_client._attempts.failures >= 1)
        broker_client.close(0)
    assert "cannot connect" in caplog.text
