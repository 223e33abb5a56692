"""The one accepted form of a bundle's zip file, and everything that is not it."""

from __future__ import annotations

import io
import os
import stat
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import IntegrityError
from edge_runtime.model.bundle.archive import Archive, BundleLimits, pack, safe_name

FILES = {"manifest.json": b"{}", "variants/a.onnx": b"model" * 100, "card.md": b"", "golden/x.npy": bytes(range(256))}


def opened(
    data: bytes, tmp_path: Path, limits: BundleLimits | None = None, keep: dict[str, int] | None = None
) -> Archive:
    path = tmp_path / "archive"
    path.write_bytes(data)
    fd = os.open(path, os.O_RDONLY)
    try:
        archive = Archive(fd, limits or BundleLimits(), keep or {})
        for name in archive.entries:
            archive.read(name)
        return archive
    finally:
        os.close(fd)


def zipped(files: dict[str, bytes]) -> bytes:
    """What another zip tool would write."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in files.items():
            file.writestr(zipfile.ZipInfo(name), data)
    return buffer.getvalue()


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,8}(/[A-Za-z0-9][A-Za-z0-9._-]{0,8}){0,2}", fullmatch=True)


@given(files=st.dictionaries(names, st.binary(max_size=300), max_size=6))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_any_files_come_back_as_they_went_in(files: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    if len({name.lower() for name in files}) != len(files):
        with pytest.raises(ValueError, match="differ"):
            pack(files)
        return
    path = tmp_path_factory.mktemp("a") / "archive"
    path.write_bytes(pack(files))
    fd = os.open(path, os.O_RDONLY)
    archive = Archive(fd, BundleLimits(), {})
    assert {name: archive.read(name) for name in archive.entries} == files
    os.close(fd)


def test_any_zip_tool_can_read_it() -> None:
    with zipfile.ZipFile(io.BytesIO(pack(FILES))) as file:
        assert file.testzip() is None
        assert {name: file.read(name) for name in file.namelist()} == FILES
        assert file.namelist() == sorted(FILES)


def test_the_order_of_the_arguments_changes_nothing() -> None:
    assert pack(FILES) == pack(dict(reversed(FILES.items())))


def test_kept_entries_are_the_ones_asked_for(tmp_path: Path) -> None:
    archive = opened(pack(FILES), tmp_path, keep={"manifest.json": 10})
    assert archive.kept == {"manifest.json": b"{}"}
    with pytest.raises(IntegrityError, match=r"manifest\.json has 2 bytes, more than the limit of 1"):
        opened(pack(FILES), tmp_path, keep={"manifest.json": 1})


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "/etc/passwd", "a/../b", "../a", "a//b", "a/", "a\\b", ".hidden", "a/.b", "C:a", "-x", "ä", "a b",
     "a\x00b", "a\n", "x" * 201],
)  # fmt: skip
def test_unsafe_names_are_neither_packed_nor_read(name: str, tmp_path: Path) -> None:
    assert not safe_name(name)
    with pytest.raises(ValueError, match="plain"):
        pack({name: b""})
    if name and "\x00" not in name:
        with pytest.raises(IntegrityError, match=r"unsafe name|damaged|accounts for"):
            opened(zipped({name: b"x"}), tmp_path)


def _entry(name: str, data: bytes = b"", attributes: int = 0o100644 << 16, **fields: int) -> bytes:
    """An archive of one entry whose directory fields are the caller's."""
    crc = zlib.crc32(data)
    raw = name.encode()
    flags, method = fields.get("flags", 0), fields.get("method", 0)
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 20, flags, method, 0, 0x21, crc, len(data), len(data), len(raw), 0)
    head = (b"PK\x01\x02", 0x314, 20, flags, method, 0, 0x21, crc, len(data), fields.get("size", len(data)), len(raw))
    central = struct.pack("<4s6H3L5H2L", *head, 0, 0, 0, 0, attributes, 0) + raw
    body = local + raw + data
    return body + central + struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(central), len(body), 0)


def test_the_hand_made_entry_is_good_unless_something_is_changed(tmp_path: Path) -> None:
    assert opened(_entry("a", b"data"), tmp_path).entries["a"].size == 4


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFDIR, stat.S_IFSOCK])
def test_links_and_special_files_are_refused(kind: int, tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="link or another special file"):
        opened(_entry("a", b"/etc/passwd", attributes=(kind | 0o777) << 16), tmp_path)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"flags": 1}, "encrypted"),
        ({"flags": 8}, "one form"),
        ({"method": 8}, r"compressed \(method 8\)"),
        ({"method": 99}, r"compressed \(method 99\)"),
        ({"size": 2**31}, "compressed"),
        ({"attributes": 0o100755 << 16}, "one form"),
        ({"attributes": 0}, "one form"),
    ],
)
def test_encryption_compression_and_odd_attributes_are_refused(
    fields: dict[str, int], message: str, tmp_path: Path
) -> None:
    with pytest.raises(IntegrityError, match=message):
        opened(_entry("a", b"data", **fields), tmp_path)


