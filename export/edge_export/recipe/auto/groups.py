"""Group finder: the column or the part of the path that tells people apart, or a question to the user."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from edge_export.data.readers.meaning import find_in
from edge_export.recipe.auto.contents import Content, Kind
from edge_export.recipe.auto.hints import Hints
from edge_export.recipe.auto.names import (
    CONDITIONS,
    SETS,
    Place,
    Whose,
    find,
    follows,
    group_columns,
    is_named,
    levels,
    named,
    partly_named,
    parts_of_names,
    shown,
    words_in_names,
)
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.columns import is_empty

EACH_FILE = r"(.+)\.[^.]+$"
_ANSWERS = (
    "say --group REGEX over paths or --group-column COLUMN, or --group-files if each file is of another person, "
    "machine or session"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Groups:
    """Place of the group: a column, or a part of the path.

    Attributes:
        where: ``path:REGEX`` or ``column:NAME``.
        note: how it was found.
        sure: said by a person, not found.
    """

    where: str
    note: str
    sure: bool = False

    @property
    def column(self) -> str:
        """The column; empty where the path says it."""
        place, _, name = self.where.partition(":")
        return name if place == "column" else ""

    @property
    def pattern(self) -> str:
        """The pattern; empty where a column says it."""
        return "" if self.column else self.where.partition(":")[2]


def find_groups(kind: Kind, files: Sequence[Content], label_of: Mapping[str, str], hints: Hints) -> Groups:
    """Find the group of each recording.

    1. What was said counts.
    2. A person that a column or a path names comes before a machine, and a machine before a session: one
       person's sessions must stay together. Where two of one rank contradict each other, it is asked for; so it is
       where a machine or a session tears a word of rule 3 apart, or a session a number: it may be a person.
    3. Where nothing is called so, a folder of words that is neither class nor set, the speaker of Speech Commands, or a
       word that recurs in the files' names and is no condition; the only one.
    4. Else it is asked for. Numbers alone may count people or takes, and each file may be of the same person.

    Args:
        kind: the files' kind.
        files: all of them.
        label_of: class by path; empty where all files have the same classes.
        hints: what is known already.

    Raises:
        ConfigError: nothing tells, or there is more than one way to see it; names the option that answers.
    """
    names = [file.name for file in files]
    if (said := _said(files, hints)) is not None:  # rule 1
        return said
    columns = {} if kind == "wav" else group_columns(_shared_columns(files))
    if any(name.lower() == "group" for name in files[0].columns) and kind != "wav":
        columns["person"] = [*columns.get("person", []), next(n for n in files[0].columns if n.lower() == "group")]
    elif "person" not in columns and kind != "wav" and (column := _id_column(files)):
        columns["person"] = [column]
    paths = named(names)
    for whose in get_args(Whose):  # rule 2
        if whose in columns or whose in paths:
            chosen = _of_rank(files, whose, columns.get(whose, []), paths.get(whose, []))
            if whose != "person":
                _refuse_torn(files, whose, chosen, label_of)
            return chosen
        if whose == "person" and (torn := partly_named(names)) is not None:
            raise ConfigError(f"{torn[0]} names a person, {torn[1]} does not; {_ANSWERS}")
    likely = _likely(names, label_of)
    if len(likely) > 1:
        options = " or ".join(f"--group '{place.pattern}' ({shown(place.distinct, 3)})" for place in likely)
        raise ConfigError(f"{names[0]}: whose is it? say {options}")
    if likely:  # rule 3
        (place,) = likely
        return Groups(
            where=f"path:{place.pattern}",
            note=f"{place.what}, {shown(place.distinct, 4)}, is taken for a person's name",
        )
    raise ConfigError(f"{names[0]}: whose is it? nothing in its path or columns names a person; {_ANSWERS}")  # rule 4


def _said(files: Sequence[Content], hints: Hints) -> Groups | None:
    if hints.group_files:
        return Groups(where=f"path:{EACH_FILE}", note="each file is a group, as --group-files says", sure=True)
    if hints.group_column:
        for file in files:
            if hints.group_column not in file.columns:
                has = ", ".join(file.columns)
                raise ConfigError(f"{file.name}: has no column {hints.group_column!r} for the group; it has {has}")
        return Groups(where=f"column:{hints.group_column}", note="as --group-column says", sure=True)
    if hints.group:
        try:
            re.compile(hints.group)
        except re.error as error:
            raise ConfigError(f"--group {hints.group!r} is not a regular expression: {error}") from error
        return Groups(where=f"path:{hints.group}", note=f"as --group says ({hints.group})", sure=True)
    return None


def groups_in(file: Content, column: str) -> list[str]:
    """Return the group of each row of a file, or of the whole file.

    Raises:
        ConfigError: a row has none.
    """
    values = np.asarray(file.columns[column]).reshape(-1).tolist()
    for row, value in enumerate(values, start=1):
        if is_empty(value):
            raise ConfigError(f"{file.name}: row {row} has no {column!r}; fill it, or move the row away")
    return [str(value).strip() for value in values]


def _shared_columns(files: Sequence[Content]) -> list[str]:
    return [name for name in files[0].columns if all(name in file.columns for file in files)]


def _id_column(files: Sequence[Content]) -> str:
    """Find a column called id whose values recur for many rows; one that numbers the rows is none."""
    column = next((name for name in _shared_columns(files) if name.lower() == "id"), "")
    if not column:
        return ""
    values = [groups_in(file, column) for file in files]
    return column if len(set().union(*values)) * 10 <= sum(map(len, values)) else ""


def _of_rank(files: Sequence[Content], whose: Whose, columns: Sequence[str], places: Sequence[Place]) -> Groups:
    """Choose the candidate that tears none of the others of its rank apart.

    1. One with the same value everywhere tells nothing, unless there is nothing else.
    2. Of two that lie within each other the outer one counts: it keeps together what the inner one tells apart.
    3. Two that cross each other are asked about: to guess could put one person on both sides of a split.
    """
    # Each candidate as pairs of its value with the file it stands in, by row where it is a column.
    rows: list[tuple[Groups, list[list[str]]]] = [
        (
            Groups(where=f"column:{column}", note=f"column {column!r} says whose each row is"),
            [groups_in(file, column) for file in files],
        )
        for column in columns
    ]
    rows += [
        (
            Groups(
                where=f"path:{place.pattern}",
                note=f"{shown(place.distinct, 4)} in the paths is called like a {whose} ({place.pattern})",
            ),
            [[value] for value in place.values],
        )
        for place in places
    ]
    rows = [row for row in rows if len({value for values in row[1] for value in values}) > 1] or rows  # rule 1
    best, own = rows[0]
    for other, values in rows[1:]:
        mine, theirs = _side_by_side(own, values)
        if follows(theirs, mine):  # rule 2: what it tells apart lies within what we tell apart
            continue
        if not follows(mine, theirs):  # rule 3
            ours, yours = (
                f"column {each.column!r}" if each.column else f"--group '{each.pattern}'" for each in (best, other)
            )
            raise ConfigError(f"{files[0].name}: whose is it? {ours} and {yours} contradict each other; {_ANSWERS}")
        best, own = other, values  # rule 2
    return best


def _refuse_torn(files: Sequence[Content], whose: Whose, chosen: Groups, label_of: Mapping[str, str]) -> None:
    """Refuse machines and sessions that share a part of the paths that may be a person.

    1. Words may be people. Of sessions, a number or a whole file may, too: one person who came twice.
    2. One that is in several of the groups would be torn apart by them, so the user says what it is.
    """
    names = [file.name for file in files]
    places = _likely(names, label_of)
    if whose == "session":  # rule 1
        places += [place for place in parts_of_names(names) if all(value.isdigit() for value in place.values)]
        places += [place for place in (find(EACH_FILE, names, "the file"),) if place is not None]
    if chosen.column:
        own = [groups_in(file, chosen.column) for file in files]
    else:
        own = [[find_in(chosen.pattern, name, "group")] for name in names]
    for place in places:
        mine, theirs = _side_by_side(own, [[value] for value in place.values])
        if len(place.distinct) > 1 and not follows(theirs, mine):  # rule 2
            said = f"--group-column {chosen.column}" if chosen.column else f"--group '{chosen.pattern}'"
            raise ConfigError(
                f"{names[0]}: whose is it? {place.what} ({shown(place.distinct, 3)}) may be a person, who is in "
                f"several of the {whose}s; say --group '{place.pattern}' if it is, {said} if it is not"
            )


def _side_by_side(one: Sequence[list[str]], other: Sequence[list[str]]) -> tuple[list[str], list[str]]:
    """Pair two candidates' values row by row; a file's single value counts for all of its rows."""
    left: list[str] = []
    right: list[str] = []
    for a, b in zip(one, other, strict=True):
        rows = max(len(a), len(b))
        left += a * rows if len(a) == 1 else a
        right += b * rows if len(b) == 1 else b
    return left, right


def _likely(names: Sequence[str], label_of: Mapping[str, str]) -> list[Place]:
    """Find places in the paths that may name people.

    1. The speaker of Speech Commands is known by its form.
    2. Others are words that recur, and are neither class, set nor condition.
    3. Of places that lie within each other, the outer one keeps together what must stay together.
    """
    speaker = find(r"([^/]+?)_nohash", names, "the speaker of Speech Commands")
    if speaker is not None:  # rule 1
        return [speaker]
    classes = [label_of[name] for name in names] if label_of else []
    found = []
    for place in (*levels(names), *words_in_names(names)):
        distinct = set(map(str.lower, place.distinct))
        words = all(re.fullmatch(r"[^\W\d_]{2,}(?:[ _-][^\W\d_]+)?", value) for value in distinct)
        if not words or is_named(place.values) or distinct & (CONDITIONS | SETS):  # rule 2
            continue
        if len(distinct) < 2 or len(distinct) > len(names) / 2 or (classes and follows(place.values, classes)):
            continue
        found.append(place)
    outer: list[Place] = []
    for place in found:
        if any(follows(place.values, other.values) for other in outer):  # rule 3
            continue
        outer = [other for other in outer if not follows(other.values, place.values)] + [place]
    return outer
