"""When a broker is tried again, without a broker; `test_link_protocol` has the same with one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from edge_runtime.base.system.retry import Retry
from edge_runtime.io.mqtt.attempts import STABLE_S, SUSPICIOUS, Attempts
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.connection import ConnackRefusal
from edge_runtime.io.mqtt.packets import V5, V311

UNSUPPORTED = ConnackRefusal("unsupported protocol version", unsupported_version=True, credentials=False)
CREDENTIALS = ConnackRefusal("not authorized", unsupported_version=False, credentials=True)
RETRY = Retry(base_s=1.0, cap_s=64.0)


def made(**config: Any) -> Attempts:
    return Attempts(BrokerConfig(url="mqtt://127.0.0.1", **config), "b", RETRY, random.Random(0))


def attempt(attempts: Attempts, why: str = "the broker closed", refused: ConnackRefusal | None = None) -> float:
    attempts.begin()
    if refused is not None:
        attempts.refused(refused)
    return attempts.failed(why, 0.0, was_connected=False)


def connect(attempts: Attempts, lived_s: float) -> float:
    attempts.begin()
    attempts.accepted(100.0)
    return attempts.failed("the network went", 100.0 + lived_s, was_connected=True)


def test_the_other_version_is_tried_at_once_and_then_both_in_turn_with_waits() -> None:
    attempts = made()
    assert attempts.version == V5
    assert attempt(attempts) == 0.0
    assert (attempts.version, attempts.failures) == (V311, 0)
    assert attempt(attempts) > 0
    assert (attempts.version, attempts.failures) == (V5, 1)


def test_a_broker_that_cannot_be_reached_says_nothing_of_versions() -> None:
    attempts = made()
    assert attempt(attempts, "cannot connect: refused") > 0
    assert attempts.version == V5


def test_a_version_that_the_broker_took_once_stays_until_it_refuses_that_version() -> None:
    attempts = made()
    connect(attempts, 1.0)
    attempt(attempts)
    assert attempts.version == V5
    assert attempt(attempts, refused=UNSUPPORTED) == 0.0
    assert attempts.version == V311


@pytest.mark.parametrize(("protocol", "version"), [("5", V5), ("3.1.1", V311)])
def test_a_version_that_the_user_names_stays(protocol: str, version: int) -> None:
    attempts = made(protocol=protocol)
    for _ in range(3):
        assert attempt(attempts, refused=UNSUPPORTED) > 0
        assert attempts.version == version


def test_waits_grow_over_short_connections_and_begin_anew_after_a_good_one() -> None:
    attempts = made()
    for failures in range(1, 4):
        connect(attempts, STABLE_S / 2)
        assert attempts.failures == failures
    assert connect(attempts, STABLE_S) <= RETRY.base_s
    assert attempts.failures == 1


def test_credentials_that_are_refused_are_not_tried_often() -> None:
    attempts = made(protocol="5")
    assert attempt(attempts, refused=CREDENTIALS) >= RETRY.cap_s / 2
    assert attempt(attempts) <= 4 * RETRY.base_s, "the one after is like any other"


def test_the_log_is_told_once_of_each_reason_and_again_after_a_connection(caplog: pytest.LogCaptureFixture) -> None:
    attempts = made(protocol="5")
    for why in ("one", "one", "two", "two"):
        attempt(attempts, why)
    assert [record.getMessage().split(": ")[1].split(";")[0] for record in caplog.records] == ["one", "two"]
    connect(attempts, 1.0)
    attempt(attempts, "two")
    assert len(caplog.records) == 4


def test_connections_that_end_at_once_name_what_may_end_them(caplog: pytest.LogCaptureFixture) -> None:
    attempts = made(protocol="3.1.1")

    def lose(lived_s: float, largest: int = 0) -> None:
        attempts.begin()
        attempts.accepted(100.0)
        attempts.failed("the broker closed", 100.0 + lived_s, was_connected=True, client_id="me", largest=largest)

    for _ in range(SUSPICIOUS - 1):
        lose(STABLE_S / 2)
    assert "'me'" not in caplog.text
    lose(STABLE_S / 2, largest=4711)
    assert attempts.short == SUSPICIOUS
    (line,) = [message for message in caplog.messages if "'me'" in message]
    assert "client_id under [broker.b]" in line
    assert "4711 bytes" in line
    lose(STABLE_S / 2)
    assert len([message for message in caplog.messages if "'me'" in message]) == 1, "once, not with each of them"
    lose(STABLE_S)
    assert attempts.short == 0
