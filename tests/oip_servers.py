"""Servers for the tests of the cloud side: models with known answers and scripted sockets.

The scripted sockets misbehave in the ways that real networks and servers do.
"""

from __future__ import annotations

import datetime as dt
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import orjson

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.operate.server.batcher import ServedModel

CHANNELS, SAMPLES, CLASSES = 3, 8, 4
WEIGHTS = np.linspace(-1, 1, CHANNELS * SAMPLES * CLASSES, dtype=np.float32).reshape(CHANNELS * SAMPLES, CLASSES)
WINDOW = OipTensor("window", "FP32", (-1, CHANNELS, SAMPLES))

# -- models ------------------------------------------------------------------------------------------------------------


def windows(n: int, seed: int = 0) -> Array:
    """n windows of a device."""
    return np.random.default_rng(seed).normal(size=(n, CHANNELS, SAMPLES)).astype(np.float32)


def scores(batch: Array) -> Array:
    """What the model "linear" answers, the oracle of all tests."""
    return (batch.reshape(len(batch), -1) @ WEIGHTS).astype(np.float32)


def linear_model(name: str = "linear", **changes: Any) -> ServedModel:
    """A model with two outputs of different types."""
    specs: dict[str, Any] = {
        "inputs": (WINDOW,),
        "outputs": (OipTensor("scores", "FP32", (-1, CLASSES)), OipTensor("label", "INT64", (-1,))),
        "predict": lambda x: {"scores": scores(x["window"]), "label": scores(x["window"]).argmax(1)},
    }
    return ServedModel(name=name, **{**specs, **changes})


def echo_model(datatype: str) -> ServedModel:
    """A model that answers what it is asked, for one datatype."""
    return ServedModel(
        name=f"echo_{datatype}",
        inputs=(OipTensor("x", datatype, (-1, -1)),),
        outputs=(OipTensor("y", datatype, (-1, -1)),),
        predict=lambda x: {"y": x["x"]},
        max_batch=1000,
    )


@dataclass
class Moody:
    """A model that does what the test tells it to."""

    behave: Callable[[Array], Array] = scores

    def model(self) -> ServedModel:
        """To be served as "moody"."""
        return ServedModel(
            name="moody",
            inputs=(WINDOW,),
            outputs=(OipTensor("scores", "FP32", (-1, -1)),),
            predict=lambda x: {"scores": self.behave(x["window"])},
        )


# -- scripted sockets --------------------------------------------------------------------------------------------------

Script = Callable[[socket.socket], None]


class RawServer:
    """A listener that plays one script per connection, in order; the last one serves all later connections."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self.connections = 0
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> RawServer:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._open:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.connections, len(self._scripts) - 1)]
            self.connections += 1
            self._open.append(sock)
            thread = threading.Thread(target=self._play, args=(script, sock), daemon=True)
            self._threads.append(thread)
            thread.start()

    @staticmethod
    def _play(script: Script, sock: socket.socket) -> None:
        with suppress(OSError), sock:
            script(sock)


def read_request(sock: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of one request; (b"", b"") when the peer is done."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65536)
        if not more:
            return b"", b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            length = int(line.partition(b":")[2])
    while len(body) < length:
        more = sock.recv(65536)
        if not more:
            break
        body += more
    return head, body


def http_answer(status: str = "200 OK", body: bytes | None = None, **headers: str) -> bytes:
    """A whole answer; without a body, the right one to `windows(1)`."""
    if body is None:
        body = orjson.dumps(
            {
                "model_name": "linear",
                "id": "one",
                "outputs": [
                    {
                        "name": "scores",
                        "datatype": "FP32",
                        "shape": [1, CLASSES],
                        "data": scores(windows(1)).ravel().tolist(),
                    }
                ],
            }
        )
    fields = {"Content-Length": str(len(body)), **{name.replace("_", "-"): value for name, value in headers.items()}}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode("latin-1") + body


def say(*answers: bytes) -> Script:
    """Answer that many requests of a connection with these bytes, then close."""

    def script(sock: socket.socket) -> None:
        for answer in answers:
            if read_request(sock) == (b"", b""):
                return
            sock.sendall(answer)

    return script


def say_for_ever(answer: bytes) -> Script:
    """Answer every request with these bytes."""

    def script(sock: socket.socket) -> None:
        while read_request(sock) != (b"", b""):
            sock.sendall(answer)

    return script


# -- certificates ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Certificates:
    """Throw-away files: an authority, a certificate for localhost signed by it, and one for a client."""

    ca: Path
    server: Path
    server_key: Path
    client: Path
    client_key: Path


def make_certificates(folder: Path) -> Certificates:
    """Write them; the certificates are valid for a day."""
    from cryptography import x509  # noqa: PLC0415 - slow to import, few tests need it
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    now = dt.datetime.now(dt.timezone.utc)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"test authority {folder.name}")])

    def issue(common_name: str, key: ec.EllipticCurvePrivateKey, *, authority: bool) -> x509.Certificate:
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
        builder = (
            x509.CertificateBuilder()
            .subject_name(ca_name if authority else subject)
            .issuer_name(ca_name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(common_name)]), critical=False)
            # Python 3.13 and newer ask for these (VERIFY_X509_STRICT).
            .add_extension(
                x509.KeyUsage(
                    digital_signature=True,
                    key_cert_sign=authority,
                    crl_sign=authority,
                    content_commitment=False,
                    key_encipherment=False,
                    data_encipherment=False,
                    key_agreement=False,
                    encipher_only=False,
                    decipher_only=False,
                ),
                critical=True,
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
        )
        return builder.sign(ca_key, hashes.SHA256())

    def write(name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> tuple[Path, Path]:
        cert_path, key_path = folder / f"{name}.pem", folder / f"{name}.key"
        cert_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        key_path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert_path, key_path

    ca, _ = write("ca", ca_key, issue("ca", ca_key, authority=True))
    server_key, client_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    server = write("server", server_key, issue("localhost", server_key, authority=False))
    client = write("client", client_key, issue("device-7", client_key, authority=False))
    return Certificates(ca, *server, *client)
