"""Secrets and TLS material, always from files: tokens that are read again when they change, contexts that verify.

Nothing here keeps a secret where ``repr``, a log line or an error message could show it.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path

from edge_runtime.errors import ConfigError

_MASK = "********"
_TELLING = 8  # shortest run of characters of a secret that is hidden wherever it occurs
_MAX_SECRET_BYTES = 64 * 1024  # a Kubernetes service account token is about 1 KiB; a wrong path may be a video

Stamp = tuple[int, int, int]


def _stamp(path: Path) -> Stamp:
    """Return what tells one content of a file from the next, also when the file was replaced in the same second."""
    status = os.stat(path)  # noqa: PTH116 - the same call, without a second object
    return status.st_mtime_ns, status.st_size, status.st_ino


class Secret:
    """A one-line secret that a program was given or made. Safe to use from several threads."""

    def __init__(self, value: str) -> None:
        self._value = value
        self._before = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({_MASK})"

    def value(self) -> str:
        """Return the secret."""
        return self._value

    def matches(self, candidate: str) -> bool:
        """Return whether a caller presented this secret, in a time that does not depend on where they differ."""
        return hmac.compare_digest(self.value().encode(), candidate.encode("utf-8", "surrogateescape"))

    def hide(self, text: str) -> str:
        """`text` with stars for this secret: others may repeat it to us, whole, or cut off in the middle.

        The one before the last rotation is hidden too, since a message may be about a request that still bore it.
        """
        for secret in filter(None, (self._value, self._before)):
            text = text.replace(secret, _MASK)
            for at in range(len(secret) - _TELLING + 1):
                text = text.replace(secret[at : at + _TELLING], _MASK)
        return text


class SecretFile(Secret):
    """A one-line secret in a file, read again when the file changes. Safe to use from several threads.

    Args:
        path: the file's path.
        what: how error messages call it, for example ``token_file``.
        any_letter: take letters beyond ASCII, in UTF-8; HTTP headers hold none.

    Raises:
        ConfigError: the file cannot be read, is empty, or holds more than one line of printable text.
    """

    def __init__(self, path: Path, what: str, *, any_letter: bool = False) -> None:
        self._path = path
        self._encoding = "UTF-8" if any_letter else "ASCII"
        self._what = what
        self._lock = threading.Lock()
        self._stamp: Stamp | None = None
        super().__init__("")
        self._read()

    def __repr__(self) -> str:
        return f"SecretFile({str(self._path)!r}, {_MASK})"

    def value(self) -> str:
        """Return the secret as the file has it now; the last good one while the file cannot be read (a rotation)."""
        with self._lock:
            with contextlib.suppress(OSError, ConfigError):
                if _stamp(self._path) != self._stamp:
                    self._read()
            return self._value

    def reread(self) -> str:
        """Return the `value`, and read the file whatever its time stamp is."""
        with self._lock:
            with contextlib.suppress(ConfigError):
                self._read()
            return self._value

    def _read(self) -> None:
        try:
            stamp = _stamp(self._path)
            with self._path.open("rb") as file:
                data = file.read(_MAX_SECRET_BYTES + 1)
        except OSError as error:
            raise ConfigError(f"{self._what}: cannot read {self._path}: {error.strerror or error}") from None
        text = data.decode("utf-8-sig", "surrogateescape").strip()
        odd = not text.isprintable() or (self._encoding == "ASCII" and not text.isascii())
        if not text or len(data) > _MAX_SECRET_BYTES or odd:
            raise ConfigError(f"{self._what}: {self._path} must hold one line of printable {self._encoding}")
        if text != self._value:
            self._before = self._value
        self._stamp, self._value = stamp, text


class ClientTls:
    """TLS towards a server: always verified, TLS 1.2 or newer; certificates are loaded again when their files change.

    Args:
        ca_file: authorities to trust instead of the system's.
        cert_file: client certificate (chain) for mutual TLS.
        key_file: its key, where it is not in `cert_file`.

    Raises:
        ConfigError: a file is missing or is not what it should be.
    """

    def __init__(self, ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> None:
        self._ca_file = ca_file
        self._cert_file = cert_file
        self._key_file = key_file
        self._lock = threading.Lock()
        self._stamps: list[Stamp] = []
        self._context = self._load()

    def context(self) -> ssl.SSLContext:
        """Return the context for the next connection."""
        with self._lock:
            try:
                if self._current() != self._stamps:
                    self._context = self._load()
            except (OSError, ConfigError):
                pass  # half-way through a rotation: what was loaded last is still the best there is
            return self._context

    def _current(self) -> list[Stamp]:
        return [_stamp(path) for path in (self._ca_file, self._cert_file, self._key_file) if path is not None]

    def _load(self) -> ssl.SSLContext:
        try:
            self._stamps = self._current()
            # Not ssl.create_default_context: that one writes session keys to a file if SSLKEYLOGFILE says so.
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and host name by default
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self._ca_file is None:
                context.load_default_certs()
            else:
                context.load_verify_locations(cafile=str(self._ca_file))
            if self._cert_file is not None:
                context.load_cert_chain(self._cert_file, self._key_file, password=_no_password)
        except (OSError, ValueError) as error:
            raise ConfigError(_complaint(error, (self._ca_file, self._cert_file, self._key_file))) from None
        return context


def server_context(cert_file: Path, key_file: Path | None, client_ca_file: Path | None) -> ssl.SSLContext:
    """TLS 1.2 or newer for a server; with `client_ca_file`, callers must show a certificate of that authority.

    Raises:
        ConfigError: a file is missing or is not what it should be.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert_file, key_file, password=_no_password)
        if client_ca_file is not None:
            context.load_verify_locations(cafile=str(client_ca_file))
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:
        raise ConfigError(_complaint(error, (cert_file, key_file, client_ca_file))) from None
    return context


def _no_password() -> str:
    """Refuse an encrypted key; without this OpenSSL would ask on the terminal and stop the program."""
    raise ValueError("the key is encrypted; store it unencrypted with mode 0600")


def _complaint(error: Exception, paths: Sequence[Path | None]) -> str:
    files = ", ".join(str(path) for path in paths if path is not None)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"TLS: cannot use {files or 'the system certificates'}: {reason}"
