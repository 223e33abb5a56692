"""A bundle written again with another manifest: figures of a machine, event rules. Nothing else in it changes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from edge_runtime import manifest
from edge_runtime.errors import BundleError, ConfigError
from edge_runtime.manifest import Manifest
from edge_runtime.model.bundle import archive
from edge_runtime.model.bundle.bundle import MANIFEST, SIGNATURE, Bundle, open_bundle

Signer = Callable[[Path], None]
"""Signs a bundle in place, given its path."""


def rewrite(
    bundle: str | Path,
    change: Callable[[Manifest], Manifest],
    *,
    signer: Signer | None = None,
    out: str | Path | None = None,
) -> Path:
    """Write a bundle with a changed manifest. That is signed, so a signature has to be made again.

    Args:
        bundle: the ``.edge`` file.
        change: returns the new manifest.
        signer: makes the signature.
        out: the file to write; None replaces the bundle in one step.

    Returns:
        Where it was written.

    Raises:
        BundleError: it cannot be read or written.
        ConfigError: the bundle is signed and there is no signer.
    """
    bundle = Path(bundle)
    with open_bundle(bundle) as opened:
        contents = _contents(opened)
        if contents.pop(SIGNATURE, None) is not None and signer is None:
            raise ConfigError(
                f"{bundle.name} is signed, and what is written into it breaks the signature; give the key to sign with"
            )
        changed = change(opened.manifest)
    target = bundle if out is None else Path(out)
    _write(target, archive.pack({**contents, MANIFEST: manifest.dump(changed)}), signer)
    return target


def _contents(bundle: Bundle) -> dict[str, bytes]:
    """Every file of a bundle, the manifest and the signature too."""
    names = [variant.file for variant in bundle.manifest.variants] + [file.file for file in bundle.manifest.files]
    contents = {name: bundle.file(name) for name in names}
    if bundle.signature != "unsigned":
        contents[SIGNATURE] = bundle.file(SIGNATURE)
    return contents


def _write(path: Path, data: bytes, signer: Signer | None) -> None:
    """Put a bundle in place in one step, once it is signed, has been opened and is on disk."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror}") from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        temporary.chmod(0o644)
        if signer is not None:
            signer(temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        open_bundle(temporary).close()
        temporary.replace(path)
    except OSError as error:
        raise BundleError(f"cannot write {path}: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)
