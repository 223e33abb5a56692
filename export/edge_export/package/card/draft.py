"""Draft of a card: what a model file says, guesses marked as such, and marks where a person must write."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edge_export.package.card.facts import Facts, Tensor, read_facts
from edge_export.package.card.guess import Ends, GuessedFront, guess_front, tell_apart
from edge_export.package.card.guess_task import GuessedTask, guess_task
from edge_runtime.errors import ConfigError
from edge_runtime.tools.listen.table import commented, plain, toml_value

_GUESSED, _FILL = "guessed: ", "fill in: "
_WIDE = 100
_FITS = "docs/pictures.md says what to write here for which code: resizing, letterbox, centre crop, mean and std"


def draft(path: Path) -> str:
    """Write the card of a model as far as its file tells it: TOML, which `load_card` reads once it is filled in.

    Args:
        path: an ONNX or TensorFlow Lite file; it is read, not run.

    Returns:
        The card. ``# guessed:`` marks each guess, ``# fill in:`` each place where a person must write.

    Raises:
        ConfigError: another kind of file (names the command that converts it), a damaged one, or one without inputs.
    """
    facts = read_facts(path)
    if not facts.inputs or not facts.outputs:
        raise ConfigError(f"{path}: has no {'input' if not facts.inputs else 'output'}; a model needs both")
    ends = tell_apart(facts)
    front = guess_front(facts, ends)
    return "\n".join(_lines(facts, ends, front, guess_task(facts, ends, front))) + "\n"


def _lines(facts: Facts, ends: Ends, front: GuessedFront, task: GuessedTask) -> Iterator[str]:
    yield from _told(facts)
    yield f"name = {toml_value(facts.path.stem)}"
    yield commented('origin = { name = "", source = "", licence = "" }', f"{_FILL}what it is, where from, its licence")
    if front.fill:
        yield f"# {_FILL}{plain(front.fill)}"
    yield commented(f"signal = {_table(_signal(front, task))}", _GUESSED + front.why)
    if front.frame is not None:
        yield f"# {_FITS}"
    for key, value in (front.top or {}).items():
        yield commented(f"{key} = {toml_value(value)}", f"{_GUESSED}samples of the signal")
    for position, stage in enumerate(front.stages):
        what = "numbers of the front end, which must be those of training"
        yield from ("", commented("[[stages]]", "" if position else _GUESSED + what))
        yield from (f"{key} = {toml_value(value)}" for key, value in stage.items())
    yield from _model(facts, ends, front, task)
    yield from ("", *(f"# {_FILL}{plain(one)}" for one in task.fill), "[task]")
    for key, value in task.keys.items():
        if key == "labels" and isinstance(value, list):
            yield from _labels(value, facts.labels_from)
        else:
            yield commented(f"{key} = {_table(value)}", _GUESSED + task.why if key == "type" else "")


def _signal(front: GuessedFront, task: GuessedTask) -> Any:
    """Return the signal, written out where the task says how pictures are fitted."""
    if front.frame is None or not task.fit:
        return front.signal
    colours = {"colours": "grey"} if front.signal.startswith("grey") else {}
    return {**colours, "height": front.frame[0], "width": front.frame[1], **task.fit}


def _told(facts: Facts) -> Iterator[str]:
    """Comments of what the file says."""
    yield f"# {plain(facts.path.name)}: {facts.format}, {facts.precision}"
    for kind, tensors in (("input", facts.inputs), ("output", facts.outputs)):
        for one in tensors:
            end = f"; made by {one.end}" if one.end in ("softmax", "sigmoid") else ""
            yield f"#   {kind} {plain(str(one))}{end}"
    if facts.variables:
        yield f"#   {facts.variables} variables will be taken out as states"
    if facts.inside:
        yield f"#   keeps something inside: {plain(facts.inside)}"


def _model(facts: Facts, ends: Ends, front: GuessedFront, task: GuessedTask) -> Iterator[str]:
    """Write the stage of the file."""
    ports = [(_port(ends, front), _GUESSED + front.port_why if front.port_why else "")]
    ports += [
        ({"name": one.name, "value": int(value)}, f"{_GUESSED}the signal's rate") for one, value in ends.constants
    ]
    ports += [_other(one) for one in ends.others]
    states = [({"input": one.name, "output": other.name}, f"{_GUESSED}by shape and name") for one, other in ends.states]
    yield from ("", "[[stages]]")
    if any(port for port, _ in ports):
        yield from _list("inputs", ports)
    if states:
        yield from _list("states", states)
    if task.outputs:
        yield from _list("outputs", [(one, "") for one in task.outputs])
    if facts.inside:
        yield commented(*_inside(ends.main))


def _inside(main: Tensor) -> tuple[str, str]:
    """Guess whether layers that remember run on: a file says it nowhere, but one row is no sequence."""
    if len(main.shape) == len("BTC") and main.shape[1] == 1:
        return 'inside = "kept"', f'{_GUESSED}a step holds one row, so it runs on; "cleared" if each stands alone'
    return 'inside = "cleared"', f'{_GUESSED}a step holds the whole sequence; "kept" if it runs on'


def _other(one: Tensor) -> tuple[dict[str, Any], str]:
    """Write an input that no rule names: a number for one that holds one, else a track, which pack then asks for."""
    if all(size == 1 for size in one.shape):
        return {"name": one.name, "value": 0}, f"{_FILL}a value"
    return {"name": one.name, "of": one.name}, f"{_FILL}of, the track that feeds it, or value, the same everywhere"


def _port(ends: Ends, front: GuessedFront) -> dict[str, Any]:
    port = dict(front.port or {})
    named = bool(ends.states or ends.constants or ends.others)
    return {"name": ends.main.name, **port} if named and ends.main.name else port


def _list(key: str, tables: Sequence[tuple[Mapping[str, Any], str]]) -> Iterator[str]:
    """Write a list of tables; a table a line, where there are several."""
    if len(tables) == 1:
        table, comment = tables[0]
        yield commented(f"{key} = [{_table(table)}]", comment)
        return
    yield f"{key} = ["
    for table, comment in tables:
        yield commented(f"    {_table(table)},", comment)
    yield "]"


def _table(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key} = {_table(one)}' for key, one in value.items())} }}"
    if isinstance(value, float) and not math.isfinite(value):
        return "0"
    return toml_value(value)


def _labels(labels: Sequence[str], where: str) -> Iterator[str]:
    text = f"labels = {toml_value(list(labels))}"
    if len(text) <= _WIDE:
        yield commented(text, where)
        return
    yield commented("labels = [", where)
    yield from (f"    {toml_value(label)}," for label in labels)
    yield "]"
