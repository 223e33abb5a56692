"""Folder that the documentation's site is built from: pages and what they show, under the paths that they have here.

python -m scripts.site FOLDER    writes it, in place of an older one; `make docs` then builds the site from it

Pages link to each other, to pictures and to files of the code by relative paths. The folder keeps those paths, so every
link leads to the same thing on the site as in the checkout, and README.md is the front page without a copy in git.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

CHECKOUT = Path(__file__).resolve().parents[1]
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
_ABROAD = re.compile(r"^[a-z]+:")


def pages() -> list[Path]:
    """Every page of the site, in the order of their paths."""
    found = [CHECKOUT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    for folder in ("docs", "examples"):
        found += sorted((CHECKOUT / folder).rglob("*.md"))
    return found


def links(page: Path) -> list[str]:
    """Targets of a page's links and pictures."""
    return [target for _, target in named_links(page)]


def named_links(page: Path) -> list[tuple[str, str]]:
    """Text and target of each link of a page; a picture has no text. Those in code are left out."""
    text = re.sub(_CODE, _plain, _FENCE.sub("", page.read_text("utf-8")))
    return [(words, first or second) for words, first, second in _LINK.findall(text)]


def _plain(code: re.Match[str]) -> str:
    """Text of code without what looks like a link."""
    return re.sub(r"[\[\]()`\"]", "", code[0])


def shown(pages: Iterable[Path]) -> Iterator[Path]:
    """Files other than pages that these link to.

    Raises:
        FileNotFoundError: a link leads nowhere, or to a folder: a site has no page for one.
    """
    for page in pages:
        for link in links(page):
            path = unquote(link.partition("#")[0])
            if not path or _ABROAD.match(link):
                continue
            target = Path(os.path.normpath(page.parent / path))  # a link in git keeps its own name
            if not target.is_file():
                raise FileNotFoundError(f"{page}: {link} is no file")
            if target.suffix != ".md":
                yield target


def write(folder: Path) -> None:
    """Write the folder, in place of an older one."""
    shutil.rmtree(folder, ignore_errors=True)
    everything = pages()
    for path in {*everything, *shown(everything)}:
        target = folder / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)


def main(arguments: list[str]) -> int:
    """Write the folder that the argument names."""
    if len(arguments) != 1:
        print("usage: python -m scripts.site FOLDER", file=sys.stderr)
        return 2
    try:
        write(Path(arguments[0]))
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
