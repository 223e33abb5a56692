"""The outer form of a bundle: a zip file with exactly one way to write it.

Any zip tool can list and unpack a bundle, but only one sequence of bytes is a valid archive of given files: entries
stored without compression, in the order of their names, one after the other from the first byte, with fixed time
stamps, no comments, no extra fields and nothing before, between or behind. The reader builds the headers that should be
there and compares. So there is no place to hide data, no second directory to disagree with the first, no compression
bomb (no decompressor runs before the digests are right), and the same files always give the same bundle.

Source: .ZIP File Format Specification 6.3.10 (APPNOTE.TXT), sections 4.3.7, 4.3.12 and 4.3.16.
"""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from edge_runtime.errors import IntegrityError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_MAX_NAME = 200

_LOCAL = struct.Struct("<4s5H3L2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END = struct.Struct("<4s4H2LH")
_LOCAL_MAGIC, _CENTRAL_MAGIC, _END_MAGIC = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"

_VERSION = 20  # 2.0: what a stored file needs
_DATE = 0x0021  # 1980-01-01, the zero of the format's calendar
_MODE = 0o100644 << 16  # a regular file that everybody may read
_UNIX = 3 << 8
_STORED = 0
_ENCRYPTED = 0x1
_FILE_TYPE = 0o170000
_REGULAR = 0o100000

_CHUNK = 1 << 20
_REPACK = "write it with edge-export, or with edge_runtime.model.bundle.archive.pack"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleLimits:
    """Limits on the size of a bundle; it is refused beyond."""

    max_bytes: int = 256 * 2**20
    """Whole file. Sensor models are below 5 MB; this is room for a teacher."""
    max_files: int = 256
    max_manifest_bytes: int = 2**20


@dataclass(frozen=True, slots=True)
class _Entry:
    """One file of an archive, as it was when the archive was opened."""

    name: str
    size: int
    crc: int
    offset: int
    """Of its first byte in the archive."""
    sha256: str = ""
    """Lower-case hexadecimal; filled in once its bytes have been read."""


def safe_name(name: str) -> bool:
    """Return whether a name is plain: relative, ASCII, at most 200 long, no empty, hidden or ``..`` part."""
    return len(name) <= _MAX_NAME and _NAME.fullmatch(name) is not None


def pack(files: Mapping[str, bytes]) -> bytes:
    """Pack these files into an archive.

    Raises:
        ValueError: a name that `safe_name` refuses, or two that differ in case only.
    """
    if not all(map(safe_name, files)) or len({name.lower() for name in files}) != len(files):
        raise ValueError("names must be plain, relative, and differ in more than case")
    body, directory = bytearray(), bytearray()
    for name in sorted(files):
        data = files[name]
        entry = _Entry(name, len(data), zlib.crc32(data), len(body) + _LOCAL.size + len(name))
        directory += _central(entry)
        body += _local(entry)
        body += data
    return bytes(body + directory + _end(len(files), len(directory), len(body)))


class Archive:
    """A bundle file that is open, every byte of which has been read once and accounted for.

    Args:
        fd: descriptor of a regular file; stays the caller's.
        limits: refused beyond.

    Attributes:
        digest: SHA-256 of the whole file.
        entries: by name.
        kept: contents of the entries named in `keep`.

    Raises:
        IntegrityError: the file is not an archive in the one accepted form.
    """

    def __init__(self, fd: int, limits: BundleLimits, keep: Mapping[str, int]) -> None:
        self._fd = fd
        self._size = os.fstat(fd).st_size
        if self._size > limits.max_bytes:
            raise IntegrityError(f"the file has {self._size} bytes, more than the limit of {limits.max_bytes}")
        listed, directory = self._directory(limits)
        self.kept: dict[str, bytes] = {}
        self.entries: dict[str, _Entry] = {}
        whole = hashlib.sha256()
        for entry in listed:
            self._verify(entry, whole, keep)
        whole.update(directory)
        self.digest = whole.hexdigest()

    def read(self, name: str) -> bytes:
        """Contents of an entry: the very bytes that were there when the archive was opened.

        Raises:
            IntegrityError: the file on disk was changed since.
        """
        entry = self.entries[name]
        data = b"".join(self._chunks(entry.offset, entry.size))
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise IntegrityError(f"{name} was changed on disk after the bundle was opened; open it again")
        return data

    def _chunks(self, offset: int, size: int) -> Iterator[bytes]:
        while size:
            data = os.pread(self._fd, min(size, _CHUNK), offset)
            if not data:
                raise IntegrityError("the file became shorter while it was read; copy it again")
            offset, size = offset + len(data), size - len(data)
            yield data

    def _exactly(self, offset: int, size: int) -> bytes:
        return b"".join(self._chunks(offset, size))

    def _directory(self, limits: BundleLimits) -> tuple[list[_Entry], bytes]:
        """Return the entries that the directory at the end lists, and the bytes of directory and end record."""
        if self._size < _END.size:
            raise IntegrityError(f"not a bundle: {self._size} bytes are too few for a zip file; copy it again")
        end = self._exactly(self._size - _END.size, _END.size)
        magic, _, _, _, count, size, start, _ = _END.unpack(end)
        if magic != _END_MAGIC:
            if self._exactly(0, 4) == _LOCAL_MAGIC:
                raise IntegrityError("the file is cut short, or has something behind its end; copy it again")
            raise IntegrityError("not a bundle: this is not a zip file; give the .edge file")
        if count > limits.max_files:
            raise IntegrityError(f"holds {count} files, more than the limit of {limits.max_files}")
        if start + size + _END.size != self._size or size > count * (_CENTRAL.size + _MAX_NAME):
            raise IntegrityError(
                "the file is cut short, or has something before or inside it that no entry accounts for"
            )
        directory = self._exactly(start, size)
        entries = list(_parse(directory, count))
        expected = b"".join(map(_central, entries)) + _end(count, size, start)
        if expected != directory + end or start != (entries[-1].offset + entries[-1].size if entries else 0):
            raise IntegrityError(f"not in the one form a bundle has (order, time stamps, attributes): {_REPACK}")
        return entries, expected

    def _verify(self, entry: _Entry, whole: hashlib._Hash, keep: Mapping[str, int]) -> None:
        """Read an entry with the header before it, and check both."""
        header = _local(entry)
        if self._exactly(entry.offset - len(header), len(header)) != header:
            raise IntegrityError(f"{entry.name}: its local header is not the one the directory calls for")
        whole.update(header)
        if entry.size > keep.get(entry.name, entry.size):
            raise IntegrityError(f"{entry.name} has {entry.size} bytes, more than the limit of {keep[entry.name]}")
        digest, crc, kept = hashlib.sha256(), 0, bytearray()
        for data in self._chunks(entry.offset, entry.size):
            whole.update(data)
            digest.update(data)
            crc = zlib.crc32(data, crc)
            if entry.name in keep:
                kept += data
        if crc != entry.crc:
            raise IntegrityError(f"{entry.name} is damaged (CRC-32 does not match); copy the bundle again")
        if entry.name in keep:
            self.kept[entry.name] = bytes(kept)
        self.entries[entry.name] = _Entry(entry.name, entry.size, entry.crc, entry.offset, digest.hexdigest())


def _parse(directory: bytes, count: int) -> Iterator[_Entry]:
    """Yield the entries of a central directory; name in the error the faults that people are most likely to meet.

    Raises:
        IntegrityError: an entry that no bundle has.
    """
    place, offset, seen = 0, 0, set[str]()
    for _ in range(count):
        if place + _CENTRAL.size > len(directory):
            raise IntegrityError("the directory of the file is cut short; copy it again")
        fields = _CENTRAL.unpack_from(directory, place)
        magic, made, _, flags, method, _, _, crc, packed, size, name_size, extra, comment, _, _, attributes, _ = fields
        raw = directory[place + _CENTRAL.size : place + _CENTRAL.size + name_size]
        if magic != _CENTRAL_MAGIC or len(raw) != name_size:
            raise IntegrityError("the directory of the file is damaged; copy it again")
        name = _checked_name(raw, seen)
        kind = (attributes >> 16) & _FILE_TYPE
        if made >> 8 == _UNIX >> 8 and kind not in (0, _REGULAR):
            raise IntegrityError(f"{name} is a link or another special file; a bundle holds regular files only")
        if flags & _ENCRYPTED:
            raise IntegrityError(f"{name} is encrypted; a bundle is not")
        if method != _STORED or packed != size:
            raise IntegrityError(f"{name} is compressed (method {method}); the files of a bundle are stored: {_REPACK}")
        seen.add(name.lower())
        offset += _LOCAL.size + name_size
        yield _Entry(name, size, crc, offset)
        offset += size
        place += _CENTRAL.size + name_size + extra + comment


def _checked_name(raw: bytes, seen: set[str]) -> str:
    name = raw.decode("ascii", "backslashreplace")
    if not safe_name(name):
        raise IntegrityError(f"holds an unsafe name ({name[:80]!r}): names are relative, plain ASCII, without '..'")
    if name.lower() in seen:
        raise IntegrityError(f"holds {name} twice")
    return name


def _local(entry: _Entry) -> bytes:
    name = entry.name.encode("ascii")
    sizes = (entry.crc, entry.size, entry.size, len(name), 0)
    return _LOCAL.pack(_LOCAL_MAGIC, _VERSION, 0, _STORED, 0, _DATE, *sizes) + name


def _central(entry: _Entry) -> bytes:
    name = entry.name.encode("ascii")
    offset = entry.offset - _LOCAL.size - len(name)
    head = (_CENTRAL_MAGIC, _UNIX | _VERSION, _VERSION, 0, _STORED, 0, _DATE)
    return _CENTRAL.pack(*head, entry.crc, entry.size, entry.size, len(name), 0, 0, 0, 0, _MODE, offset) + name


def _end(count: int, size: int, start: int) -> bytes:
    return _END.pack(_END_MAGIC, 0, 0, count, count, size, start, 0)
