"""Announcements: signed, read with a line for each mistake, and refused when they are not fresh."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from edge_export.package.sign import SigningKey, envelope, new_key
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.system.iso8601 import parse_time
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import UpdateRefused
from edge_runtime.model.bundle.signature import TrustedKey
from edge_runtime.operate.update import announcement, freshness
from edge_runtime.operate.update import keys as key_sets
from edge_runtime.operate.update.announcement import PAYLOAD_TYPE, Announcement, Signed, in_canary
from edge_runtime.operate.update.freshness import FloorClock, admitted
from edge_runtime.operate.update.state import UpdateState, forgiven
from edge_runtime.operate.update.update_store import UpdateStore

GOOD: dict[str, Any] = {
    "type": "announcement", "name": "watch", "version": 2, "sha256": "0" * 64, "size": 1000,
    "url": "https://example.org/watch-2.edge", "sequence": 7, "issued": "2026-11-22T12:00:00Z",
    "expires": "2026-12-22T12:00:00+00:00", "devices": ["*"],
}  # fmt: skip

NO_TIME = "Invalid isoformat|not an ISO 8601 date or time"
"""Python's words, and ours where it is Python 3.10 that cannot read it."""


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> SigningKey:
    path = tmp_path_factory.mktemp("keys") / "release.pem"
    new_key(path)
    return SigningKey(path)


@pytest.fixture
def trusted(key: SigningKey) -> list[TrustedKey]:
    return [key.public]


def signed(key: SigningKey, told: Any) -> bytes:
    return envelope(PAYLOAD_TYPE, told if isinstance(told, bytes) else orjson.dumps(told), [key])


def test_a_good_one_is_read(key: SigningKey, trusted: list[TrustedKey]) -> None:
    told = announcement.parse(signed(key, GOOD | {"canary": 0.1, "not_before": "2026-12-01T00:00:00Z"}), trusted)
    assert (told.announcement.model, told.announcement.canary) == ("watch/2", 0.1)
    assert parse_time("2026-12-01T00:00:00Z") == parse_time("2026-12-01") == parse_time("2026-12-01T01:00+01:00")
    assert parse_time("2026-12-01") == 1_796_083_200.0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"type": "trusted-keys"}, "type: "),
        ({"sha256": "0" * 63}, "64 hexadecimal digits"),
        ({"sha256": "A" * 64}, "64 hexadecimal digits"),
        ({"size": 0}, "size and chunk_bytes must be at least 1"),
        ({"size": "1000"}, "size: expected a whole number"),
        ({"version": 0}, "version must be a positive number"),
        ({"version": 1.5}, "version: expected a whole number"),
        ({"name": ""}, "name must have 1 to 200 characters"),
        ({"canary": 1.1}, "canary 0 to 1"),
        ({"sequence": 0}, "sequence must be a positive number"),
        ({"sequence": 2**63}, "sequence must be a positive number"),
        ({"devices": []}, "devices must be 1 to 1000"),
        ({"devices": [""]}, "devices must be 1 to 1000"),
        ({"devices": "*"}, "devices: "),
        ({"expires": "2026-11-22T12:00:00Z"}, "expires must be later than issued"),
        ({"expires": "never"}, NO_TIME),
        ({"url": ""}, "either url or chunks"),
        ({"chunks": "a/b"}, "either url or chunks"),
        ({"url": "", "chunks": "a/#"}, "chunks is no topic"),
        ({"url": "", "chunks": "$share"}, "must not begin with"),
        ({"url": "", "chunks": "$share//x"}, "must not begin with"),
        ({"url": "", "chunks": "$SYS/broker"}, "must not begin with"),
        ({"url": "", "chunks": "/".join("a" * 17)}, "at most 16 levels"),
        ({"url": "", "chunks": "a" * 201}, "200 characters"),
        ({"url": "", "chunks": "a/b", "size": 10**9, "chunk_bytes": 100}, "more than 65536 chunks"),
        ({"url": "ftp://example.org/x"}, "http:// or https://"),
        ({"url": "https://user:secret@example.org/x"}, "neither credentials"),
        ({"url": "https://example.org/a b"}, "spaces"),
        ({"url": "https://example.org/\r\nX: y"}, "must be http"),
        ({"url": "https://example.org:99999/x"}, "out of range"),
        ({"url": "http://a..b/x"}, "no host name"),
        ({"url": "http://" + "a" * 64 + "/x"}, "no host name"),
        ({"url": "http://-a/x"}, "no host name"),
        ({"not_before": "soon"}, NO_TIME),
        ({"surprise": 1}, "unknown key 'surprise'"),
    ],
)
def test_a_bad_one_is_refused_with_a_line(
    key: SigningKey, trusted: list[TrustedKey], change: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(UpdateRefused, match=complaint) as caught:
        announcement.parse(signed(key, GOOD | change), trusted)
    assert caught.value.reason == "announcement"
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("missing", ["sequence", "issued", "expires", "devices"])
def test_what_freshness_needs_cannot_be_left_out(key: SigningKey, trusted: list[TrustedKey], missing: str) -> None:
    told = {name: value for name, value in GOOD.items() if name != missing}
    with pytest.raises(UpdateRefused, match=missing):
        announcement.parse(signed(key, told), trusted)


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"null", b"\xff", b"1", b"x" * 80_000, b'{"name": NaN}', b"{" * 5000]
)
def test_what_is_no_announcement_is_refused(key: SigningKey, trusted: list[TrustedKey], data: bytes) -> None:
    for message in (data, signed(key, data)):
        with pytest.raises(UpdateRefused, match="announcement"):
            announcement.parse(message, trusted)


