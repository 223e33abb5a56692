"""S2: whatever somebody does to a signed bundle, it is refused, before a model library or a parser sees any of it.

Mutations that were seen to fail here: not comparing the listed files (`signature._compare` empty); accepting a
signature without verifying it (no ``key.public.verify`` in `signature.verify`).
"""

from __future__ import annotations

import io
import random
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from edge_export.package.sign import SigningKey, new_key

from edge_runtime import manifest
from edge_runtime.errors import BundleError
from edge_runtime.model import engines
from edge_runtime.model.bundle import archive
from edge_runtime.model.bundle.bundle import MANIFEST, SIGNATURE, open_bundle
from tests.edge_runtime.model.bundle.zipped import files_of
from tests.faults.conftest import Note
from tests.long_tier import Tier
from tests.models import tiny_bundle

Files = dict[str, bytes]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> list[SigningKey]:
    """The release key, and a stranger's."""
    folder = tmp_path_factory.mktemp("keys")
    for name in ("release", "stranger"):
        new_key(folder / f"{name}.pem")
    return [SigningKey(folder / f"{name}.pem") for name in ("release", "stranger")]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory, keys: list[SigningKey]) -> bytes:
    path = tiny_bundle(tmp_path_factory.mktemp("signed"), variants=("onnx-fp32",), card="# Tiny\n", signer=keys[0])
    return path.read_bytes()


class Reached(BaseException):
    """Something was believed before the signature was verified. Not an Exception: nothing may swallow it."""


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a model library nor any parser of what is inside may be reached."""

    def reached(*_: Any, **__: Any) -> None:
        raise Reached

    monkeypatch.setattr(engines, "load", reached)
    monkeypatch.setattr(manifest, "parse", reached)
    monkeypatch.setattr("edge_runtime.model.bundle.model_files.check", reached)
    monkeypatch.setattr("edge_runtime.model.bundle.npy.parse", reached)


def every_byte(files: Files, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Each byte of manifest and signature with one bit wrong; the zip file around them is right."""
    for name in (MANIFEST, SIGNATURE):
        for at in range(len(files[name])):
            data = bytearray(files[name])
            data[at] ^= 1 << rng.randrange(8)
            yield f"bit of {name}", archive.pack({**files, name: bytes(data)})


def some_bit(files: Files, rng: random.Random) -> bytes:
    """Of any file."""
    name = rng.choice(sorted(files))
    data = bytearray(files[name])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return archive.pack({**files, name: bytes(data)})


def cut_file(files: Files, rng: random.Random) -> bytes:
    name = rng.choice(sorted(files))
    return archive.pack({**files, name: files[name][: rng.randrange(len(files[name]))]})


def one_more(files: Files, rng: random.Random) -> bytes:
    return archive.pack({**files, f"variants/more{rng.randrange(10**6)}.onnx": rng.randbytes(rng.randrange(50))})


def one_less(files: Files, rng: random.Random) -> bytes:
    gone = rng.choice(sorted(files))
    return archive.pack({name: data for name, data in files.items() if name != gone})


def renamed(files: Files, rng: random.Random) -> bytes:
    old = rng.choice(sorted(files))
    new = f"renamed{rng.randrange(10**6)}"
    return archive.pack({new if name == old else name: data for name, data in files.items()})


def swapped(files: Files, rng: random.Random) -> bytes:
    a, b = rng.sample(sorted(files), 2)
    return archive.pack({**files, a: files[b], b: files[a]})


def scrambled(files: Files, rng: random.Random) -> bytes:
    """The zip file itself: bytes changed, deleted, put in, moved, or its end cut off."""
    data = bytearray(archive.pack(files))
    at = rng.randrange(len(data))
    match rng.randrange(5):
        case 0:
            del data[at:]
        case 1:
            data[at] ^= rng.randrange(1, 256)
        case 2:
            del data[at : at + rng.randrange(1, 200)]
        case 3:
            data[at:at] = rng.randbytes(rng.randrange(1, 200))
        case _:
            piece = data[at : at + rng.randrange(1, 400)] or b"x"
            data[at:at] = piece
    return bytes(data)


def foreign_zip(files: Files, rng: random.Random) -> bytes:
    """As other tools write it: links, traversal, absolute names, compression, folders, comments, duplicates."""
    made = io.BytesIO()
    odd = rng.choice(("../evil", "/etc/evil", "a\\b", "variants/../x", ".hidden", "C:evil", "variants/", MANIFEST))
    with zipfile.ZipFile(made, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as file:
        for name, data in files.items():
            file.writestr(name, data)
        info = zipfile.ZipInfo(odd)
        info.external_attr = rng.choice((0o120777, 0o100644, 0o060644)) << 16
        if odd != MANIFEST:  # zipfile warns of a duplicate
            file.writestr(info, b"/etc/passwd")
        file.comment = rng.choice((b"", b"comment"))
    return made.getvalue()


def with_other_signature(signatures: list[bytes]) -> Callable[[Files, random.Random], bytes]:
    """Right form, wrong signer, or right signer of something else."""

    def mutant(files: Files, rng: random.Random) -> bytes:
        return archive.pack({**files, SIGNATURE: rng.choice(signatures)})

    return mutant


@pytest.mark.usefixtures("untouched")
def test_no_mutant_is_accepted_or_believed_before_it_is_verified(
    good: bytes, keys: list[SigningKey], memory: Path, rng: random.Random, tier: Tier, note: Note
) -> None:
    wanted = tier(4_000, 1_000_000)
    path = memory / "mutant.edge"
    path.write_bytes(good)
    files = files_of(path)
    digests = {name: "0" * 64 for name in files if name != SIGNATURE}
    others = [keys[1].signature("tiny", digests), keys[0].signature("tiny", digests), b"", b"{}", b"[]", b"null"]
    others.append(files[SIGNATURE].replace(b"sha256", b"md5"))
    others.append(files[SIGNATURE].replace(keys[0].public.id.encode(), keys[1].public.id.encode()))
    makers: list[Callable[[Files, random.Random], bytes]] = [
        some_bit, cut_file, one_more, one_less, renamed, swapped, scrambled, foreign_zip,
        with_other_signature(others),
    ]  # fmt: skip
    tried: Counter[str] = Counter()

    def refused(kind: str, mutant: bytes) -> None:
        if mutant == good:
            return
        path.write_bytes(mutant)
        tried[kind] += 1
        with pytest.raises(BundleError) as caught:
            open_bundle(path, trusted=[keys[0].public]).close()
        assert "\n" not in str(caught.value), kind  # one clear line

    for kind, mutant in every_byte(files, rng):
        refused(kind, mutant)
    while tried.total() < wanted:
        maker = rng.choice(makers)
        refused(maker.__name__, maker(files, rng))
    assert len(tried) == len(makers) + 2
    note("S2", f"{tried.total():,} mutants of a signed bundle: 0 accepted, 0 parsed before verification")


def test_the_original_is_accepted(good: bytes, keys: list[SigningKey], memory: Path) -> None:
    """Else all of the above would prove nothing."""
    path = memory / "good.edge"
    path.write_bytes(good)
    with open_bundle(path, trusted=[keys[0].public]) as bundle:
        assert bundle.signer == keys[0].public
