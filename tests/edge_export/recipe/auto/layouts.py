"""Ways in which people lay out recordings; every sample carries the number of the person who made it.

The number hides in digits that no model sees: the third and fourth decimal of numbers, the lowest bits of sound.
"""

from __future__ import annotations

import itertools
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
from edge_export.data.dataset import Recording, write_npz

from tests.edge_export.recipe.auto.recordings import movement

CLASSES = ("rest", "run", "walk")
PEOPLE = 5
RATE_HZ = 50.0
SAMPLES = 300
NAMES = ("anna", "ben", "cleo", "dan", "eva")
UNIT = ("--unit", "g")


@dataclass(frozen=True, slots=True)
class Layout:
    """A folder, and what must be found in it.

    Attributes:
        name: in words.
        build: makes it.
        options: that a person says.
        groups: names found; empty where it is refused.
        refused: part of the message.
    """

    name: str
    build: Callable[[Path], None]
    options: tuple[str, ...] = UNIT
    groups: tuple[str, ...] = ()
    refused: str = ""


def marked(label: str, person: int, take: int = 0) -> np.ndarray:
    """(SAMPLES, 3) of one person, who can be told from each of its values."""
    x = movement(label, 10 * person + take, SAMPLES, RATE_HZ)
    return np.asarray(np.round(x, 2) + np.where(x < 0, -1, 1) * (person + 1) * 1e-4)


