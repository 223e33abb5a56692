"""Class finder: the column, the table of labels or the part of the path that names the class of a recording."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edge_export.data.readers.meaning import find_in
from edge_export.recipe.auto.contents import Content, Kind, is_number, table_of
from edge_export.recipe.auto.hints import Hints
from edge_export.recipe.auto.names import (
    CONDITIONS,
    LABEL_COLUMNS,
    PERHAPS_LABEL_COLUMNS,
    SETS,
    Place,
    is_named,
    levels,
    named,
    parts_of_names,
    shown,
    words_in_names,
)
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.columns import is_empty

MOST_CLASSES = 100
"""Different values of a column that may be classes; more are measurements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassPlace:
    """Place of the class.

    Attributes:
        where: ``path:REGEX``, ``column:NAME`` or ``names:REGEX`` with `names`.
        note: how it was found.
        column: that holds it; empty where the path does.
        names: class by path, from a table.
        of: class of each file by its path, or all its classes in one text; empty where all files have the same.
    """

    where: str
    note: str
    column: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    of: Mapping[str, str] = field(default_factory=dict)


def find_labels(kind: Kind, files: Sequence[Content], hints: Hints) -> ClassPlace:
    """Find the class: as the user said, in a table, in a column, in the path.

    Raises:
        ConfigError: it stands nowhere, or there is more than one way to see it; names the option that answers.
    """
    names = [file.name for file in files]
    if hints.labels is not None:
        if kind != "wav":
            raise ConfigError(
                "--labels names the class of each WAV file; in tables the class stands in a column, or in the names of "
                "folders"
            )
        found = _labels_of(hints.labels, names)
        return ClassPlace(
            where="names:^(.+)$", note=f"{hints.labels.name} names the class of each file", names=found, of=found
        )
    column = "" if hints.label or kind == "wav" else _column(kind, files, hints)
    if column:
        of = {file.name: " ".join(sorted(set(_values(file, column)))) for file in files}
        note = f"column {column!r} names the class of each row"
        return ClassPlace(
            where=f"column:{column}", note=note, column=column, of=of if len(set(of.values())) > 1 else {}
        )
    if kind == "npz":
        raise ConfigError(
            f"{names[0]}: has no array of labels; an NPZ names its class in one called label, for the whole recording "
            "or for each sample (--label-column, if it is called otherwise)"
        )
    pattern, why = label_pattern(names, hints.label)
    of = {name: find_in(pattern, name, "label") for name in names}
    return ClassPlace(where=f"path:{pattern}", note=f"{why} ({pattern})", of=of)


# -- columns -----------------------------------------------------------------------------------------------------------


def _column(kind: Kind, files: Sequence[Content], hints: Hints) -> str:
    """Find the column of the class; empty where the path names it.

    1. A column that was named is taken, if its values can be classes.
    2. So is one that is called label, class, activity and so on; of several, they must say the same.
    3. One called target, y or state is taken where its values can be classes, it is no axis (y beside x or z), and the
       path says nothing; where the path names classes, too, it is asked for.
    """
    if hints.label_column:  # rule 1
        _check_column(files, hints.label_column)
        return hints.label_column
    known = {name.lower(): name for name in files[0].columns}
    sure = [known[name] for name in LABEL_COLUMNS if name in known]
    for column in sure:  # rule 2
        _check_column(files, column)
    if len(sure) > 1 and any(_values(file, column) != _values(file, sure[0]) for column in sure[1:] for file in files):
        raise ConfigError(f"{files[0].name}: which is the class, {' or '.join(sure)}? say --label-column COLUMN")
    if sure:
        return sure[0]
    perhaps = [known[name] for name in PERHAPS_LABEL_COLUMNS if name in known and not _is_axis(kind, name, known)]
    perhaps = [column for column in perhaps if not _why_not(files, column)]
    if not perhaps:
        return ""
    by_path = "" if kind == "npz" else _by_path([file.name for file in files])
    if len(perhaps) > 1 or by_path:  # rule 3
        others = [*(f"--label-column {column}" for column in perhaps), *([f"--label {by_path!r}"] if by_path else [])]
        raise ConfigError(f"{files[0].name}: where does the class stand? say {' or '.join(others)}")
    _check_column(files, perhaps[0])
    return perhaps[0]


def _is_axis(kind: Kind, name: str, known: Mapping[str, str]) -> bool:
    # The array x of an NPZ holds all channels, so y beside it is no axis.
    return name == "y" and ("z" in known or (kind == "table" and "x" in known))


def _by_path(names: Sequence[str]) -> str:
    try:
        pattern, _ = label_pattern(names, "")
    except ConfigError:
        return ""
    return pattern if len({find_in(pattern, name, "label") for name in names}) > 1 else ""


def _values(file: Content, column: str) -> list[str]:
    return [str(value).strip() for value in np.asarray(file.columns[column]).reshape(-1).tolist()]


def _check_column(files: Sequence[Content], column: str) -> None:
    """Refuse a column of the class that a file lacks, or that holds measurements."""
    for file in files:
        if column not in file.columns:
            raise ConfigError(f"{file.name}: has no column {column!r} for the label; it has {', '.join(file.columns)}")
    if why := _why_not(files, column):
        raise ConfigError(
            f"{files[0].name}: column {column!r} {why}, so it names no classes; say where they stand: --label-column "
            "COLUMN, or --label REGEX over paths"
        )


