"""The bundle: the one file that passes from export to a device, opened with suspicion.

`open_bundle` reads every byte of the file once and refuses it, before any model library sees anything, unless the
archive has the one accepted form (`edge_runtime.model.bundle.archive`), a trusted key has signed all of it where that
is asked for (`edge_runtime.model.bundle.signature`), the manifest is understood, every file is listed with its size and
SHA-256 and none is missing or left over, the golden vectors are plain arrays of the promised shapes, and the model
files are whole in themselves; in this order. What is handed out later is read again and hashed again, so a file that is
swapped or edited while it is open is refused too.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import stat
import weakref
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_runtime import manifest
from edge_runtime.base.system.iso8601 import parse_date
from edge_runtime.clock import Clock
from edge_runtime.errors import (
    BundleError,
    IncompatibleError,
    IntegrityError,
    ManifestError,
    SignatureError,
)
from edge_runtime.manifest import File, Manifest, StageFile, Variant
from edge_runtime.manifest.outputs import files_of
from edge_runtime.model.bundle import model_files, npy, signature
from edge_runtime.model.bundle.archive import Archive, BundleLimits, safe_name
from edge_runtime.model.bundle.signature import TrustedKey

Floats = npt.NDArray[np.float32]

MANIFEST = "manifest.json"
SIGNATURE = "signature.json"
"""OpenSSF Model Signing over every other file; the manifest does not list it."""


class Bundle:
    """A bundle that has been verified. Made by `open_bundle`; a context manager, closed when it is collected.

    Attributes:
        path: where it was opened.
        manifest: what it says of itself.
        digest: SHA-256 of the whole file, hexadecimal; signing the same contents again changes it.
        signer: the trusted key that signed it; None if it is not signed, or if that was not asked for.
    """

    def __init__(
        self, path: Path, archive: Archive, fd: int, contents: Manifest, signer: TrustedKey | None = None
    ) -> None:
        self.path = path
        self.manifest = contents
        self.digest = archive.digest
        self.signer = signer
        self._archive = archive
        self._finalizer = weakref.finalize(self, os.close, fd)

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; may be called twice. The manifest stays readable."""
        self._finalizer()

    def leave_out_surround(self) -> None:
        """Let the manifest say no more of what surrounds the network: answers are what it says of one window."""
        self.manifest = dataclasses.replace(self.manifest, surround=None)

    @property
    def signature(self) -> str:
        """``unsigned``, ``signed by`` a trusted key, or ``signed (not verified yet)`` where nothing has checked it."""
        if self.signer is not None:
            return f"signed by {self.signer}"
        return "signed (not verified yet)" if SIGNATURE in self._archive.entries else "unsigned"

    @property
    def names(self) -> list[str]:
        """Every file in it, sorted."""
        return sorted(self._archive.entries)

    @property
    def digests(self) -> dict[str, str]:
        """SHA-256 of every file but the signature, hexadecimal, by name: what a signature covers."""
        return _digests(self._archive)

    @property
    def root(self) -> str:
        """One digest over `digests`; it identifies a bundle whatever signatures it has."""
        return signature.root_digest(digest for _, digest in sorted(self.digests.items()))

    def variant(self, name: str) -> Variant:
        """Return the variant of this name.

        Raises:
            IncompatibleError: there is none.
        """
        for variant in self.manifest.variants:
            if variant.name == name:
                return variant
        names = ", ".join(variant.name for variant in self.manifest.variants)
        raise IncompatibleError(f"{self.path.name} has no variant '{name}'; it has: {names}")

    def read_variant(self, name: str) -> bytes:
        """Read what `edge_runtime.model.engines.load` takes: a model file, or a chain with the files of its models.

        Each file has exactly the bytes whose digest the manifest states.

        Raises:
            IncompatibleError: no such variant.
            IntegrityError: a file was changed since the bundle was opened.
        """
        chosen, contents = self.variant(name), self.manifest
        if not contents.stages:
            return self._read(chosen.file)
        from edge_runtime.model.chain.load import join_variant  # noqa: PLC0415 - only where a bundle has a chain

        files = [self._read(model.file) for model in chosen.models]
        return join_variant(contents.stages, contents.answer, contents.input, chosen, files)

    def golden(self, name: str) -> tuple[Floats, Floats]:
        """Golden vectors of a variant.

        Returns:
            Inputs (n, channels, samples) and the expected answers (n, *`OutputContract.shape`).
        """
        return npy.parse(self._read(self.manifest.golden_inputs)), npy.parse(self._read(self.variant(name).golden))

    def file(self, name: str) -> bytes:
        """Any file that the manifest lists, for example the model card.

        Raises:
            BundleError: the bundle holds no such file.
        """
        if name not in self._archive.entries:
            raise BundleError(f"{self.path.name} holds no file '{name}'")
        return self._read(name)

    def array(self, name: str) -> Floats:
        """Read an .npy file that the manifest lists.

        Raises:
            BundleError: the bundle holds no such file, or it is no plain array of floats.
        """
        try:
            return npy.parse(self.file(name))
        except ValueError as error:
            raise BundleError(f"{name}: {error}") from error

    def expired(self, clock: Clock) -> bool:
        """Return whether the manifest's expiry lies behind us; a board whose clock starts in 1970 never says so."""
        if not self.manifest.expires:
            return False
        today = datetime.fromtimestamp(clock.wall(), timezone.utc).date()
        return today > parse_date(self.manifest.expires)

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(entry.size for entry in self._archive.entries.values())

    def _read(self, name: str) -> bytes:
        if not self._finalizer.alive:
            raise BundleError(f"{self.path.name} is closed; open it again")
        try:
            return self._archive.read(name)
        except OSError as error:
            raise BundleError(f"cannot read {self.path}: {error.strerror}") from error


