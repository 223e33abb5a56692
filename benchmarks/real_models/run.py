"""Run of all cases, and the page that they make: ``python -m benchmarks models [--write docs/models.md]``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.real_models.cases import CASES, Case
from benchmarks.real_models.playing import CARDS, Bundle, Cost, card_of, cost, pack
from benchmarks.report import Report, machine

COLUMNS = ("model", "source and licence", "task", "engine", "result", "stated", "us", "us of 32", "state")


class Row(NamedTuple):
    """One line of the table."""

    model: str
    source: str
    task: str
    engine: str
    result: str
    reference: str
    cost: Cost | None


def rows(shared: Path) -> Iterator[Row]:
    """Play every case.

    Args:
        shared: folder with ``models`` and ``data``.
    """
    for case in CASES:
        with tempfile.TemporaryDirectory() as folder:
            yield _row(case, shared, Path(folder))


def _row(case: Case, shared: Path, folder: Path) -> Row:
    card = card_of(case.card)
    path = folder / f"{case.card}.edge"
    data = case.data(shared, folder)
    kind = {"probabilities": "classification"}.get(card.task.output.kind, card.task.output.kind)
    bundle = Bundle(path, pack(path, case.card, [shared / "models" / file for file in case.files], data))
    try:
        try:
            result = case.measure(bundle, shared, folder)
        except ImportError as error:
            result = f"not played: pip install {error.name}"
        timed = cost(bundle, next(iter(data.recordings))) if data.recordings else None
        engine = ", ".join(sorted({one.engine.partition(" ")[0] for one in bundle.packed.compared}))
    finally:
        bundle.close()
    return Row(case.card, f"{card.origin.name}; {card.origin.licence}", kind, engine, result, case.reference, timed)


def report(shared: Path) -> Report:
    """Make the report that ``python -m benchmarks`` prints."""
    made = Report(
        "Models of others, from their cards; CPU us a step, of one key and of 32 in a call; bytes a key", COLUMNS
    )
    for row in rows(shared):
        made.rows.append(_cells(row))
    return made


def _cells(row: Row) -> tuple[str | float | int | None, ...]:
    spent = row.cost
    return (
        row.model, row.source, row.task, row.engine, row.result, row.reference,
        spent and round(spent.alone_us, 1), spent and round(spent.together_us, 1), spent and spent.state_bytes,
    )  # fmt: skip


def page(made: Report) -> str:
    """Write the report as `docs/models.md`."""
    text = (CARDS.parents[2] / "benchmarks" / "real_models" / "page.md").read_text("utf-8")
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in made.rows:
        linked = f"[{row[0]}](../tests/data/cards/{row[0]}.toml)"
        lines.append("| " + " | ".join([linked, *("" if cell is None else str(cell) for cell in row[1:])]) + " |")
    about = ", ".join(f"{key}: {value}" for key, value in machine().items())
    return text.replace("{table}", "\n".join(lines)).replace("{machine}", about)
