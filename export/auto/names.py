"""What paths and columns are called when people record: classes, persons, stamps."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from edge_runtime.errors import ConfigError

LABEL_COLUMNS = ("label", "labels", "class", "activity", "target", "y", "category", "state")
TIME_COLUMNS = (
    "t", "time", "timestamp", "ts", "time_ms", "timestamp_ms", "t_ms", "ms", "time_s", "seconds", "time_us", "t_us",
)  # fmt: skip
GROUP_COLUMNS = ("group", "subject", "person", "user", "participant", "speaker", "patient", "machine", "session")

_PERSON = re.compile(
    r"(?:subject|subj|sub|person|pers|user|usr|participant|speaker|spk|patient|pat|machine|device|dev|session|sess|fold|"
    r"s|p|u|id)[-_]?\d+",
    re.IGNORECASE,
)
_FOLDER = r"([^/]+)/[^/]+$"


def group_column(columns: Sequence[str]) -> str:
    """The column that says whose a row is; empty if none is called so."""
    lower = {column.lower().removesuffix("_id"): column for column in columns}
    return next((lower[name] for name in GROUP_COLUMNS if name in lower), "")


def label_pattern(names: Sequence[str], wanted: str) -> str:
    """Where in a path the class stands.

    Args:
        names: paths within the folder.
        wanted: what a person has said.

    Raises:
        ConfigError: it stands nowhere, or there is more than one way to see it.
    """
    if wanted:
        try:
            re.compile(wanted)
        except re.error as error:
            raise ConfigError(f"--label {wanted!r} is not a regular expression: {error}") from error
        return wanted
    depths = {name.count("/") for name in names}
    if 0 in depths:
        first = next(name for name in names if "/" not in name)
        raise ConfigError(
            f"{first}: which class is it? put files into a folder per class, or name a column (--label-column), a "
            "table (--labels FILE.csv) or a pattern over paths (--label REGEX)"
        )
    if depths == {1}:
        return _FOLDER
    outer = [name.split("/")[0] for name in names]
    inner = [name.split("/")[-2] for name in names]
    persons = [all(_PERSON.fullmatch(each) for each in level) for level in (outer, inner)]
    if persons == [True, False]:
        return _FOLDER
    if persons == [False, True] or len(set(outer)) < len(set(inner)):
        return r"^([^/]+)/"
    raise ConfigError(
        f"{names[0]}: is the class the outer or the inner folder? say --label '^([^/]+)/' or --label '{_FOLDER}', and "
        "--group for the other"
    )


def group_pattern(names: Sequence[str], label_of: Mapping[str, str], wanted: str) -> tuple[str, str]:
    """Where in a path the person (machine, session) stands.

    Args:
        names: paths within the folder.
        label_of: class by path; empty where classes stand in columns.
        wanted: what a person has said.

    Returns:
        A regular expression, and how it was found.
    """
    if wanted:
        try:
            re.compile(wanted)
        except re.error as error:
            raise ConfigError(f"--group {wanted!r} is not a regular expression: {error}") from error
        return wanted, "as --group says"
    for level in range(max(name.count("/") for name in names)):
        pattern = r"^" + r"[^/]+/" * level + r"([^/]+)/"
        found = _all(pattern, names)
        if found and len(set(found)) > 2 and not _follows(found, names, label_of):
            return pattern, "each folder of that level is a group"
    if _all(r"([^/]+?)_nohash", names):
        return r"([^/]+?)_nohash", "the names are those of Speech Commands, speaker first"
    tokens = [re.split(r"[_.\- ]+", name.rsplit("/", 1)[-1].rsplit(".", 1)[0]) for name in names]
    if len({len(each) for each in tokens}) == 1 and len(tokens[0]) > 1:
        for place, plain in _candidates(tokens, names, label_of):
            pattern = r"(?:^|/)" + r"[^/_.\- ]+[_.\- ]+" * place + r"([^/_.\- ]+)[^/]*$"
            if _all(pattern, names) == [each[place] for each in tokens]:
                why = "is called like a person or a session" if plain else "is a name that recurs"
                return pattern, f"part {place + 1} of each file's name {why}"
    why = "no name of a person in the paths, so each file is a group; if several are of one person, say --group"
    return r"(.+)\.[^.]+$", why


def _candidates(
    tokens: Sequence[Sequence[str]], names: Sequence[str], label_of: Mapping[str, str]
) -> list[tuple[int, bool]]:
    """Parts of names that may tell whose a file is, the likeliest first: place, and whether it is called so."""
    found: list[tuple[int, int, bool]] = []
    for place in range(len(tokens[0])):
        values = [each[place] for each in tokens]
        distinct = len(set(values))
        if distinct < 3 or _follows(values, names, label_of):
            continue
        called = all(_PERSON.fullmatch(value) for value in values)
        # Numbers alone count takes, not people; a name that never comes again tells nothing.
        if called or (not any(value.isdigit() for value in values) and distinct <= len(values) / 2):
            found.append((0 if called else 1, place, called))
    return [(place, called) for _, place, called in sorted(found)]


def _all(pattern: str, names: Sequence[str]) -> list[str]:
    """What a pattern finds in each path; empty if it fails in one."""
    found = [re.search(pattern, name) for name in names]
    return [match[1] for match in found if match] if all(found) else []


def _follows(values: Sequence[str], names: Sequence[str], label_of: Mapping[str, str]) -> bool:
    """Whether a part of the path is only another way to say the class: each value goes with one class."""
    if not label_of:
        return False
    classes = defaultdict(set)
    for value, name in zip(values, names, strict=True):
        classes[value].add(label_of[name])
    return all(len(each) == 1 for each in classes.values())
