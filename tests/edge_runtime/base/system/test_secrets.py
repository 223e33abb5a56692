from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from edge_runtime.base.system.secrets import ClientTls, SecretFile, server_context
from edge_runtime.errors import ConfigError
from tests.oip_servers import Certificates, make_certificates


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


def test_a_secret_is_read_stripped_and_never_shown(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("  s3cret-token \n")
    secret = SecretFile(path, "token_file")
    assert secret.value() == "s3cret-token"
    assert "s3cret" not in repr(secret)
    assert "********" in repr(secret)
    assert secret.matches("s3cret-token")
    assert not secret.matches("s3cret-tokem")
    assert not secret.matches("\xff\udc80")


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    secret = SecretFile(path, "token_file")
    path.write_text("second")
    assert secret.value() == "second"
    replacement = tmp_path / "new"
    replacement.write_text("third!")
    replacement.replace(path)
    assert secret.value() == "third!"


def test_reread_does_not_trust_the_time_stamp(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("aaa")
    secret = SecretFile(path, "token_file")
    stamp = path.stat()
    with path.open("r+") as file:
        file.write("bbb")
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert secret.value() == "aaa"
    assert secret.reread() == "bbb"


def test_the_last_good_secret_serves_while_the_file_is_away(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    secret = SecretFile(path, "token_file")
    path.unlink()
    assert secret.value() == secret.reread() == "one"
    path.write_text("")
    assert secret.value() == secret.reread() == "one"


@pytest.mark.parametrize("content", [b"", b" \n", b"two\nlines", b"b\xe4r", b"a\r\nX-Evil: 1", b"x" * 70_000])
def test_what_cannot_be_a_header_value_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "token"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="one line of printable ASCII"):
        SecretFile(path, "token_file")


def test_a_broker_s_password_may_hold_any_letter_in_utf_8(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes("\ufeffpâß-ключ\n".encode())
    secret = SecretFile(path, "password_file", any_letter=True)
    assert secret.value() == "pâß-ключ"
    path.write_bytes(b"p\xe4ss")
    with pytest.raises(ConfigError, match="one line of printable UTF-8"):
        SecretFile(path, "password_file", any_letter=True)


def test_missing_files_are_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(ConfigError, match=r"token_file: cannot read .*missing"):
        SecretFile(missing, "token_file")
    with pytest.raises(ConfigError, match="missing"):
        ClientTls(missing, None, None)
    with pytest.raises(ConfigError, match="missing"):
        server_context(missing, None, None)


def test_clients_always_verify(certificates: Certificates) -> None:
    for tls in (ClientTls(None, None, None), ClientTls(certificates.ca, certificates.client, certificates.client_key)):
        context = tls.context()
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_session_keys_are_not_written_because_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))
    assert ClientTls(None, None, None).context().keylog_filename is None
    assert not (tmp_path / "keys").exists()


def test_a_context_is_kept_until_a_file_changes(tmp_path: Path, certificates: Certificates) -> None:
    ca = tmp_path / "ca.pem"
    ca.write_bytes(certificates.ca.read_bytes())
    tls = ClientTls(ca, None, None)
    first = tls.context()
    assert tls.context() is first
    ca.write_bytes(make_certificates(tmp_path / "other").ca.read_bytes() + b"\n")
    second = tls.context()
    assert second is not first
    ca.write_bytes(b"half a fi")
    assert tls.context() is second


def test_files_that_are_not_pem_are_refused(tmp_path: Path, certificates: Certificates) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("nothing")
    for make in (
        lambda: ClientTls(bad, None, None),
        lambda: ClientTls(Path(), None, None),  # what an empty setting turns into: a folder, not "do not verify"
        lambda: ClientTls(None, bad, None),
        lambda: ClientTls(None, certificates.client, certificates.server_key),
        lambda: server_context(bad, None, None),
        lambda: server_context(certificates.server, certificates.server_key, bad),
    ):
        with pytest.raises(ConfigError, match="TLS: cannot use"):
            make()


def test_an_encrypted_key_is_an_error_and_no_question_on_the_terminal(
    tmp_path: Path, certificates: Certificates
) -> None:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - slow to import

    key = serialization.load_pem_private_key(certificates.client_key.read_bytes(), None)
    path = tmp_path / "locked.key"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"password"),
        )
    )
    with pytest.raises(ConfigError, match="encrypted"):
        ClientTls(None, certificates.client, path)


def test_a_secret_is_hidden_whole_and_in_part_before_and_after_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("canary-0123456789abcdef")
    secret = SecretFile(path, "token_file")
    assert secret.hide("got canary-0123456789abcdef!") == "got ********!"
    assert "canary-0" not in secret.hide("cut off after Bearer canary-0123456")
    assert "89abcdef" not in secret.hide("...3456789abcdef and more")
    assert secret.hide("nothing of it") == "nothing of it"
    path.write_text("rotated-9876543210")
    assert secret.value() == "rotated-9876543210"
    assert secret.hide("rotated-9876543210 canary-0123456789abcdef") == "******** ********"
    path.write_text("short")
    assert secret.value() == "short"
    assert secret.hide("a short text") == "a ******** text"
