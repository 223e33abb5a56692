"""The pages of settings and commands say what the code does, and explain each of them."""

from __future__ import annotations

import re
from types import ModuleType

import pytest
from edge_export.cli import COMMANDS as EXPORT

from edge_runtime.tools.cli import COMMANDS, HIDDEN
from scripts import commands_page, settings_page


@pytest.mark.parametrize("script", [settings_page, commands_page], ids=lambda script: script.__name__)
def test_a_generated_page_is_what_the_code_says(script: ModuleType) -> None:
    assert script.PAGE.read_text("utf-8") == script.page(), f"python -m {script.__name__} --write"


def test_every_setting_stands_on_the_page_with_its_unit_default_and_meaning() -> None:
    page, shared = settings_page.PAGE.read_text("utf-8").split(f"{settings_page.SHARED}\n")
    lines = [line for line in page.splitlines() if line.startswith("- `")]
    assert len(lines) > 300
    assert [line for line in lines if not re.match(r"- `\w+( = [^`]+)?`(, `[^`]*`)*( \([^)]+\))?: \S", line)] == []
    assert "- `deadline_ms = 5000.0`: How long" in page
    assert "`_ms` milliseconds" in page
    assert "- `bundle` (path, *needed*): " in page
    for one in settings_page.settings():
        part = page.split(settings_page.heading(one.section))[1].partition("\n## ")[0]
        explained = re.search(rf"^- `{one.name}\b", part, re.MULTILINE) or f"\n- `{one.name}`: " in shared
        assert re.search(rf"`{one.name}\b", part) or one.name == "type", one
        assert explained or one.name == "type", one


def test_a_setting_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    silent = settings_page.Setting("model", "speed", 1, int, "")
    monkeypatch.setattr(settings_page, "settings", lambda: iter([silent]))
    with pytest.raises(ValueError, match=r"\[model\] speed: say in its docstring"):
        settings_page.page()


def test_every_command_stands_on_the_page() -> None:
    titles = re.findall(r"^#+ (edge-\w+ .*)$", commands_page.PAGE.read_text("utf-8"), re.MULTILINE)
    assert {f"edge-runtime {name}" for name in COMMANDS} <= set(titles)
    assert {f"edge-export {name}" for name in EXPORT} <= set(titles)
    assert {f"edge-runtime {name}" for name in HIDDEN}.isdisjoint(titles)
    assert "edge-runtime outbox retry" in titles


def test_no_argument_of_a_command_lacks_a_meaning() -> None:
    text = commands_page.PAGE.read_text("utf-8")
    rows = re.findall(r"^\| `([^`]*)` \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) > 150
    assert [name for name, meaning in rows if len(meaning) < 5] == []
    assert "%(" not in text
