from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.base.http.endpoint import Endpoint, check_headers, is_loopback


def test_a_url_becomes_host_port_and_target() -> None:
    endpoint = Endpoint.parse("https://cloud.example/hook?key=1")
    assert (endpoint.host, endpoint.port, endpoint.netloc) == ("cloud.example", 443, "cloud.example")
    assert (endpoint.origin, endpoint.target) == ("https://cloud.example", "/hook?key=1")
    assert endpoint.encrypted
    endpoint = Endpoint.parse("http://[::1]:8080")
    assert (endpoint.host, endpoint.port, endpoint.netloc, endpoint.target) == ("::1", 8080, "[::1]:8080", "/")
    assert Endpoint.parse("other://h", {"other": 8001}).port == 8001


@pytest.mark.parametrize(
    "url",
    ["", "h", "ftp://h/secret", "http:///secret", "http://u:secret@h/", "http://h/#secret", "http://h/secret a",
     "http://h:99999/secret", "http://[secret", "http://a..b/secret", "http://h/\r\nX: secret", "http://h/s\u00e9cret"],
)  # fmt: skip
def test_what_is_no_url_of_a_server_is_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(ValueError, match=r"^url: ") as caught:
        Endpoint.parse(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "clear"),
    [
        ("https://h", False),
        ("http://h", True),
        ("http://localhost", False),
        ("http://127.8.8.8", False),
        ("http://[::1]", False),
        ("http://10.0.0.1", True),
        ("http://localhost.example", True),
    ],
)
def test_only_tls_and_this_machine_keep_a_secret(url: str, *, clear: bool) -> None:
    assert Endpoint.parse(url).clear_text is clear


def test_a_host_name_is_this_machines_only_by_name() -> None:
    assert is_loopback("localhost")
    assert not is_loopback("example.org")


def test_certificates_need_tls_and_a_key_its_certificate() -> None:
    plain, secure = Endpoint.parse("http://h"), Endpoint.parse("https://h")
    ca, cert, key = Path("ca"), Path("cert"), Path("key")
    secure.check_certificates(ca, cert, key)
    plain.check_certificates(None, None, None)
    for wrong in (ca, None, None), (None, cert, key):
        with pytest.raises(ValueError, match="not encrypted"):
            plain.check_certificates(*wrong)
    with pytest.raises(ValueError, match="client_cert_file"):
        secure.check_certificates(None, None, key)


@pytest.mark.parametrize("headers", [{"": "x"}, {"A B": "x"}, {"A": "x\r\ny"}, {"A": "\u00e9"}, {"Host": "x"}])
def test_headers_that_would_break_a_request_are_refused(headers: dict[str, str]) -> None:
    check_headers({"X-Tenant": "7"}, {"host"})
    with pytest.raises(ValueError, match="headers: "):
        check_headers(headers, {"host"})