def test_a_compression_bomb_is_refused_without_being_inflated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        info = zipfile.ZipInfo("manifest.json")
        info.compress_type = zipfile.ZIP_DEFLATED
        file.writestr(info, b"\0" * 50_000_000)
    assert len(buffer.getvalue()) < 100_000
    monkeypatch.setattr(zlib, "decompressobj", None)
    monkeypatch.setattr(zlib, "decompress", None)
    with pytest.raises(IntegrityError, match="compressed"):
        opened(buffer.getvalue(), tmp_path)


def test_duplicates_are_refused_also_in_another_case(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as file:
            file.writestr(zipfile.ZipInfo("a"), b"1")
            file.writestr(zipfile.ZipInfo("a"), b"2")
    for data in (buffer.getvalue(), zipped({"a": b"1", "A": b"2"})):
        with pytest.raises(IntegrityError, match="twice"):
            opened(data, tmp_path)


def test_what_another_tool_zipped_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(IntegrityError, match="edge-export"):
        opened(zipped(FILES), tmp_path)


def test_nothing_may_stand_before_between_or_behind(tmp_path: Path) -> None:
    data = pack(FILES)
    for wrong in (
        b"x" + data,
        b"#!/bin/sh\n" + data,
        data + b"\0",
        data[:-1],
        data + data,
        data[:-2] + b"\x05\x00hello",
    ):
        with pytest.raises(IntegrityError):
            opened(wrong, tmp_path)
    with pytest.raises(IntegrityError, match=r"not a zip file; give the \.edge file"):
        opened(b"\x7fELF" + bytes(100), tmp_path)
    with pytest.raises(IntegrityError, match="too few for a zip file; copy it again"):
        opened(b"", tmp_path)


def test_every_cut_is_noticed(tmp_path: Path) -> None:
    data = pack(FILES)
    for length in range(len(data)):
        with pytest.raises(IntegrityError):
            opened(data[:length], tmp_path)


def test_every_changed_byte_is_noticed(tmp_path: Path) -> None:
    data = pack(FILES)
    for place in range(len(data)):
        for flip in (0x01, 0x80):
            mutant = bytearray(data)
            mutant[place] ^= flip
            with pytest.raises(IntegrityError):
                opened(bytes(mutant), tmp_path)


@given(data=st.data())
@settings(derandomize=True, max_examples=200, deadline=None)
def test_random_bytes_and_splices_are_refused_and_nothing_else_happens(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    good = pack(FILES)
    start = data.draw(st.integers(0, len(good)))
    stop = data.draw(st.integers(start, len(good)))
    mutant = good[:start] + data.draw(st.binary(max_size=60)) + good[stop:]
    if mutant == good:
        return
    with pytest.raises(IntegrityError) as caught:
        opened(mutant, tmp_path_factory.mktemp("a"))
    assert "\n" not in str(caught.value)


def test_limits_are_kept_before_anything_is_read(tmp_path: Path) -> None:
    data = pack(FILES)
    with pytest.raises(IntegrityError, match="limit of 100"):
        opened(data, tmp_path, BundleLimits(max_bytes=100))
    with pytest.raises(IntegrityError, match="4 files, more than the limit of 3"):
        opened(data, tmp_path, BundleLimits(max_files=3))


@pytest.fixture
def open_archive(tmp_path: Path) -> Iterator[tuple[Archive, Path]]:
    path = tmp_path / "archive"
    path.write_bytes(pack(FILES))
    fd = os.open(path, os.O_RDONLY)
    yield Archive(fd, BundleLimits(), {}), path
    os.close(fd)


def test_a_file_edited_in_place_after_it_was_opened_is_refused(open_archive: tuple[Archive, Path]) -> None:
    archive, path = open_archive
    data = path.read_bytes()
    with path.open("r+b") as file:
        file.write(data.replace(b"model", b"evil!"))
    with pytest.raises(IntegrityError, match="changed on disk"):
        archive.read("variants/a.onnx")
    os.truncate(path, 10)
    with pytest.raises(IntegrityError, match="shorter"):
        archive.read("variants/a.onnx")


def test_a_file_replaced_after_it_was_opened_is_still_read(open_archive: tuple[Archive, Path]) -> None:
    archive, path = open_archive
    other = path.with_name("other")
    other.write_bytes(pack({"manifest.json": b"new"}))
    other.replace(path)
    assert archive.read("variants/a.onnx") == FILES["variants/a.onnx"]
