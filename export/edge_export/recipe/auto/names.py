"""Vocabulary of recordings: names of classes, persons, machines and sessions, and parts of paths that hold them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

LABEL_COLUMNS = ("label", "labels", "class", "activity", "category", "gesture", "exercise")
PERHAPS_LABEL_COLUMNS = ("target", "y", "state")
"""Called so by some who mean the class, and by others who mean a place, an axis or a reading."""

Whose = Literal["person", "machine", "session"]
GROUP_COLUMNS: dict[Whose, tuple[str, ...]] = {
    "person": (
        "subject", "person", "user", "participant", "volunteer", "speaker", "patient", "athlete", "driver", "rider",
        "pid", "uid",
    ),
    "machine": ("machine", "motor", "pump", "bearing", "engine", "device", "unit"),
    "session": ("session", "fold", "day"),
}  # fmt: skip
"""Names of a column that says whose a row is, surest first: who knows the person need not know the session."""

_LONG = "subject|subj|sub|person|pers|participant|volunteer|user|usr|speaker|spk|patient|pat|athlete|driver|rider"
_NAMED: tuple[tuple[Whose, str], ...] = (
    ("person", rf"(?:{_LONG})[-_ ]?(?:\d+|[a-z](?![a-z0-9]))"),
    ("person", r"(?:p|u|id|pid|uid)[-_]?\d+"),
    ("person", r"s[-_]?\d+"),
    ("machine", r"(?:machine|motor|pump|bearing|engine|device|dev|unit)[-_ ]?\d+"),
    ("session", r"(?:session|sess|ses|fold|day|visit)[-_ ]?\d+"),
)
_BEFORE, _BEHIND = r"(?:^|[/_.\- ])", r"(?=[/_.\- ]|$)"
_PARTS = r"[_.\- ]+"

# Texts that are split read better than a hundred words in quotes.
CONDITIONS = frozenset(
    """
    left right l r front back up down high low slow fast normal medium indoor outdoor inside outside indoors outdoors
    morning noon afternoon evening night day am pm monday tuesday wednesday thursday friday saturday sunday january
    february march april may june july august september october november december acc accel accelerometer gyro gyr
    gyroscope mag magnetometer imu emg ecg ppg phone watch wrist ankle hip waist chest thigh pocket hand arm leg bag
    head foot raw filtered clean noisy train training test testing val valid validation dev eval first second third
    last mono stereo long short on off new old good bad sensor data part take file rec recording sample clip segment
    trial
    """.split()  # noqa: SIM905
)
"""Words that recur in names and say how something was recorded, not whose it is."""
SETS = frozenset(("train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A part of every path: a pattern that finds it, and what it finds.

    Attributes:
        pattern: regular expression; its first group is the part.
        values: of each path.
        what: the part, in words.
    """

    pattern: str
    values: tuple[str, ...]
    what: str

    @property
    def distinct(self) -> list[str]:
        """Its values, each once, sorted."""
        return sorted(set(self.values))


def find(pattern: str, names: Sequence[str], what: str) -> Place | None:
    """Make a place of a pattern; None if a path lacks it."""
    found = [re.search(pattern, name) for name in names]
    if not all(found):
        return None
    return Place(pattern=pattern, values=tuple(str(match[1]) for match in found if match), what=what)


def levels(names: Sequence[str]) -> list[Place]:
    """Return the folders of the paths, the outermost first; none where files lie at different depths."""
    depths = {name.count("/") for name in names}
    if len(depths) != 1:
        return []
    (depth,) = depths
    patterns = [r"^" + r"[^/]+/" * level + r"([^/]+)/" for level in range(depth)]
    if depth:
        patterns[-1] = r"([^/]+)/[^/]+$"
    places = (find(pattern, names, f"folder {level + 1}") for level, pattern in enumerate(patterns))
    return [place for place in places if place is not None]


