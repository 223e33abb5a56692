"""Folders of recordings as people have them."""

from __future__ import annotations

import wave
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np


def movement(label: str, person: int, samples: int, rate_hz: float) -> np.ndarray:
    """(samples, 3) of something that moves slowly, fast, or not."""
    random = np.random.default_rng([person, sum(map(ord, label)), samples])
    speed = {"rest": 0.0, "walk": 1.5, "run": 4.0}[label]
    phase = 2 * np.pi * speed * np.arange(samples) / rate_hz + random.uniform(0, 6)
    waves = np.stack([np.sin(phase), np.cos(phase), np.sin(2 * phase)], 1) * (1 + 0.05 * person) * (speed > 0)
    return np.asarray(waves + 0.1 * random.standard_normal((samples, 3)) + [0, 0, 9.8])


def stamped(folder: Path, stamp: Callable[[int], object], *, header: str = "time", odd: object = None) -> Path:
    """``walk/p1.csv`` at 50 Hz with stamps as they are wished; person 3 has those of `odd`, if it is given."""
    for label in ("rest", "walk", "run"):
        for person in range(5):
            path = folder / label / f"p{person}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            x = movement(label, person, 600, 50)
            of = odd if callable(odd) and person == 3 else stamp
            rows = (f"{of(row)}," + ",".join(f"{value:.4f}" for value in x[row]) for row in range(len(x)))
            path.write_text("\n".join([f"{header},ax (g),ay (g),az (g)", *rows]) + "\n")
    return folder


def csv_folders(
    folder: Path, *, persons: int = 5, seconds: float = 12, rate_hz: float = 50, name: str = "p{person}_{take}.csv"
) -> Path:
    """``walk/p1_0.csv`` with stamps, three axes with their unit, and a row number."""
    for label in ("rest", "walk", "run"):
        for person in range(persons):
            path = folder / label / name.format(person=person, take=0)
            path.parent.mkdir(parents=True, exist_ok=True)
            x = movement(label, person, round(seconds * rate_hz), rate_hz)
            write_csv(path, np.arange(len(x)) / rate_hz, x, ["ax (m/s2)", "ay (m/s2)", "az (m/s2)"])
    return folder


def write_csv(path: Path, t: np.ndarray, x: np.ndarray, columns: Sequence[str], **more: Sequence[str]) -> None:
    lines = [",".join(["index", "time", *columns, *more])]
    for row in range(len(x)):
        numbers = [str(row), f"{t[row]:.4f}", *(f"{value:.4f}" for value in x[row])]
        lines.append(",".join([*numbers, *(str(column[row]) for column in more.values())]))
    path.write_text("\n".join(lines) + "\n")


def one_table(folder: Path, *, persons: int = 5, subject: bool = True, rate_hz: float = 50) -> Path:
    """One CSV of everybody, with a column for the class and one for the person."""
    folder.mkdir(parents=True, exist_ok=True)
    parts, labels, people = [], [], []
    for person in range(persons):
        for label in ("rest", "walk", "run"):
            x = movement(label, person, 800, rate_hz)
            parts.append(x)
            labels += [label] * len(x)
            people += [f"person {person}"] * len(x)
    x = np.concatenate(parts)
    more = {"activity": labels, **({"subject": people} if subject else {})}
    write_csv(folder / "all.csv", np.arange(len(x)) / rate_hz, x, ["ax", "ay", "az"], **more)
    return folder


def tone(path: Path, hertz: float, *, seconds: float = 0.7, rate_hz: int = 8000, seed: int = 0) -> None:
    random = np.random.default_rng(seed)
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    x = 0.3 * np.sin(2 * np.pi * hertz * (1 + 0.02 * seed) * t) + 0.01 * random.standard_normal(len(t))
    path.parent.mkdir(parents=True, exist_ok=True)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes((32767 * x).astype("<i2").tobytes())


def wav_folders(folder: Path, *, speakers: Sequence[str] = ("anna", "ben", "cleo", "dan"), takes: int = 12) -> Path:
    """``low/low_anna_3.wav``."""
    for number, (label, hertz) in enumerate({"low": 300.0, "high": 1500.0}.items()):
        for who, speaker in enumerate(speakers):
            for take in range(takes):
                tone(folder / label / f"{label}_{speaker}_{take}.wav", hertz, seed=1 + take + 100 * who + 1000 * number)
    return folder


def npz_files(folder: Path, *, persons: int = 5, names: bool = False) -> Path:
    """One NPZ a person, a label for each sample: numbers 0, 2 and 3, or names."""
    folder.mkdir(parents=True, exist_ok=True)
    for person in range(persons):
        labels = ["rest", "walk", "run"] * 2
        x = np.concatenate([movement(label, person, 600, 50) for label in labels]).astype(np.float32)
        numbers = np.repeat([{"rest": 0, "walk": 2, "run": 3}[label] for label in labels], 600)
        y = np.repeat(np.array(labels), 600) if names else numbers
        np.savez(folder / f"user{person}.npz", x=x, y=y, t=np.arange(len(x)) * 20.0)
    return folder
