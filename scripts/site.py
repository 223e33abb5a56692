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
from typing import NamedTuple
from urllib.parse import unquote

CHECKOUT = Path(__file__).resolve().parents[1]
_FENCE = re.compile(r"^(```|~~~).*?^\1\s*$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+?)\s*$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)|(?:src|href)=\"([^\"]+)\"")
_ABROAD = re.compile(r"^[a-z]+:")
_PLACE = re.compile(r"^( +)- ([^:]+):(?: (\S+\.md))?$", re.MULTILINE)


class Place(NamedTuple):
    """A line of the navigation.

    Attributes:
        depth: 0 for a tab, 1 for what stands in it, and so on.
        title: as readers see it.
        page: None for a group.
    """

    depth: int
    title: str
    page: Path | None


def navigation() -> list[Place]:
    """Read the navigation of the site from mkdocs.yml, from top to bottom."""
    lines = (CHECKOUT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1]
    return [
        Place((len(indent) - 2) // 4, title, CHECKOUT / page if page else None)
        for indent, title, page in _PLACE.findall(lines)
    ]


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


def headings(page: Path) -> dict[str, str]:
    """Headings of a page by the anchors that GitHub makes of them: lower case, no punctuation, dashes for spaces."""
    text = _FENCE.sub("", page.read_text("utf-8"))
    found: dict[str, int] = {}
    names = {}
    for heading in _HEADING.findall(text):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        n = found.get(name, 0)
        found[name] = n + 1
        names[f"{name}-{n}" if n else name] = heading
    return names


def _plain(code: re.Match[str]) -> str:
    """Text of code without what looks like a link."""
    return re.sub(r"[\[\]()\"]", "", code[0])


def target_of(page: Path, link: str) -> Path | None:
    """File or folder of the checkout that a page's link leads to; None for other hosts and for the page itself.

    Raises:
        FileNotFoundError: it is not there.
    """
    path = unquote(link.partition("#")[0])
    if not path or _ABROAD.match(link):
        return None
    target = Path(os.path.normpath(page.parent / path))  # a link in git keeps its own name
    if not target.exists():
        raise FileNotFoundError(f"{page}: {link} is not there")
    return target


def shown(pages: Iterable[Path]) -> Iterator[Path]:
    """Files other than pages that these link to."""
    for page in pages:
        for link in links(page):
            target = target_of(page, link)
            if target is not None and target.is_file() and target.suffix != ".md":
                yield target


def text_for_site(page: Path) -> str:
    """Text of a page; a site has no page for a folder, so of links to folders the words stay."""
    text = page.read_text("utf-8")
    for words, link in named_links(page):
        target = target_of(page, link)
        if target is not None and target.is_dir():
            text = text.replace(f"[{words}]({link})", words)
    return text


def overview() -> str:
    """Return llms.txt: the navigation with the first sentence of each page, for programs that read documentation."""
    parts = [f"# edge-runtime\n\n> {_first_sentence(CHECKOUT / 'README.md')}\n"]
    for place in navigation():
        if place.page is None:
            parts.append(f"\n{'##' if place.depth == 0 else '###'} {place.title}\n")
        else:
            link = str(place.page.relative_to(CHECKOUT).with_suffix(".html")).replace("README", "index")
            parts.append(f"- [{place.title}]({link}): {_first_sentence(place.page)}")
    return "\n".join(parts).replace("\n\n\n", "\n\n") + "\n"


def _first_sentence(page: Path) -> str:
    """First sentence below a page's title, without its links and marks."""
    prose = (part for part in _FENCE.sub("", page.read_text("utf-8")).split("\n\n") if part.strip()[:1] not in "#<|")
    text = " ".join(next(prose, "").split())
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("*", "")
    return re.split(r"(?<=[^.][.:?!])\s", text, maxsplit=1)[0].rstrip(":") if text else ""


def write(folder: Path) -> None:
    """Write the folder, in place of an older one."""
    shutil.rmtree(folder, ignore_errors=True)
    everything = pages()
    for path in {*everything, *shown(everything)}:
        target = folder / path.relative_to(CHECKOUT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(text_for_site(path), "utf-8")
        else:
            shutil.copyfile(path, target)
    (folder / "llms.txt").write_text(overview(), "utf-8")


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
