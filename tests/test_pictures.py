"""Pictures in README and docs show names that a person would give: no mark-up, no string of a test."""

from __future__ import annotations

import re
import zlib
from html import unescape
from pathlib import Path

import pytest

from scripts.site import pages, shown
from tests.named_pictures import KEYWORD, chunks, with_names

PICTURES = sorted({path for path in shown(pages()) if path.suffix in {".svg", ".png"}})
_OF_A_TEST = re.compile(r"<\w|alert\(|onerror|onload|\bfoo\b|\bx{3,}|lorem|\btest[-_ ]?\d|far too long", re.IGNORECASE)


def words_of(picture: bytes) -> list[str]:
    """The texts of an SVG picture, or the names that a PNG picture says it shows."""
    if picture.startswith(b"\x89PNG"):
        return [body[len(KEYWORD) :].decode("latin-1") for _, body in chunks(picture) if body.startswith(KEYWORD)]
    return [unescape(text) for text in re.findall(r">([^<>]+)<", picture.decode("utf-8"))]


@pytest.mark.parametrize("path", PICTURES, ids=lambda path: path.name)
def test_a_picture_shows_no_string_of_a_test(path: Path) -> None:
    """Mutation that this finds: pictures of the page are taken of the streams that the browser tests send."""
    words = words_of(path.read_bytes())
    assert [text for text in words if _OF_A_TEST.search(text)] == []
    assert words or not path.name.startswith("page-"), "make test-page ARGS='--page-pictures docs'"


def test_a_string_of_a_test_is_found() -> None:
    png = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0IEND" + zlib.crc32(b"IEND").to_bytes(4, "big")
    named = with_names(with_names(png, ["mat 1"]), ["<img src=x>", "mat 2"])
    assert [bool(_OF_A_TEST.search(text)) for text in words_of(named)] == [True]
    assert words_of(b"<svg><text>&lt;b&gt;shrug</text></svg>")[0].startswith("<b")
    assert len(PICTURES) > 15
