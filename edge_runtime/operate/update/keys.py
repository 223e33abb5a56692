"""Key chain: the keys that new bundles must be signed with, replaced over the air.

A *key set* is a version, a threshold and public keys, in a DSSE envelope with any number of signatures. A device takes
it if its version is higher, and if it is signed by as many of the keys trusted so far as *their* threshold says, and by
as many of its own as its own threshold says: as TUF does with its root. Accepted sets are kept as a chain, and the
chain is verified again from the configuration's ``trusted_keys`` at each start. So the configuration stays the root of
trust: who changes it ends the chain.

A new bundle must be signed by a key of the newest set. What is installed already may be signed by any key of the chain:
taking a key out must not leave a device with nothing that it may run.

Sources: DSSE protocol 1.0; The Update Framework specification 1.0.33, section 5.3 (updating the root role).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_runtime import schema
from edge_runtime.base.system import durable_file
from edge_runtime.errors import ConfigError, SignatureError, StoreError, UpdateRefused
from edge_runtime.model.bundle.signature import TrustedKey, hash_of, key_id, load_keys
from edge_runtime.operate.update import envelope as envelopes
from edge_runtime.operate.update.envelope import Envelope

log = logging.getLogger(__name__)

PAYLOAD_TYPE = "application/vnd.edge-runtime.trusted-keys+json"
"""Not that of bundles and announcements."""
MAX_BYTES = 64 * 1024
_MAX_KEYS = 32
_MAX_CHAIN = 256  # as many rotations as python-tuf follows


@dataclass(frozen=True, slots=True, kw_only=True)
class _Payload:
    """Signed content of a key set."""

    type: str
    version: int
    threshold: int = 1
    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.type != "trusted-keys":
            raise ValueError("type must be trusted-keys")
        if not 1 <= self.version < 2**53:
            raise ValueError("version must be a positive number")
        if not 1 <= self.threshold <= len(self.keys) <= _MAX_KEYS:
            raise ValueError(f"threshold must be 1 to the number of keys, and keys at most {_MAX_KEYS}")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySet:
    """Keys that count, and how many of them it takes to replace them."""

    version: int
    """0: those of the configuration."""
    threshold: int
    keys: tuple[TrustedKey, ...]


class KeyChain:
    """The configuration's keys, and the sets that replaced them since.

    Args:
        trusted_keys: the configuration's key files.
        threshold: how many of those a new set needs.
        folder: the update folder: ``keys`` keeps the chain, and ``keys.d`` its keys one by one, for loading bundles.
        read_only: write nothing.

    Raises:
        ConfigError: a key file of the configuration cannot be read.
        StoreError: the chain cannot be read.
    """

    def __init__(self, trusted_keys: Sequence[Path], threshold: int, folder: Path, *, read_only: bool = False) -> None:
        keys = load_keys(trusted_keys)
        if threshold > len(keys):
            raise ConfigError(f"update.key_threshold {threshold} is more than there are trusted_keys ({len(keys)})")
        self._configured = tuple(trusted_keys)
        self._path = folder / "keys"
        self._each = folder / "keys.d"
        self._envelopes: list[bytes] = []
        self._sets = [KeySet(version=0, threshold=threshold, keys=keys)]
        self._load()
        if not read_only:
            try:
                self._write_each(self._sets)
            except OSError as error:  # what runs may still be signed by a key whose file is there
                log.error("update: could not write key files: folder=%s error=%s", self._each, error.strerror)  # noqa: TRY400 - one line

    @property
    def current(self) -> KeySet:
        """The newest set: what a new bundle must be signed by."""
        return self._sets[-1]

    @property
    def files(self) -> tuple[Path, ...]:
        """A file for each key of `ever`: what `ModelConfig.trusted_keys` is for an installed bundle."""
        configured = {key.id for key in self._sets[0].keys}
        others = (self._file(key) for key in self.ever if key.id not in configured)
        return (*self._configured, *(path for path in others if path.exists()))

    @property
    def ever(self) -> tuple[TrustedKey, ...]:
        """Every key of the chain, for bundles that verified when they were installed."""
        return tuple({key.id: key for one in reversed(self._sets) for key in one.keys}.values())

    def rotate(self, envelope: bytes) -> bool:
        """Take a new set, durably.

        Returns:
            False if it is the current one, which a retained message shows again and again.

        Raises:
            UpdateRefused: it is malformed, older, or not signed by enough keys.
            StoreError: it cannot be written, and does not count.
        """
        if self._envelopes and envelope == self._envelopes[-1]:
            return False
        accepted = successor(self.current, envelope)
        if len(self._envelopes) >= _MAX_CHAIN:
            raise UpdateRefused("keys", f"keys were changed {_MAX_CHAIN} times; put the new ones into trusted_keys")
        chain = [*self._envelopes, envelope]
        try:
            self._write_each([accepted])
            durable_file.write(self._path, json.dumps([one.decode("ascii") for one in chain]).encode())
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be written: {error.strerror}; make room for it") from error
        self._envelopes = chain
        self._sets.append(accepted)
        return True

    def _file(self, key: TrustedKey) -> Path:
        return self._each / f"{key.id[:16]}.pub.pem"

    def _write_each(self, sets: Sequence[KeySet]) -> None:
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415 - only where signatures are verified

        form = serialization.PublicFormat.SubjectPublicKeyInfo
        wanted = {key.id: key for one in sets for key in one.keys if one.version}
        if wanted:
            self._each.mkdir(exist_ok=True, mode=0o700)
        for key in wanted.values():
            pem = key.public.public_bytes(serialization.Encoding.PEM, form)
            path = self._file(key)
            if not path.exists() or path.read_bytes() != pem:
                durable_file.write(path, pem)

    def _load(self) -> None:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(f"{self._path}: cannot be read: {error.strerror}") from error
        try:
            for text in json.loads(data):
                envelope = text.encode("ascii")
                self._sets.append(successor(self.current, envelope))
                self._envelopes.append(envelope)
        except (ValueError, AttributeError, TypeError, RecursionError, UpdateRefused) as error:
            # The rest of the chain does not follow from what is trusted: damage, or the configuration has new keys.
            log.warning(
                "update: ignored newer key sets: path=%s version=%d error=%s", self._path, self.current.version, error
            )


def successor(current: KeySet, envelope: bytes) -> KeySet:
    """Return the set in an envelope, if it may replace the current one.

    Raises:
        UpdateRefused: it may not; says why.
    """
    try:
        found = envelopes.read(envelope, PAYLOAD_TYPE, MAX_BYTES)
        # Not parsed before enough of the keys trusted so far have signed it.
        _require(current, found, "trusted so far")
        new = _parsed(found.payload, current.version)
        _require(new, found, "of its own")
    except (SignatureError, ValueError, RecursionError) as error:
        raise UpdateRefused("keys", f"a new set of keys is refused: {error}") from error
    return new


def _parsed(payload: bytes, current: int) -> KeySet:
    found = schema.load(_Payload, json.loads(payload))
    if found.version <= current:
        raise SignatureError(f"it has version {found.version}, the current one is {current}")
    keys = tuple(_key(pem, i) for i, pem in enumerate(found.keys))
    if len({key.id for key in keys}) != len(keys):
        raise SignatureError("it has the same key twice")
    return KeySet(version=found.version, threshold=found.threshold, keys=keys)


def _require(keys: KeySet, envelope: Envelope, which: str) -> None:
    good = len(envelope.signers(keys.keys))
    if good < keys.threshold:
        raise SignatureError(f"{good} of the keys {which} have signed it, {keys.threshold} must")


def _key(pem: str, position: int) -> TrustedKey:
    from cryptography import exceptions  # noqa: PLC0415 - only where signatures are verified
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    wrong = f"its key {position} is not a public key on P-256, P-384 or P-521"
    try:
        public = serialization.load_pem_public_key(pem.encode())
    except (ValueError, exceptions.UnsupportedAlgorithm) as error:
        raise SignatureError(wrong) from error
    if not isinstance(public, ec.EllipticCurvePublicKey):
        raise SignatureError(wrong)
    hash_of(public.curve)  # ValueError: a curve that signatures do not use
    return TrustedKey(f"key {position}", key_id(public), public)
