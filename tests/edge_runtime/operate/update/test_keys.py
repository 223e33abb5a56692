"""Trusted keys change over the air: only by those trusted so far, only forward, and over any number of steps."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edge_export.cli import main
from edge_export.package import trusted_keys as tool
from edge_export.package.sign import SigningKey, envelope, new_key

from edge_runtime.base.system import durable_file
from edge_runtime.errors import ConfigError, StoreError, UpdateRefused
from edge_runtime.model.bundle import signature
from edge_runtime.model.bundle.signature import load_key
from edge_runtime.operate.update.keys import MAX_BYTES, PAYLOAD_TYPE, KeyChain, successor


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys ``a`` to ``e``."""
    folder = tmp_path_factory.mktemp("keys")
    for name in "abcde":
        new_key(folder / f"{name}.pem")
    return folder


Make = Callable[..., bytes]


@pytest.fixture
def key_set(made: Path) -> Make:
    """``key_set(2, trust="bc", sign="ab")``."""

    def make(version: int, *, trust: str, sign: str, threshold: int = 1) -> bytes:
        trusted = [load_key(made / f"{name}.pub.pem") for name in trust]
        signers = [SigningKey(made / f"{name}.pem") for name in sign]
        return tool.key_set(trusted, version, signers, threshold=threshold)

    return make


@pytest.fixture
def chain(made: Path, tmp_path: Path) -> Callable[..., KeyChain]:
    def make(trusted: str = "a", threshold: int = 1) -> KeyChain:
        return KeyChain([made / f"{name}.pub.pem" for name in trusted], threshold, tmp_path)

    return make


def names(chain: KeyChain, made: Path) -> str:
    """Which keys count for a new bundle."""
    ids = {load_key(made / f"{name}.pub.pem").id: name for name in "abcde"}
    return "".join(sorted(ids[key.id] for key in chain.current.keys))


def test_a_set_signed_by_the_old_and_the_new_key_counts_and_is_remembered(
    made: Path, key_set: Make, chain: Callable[..., KeyChain]
) -> None:
    keys = chain()
    envelope = key_set(1, trust="b", sign="ab")
    assert keys.rotate(envelope)
    assert not keys.rotate(envelope)  # retained: it comes again and again
    assert names(keys, made) == "b"
    assert keys.rotate(key_set(5, trust="cd", sign="bc"))
    again = chain()
    assert (names(again, made), again.current.version) == ("cd", 5)
    assert [key.id for key in again.ever] == [load_key(made / f"{name}.pub.pem").id for name in "cdba"]
    assert {load_key(path).id for path in again.files} == {key.id for key in again.ever}


@pytest.mark.parametrize(
    ("version", "trust", "sign", "complaint"),
    [
        (1, "b", "bc", "0 of the keys trusted so far have signed it, 1 must"),
        (0, "b", "ab", "version must be a positive number"),
    ],
)
def test_a_set_that_does_not_follow_is_refused(
    key_set: Make, chain: Callable[..., KeyChain], version: int, trust: str, sign: str, complaint: str
) -> None:
    with pytest.raises(UpdateRefused, match=complaint) as caught:
        chain().rotate(key_set(version, trust=trust, sign=sign))
    assert caught.value.reason == "keys"


def test_a_set_must_be_signed_by_its_own_keys_too(made: Path, chain: Callable[..., KeyChain], key_set: Make) -> None:
    """Mutation: `successor` without the second `_require`: a set of keys that nobody has would lock everybody out."""
    with pytest.raises(ConfigError, match="must sign too"):
        key_set(1, trust="b", sign="a")
    whole = json.loads(key_set(1, trust="b", sign="ab"))
    whole["signatures"] = whole["signatures"][:1]
    with pytest.raises(UpdateRefused, match="0 of the keys of its own have signed it"):
        chain().rotate(json.dumps(whole).encode())


def test_old_sets_do_not_come_back(key_set: Make, chain: Callable[..., KeyChain]) -> None:
    """Mutation: `_parsed` without its comparison of versions."""
    keys = chain()
    keys.rotate(key_set(2, trust="ab", sign="ab"))
    for version in (1, 2):
        with pytest.raises(UpdateRefused, match="the current one is 2"):
            keys.rotate(key_set(version, trust="a", sign="a"))


def test_a_key_that_was_taken_out_counts_no_more(key_set: Make, chain: Callable[..., KeyChain]) -> None:
    keys = chain()
    keys.rotate(key_set(1, trust="b", sign="ab"))
    with pytest.raises(UpdateRefused, match="trusted so far"):
        keys.rotate(key_set(2, trust="c", sign="ac"))


def test_a_threshold_of_two_needs_two_different_keys(made: Path, key_set: Make, chain: Callable[..., KeyChain]) -> None:
    """Mutation: `_require` counts signatures instead of keys."""
    with pytest.raises(UpdateRefused, match="1 of the keys trusted so far have signed it, 2 must"):
        chain("abc", 2).rotate(key_set(1, trust="d", sign="ad"))
    doubled = json.loads(key_set(1, trust="d", sign="ad"))
    doubled["signatures"] += doubled["signatures"]
    with pytest.raises(UpdateRefused, match="1 of the keys trusted so far"):
        chain("abc", 2).rotate(json.dumps(doubled).encode())
    keys = chain("abc", 2)
    keys.rotate(key_set(1, trust="cde", sign="acde", threshold=3))
    with pytest.raises(UpdateRefused, match="2 of the keys trusted so far have signed it, 3 must"):
        keys.rotate(key_set(2, trust="a", sign="cda"))
    with pytest.raises(ConfigError, match="more than there are trusted_keys"):
        chain("a", 2)