def _why_not(files: Sequence[Content], column: str) -> str:
    """Explain why a column holds no classes; empty if it can: texts or whole numbers, and few of them."""
    distinct: set[str] = set()
    for file in files:
        if column in file.columns:
            distinct |= set(_values(file, column))
    for value in sorted(distinct):
        if is_number(value) and not is_empty(value) and float(value) != int(float(value)):
            return f"holds fractions, such as {value}"
    return f"holds {len(distinct)} different values" if len(distinct) > MOST_CLASSES else ""


def _labels_of(table: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the class of each file by its path within the folder; a row has that, or less of it, or more."""
    columns = table_of(table, str(table))
    lower = {key.lower(): key for key in columns}
    if "file" not in lower or "label" not in lower:
        raise ConfigError(f"{table}: needs the columns file and label; it has {', '.join(columns)}")
    files, labels = columns[lower["file"]], columns[lower["label"]]
    rows: defaultdict[str, dict[tuple[str, ...], set[str]]] = defaultdict(dict)
    for file, label in zip(files, labels, strict=True):
        parts = Path(str(file).strip()).parts
        rows["".join(parts[-1:])].setdefault(parts, set()).add(str(label).strip())
    result = {}
    for name in names:
        own = Path(name).parts
        alike = rows.get(own[-1], {}).items()
        told = {label for parts, found in alike if parts[-len(own) :] == own[-len(parts) :] for label in found if label}
        if len(told) != 1:
            raise ConfigError(f"{name}: {_not_one(table.name, sorted(told))}")
        (result[name],) = told
    return result


def _not_one(table: str, told: Sequence[str]) -> str:
    if not told:
        return f"{table} names no label for it; add a line, or move the file away"
    return f"{table} names several labels for it, {', '.join(told)}; write the folder before the name, too"


# -- paths -------------------------------------------------------------------------------------------------------------


def label_pattern(names: Sequence[str], wanted: str) -> tuple[str, str]:
    """Find the part of the paths that is the class.

    1. What was said counts.
    2. Of the folders, those that are called like persons, machines or sessions, that hold sets (train, test), or that
       are the same for all files, are no classes. If one is left, it is the class, unless the names of the files hold
       words that recur in several of its folders: then either may be the class, and the other the person.
    3. If none is left, and all files name a person, the only word in the names that recurs is the class.

    Args:
        names: paths within the folder.
        wanted: what a person has said.

    Returns:
        A regular expression, and how it was found.

    Raises:
        ConfigError: it stands nowhere, or there is more than one way to see it.
    """
    if wanted:  # rule 1
        try:
            re.compile(wanted)
        except re.error as error:
            raise ConfigError(f"--label {wanted!r} is not a regular expression: {error}") from error
        return wanted, "as --label says"
    folders = levels(names)
    open_levels = [place for place in folders if _may_be_class(place, only=len(folders) == 1)]
    words = [
        place
        for place in words_in_names(names)
        if len(place.distinct) > 1 and not set(map(str.lower, place.distinct)) & CONDITIONS
    ]
    if len(open_levels) > 1:
        options = " or ".join(f"--label '{place.pattern}' ({shown(place.distinct, 3)})" for place in open_levels)
        raise ConfigError(f"{names[0]}: which folder is the class? say {options}, and --group for the other")
    if open_levels:  # rule 2
        (folder,) = open_levels
        repeated = any(place.values == folder.values for place in parts_of_names(names))
        rivals = [place for place in words if not repeated and _recurs(place, folder) and _recurs(folder, place)]
        if rivals and not is_named(folder.values) and "person" not in named(names):
            raise ConfigError(
                f"{names[0]}: is the class the folder ({shown(folder.distinct, 3)}) or the file's name "
                f"({shown(rivals[0].distinct, 3)})? say --label '{folder.pattern}' or --label '{rivals[0].pattern}'"
            )
        return folder.pattern, "the folder is the class"
    likely = [place for place in words if not is_named(place.values)]
    if len(likely) == 1 and named(names):  # rule 3
        return likely[0].pattern, f"{likely[0].what} is the class, since the rest names whose it is"
    first = min(names, key=lambda name: name.count("/"))
    hint = f", for example --label '{likely[0].pattern}' for {shown(likely[0].distinct, 3)}" if likely else ""
    raise ConfigError(
        f"{first}: which class is it? put files into a folder per class, or name a column (--label-column), a "
        f"table (--labels FILE.csv) or a pattern over paths (--label REGEX{hint})"
    )


def _may_be_class(place: Place, *, only: bool) -> bool:
    if is_named(place.values) or set(map(str.lower, place.distinct)) <= SETS:
        return False
    return only or len(place.distinct) > 1


def _recurs(place: Place, over: Place) -> bool:
    """Return whether a value of one place is found with several values of the other."""
    of: dict[str, set[str]] = {}
    for value, other in zip(place.values, over.values, strict=True):
        of.setdefault(value, set()).add(other)
    return any(len(each) > 1 for each in of.values())