def open_bundle(
    path: str | Path, limits: BundleLimits | None = None, *, trusted: Sequence[TrustedKey] | None = None
) -> Bundle:
    """Open and verify a bundle.

    Args:
        path: the ``.edge`` file.
        limits: sizes beyond which it is refused.
        trusted: one of these keys must have signed it, so none refuses every bundle. None asks for no signature and
            looks at none: for tools that write or show bundles, and where a setting allows unsigned ones.

    Raises:
        BundleError: the file cannot be read.
        SignatureError: it is not signed, not by a trusted key, or was changed since.
        IntegrityError: it is damaged, has been tampered with, or is no bundle.
        ManifestError: its manifest is malformed, or of a version not known here.
    """
    path = Path(path)
    limits = limits or BundleLimits()
    fd = _open(path)
    with contextlib.ExitStack() as on_failure:
        on_failure.callback(os.close, fd)
        try:
            archive = Archive(fd, limits, keep={MANIFEST: limits.max_manifest_bytes, SIGNATURE: signature.MAX_BYTES})
            if MANIFEST not in archive.kept:
                raise IntegrityError("not a bundle: it has no manifest.json")
            # Before the manifest is parsed: it is one of the files that are signed.
            signer = None if trusted is None else _signer(archive, trusted)
            contents = manifest.parse(archive.kept[MANIFEST])
            _check_manifest(contents)
            _check_files(contents, archive)
        except OSError as error:
            raise BundleError(f"cannot read {path}: {error.strerror}") from error
        except BundleError as error:
            raise type(error)(f"{path.name}: {error}") from error
        on_failure.pop_all()
    return Bundle(path, archive, fd, contents, signer)


def _digests(archive: Archive) -> dict[str, str]:
    return {name: entry.sha256 for name, entry in archive.entries.items() if name != SIGNATURE}


def _signer(archive: Archive, trusted: Sequence[TrustedKey]) -> TrustedKey:
    if SIGNATURE not in archive.kept:
        raise SignatureError(
            "it is not signed; sign it (docs/signing.md), or allow unsigned bundles explicitly: "
            'run has unsigned = "allow" under [model] for it, serve has --allow-unsigned'
        )
    return signature.verify(archive.kept[SIGNATURE], _digests(archive), trusted)


def _open(path: Path) -> int:
    try:
        # Non-blocking, so that a named pipe in the place of a bundle cannot hold us up.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BundleError(f"cannot open the bundle {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BundleError(f"{path} is not a regular file; give the path of an .edge file")
    return fd


