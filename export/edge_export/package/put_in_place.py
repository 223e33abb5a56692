"""Atomic replacement of an ``.edge`` file by bytes that a device would open."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from edge_runtime.errors import BundleError
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.signature import TrustedKey


def put_in_place(path: Path, data: bytes, trusted: Sequence[TrustedKey] | None = None) -> None:
    """Write a bundle in one step, once it has been opened as a device opens it and is on disk.

    Args:
        path: the ``.edge`` file; keeps what it holds if anything is wrong.
        data: its new bytes.
        trusted: one of these keys must have signed it; None asks for no signature.

    Raises:
        BundleError: the bytes are no bundle, are not signed by one of the keys, or cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        open_bundle(temporary, trusted=trusted).close()
        Path(temporary).replace(path)
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror}") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
