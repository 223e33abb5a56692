"""The documentation as a site: each page has a place, builds without a warning, and loads nothing from another host."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from scripts import site
from tests.built_site import MKDOCS, build

ROOT = Path(__file__).resolve().parents[1]
NAVIGATION = [place.page for place in site.navigation() if place.page is not None]
INDEXES = {ROOT / "docs/decisions": ROOT / "docs/decisions/README.md", ROOT / "examples": ROOT / "examples/README.md"}


class Page(HTMLParser):
    """Links, anchors and loaded resources of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        self.anchors.update({named.get("id", ""), named.get("name", "")})
        if tag == "a" and "href" in named:
            self.links.append(named["href"])
        elif tag == "link" and named.get("rel") not in {"prev", "next", "canonical"}:
            self.loaded.append(named["href"])
        self.loaded += [named["src"]] if "src" in named else []


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not MKDOCS.exists():
        pytest.skip("no MkDocs to build with: make docs")
    return build(tmp_path_factory.mktemp("site"))


def test_every_page_has_a_place_in_the_navigation() -> None:
    """Mutation that this finds: a new page under docs/ that no reader comes across."""
    listed = [page for page in site.pages() if not any(page.is_relative_to(folder) for folder in INDEXES)]
    homeless = [str(page.relative_to(ROOT)) for page in listed if page not in NAVIGATION]
    assert homeless == [], "give each of these pages a line under nav in mkdocs.yml"
    assert [str(page) for page in NAVIGATION if not page.is_file()] == []
    assert len(NAVIGATION) == len(set(NAVIGATION))
    assert NAVIGATION[0] == ROOT / "README.md"


@pytest.mark.parametrize("folder", INDEXES, ids=lambda folder: folder.name)
def test_pages_without_a_place_in_the_navigation_stand_in_the_index_of_their_folder(folder: Path) -> None:
    linked = {(folder / link.partition("#")[0]).resolve() for link in site.links(INDEXES[folder])}
    assert [page.name for page in folder.rglob("*.md") if page != INDEXES[folder] and page not in linked] == []


def test_a_link_to_nothing_is_refused_and_one_to_a_folder_keeps_its_words(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("See [what is gone](gone.md).\n")
    with pytest.raises(FileNotFoundError, match=r"gone\.md is not there"):
        list(site.shown([page]))
    (tmp_path / "folder").mkdir()
    page.write_text("See [`a folder`](folder), [another](folder/) and [a page](page.md).\n")
    assert site.text_for_site(page) == "See `a folder`, another and [a page](page.md).\n"
    assert ROOT / "docs" / "path.svg" in set(site.shown([ROOT / "docs" / "guide.md"]))


@pytest.mark.slow
def test_it_builds_without_a_warning_and_every_link_and_anchor_of_it_leads_somewhere(built: Path) -> None:
    pages = {path: Page(path) for path in built.rglob("*.html")}
    assert len(pages) > 60
    dead = []
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file() or (
                parts.fragment and target in pages and parts.fragment not in pages[target].anchors
            ):
                dead.append(f"{path.relative_to(built)}: {link}")
    assert dead == []


@pytest.mark.slow
def test_the_overview_for_programs_leads_to_every_page_of_the_navigation(built: Path) -> None:
    lines = re.findall(r"^- \[([^\]]+)\]\(([^)]+)\): (.*)$", (built / "llms.txt").read_text("utf-8"), re.MULTILINE)
    assert len(lines) == len(NAVIGATION)
    assert [link for _, link, _ in lines if not (built / link).is_file()] == []
    assert [title for title, _, sentence in lines if not 15 < len(sentence) < 300 or "](" in sentence] == []


@pytest.mark.slow
def test_nothing_is_loaded_from_another_host(built: Path) -> None:
    """The theme's script asks others for diagrams and for the stars of a repository: only where a page has them."""
    for path in built.rglob("*.html"):
        assert [link for link in Page(path).loaded if urlsplit(link).netloc] == [], path
        text = path.read_text("utf-8")
        assert 'class="mermaid"' not in text
        assert 'data-md-component="source"' not in text
    styles = [path.read_text("utf-8") for path in built.rglob("*.css")]
    assert styles
    assert not [text for text in styles if re.search(r"(url\(|@import)\s*[\"']?(https?:)?//", text)]
