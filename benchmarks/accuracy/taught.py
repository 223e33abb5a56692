"""An embedding of speech as the teacher, beside the recipe's own, on speakers left out.

    python -m benchmarks.accuracy.taught SET --data ../shared

Both are trained by the same recipe, seeds and folds; the device's file has the same bytes. Answers are kept in
``--cache``, those of the recipe's own teacher where `python -m benchmarks.accuracy` keeps them.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import numpy as np
from edge_export.choose.surround.cross_fit import CLOUD, Folds, OutOfFold
from edge_export.recipe.network_spec import Embedding
from edge_export.recipe.recipe import Recipe, TeacherRecipe, load

from benchmarks.accuracy import scoring, speech
from benchmarks.accuracy.answers import FILES, answers_of, say
from benchmarks.accuracy.scoring import Floats, paired
from benchmarks.accuracy.sets import SETS

NAMES = {CLOUD: "teacher", **{name: f"device, {name}" for name in FILES}}


def main() -> int:
    """Print accuracy over groups, log loss and paired difference, then those of the mean of both teachers."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.taught", description=__doc__)
    parser.add_argument("set", metavar="SET", choices=[name for name, one in SETS.items() if one.kind == "sound"])
    parser.add_argument("--data", type=Path, required=True, help="the shared data and models")
    parser.add_argument("--cache", type=Path, default=Path("build/accuracy"))
    parser.add_argument("--seed", type=int, default=0, help="added to the recipe's: another training of the same")
    parser.add_argument("--times", type=int, default=1, help="as long trainings, on as many windows; default 1")
    given = parser.parse_args()
    one = SETS[given.set]
    recipe, folds = longer(load(one.recipe), given.times), Folds(one.folds, one.apart)
    name = one.name if given.times == 1 else f"{one.name}-{given.times}"
    own, other = given.cache / name, given.cache / f"{name}-embedding"
    folders = one.folders(given.data, {}, own)
    file = write_embedding(recipe, given.data, other)
    taught = answers_of(by_embedding(recipe, file), folders, other, say, folds=folds, seed=given.seed)
    today = answers_of(recipe, folders, own, say, folds=folds, seed=given.seed)
    print("| answers of | recipe's teacher | log loss | embedding | log loss | difference (95 %) |")
    print("|---|---|---|---|---|---|")
    for name in (CLOUD, *FILES):
        before, after = over_groups(today, name), over_groups(taught, name)
        mean, low, high = paired(after - before)
        cells = [f"{before.mean():.3f}", f"{log_loss(today, name):.3f}", f"{after.mean():.3f}"]
        cells += [f"{log_loss(taught, name):.3f}", f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"]
        print(f"| {NAMES[name]} | {' | '.join(cells)} |")
    both = dataclasses.replace(taught, given={CLOUD: np.float32(0.5) * (today.given[CLOUD] + taught.given[CLOUD])})
    mean, low, high = paired(over_groups(both, CLOUD) - over_groups(taught, CLOUD))
    gain = f"{mean:+.3f} ({low:+.3f} to {high:+.3f}) over the embedding"
    print(
        f"\nmean of both teachers: {over_groups(both, CLOUD).mean():.3f}, log loss {log_loss(both, CLOUD):.3f}; {gain}"
    )
    return 0


def write_embedding(recipe: Recipe, shared: Path, folder: Path) -> Path:
    """Write the embedding that takes a recipe's windows; return its file."""
    files, window = shared / "models" / "openwakeword-frontend", recipe.window
    model = speech.join(files, rate_hz=round(window.rate_hz), samples=window.samples)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "speech.onnx"
    path.write_bytes(model.SerializeToString(deterministic=True))
    return path


def longer(recipe: Recipe, times: int) -> Recipe:
    """Lengthen the trainings of teacher and student, and let the teacher label more windows."""
    teacher, student = recipe.teacher, recipe.student
    training = teacher.training and dataclasses.replace(teacher.training, steps=times * teacher.training.steps)
    taught = student.training and dataclasses.replace(student.training, steps=times * student.training.steps)
    return dataclasses.replace(
        recipe,
        teacher=dataclasses.replace(teacher, training=training),
        student=dataclasses.replace(student, pool=times * student.pool, training=taught),
    )


def by_embedding(recipe: Recipe, file: Path) -> Recipe:
    """Put an embedding in the place of a recipe's teacher."""
    return dataclasses.replace(recipe, teacher=TeacherRecipe(candidates=(Embedding(file=file),)))


def over_groups(found: OutOfFold, name: str) -> Floats:
    """(groups,) accuracy of each."""
    return scoring.over_groups(found.given[name].argmax(axis=1) == found.windows.y, found.windows.group)


def log_loss(found: OutOfFold, name: str) -> float:
    """Log loss of all answers."""
    return scoring.log_loss(found.given[name], found.windows.y)


if __name__ == "__main__":
    sys.exit(main())