def people_in(recording: Recording) -> set[int]:
    """Who made a recording."""
    if recording.values.shape[1] == 1:
        return {int(np.rint(recording.values[len(recording.values) // 2, 0] * 32768)) % 16}
    digits = np.rint(np.abs(recording.values.astype(np.float64)) * 1e4).astype(int) % 100
    return set((digits - 1).reshape(-1).tolist())


def table(
    path: Path,
    x: np.ndarray,
    columns: Mapping[str, object] | None = None,
    *,
    header: Sequence[str] = ("time", "ax", "ay", "az"),
) -> None:
    """A CSV of stamps in seconds, samples, and further columns: a value for all rows, or one each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    more = columns or {}
    lines = [",".join([*header, *more])]
    for row, sample in enumerate(x):
        extra = [str(value[row] if isinstance(value, list | np.ndarray) else value) for value in more.values()]
        lines.append(",".join([f"{row / RATE_HZ:.2f}", *(f"{value:.4f}" for value in sample), *extra]))
    path.write_text("\n".join(lines) + "\n")


def files(pattern: str, *, people: int = PEOPLE, takes: int = 1, **more: object) -> Callable[[Path], None]:
    """A CSV for each class, person and take, named by a pattern over ``label``, ``person``, ``name`` and ``take``."""

    def build(folder: Path) -> None:
        for label, person, take in itertools.product(CLASSES, range(people), range(takes)):
            # What a person says of himself in a column is what the pattern says of a path.
            fields = {"label": label, "person": person, "name": NAMES[person], "take": take, "p1": person + 1}
            fields |= {"hash": f"{hash_of(label, person, take):08x}", "letter": "ABCDE"[person]}
            columns = {key: str(value).format_map(fields) for key, value in more.items()}
            table(folder / pattern.format_map(fields), marked(label, person, take), columns)

    return build


def hash_of(label: str, person: int, take: int) -> int:
    """Eight digits that tell nothing."""
    return int.from_bytes(np.random.default_rng([ord(label[1]), person, take]).bytes(4), "big")


def one_file(header: Sequence[str] = ("time", "ax", "ay", "az"), **more: str) -> Callable[[Path], None]:
    """One CSV of everybody; further columns are patterns over ``label``, ``person`` and ``name``."""

    def build(folder: Path) -> None:
        parts, columns = [], {key: list[str]() for key in more}
        for row, (person, label) in enumerate(itertools.product(range(PEOPLE), CLASSES)):
            parts.append(marked(label, person))
            for key, pattern in more.items():
                columns[key] += [pattern.format(label=label, person=person, name=NAMES[person], row=row)] * SAMPLES
        table(folder / "all.csv", np.concatenate(parts), columns, header=header)

    return build


def both(first: Callable[[Path], None], second: Callable[[Path], None]) -> Callable[[Path], None]:
    """One after the other into the same folder."""

    def build(folder: Path) -> None:
        first(folder)
        second(folder)

    return build


def one_more(name: str, person: int) -> Callable[[Path], None]:
    """Another recording of somebody who walks."""
    return lambda folder: table(folder / "walk" / name, marked("walk", person, 7))


def whole_days(pattern: str, column: str = "label", **more: str) -> Callable[[Path], None]:
    """A CSV for each person, with a column of the class."""

    def build(folder: Path) -> None:
        for person in range(PEOPLE):
            labels = np.repeat(CLASSES, SAMPLES)
            x = np.concatenate([marked(label, person) for label in CLASSES])
            fields = {"person": person, "name": NAMES[person]}
            cycle = (np.arange(len(x)) // 100 % 3).tolist()
            columns = {key: cycle if value == "{cycle}" else value.format_map(fields) for key, value in more.items()}
            table(folder / pattern.format_map(fields), x, {column: labels.tolist(), **columns})

    return build


def arrays(pattern: str, **more: Callable[[str, int], object]) -> Callable[[Path], None]:
    """An NPZ for each class and person with ``x``, ``t`` and further arrays."""

    def build(folder: Path) -> None:
        for label, person in itertools.product(CLASSES, range(PEOPLE)):
            path = folder / pattern.format(label=label, person=person, name=NAMES[person])
            path.parent.mkdir(parents=True, exist_ok=True)
            x = marked(label, person).astype(np.float32)
            extra: Mapping[str, np.ndarray] = {key: np.array(of(label, person)) for key, of in more.items()}
            write_npz(path, {"x": x, "t": np.arange(SAMPLES) / RATE_HZ, **extra})

    return build


def sounds(pattern: str, takes: int = 4) -> Callable[[Path], None]:
    """A WAV for each of two words, person and take."""

    def build(folder: Path) -> None:
        for (number, label), person, take in itertools.product(enumerate(("no", "yes")), range(PEOPLE), range(takes)):
            fields = {"label": label, "name": NAMES[person], "take": take, "hash": f"{hash_of('xyz', person, 0):08x}"}
            path = folder / pattern.format_map({**fields, "person": person, "any": hash_of(label, person, take)})
            path.parent.mkdir(parents=True, exist_ok=True)
            t = np.arange(6400) / 8000
            pcm = np.rint(6000 * np.sin(2 * np.pi * (300 + 900 * number + 3 * take) * t) + 7000).astype(int)
            with wave.open(str(path), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(8000)
                file.writeframes((pcm // 16 * 16 + person).astype("<i2").tobytes())

    return build


def iso(row: int) -> str:
    """A stamp as loggers write it."""
    return datetime.fromtimestamp(1_700_000_000 + row / RATE_HZ, timezone.utc).isoformat(
        sep=" ", timespec="milliseconds"
    )


P = ("p0", "p1", "p2", "p3", "p4")
BY_FILE = "nothing in its path or columns names a person; say --group REGEX"
BY_REGEX = ("--group", r"(\d+)\.csv$", *UNIT)

LAYOUTS = (
    Layout("class folders, person and take in the name", files("{label}/p{person}_{take}.csv", takes=2), groups=P),
    Layout("class folders, subject in the name", files("{label}/subject0{person}.csv"),
           groups=tuple(f"subject0{i}" for i in range(5))),
    Layout("class folders, subject with a letter", files("{label}/subject_{letter}_{take}.csv", takes=2),
           groups=tuple(f"subject_{i}" for i in "ABCDE")),
    Layout("person folders, class in the name", files("subject{person}/{label}.csv"),
           groups=tuple(f"subject{i}" for i in range(5))),
    Layout("person folders, class and take in the name", files("user-{person}/{label}_{take}.csv", takes=2),
           groups=tuple(f"user-{i}" for i in range(5))),
    Layout("class, then person folders", files("{label}/p{person}/{take}.csv", takes=2), groups=P),
    Layout("person, then class folders", files("p{person}/{label}/{take}.csv", takes=2), groups=P),
    Layout("class and subject in one folder of files", files("{label}_subject{person}_{take}.csv", takes=2),
           groups=tuple(f"subject{i}" for i in range(5))),
    Layout("BIDS", files("sub-0{p1}/ses-01/sub-0{p1}_ses-01_task-{label}.csv"),
           options=(*UNIT, "--label", "task-([a-z]+)"), groups=tuple(f"sub-0{i + 1}" for i in range(5))),
    Layout("person and session, nested", files("{label}/p{person}_session{take}.csv", takes=2), groups=P),
    Layout("session files alone", files("{label}/session{person}.csv"), groups=tuple(f"session{i}" for i in range(5))),
    Layout("first names in sessions", files("{label}/{label}_{name}_session{take}.csv", takes=3),
           refused="part 2 of each file's name (anna, ben, cleo, ...) may be a person, who is in several of the"),
    Layout("first names in sessions, and said", files("{label}/{label}_{name}_session{take}.csv", takes=3),
           options=(*UNIT, "--group", r"_([a-z]+)_session"), groups=NAMES),
    Layout("numbers in sessions", files("{label}/{person}_session{take}.csv", takes=3),
           refused="part 1 of each file's name (0, 1, 2, ...) may be a person"),
    Layout("first names with devices", files("{label}/{label}_{name}_device{take}.csv", takes=3),
           refused="may be a person, who is in several of the machines"),
    Layout("a session column in files of names", whole_days("{name}.csv", session="{cycle}"),
           refused="the file (anna, ben, cleo, ...) may be a person, who is in several of the sessions"),
    Layout("one CSV with sessions alone", one_file(label="{label}", session="{person}"),
           groups=("0", "1", "2", "3", "4")),
    Layout("machines", files("{label}/motor{person}_{take}.csv", takes=2), groups=tuple(f"motor{i}" for i in range(5))),
    Layout("first names after the class", files("{label}/{label}_{name}_{take}.csv", takes=2), groups=NAMES),
    Layout("first names that may be the class", files("{label}/{name}_{take}.csv", takes=2),
           refused="is the class the folder (rest, run, walk) or the file's name (anna, ben, cleo, ...)? say --label"),
    Layout("first names, and the class said", files("{label}/{name}_{take}.csv", takes=2),
           options=(*UNIT, "--label", r"^([^/]+)/"), groups=NAMES),
    Layout("folders of first names", files("{name}/{label}_{take}.csv", takes=2),
           refused="is the class the folder (anna, ben, cleo, ...) or the file's name (rest, run, walk)? say --label"),
    Layout("folders of first names, and the class said", files("{name}/{label}_{take}.csv", takes=2),
           options=(*UNIT, "--label", r"/([a-z]+)_"), groups=NAMES),
    Layout("two unnamed levels", files("{name}/{label}/{take}.csv"), refused="which folder is the class? say --label"),
    Layout("sets, then classes", files("train/{label}/p{person}_{take}.csv", takes=2), groups=P),
    Layout("conditions that recur", files("{label}/{label}_slow_{take}{person}.csv"), refused=BY_FILE),
    Layout("numbers", files("{label}/{person}{take}.csv", takes=2), refused=BY_FILE),
    Layout("numbers, and said to be people", files("{label}/{person}.csv"), options=BY_REGEX,
           groups=("0", "1", "2", "3", "4")),
    Layout("numbers, and said to be of other people each", files("{label}/{person}.csv"),
           options=(*UNIT, "--group-files"), groups=tuple(f"{c}/{i}" for c in CLASSES for i in range(5))),
    Layout("takes", files("{label}/take{person}{take}.csv"), refused=BY_FILE),
    Layout("a date in the name", files("{label}/2024-01-0{p1}_{take}.csv", takes=2), refused=BY_FILE),
    Layout("two people only", files("{label}/p{person}_{take}.csv", people=2, takes=5),
           refused="the recordings are of 2 groups (p0, p1); at least three are needed"),
    Layout("one person, spelled twice", both(files("{label}/p{person}_0.csv"), one_more("P0_1.csv", 0)),
           refused="groups 'P0' and 'p0' look like one"),
    Layout("some files name nobody", both(files("{label}/p{person}.csv"), one_more("more.csv", 1)),
           refused="walk/more.csv does not; say --group"),
    Layout("person and person contradict", files("{label}/p{person}_s{take}.csv", takes=3),
           refused="contradict each other"),
    Layout("Edge Impulse", files("{label}.{hash}.csv"), refused="which class is it?"),
    Layout("Edge Impulse, the class said", files("{label}.{hash}.csv"), options=(*UNIT, "--label", r"^([^.]+)"),
           refused=BY_FILE),
    Layout("one CSV with a subject", one_file(activity="{label}", subject="{name}"), groups=NAMES),
    Layout("one CSV with a person", one_file(label="{label}", Person="{person}"), groups=("0", "1", "2", "3", "4")),
    Layout("one CSV with a user id", one_file(label="{label}", user_id="{person}"), groups=("0", "1", "2", "3", "4")),
    Layout("one CSV with an id", one_file(label="{label}", id="{person}"), groups=("0", "1", "2", "3", "4")),
    Layout("one CSV with subject and user that contradict", one_file(label="{label}", subject="{name}", user="{label}"),
           refused="column 'subject' and column 'user' contradict each other"),
    Layout("one CSV of nobody", one_file(label="{label}"), refused=BY_FILE),
    Layout("one CSV with sessions in a person", one_file(label="{label}", session="{row}", subject="{name}"),
           groups=NAMES),
    Layout("axes x, y and z, and a state", one_file(header=("time", "x", "y", "z"), state="{label}", subject="{name}"),
           groups=NAMES),
    Layout("axes x, y and z, and folders", files("{label}/p{person}.csv"), groups=P),
    Layout("a target that may be the class beside folders", files("{label}/p{person}.csv", target="{person}"),
           refused="where does the class stand? say --label-column target or --label"),
    Layout("a file for each person, with labels", whole_days("p{person}.csv"), groups=P),
    Layout("a file for each name, with labels", whole_days("{name}.csv"), refused=BY_FILE),
    Layout("a file for each name, with labels, and said", whole_days("{name}.csv"), options=(*UNIT, "--group-files"),
           groups=NAMES),
    Layout("a session column in a person's file", whole_days("p{person}.csv", session="1"), groups=P),
    Layout("NPZ with one label", arrays("{label}_p{person}.npz", label=lambda label, _: label), groups=P),
    Layout("NPZ with one label and one subject", arrays("{label}{person}.npz", label=lambda label, _: label,
           subject=lambda _, person: NAMES[person]), groups=NAMES),
    Layout("NPZ with a label a sample", arrays("u{person}{label[0]}_{label}.npz", y=lambda label, _: [label] * SAMPLES),
           refused=BY_FILE),
    Layout("sound by class and speaker", sounds("{label}/{label}_{name}_{take}.wav"), options=(), groups=NAMES),
    Layout("Speech Commands", sounds("{label}/{hash}_nohash_{take}.wav"), options=(),
           groups=tuple(sorted(f"{hash_of('xyz', i, 0):08x}" for i in range(5)))),
    Layout("sound by class alone", sounds("{label}/{any}.wav"), options=(), refused=BY_FILE),
)  # fmt: skip