def _check_variant(variant: Variant, others: set[str]) -> None:
    where = f"manifest.json: variant {variant.name}"
    for file in variant.models:
        suffix = f".{file.format}"
        if not file.file.startswith("variants/") or not file.file.endswith(suffix):
            raise ManifestError(f"{where}: file must be variants/...{suffix}")
    if variant.golden not in others:
        raise ManifestError(f"{where}: golden file '{variant.golden}' is not in files")
    if variant.tolerance < 0:
        raise ManifestError(f"{where}: tolerance must not be negative")


def _listed(contents: Manifest) -> list[Variant | StageFile | File]:
    """Return all that the manifest lists, model files first."""
    models = [model for variant in contents.variants for model in variant.models]
    return [*models, *contents.files]


def _check_names(listed: Sequence[str]) -> None:
    for name in listed:
        if not safe_name(name) or name in (MANIFEST, SIGNATURE):
            raise ManifestError(f"manifest.json: '{name[:80]}' is not a name that a listed file may have")
    repeated = sorted({name for name in listed if listed.count(name) > 1})
    if repeated:
        raise ManifestError(f"manifest.json: lists {repeated[0]} more than once")


def _check_manifest(contents: Manifest) -> None:
    """Check what types cannot say: names are safe, each file is listed once, golden vectors and dates make sense."""
    _check_names([item.file for item in _listed(contents)])
    others = {file.file for file in contents.files}
    for variant in contents.variants:
        _check_variant(variant, others)
    if contents.golden_inputs not in others:
        raise ManifestError(f"manifest.json: golden_inputs '{contents.golden_inputs}' is not in files")
    for field, name in files_of(contents.output).items():
        if name not in others:
            raise ManifestError(f"manifest.json: output.{field} '{name}' is not in files")
    for key in ("created", "expires"):
        value = getattr(contents, key)
        try:
            if value:
                parse_date(value)
        except ValueError as error:
            raise ManifestError(f"manifest.json: {key} must be a date such as 2027-01-31, got '{value}'") from error


def _check_files(contents: Manifest, archive: Archive) -> None:
    """Archive and manifest name the same files, and each is what the manifest says."""
    listed = {item.file: item for item in _listed(contents)}
    present = archive.entries.keys() - {MANIFEST, SIGNATURE}
    if missing := sorted(listed.keys() - present):
        raise IntegrityError(f"{missing[0]} is listed in the manifest and missing")
    if extra := sorted(present - listed.keys()):
        raise IntegrityError(f"{extra[0]} is not listed in the manifest")
    for name, item in listed.items():
        entry = archive.entries[name]
        if entry.size != item.size:
            raise IntegrityError(f"{name} has {entry.size} bytes, the manifest says {item.size}")
        if entry.sha256 != item.sha256:
            raise IntegrityError(f"{name} does not have the SHA-256 that the manifest states")
    window = (len(contents.input.channels), contents.input.window)
    inputs = _golden(archive, contents.golden_inputs, window)
    for variant in contents.variants:
        _golden(archive, variant.golden, contents.output.shape, rows=len(inputs))
        for model in variant.models:
            _check_model(archive, model)


def _check_model(archive: Archive, model: Variant | StageFile) -> None:
    try:
        model_files.check(archive.read(model.file), model.format)
    except IntegrityError as error:
        raise IntegrityError(f"{model.file}: {error}") from error


def _golden(archive: Archive, name: str, shape: tuple[int, ...], rows: int | None = None) -> Floats:
    try:
        array = npy.parse(archive.read(name))
    except ValueError as error:
        raise IntegrityError(f"{name}: {error}") from error
    if not len(array) or array.shape[1:] != shape or (rows is not None and len(array) != rows):
        expected = f"({rows or 'n'}, {', '.join(map(str, shape))})"
        raise IntegrityError(f"{name}: golden vectors of shape {array.shape}, the manifest calls for {expected}")
    if not np.isfinite(array).all():
        raise IntegrityError(f"{name}: golden vectors must be finite")
    return array