def test_an_unsigned_one_is_refused_and_says_how_to_sign(trusted: list[TrustedKey]) -> None:
    with pytest.raises(UpdateRefused, match="edge-export announce") as caught:
        announcement.parse(
            orjson.dumps({name: GOOD[name] for name in ("name", "version", "sha256", "size", "url")}), trusted
        )
    assert caught.value.reason == "announcement_unsigned"


def test_a_foreign_one_and_one_of_another_kind_are_refused(
    key: SigningKey, trusted: list[TrustedKey], tmp_path: Path
) -> None:
    """Mutations: `parse` without its `signers`; `pae` without the payload type."""
    new_key(tmp_path / "other.pem")
    other = SigningKey(tmp_path / "other.pem")
    forged = json.loads(signed(other, GOOD))
    forged["signatures"][0]["keyid"] = key.public.id
    kind = json.loads(envelope(key_sets.PAYLOAD_TYPE, orjson.dumps(GOOD), [key])) | {"payloadType": PAYLOAD_TYPE}
    for message in (signed(other, GOOD), orjson.dumps(forged), orjson.dumps(kind)):
        with pytest.raises(UpdateRefused, match="no trusted key has signed") as caught:
            announcement.parse(message, trusted)
        assert caught.value.reason == "announcement_signature"


def test_no_byte_of_what_is_signed_changes_unnoticed(key: SigningKey, trusted: list[TrustedKey]) -> None:
    whole = json.loads(signed(key, GOOD))
    payload = bytearray(base64.b64decode(whole["payload"]))
    for place in range(len(payload)):
        changed = bytearray(payload)
        changed[place] ^= 1
        whole["payload"] = base64.b64encode(changed).decode()
        with pytest.raises(UpdateRefused):
            announcement.parse(orjson.dumps(whole), trusted)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    with pytest.raises(UpdateRefused):
        announcement.parse(data, [])


# -- freshness ---------------------------------------------------------------------------------------------------------

NOW = parse_time("2026-11-23")


def made(digest: str = "a", **change: Any) -> Signed:
    values: dict[str, Any] = GOOD | {"devices": ("*",)} | change
    return Signed(Announcement(**values), digest)


def refusal(state: UpdateState, one: Signed, wall_s: float = NOW) -> str:
    with pytest.raises(UpdateRefused) as caught:
        admitted(state, one, wall_s)
    return caught.value.reason


def test_the_same_announcement_may_come_again_and_an_older_one_may_not() -> None:
    """Mutations: rule 2 or rule 3 of `admitted` taken out."""
    state = admitted(UpdateState(), made(sequence=7, canary=0.05), NOW)
    assert admitted(state, made(sequence=7, canary=0.05), NOW + 60) == state
    assert refusal(state, made("b", sequence=7, canary=1.0)) == "announcement_replayed"
    assert refusal(state, made("b", sequence=6, canary=1.0)) == "announcement_replayed"
    assert admitted(state, made("b", sequence=8), NOW).floors["watch"].sequence == 8


