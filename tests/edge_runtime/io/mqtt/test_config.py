"""What a broker's configuration refuses, before anything is connected."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_runtime import schema
from edge_runtime.errors import ConfigError
from edge_runtime.io.mqtt.config import Address, BrokerConfig
from tests.edge_runtime.io.mqtt.clients import Bench


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("mqtt://broker", Address("broker", 1883, False, None)),
        ("mqtts://broker.example:99/", Address("broker.example", 99, True, None)),
        ("mqtt://[::1]:1884", Address("::1", 1884, False, None)),
        ("ws://broker", Address("broker", 80, False, "/mqtt")),
        ("wss://broker/a/b", Address("broker", 443, True, "/a/b")),
    ],
)
def test_urls_are_taken_apart(url: str, address: Address) -> None:
    assert BrokerConfig(url=url).address() == address


def test_a_readable_password_is_warned_of_unless_it_stays_on_this_machine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "password").write_text("canary")
    for host, warnings in (("127.0.0.1", 0), ("localhost", 0), ("[::1]", 0), ("broker.invalid", 1)):
        caplog.clear()
        with Bench() as bench:
            bench.broker_client(f"mqtt://{host}", username="me", password_file=tmp_path / "password")
        assert len(caplog.records) == warnings, host
        assert "canary" not in caplog.text


def test_an_address_reads_as_people_write_it() -> None:
    assert str(Address("::1", 1884, False, None)) == "[::1]:1884"
    assert str(Address("broker", 1883, False, None)) == "broker:1883"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "broker:1883"}, "must look like mqtt://"),
        ({"url": "http://broker"}, "must look like mqtt://"),
        ({"url": "mqtt://"}, "must look like mqtt://"),
        ({"url": "mqtt://me:secret@broker"}, "carries credentials"),
        ({"url": "mqtt://broker/path"}, "ends after the port"),
        ({"url": "mqtt://broker:99999"}, "port that is not a number"),
        ({"url": "mqtt://broker:0"}, "port 0"),
        ({"ca_file": Path("ca.pem")}, "need TLS"),
        ({"url": "mqtts://b", "key_file": Path("key.pem")}, "key_file needs cert_file"),
        ({"username": "a", "username_file": Path("b")}, "not both"),
        ({"password_file": Path("b")}, "needs username"),
        ({"keepalive_s": 0}, "keepalive_s must be from 1"),
        ({"receive_maximum": 70_000}, "receive_maximum must be from 1 to 65,535"),
        ({"connect_timeout_s": 0}, "connect_timeout_s"),
        ({"status_topic": "a/#"}, "status_topic cannot be published to"),
        ({"client_id": "a\0"}, "client_id"),
    ],
)
def test_nonsense_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        BrokerConfig(**{"url": "mqtt://broker", **settings})
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_loads_from_plain_data() -> None:
    config = schema.load(
        BrokerConfig, {"url": "mqtts://b", "ca_file": "ca.pem", "clean_start": True}, base=Path("/etc")
    )
    assert config.ca_file == Path("/etc/ca.pem")
    assert config.clean_start is True


@pytest.mark.parametrize("name", ["ca_file", "cert_file"])
def test_an_empty_file_name_does_not_switch_verification_off(name: str, tmp_path: Path) -> None:
    config = schema.load(BrokerConfig, {"url": "mqtts://b", name: ""}, base=tmp_path)
    with pytest.raises(ConfigError):
        config.check()


def test_missing_and_empty_secrets_are_refused(tmp_path: Path) -> None:
    config = BrokerConfig(url="mqtt://b", username="me", password_file=tmp_path / "password")
    with pytest.raises(ConfigError, match="password_file"):
        config.check()
    (tmp_path / "password").write_text("\n")
    with pytest.raises(ConfigError, match="password_file"):
        config.check()
    (tmp_path / "password").write_text("canary\n")
    config.check()
    assert "canary" not in repr(config) + repr(config.secrets())


def test_the_client_id_is_the_same_after_a_restart() -> None:
    assert BrokerConfig(url="mqtt://b", client_id="mine").session_name("x") == "mine"
    name = BrokerConfig(url="mqtt://b").session_name("factory")
    assert name == BrokerConfig(url="mqtt://b").session_name("factory")
    assert name.endswith("-factory")


def test_no_configuration_loads_paho() -> None:
    code = (
        "import sys\n"
        "import edge_runtime.io.mqtt.config, edge_runtime.io.sources.mqtt, edge_runtime.io.sinks.mqtt\n"
        "sys.exit(any(name.startswith('paho') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
