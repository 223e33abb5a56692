"""The command ``edge-runtime review`` over a file of cases."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from edge_runtime.store.cases.store import CaseStore
from edge_runtime.tools.cli import main
from tests.edge_runtime.store.cases.kept import case

MIB = 2**20


@pytest.fixture
def app(tmp_path: Path) -> Path:
    path = tmp_path / "app.toml"
    path.write_text('[model]\nbundle = "none.edge"\n[cases]\npath = "cases.db"\nmax_bytes = 4194304\n')
    store = CaseStore(tmp_path / "cases.db", 4 * MIB, 1e4)
    store.write([case(1), case(2), case(3, "b\x1b[31m")], [], 0.0)
    store.close()
    return path


def test_cases_are_labelled_by_numbers_listed_and_exported(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("1\nseven\n9\n2\n\n"))
    assert main(["review", "label", str(app)]) == 0
    shown = capsys.readouterr().out
    assert "2 labelled, 1 open" in shown
    assert "sit" not in shown.partition("1 walk")[0]  # the device's answer stays hidden
    assert "\x1b" not in shown
    assert main(["review", "list", str(app)]) == 0
    assert "1 open, 2 labelled, 0 put aside" in capsys.readouterr().out
    out = app.with_name("reviewed.csv")
    assert main(["review", "export", str(app), "--out", str(out)]) == 0
    assert len(out.read_text().splitlines()) == 1 + 2 * 100


def test_a_case_that_makes_room_while_a_person_labels_is_passed_over(
    app: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Mutation: the command ends at a case that was listed and is gone; or it counts a label that nothing kept."""
    store = CaseStore(app.with_name("cases.db"), 4 * MIB, 1e4)
    store.erase(None)
    store.write([case(at, f"key {at}") for at in range(5)], [], 0.0)
    listed = [one["key"] for one in store.summaries("open", 9)]

    class Person:
        """For whose second answer it is too late: that case is gone, and so is the next."""

        said = 0

        def readline(self) -> str:
            self.said += 1
            if self.said == 2:
                for key in listed[1:3]:
                    store.erase(key)
            return "1\n"

    monkeypatch.setattr("sys.stdin", Person())
    assert main(["review", "label", str(app)]) == 0
    shown = capsys.readouterr().out
    assert shown.count("not noted: ") == 1
    assert "3 labelled, 0 open" in shown
    store.close()


def test_cases_of_a_key_are_erased(app: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["review", "erase", str(app), "--key", "a"]) == 0
    assert main(["review", "erase", str(app), "--all"]) == 0
    assert capsys.readouterr().out == "erased 2 cases\nerased 1 cases\n"


@pytest.mark.parametrize("table", ["", '[cases]\npath = "cases.db"\nkeep = "nothing"', '[cases]\npath = "new.db"'])
def test_where_no_case_is_kept_a_line_says_so(app: Path, table: str, capsys: pytest.CaptureFixture[str]) -> None:
    app.write_text(f'[model]\nbundle = "none.edge"\n{table}\n')
    assert main(["review", "list", str(app)]) != 0
    assert "case" in capsys.readouterr().err