def test_each_name_has_its_floor_and_keeps_it() -> None:
    """Mutation: one floor for all names, or only that of the last one."""
    state = admitted(UpdateState(), made(sequence=7), NOW)
    state = admitted(state, made("c", name="clock", sequence=3), NOW)
    assert refusal(state, made("b", sequence=6)) == "announcement_replayed"
    assert refusal(state, made("d", name="clock", sequence=2)) == "announcement_replayed"
    for i in range(freshness.MAX_NAMES - 2):
        state = admitted(state, made(name=f"n{i}"), NOW)
    assert refusal(state, made(name="one more")) == "announcement_replayed"


def test_an_expired_one_is_refused_on_a_device_that_knows_the_date() -> None:
    assert refusal(UpdateState(), made(), parse_time(GOOD["expires"])) == "announcement_expired"
    admitted(UpdateState(), made(), parse_time(GOOD["expires"]) - 1)


def test_an_expired_one_is_refused_on_a_device_that_starts_in_1970() -> None:
    """Mutation: `admitted` with the device's clock alone: such a device takes everything for ever."""
    state = admitted(UpdateState(), made(), 5.0)
    assert state.seen_s == parse_time(GOOD["issued"])
    later = made("b", name="clock", issued="2027-06-01", expires="2027-07-01")
    state = admitted(state, later, 6.0)
    assert refusal(state, made(sequence=9), 7.0) == "announcement_expired"


def test_an_operator_ends_the_hold_of_a_clock_that_was_wrong() -> None:
    state = replace(admitted(UpdateState(), made(), NOW), seen_s=parse_time("2099-01-01"))
    assert refusal(state, made("b", sequence=8)) == "announcement_expired"
    after = admitted(forgiven(state), made("b", sequence=8), NOW)
    assert refusal(after, made(sequence=7)) == "announcement_replayed", "the floor of sequence numbers stays"


def test_the_floor_follows_the_clock_and_survives_a_restart(tmp_path: Path) -> None:
    """Mutation: `FloorClock.wall` gives the clock's date alone."""
    store = UpdateStore(tmp_path / "updates")
    clock = SimulatedClock()
    clock.wall = lambda: NOW  # type: ignore[method-assign]
    floored = FloorClock(clock, store)
    ahead = [floored.ahead]
    floored.note()
    clock.wall = lambda: NOW + 3600  # type: ignore[method-assign]
    ahead.append(floored.ahead)
    assert ahead == [True, False], "an hour is not worth a write"
    store.close()
    again = UpdateStore(tmp_path / "updates")
    clock.wall = lambda: 3.0  # type: ignore[method-assign]
    assert FloorClock(clock, again).wall() == NOW
    assert refusal(again.state, made(expires="2026-11-22T13:00:00Z"), 3.0) == "announcement_expired"
    again.close()


def test_the_filters_of_chunks_are_noted_and_bounded() -> None:
    state = UpdateState()
    for i in range(20):
        state = admitted(state, made(sequence=i + 1, url="", chunks=f"fleet/v{i}"), NOW)
    assert state.filters == tuple(f"fleet/v{i}/+" for i in range(12, 20))


@pytest.mark.parametrize(
    ("devices", "concerned"),
    [(("*",), True), (("w1",), True), (("w*", "x"), True), (("w?",), True), (("w[2-9]",), False), (("W1", "w"), False)],
)
def test_devices_are_named_or_matched(devices: tuple[str, ...], concerned: bool) -> None:
    assert made(devices=devices).announcement.concerns("w1") is concerned


# -- canaries ----------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.text(), st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_device_that_is_in_a_share_is_in_every_larger_one(device: str, model: str, a: float, b: float) -> None:
    small, large = sorted((a, b))
    assert in_canary(device, model, large) or not in_canary(device, model, small)
    assert in_canary(device, model, 1.0)
    assert not in_canary(device, model, 0.0)


def test_a_share_of_a_tenth_is_about_a_tenth_and_another_tenth_the_next_time() -> None:
    fleet = [f"device-{i}" for i in range(10_000)]
    first = {device for device in fleet if in_canary(device, "watch/2", 0.1)}
    second = {device for device in fleet if in_canary(device, "watch/3", 0.1)}
    assert 900 < len(first) < 1100  # 3.3 standard deviations
    assert 50 < len(first & second) < 150


def test_the_place_of_a_device_never_changes() -> None:
    """Pinned: a new version of this program must not choose other canaries."""
    assert [i for i in range(20) if in_canary(f"device-{i}", "watch/2", 0.2)] == [2, 14]
