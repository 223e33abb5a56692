"""Few-shot labels without training: spoken digits by 1, 3 and 5 examples that a user adds on the device.

    python -m benchmarks.bench_examples SHARED

SHARED holds `models/openwakeword-frontend` and `data/spoken-digits-fsdd`. The card is that of few-words in
`tests/data/cards`, without its bound `farthest`. The examples are of one speaker. They are held against other takes of
the same speaker, and against the other three speakers. All goes the way of a device: packed, answered, taught
(`LearntExamples`).
"""

from __future__ import annotations

import argparse
import tempfile
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from edge_export.cli import main as edge_export

from benchmarks.report import Goal, Report
from edge_runtime.app.python_api import open_model, vectors
from edge_runtime.io.sources.recording import RecordingConfig
from edge_runtime.model.serving.loading import Model
from edge_runtime.model.tasks.learnt_examples import LearntExamples, vectors_of

Array = np.ndarray[Any, np.dtype[Any]]

SPEAKERS = ("george", "jackson", "lucas", "theo")
TAKES = 12
SHOTS = (1, 3, 5)
DRAWS = 5
RATE_HZ = 8000
CLIP_S, BEHIND_S = 1.2, 0.1
CARD = Path(__file__).parents[1] / "tests/data/cards/few-words.toml"


def packed(shared: Path, folder: Path) -> Path:
    """Pack the front end as an embedding."""
    card, out = folder / "card.toml", folder / "words.edge"
    card.write_text(CARD.read_text(encoding="utf-8").replace("farthest = 0.4\n", ""), encoding="utf-8")
    files = [
        str(shared / f"models/openwakeword-frontend/{name}.onnx") for name in ("melspectrogram", "embedding_model")
    ]
    sound = folder / "golden.wav"
    write_sound(sound, np.load(shared / f"data/spoken-digits-fsdd/{SPEAKERS[0]}.npz")["pcm"][: 4 * RATE_HZ])
    if edge_export(["pack", *files, "--card", str(card), "--recording", str(sound), "-o", str(out)]):
        raise SystemExit("the model cannot be packed")
    return out


def write_clip(path: Path, word: Array) -> None:
    """Write a word as a clip of `CLIP_S` that ends `BEHIND_S` behind it; a longer one loses its beginning."""
    clip = np.zeros(int(CLIP_S * RATE_HZ), np.int16)
    end = len(clip) - int(BEHIND_S * RATE_HZ)
    word = word[-end:]
    clip[end - len(word) : end] = word
    write_sound(path, clip)


def write_sound(path: Path, pcm: Array) -> None:
    """Write int16 samples as a WAV file."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(pcm.tobytes())


def last_answers(model: Model, shared: Path, folder: Path) -> Iterator[tuple[str, int, int, Array]]:
    """Yield speaker, digit, take and the numbers of each clip's last answer, when the word has ended."""
    for speaker in SPEAKERS:
        data = np.load(shared / f"data/spoken-digits-fsdd/{speaker}.npz")
        for place, (digit, take) in enumerate(zip(data["digit"].tolist(), data["take"].tolist(), strict=True)):
            if take < TAKES:
                path = folder / "clip.wav"
                write_clip(path, data["pcm"][data["offset"][place] : data["offset"][place + 1]])
                *_, (_, row) = vectors(model, RecordingConfig(files=(path,), key=f"{speaker}-{digit}-{take}"))
                yield speaker, digit, take, row.reshape(-1)


def accuracy(model: Model, taught: list[tuple[int, Array]], asked: list[tuple[int, Array]]) -> float:
    """Return the share of windows that get their digit by these examples."""
    examples = LearntExamples()
    examples.use(model.manifest)
    for digit, row in taught:
        examples.add(str(digit), [(f"clip@{digit}", row)], vectors_of(model.manifest))
    found = examples.taught(model.task()).decide(np.stack([row for _, row in asked])).best
    return float(np.mean([one.label == str(digit) for one, (digit, _) in zip(found, asked, strict=True)]))


def run(shared: Path) -> Report:
    """Measure all speakers and numbers of examples."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_model(packed(shared, folder)) as model:
            rows = list(last_answers(model, shared, folder))
            report = Report(
                "digits by a speaker's examples", ("examples a digit", "own voice", "worst", "others", "worst")
            )
            means = {}
            for shots in SHOTS:
                own, others = [], []
                for speaker in SPEAKERS:
                    for draw in range(DRAWS):
                        chosen = set(np.random.default_rng(draw).permutation(TAKES)[:shots].tolist())
                        mine = [(digit, take, row) for who, digit, take, row in rows if who == speaker]
                        taught = [(digit, row) for digit, take, row in mine if take in chosen]
                        own.append(accuracy(model, taught, [(d, row) for d, take, row in mine if take not in chosen]))
                        others.append(accuracy(model, taught, [(d, row) for who, d, _, row in rows if who != speaker]))
                by = [np.reshape(one, (len(SPEAKERS), DRAWS)).mean(axis=1) for one in (own, others)]
                means[shots] = [float(one.mean()) for one in by]
                report.rows.append((shots, *(round(float(x), 3) for one in by for x in (one.mean(), one.min()))))
    report.goals = [
        Goal("own voice, 1 example", means[1][0], 0.85),
        Goal("own voice, 5 examples", means[5][0], 0.9),
        Goal("other voices, gain of 5 examples over 1", means[5][1] - means[1][1], 0.05),
    ]
    report.notes = [f"{len(rows)} clips of {len(SPEAKERS)} speakers; {DRAWS} draws of examples; chance is 0.1"]
    return report


def main() -> int:
    """Print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path, metavar="SHARED")
    report = run(parser.parse_args().shared)
    print(report.text())
    return 0 if all(goal.met for goal in report.goals) else 1


if __name__ == "__main__":
    raise SystemExit(main())
