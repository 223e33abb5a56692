from __future__ import annotations

import socket
from typing import Any

import pytest

from edge_runtime.base.http.client import Answer, open_stream, reason_of
from edge_runtime.base.http.endpoint import Endpoint
from edge_runtime.base.http.parser import Head
from edge_runtime.clock import SimulatedClock

HOST = Endpoint.parse("http://model.example:8000")


class Network:
    """Addresses of one host: "dead" ones swallow packets until the time-out, "shut" ones refuse, others connect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
        self.clock = SimulatedClock()
        self.tried: list[tuple[str, float]] = []
        network = self

        class Socket:
            def __init__(self, *_: object) -> None:
                self.patience = 0.0

            def setsockopt(self, *_: object) -> None: ...

            def settimeout(self, seconds: float) -> None:
                self.patience = seconds

            def connect(self, address: tuple[str, int]) -> None:
                network.tried.append((address[0], self.patience))
                if address[0] == "dead":
                    network.clock.advance(self.patience)
                    raise TimeoutError("timed out")
                if address[0] == "shut":
                    raise ConnectionRefusedError(111, "Connection refused")

            def close(self) -> None: ...

        def resolve(_host: str, port: int, **_: Any) -> list[Any]:
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr(socket, "socket", Socket)


def test_an_address_that_swallows_packets_leaves_time_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: without the share, the first address takes all of the deadline."""
    network = Network(monkeypatch, "dead", "dead", "here")
    open_stream(HOST, None, network.clock, 9.0)
    assert network.tried == [("dead", 3.0), ("dead", 3.0), ("here", 3.0)]


def test_no_address_gets_more_than_the_time_out_for_connecting(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, "dead", "here")
    open_stream(HOST, None, network.clock, 100.0, connect_timeout_s=5.0)
    assert network.tried == [("dead", 5.0), ("here", 5.0)]


def test_the_last_failure_is_the_one_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, "dead", "shut")
    with pytest.raises(ConnectionRefusedError) as caught:
        open_stream(HOST, None, network.clock, 4.0)
    assert reason_of(caught.value) == "Connection refused"


def test_nothing_is_tried_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, "here")
    with pytest.raises(TimeoutError):
        open_stream(HOST, None, network.clock, 0.0)
    assert network.tried == []


def test_an_address_that_is_not_admitted_is_not_connected_to(monkeypatch: pytest.MonkeyPatch) -> None:
    network = Network(monkeypatch, "shut", "private", "here")

    def admit(address: str) -> None:
        if address == "private":
            raise PermissionError(address)

    with pytest.raises(PermissionError, match="private"):
        open_stream(HOST, None, network.clock, 9.0, admit=admit)
    assert [address for address, _ in network.tried] == ["shut"]


def answer(status: int, **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Answer(Head(("HTTP/1.1", str(status), ""), named), b"")


def test_a_status_says_whether_the_same_request_may_succeed_later() -> None:
    transient = {301, 302, 307, 401, 403, 408, 425, 429, 500, 502, 503, 504, 507}
    final = {200, 204, 400, 404, 405, 410, 413, 415, 422, 501, 505}
    assert {status for status in transient | final if answer(status).is_transient} == transient


def test_how_long_to_wait_is_measured_by_the_servers_own_date() -> None:
    clock = SimulatedClock(wall=0.0)  # no battery: it is 1970 here
    date = "Wed, 21 Oct 2015 07:28:00 GMT"
    assert answer(503).retry_after_s(clock) is None
    assert answer(503, retry_after="7").retry_after_s(clock) == 7.0
    assert answer(503, retry_after="Wed, 21 Oct 2015 07:28:30 GMT", date=date).retry_after_s(clock) == 30.0
