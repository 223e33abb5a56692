"""The project's pages: relative links and anchors lead somewhere."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from edge_runtime.base.hardware.cpu import EVIDENCE
from scripts.site import headings, links

CHECKOUT = Path(__file__).resolve().parents[1]
_ABROAD = re.compile(r"^[a-z]+:")


def pages() -> list[Path]:
    """Every Markdown file of the checkout, by git's list where there is one."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=CHECKOUT, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [path for path in (CHECKOUT / name for name in listed.stdout.splitlines()) if path.exists()]
    return [*CHECKOUT.glob("*.md"), *CHECKOUT.glob("docs/**/*.md"), *CHECKOUT.glob("examples/**/*.md")]


PAGES = pages()


def dead(page: Path) -> list[str]:
    """Links of a page that lead nowhere."""
    broken = []
    for link in links(page):
        if _ABROAD.match(link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in headings(target)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_and_anchors_of_a_page_lead_somewhere(page: Path) -> None:
    assert not dead(page)


def test_the_search_for_dead_links_finds_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A `b`, c\n[good](#a-b-c) [bad](#a-b) [gone](other.md) `[code](gone.md)`\n```\n[code](gone)\n```\n"
    )
    assert dead(page) == ["#a-b", "other.md"]


def test_pages_were_found() -> None:
    assert {"README.md", "guide.md", "export.md", "payloads.md", "glossary.md"} <= {page.name for page in PAGES}


def test_places_that_the_glossary_names_exist() -> None:
    """Mutation that this finds: a room or file is renamed, and the glossary still sends readers to the old place."""
    rows = re.findall(r"^\|.*\|$", (CHECKOUT / "docs/glossary.md").read_text("utf-8"), re.MULTILINE)
    places = [place for row in rows for place in re.findall(r"`([\w./]+)`", row.rsplit("|", 2)[1])]
    rooms = [CHECKOUT / room for room in ("edge_runtime", "export/edge_export", ".")]
    assert len(places) > 50
    assert [place for place in places if not any((room / place).exists() for room in rooms)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_python_files_that_a_page_names_exist(page: Path) -> None:
    """Mutation that this finds: a module or test moves, and a page still names its old path, or a part of it.

    A path begins at the checkout, at the page's own folder, or, in the tables of the glossary and of faults, at theirs.
    """
    roots = {"glossary.md": ("edge_runtime", "export/edge_export"), "reliability.md": ("tests/faults",)}
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)+\.py)[`:]", page.read_text("utf-8"))
    places = [CHECKOUT, page.parent, *(CHECKOUT / root for root in roots.get(page.name, ()))]
    assert [name for name in named if "NAME" not in name and not any((at / name).is_file() for at in places)] == []


def test_bare_names_of_python_files_are_of_files() -> None:
    """Mutation that this finds: a file is renamed, and a page that spoke of its folder still has its old name."""
    known = {
        path.name for top in ("edge_runtime", "export", "tests", "examples") for path in CHECKOUT.glob(f"{top}/**/*.py")
    }
    named = {name for page in PAGES for name in re.findall(r"`([\w-]+\.py)[`:]", page.read_text("utf-8"))}
    assert named - known == set()


def test_no_page_by_hand_is_longer_than_a_person_reads() -> None:
    """Mutation that this finds: a page grows by a section each week, and no reader sees the whole of it."""
    texts = {page: page.read_text("utf-8") for page in PAGES if page.is_relative_to(CHECKOUT / "docs")}
    by_hand = {page.name: len(text.split()) for page, text in texts.items() if "This page is written by" not in text}
    assert len(by_hand) > 50
    assert {name: words for name, words in by_hand.items() if words > 2500} == {}


def test_figures_that_the_profile_of_this_machine_quotes_stand_on_the_page_of_figures() -> None:
    figures = re.findall(r"\d+,\d{3}|\d\.\d{2}", EVIDENCE.detail)
    page = (CHECKOUT / "docs/performance.md").read_text("utf-8")
    assert figures
    assert [figure for figure in figures if figure not in page] == []