def test_other_keys_in_the_configuration_end_the_chain(
    made: Path, tmp_path: Path, key_set: Make, chain: Callable[..., KeyChain], caplog: pytest.LogCaptureFixture
) -> None:
    chain("a").rotate(key_set(1, trust="b", sign="ab"))
    assert names(chain("c"), made) == "c"
    assert "update: ignored newer key sets: " in caplog.text


def test_a_chain_that_was_tampered_with_counts_up_to_there(
    made: Path, tmp_path: Path, key_set: Make, chain: Callable[..., KeyChain]
) -> None:
    keys = chain()
    keys.rotate(key_set(1, trust="b", sign="ab"))
    keys.rotate(key_set(2, trust="c", sign="bc"))
    stored = json.loads((tmp_path / "keys").read_bytes())
    forged = key_set(3, trust="d", sign="d")
    (tmp_path / "keys").write_text(json.dumps([stored[0], forged.decode()]))
    assert names(chain(), made) == "b"
    (tmp_path / "keys").write_text("nonsense")
    assert names(chain(), made) == "a"


def test_a_set_that_cannot_be_written_does_not_count(
    made: Path, key_set: Make, chain: Callable[..., KeyChain], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = chain()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(durable_file, "write", full)
    with pytest.raises((StoreError, OSError)):
        keys.rotate(key_set(1, trust="b", sign="ab"))
    assert names(keys, made) == "a"


def test_no_mutant_of_a_set_is_taken(key_set: Make, chain: Callable[..., KeyChain]) -> None:
    """Every byte changed in a few ways: 0 accepted with other keys than were signed."""
    rng = random.Random(11)
    envelope = key_set(1, trust="bc", sign="ab")
    keys = chain()
    good = successor(keys.current, envelope)
    refused = 0
    for place in range(len(envelope)):
        for _ in range(2):
            mutant = bytearray(envelope)
            mutant[place] = rng.choice([rng.randrange(256), mutant[place] ^ 1, ord("A"), ord("=")])
            try:
                found = successor(keys.current, bytes(mutant))
            except UpdateRefused:
                refused += 1
            else:  # white space, or base64 whose spare bits nobody reads: the same set
                assert found == good
    assert refused > len(envelope)


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b"null", b"\xff", b"{" * 10_000, b" " * (MAX_BYTES + 1), b'{"payload": 1, "payloadType": 2}',
        json.dumps({"payload": "", "payloadType": "application/vnd.in-toto+json", "signatures": []}).encode(),
    ],
)  # fmt: skip
def test_what_is_no_set_is_refused(chain: Callable[..., KeyChain], data: bytes) -> None:
    with pytest.raises(UpdateRefused, match="a new set of keys is refused"):
        chain().rotate(data)


@pytest.mark.parametrize("payload", [b"", b"[" * 20_000, b"null", b"\xff", b'{"type": 1}'])
def test_what_is_no_set_is_refused_when_a_trusted_key_signed_it(
    made: Path, chain: Callable[..., KeyChain], payload: bytes
) -> None:
    """Mutation: `successor` without RecursionError: found by sending hostile messages to a whole application."""
    with pytest.raises(UpdateRefused, match="a new set of keys is refused"):
        chain().rotate(envelope(PAYLOAD_TYPE, payload, [SigningKey(made / "a.pem")]))


def test_the_signature_of_a_bundle_is_none_of_a_set(made: Path, chain: Callable[..., KeyChain], key_set: Make) -> None:
    """Mutation: `pae` with the payload type of bundles."""
    whole = json.loads(key_set(1, trust="b", sign="ab"))
    payload = base64.b64decode(whole["payload"])
    for one, name in zip(whole["signatures"], "ab", strict=True):
        one["sig"] = base64.b64encode(SigningKey(made / f"{name}.pem").sign(signature.pae(payload))).decode()
    with pytest.raises(UpdateRefused, match="0 of the keys trusted so far"):
        chain().rotate(json.dumps(whole).encode())


def test_the_command_makes_a_set(
    made: Path, tmp_path: Path, chain: Callable[..., KeyChain], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "keys-1.json"
    words = ["--version", "1", "--trusted-key", f"{made}/b.pub.pem", "--key", f"{made}/a.pem", "--key", f"{made}/b.pem"]
    assert main(["keys", "set", "--out", str(out), *words]) == 0
    assert "version 1, 1 keys, 2 signatures" in capsys.readouterr().out
    keys = chain()
    keys.rotate(out.read_bytes())
    assert names(keys, made) == "b"
    again = ["--version", "2", "--trusted-key", f"{made}/c.pub.pem", "--key", f"{made}/b.pem"]
    assert main(["keys", "set", "--out", str(out), *again]) == 2
    assert "must sign too" in capsys.readouterr().err