def parts_of_names(names: Sequence[str]) -> list[Place]:
    """Return the parts of the files' names, from the left; none where names have different numbers of parts."""
    parts = [re.split(_PARTS, _stem(name)) for name in names]
    if len({len(each) for each in parts}) != 1:
        return []
    places = []
    for number in range(len(parts[0])):
        values = tuple(each[number] for each in parts)
        pattern = r"(?:^|/)" + r"[^/_.\- ]+[_.\- ]+" * number + r"([^/_.\- ]+)[^/]*$"
        place = Place(pattern=pattern, values=values, what=f"part {number + 1} of each file's name")
        if find(pattern, names, "") == Place(pattern=pattern, values=values, what=""):
            places.append(place)
    return places


def words_in_names(names: Sequence[str]) -> list[Place]:
    """Return the parts of the files' names that are words in all of them."""
    return [
        place for place in parts_of_names(names) if all(re.fullmatch(r"[^\W\d_]{2,}", value) for value in place.values)
    ]


def named(names: Sequence[str]) -> dict[Whose, list[Place]]:
    """Find parts of the paths that are called like a person, a machine or a session, by which of them."""
    found: dict[Whose, list[Place]] = defaultdict(list)
    for whose, pattern in _NAMED:
        place = find(rf"(?i:{_BEFORE}({pattern}){_BEHIND})", names, f"names of a {whose}")
        if place is not None:
            found[whose].append(place)
    return found


def partly_named(names: Sequence[str]) -> tuple[str, str] | None:
    """Find a path that names its person and one that does not; None where all or no paths do."""
    both = rf"(?i:{_BEFORE}(?:{_NAMED[0][1]}|{_NAMED[1][1]}){_BEHIND})"
    has = [re.search(both, name) is not None for name in names]
    return (names[has.index(True)], names[has.index(False)]) if 0 < sum(has) < len(has) else None


def is_named(values: Sequence[str]) -> bool:
    """Return whether all are called like persons, machines or sessions."""
    return any(all(re.fullmatch(f"(?i:{pattern})", value) for value in values) for _, pattern in _NAMED)


def group_columns(columns: Sequence[str]) -> dict[Whose, list[str]]:
    """Find columns that are called like persons, machines or sessions, surest first."""
    plain: dict[str, str] = {}
    for column in columns:
        key = re.sub(r"[^a-z]", "", column.lower())
        plain.setdefault(key if key in {"id", "pid", "uid"} else re.sub(r"(?:id|no|nr|num|number)$", "", key), column)
    return {
        whose: [plain[name] for name in known if name in plain]
        for whose, known in GROUP_COLUMNS.items()
        if any(name in plain for name in known)
    }


def follows(values: Sequence[Hashable], others: Sequence[Hashable]) -> bool:
    """Return whether each value goes with one of the others only: it says the same, or a part of it."""
    of: dict[Hashable, set[Hashable]] = defaultdict(set)
    for value, other in zip(values, others, strict=True):
        of[value].add(other)
    return all(len(each) == 1 for each in of.values())


def alike(groups: Sequence[str]) -> tuple[str, str] | None:
    """Find two groups that differ in case, leading zeros or separators only: one person, most likely."""
    seen: dict[str, str] = {}
    for group in sorted(groups):
        together = re.sub(r"(?<=[^\W\d])[\s_.\-]+(?=\d)", "", group.strip().casefold())
        plain = re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"[\s_.\-]+", "_", together))
        if (first := seen.setdefault(plain, group)) != group:
            return first, group
    return None


def shown(values: Sequence[str], most: int = 6) -> str:
    """Join some values for a sentence."""
    return ", ".join(values[:most]) + (", ..." if len(values) > most else "")


def _stem(name: str) -> str:
    return _without_suffix(name).rsplit("/", 1)[-1]


def _without_suffix(name: str) -> str:
    return re.sub(r"\.[^./]+$", "", name)
