"""What cannot be listened on is said with what to do."""

from __future__ import annotations

import socket

import pytest

from edge_runtime.base.system.tcp import listen_tcp
from edge_runtime.errors import ConfigError


def test_a_free_port_is_listened_on_without_blocking() -> None:
    with listen_tcp("127.0.0.1", 0, 4, "listen") as listener, socket.create_connection(listener.getsockname()):
        assert not listener.getblocking()


def test_another_program_on_the_port_is_named_and_not_what_python_adds() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigError) as caught:
            listen_tcp("127.0.0.1", port, 4, "listen")
    assert str(caught.value) == (
        f"listen: cannot listen on 127.0.0.1:{port}: another program listens there; choose another port"
    )


def test_an_address_of_another_machine_is_told_from_ones_of_this() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1:0: this machine has no such address; 127\.0\.0\.1 is for"):
        listen_tcp("192.0.2.1", 0, 4, "listen")


def test_a_name_that_does_not_resolve_is_said() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on no-such-host\.invalid:0: [A-Z]"):
        listen_tcp("no-such-host.invalid", 0, 4, "listen")
