"""Converts many models, runs the files in child processes, and sorts what came out.

    python -m tests.edge_export.graph.tflite.suite            # counts of docs/export.md, for every engine that is there
    python -m tests.edge_export.graph.tflite.suite attention  # the cases whose names hold a word, one by one

Outcomes: ``right``; ``refused`` (the writer said so, with a reason); ``not loaded`` (the engine refused the file);
``wrong``; ``aborted`` (the engine ended its process); ``traceback`` (the writer raised anything but its own error).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from edge_export.graph.tflite.convert import convert
from edge_export.graph.tflite.lower.patterns import replace
from onnx import numpy_helper

from edge_runtime.errors import ConfigError
from tests.edge_export.backend_suite import alike, cases
from tests.edge_export.graph.tflite.compare import is_open

ROOT = Path(__file__).resolve().parents[4]
_CHUNK = 400

_FIXED = " (constants)"
"""Marks the second form of a case: all inputs but the first are constants in the file."""

Array = np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A model with inputs, and the answers that it must give to them."""

    name: str
    model: onnx.ModelProto
    inputs: Mapping[str, Array]
    outputs: tuple[Array, ...]
    rtol: float = 1e-3
    atol: float = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a trial: one of the words above, and why."""

    word: str
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An interpreter of Python that has an engine."""

    name: str
    python: str = field(default=sys.executable)


def engines() -> tuple[Engine, ...]:
    """LiteRT, and tflite-runtime 2.14 where `TFLITE_RUNTIME_PYTHON` or ``.venvs/tflite-runtime`` has it."""
    old = os.environ.get("TFLITE_RUNTIME_PYTHON") or str(ROOT / ".venvs/tflite-runtime/bin/python")
    return (Engine(name="LiteRT"), *([Engine(name="tflite-runtime", python=old)] if Path(old).exists() else []))


def backend_trials(of: int = 1) -> list[Trial]:
    """ONNX's backend suite, or one part of `of` parts of it."""
    made = []
    for case in cases():
        if not case.within(0, of):
            continue
        rest = {name: array for place, (name, array) in enumerate(case.inputs.items()) if place}
        name = f"{case.kind}/{case.name}"
        given = Trial(name=name, model=case.model, inputs=case.inputs, outputs=case.outputs, rtol=case.rtol)
        made.append(given)
        if rest and case.tensors:
            first = {name: array for name, array in case.inputs.items() if name not in rest}
            made.append(replaced(given, name=f"{name}{_FIXED}", model=fixed(case.model, rest), inputs=first))
    return made


def fixed(model: onnx.ModelProto, constants: Mapping[str, Array]) -> onnx.ModelProto:
    """The model with some inputs as weights: a single node gets them as inputs, a network has them in the file."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    kept = [info for info in made.graph.input if info.name not in constants]
    replace(made.graph.input, kept)
    made.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    return made


class Once:
    """The writer, asked once for each model: trials in several batches and on several engines share the file."""

    def __init__(self) -> None:
        self._found: dict[int, tuple[onnx.ModelProto, bytes | Exception]] = {}

    def __call__(self, model: onnx.ModelProto) -> bytes:
        """The file of this very object, or the exception that its conversion raised."""
        if id(model) not in self._found:
            self._found[id(model)] = model, _converted(model)  # the model is kept, so that its id stays its own
        _, found = self._found[id(model)]
        if isinstance(found, Exception):
            raise found
        return found


def _converted(model: onnx.ModelProto) -> bytes | Exception:
    try:
        return convert(model)
    except Exception as error:
        return error


def attempt(trials: Iterable[Trial], engine: Engine, *, write: Callable[[Any], bytes] = convert) -> dict[str, Outcome]:
    """Convert and run every trial on one engine.

    Args:
        trials: models with inputs and answers.
        engine: where the files are run.
        write: gives the file of a model, and raises as the writer does.
    """
    found: dict[str, Outcome] = {}
    with tempfile.TemporaryDirectory() as folder:
        waiting: dict[str, Trial] = {}
        for place, trial in enumerate(trials):
            try:
                written = write(trial.model)
            except ConfigError as error:
                found[trial.name] = Outcome(word="refused", why=str(error))
                continue
            except Exception as error:
                found[trial.name] = Outcome(word="traceback", why=f"{type(error).__name__}: {error}")
                continue
            if _is_batch(trial) and not is_open(written):
                found[trial.name] = Outcome(word="refused", why="the file holds for a batch of 1")
                continue
            path = Path(folder, f"{place:05}.tflite")
            path.write_bytes(written)
            path.with_suffix(".names").write_text("\n".join(trial.inputs), encoding="utf-8")
            np.savez(path.with_suffix(".npz"), *trial.inputs.values())
            waiting[path.stem] = trial
        ended = _run(Path(folder), list(waiting), engine)
        for stem, trial in waiting.items():
            found[trial.name] = ended.get(stem) or _judge(Path(folder, f"{stem}.tflite"), trial)
    return found


def _is_batch(trial: Trial) -> bool:
    """Whether more than one window goes into a model that leaves the batch open."""
    if not isinstance(trial.model, onnx.ModelProto):
        return False
    opened = {
        info.name for info in trial.model.graph.input if any(d.dim_param for d in info.type.tensor_type.shape.dim)
    }
    return any(name in opened and array.shape[0] != 1 for name, array in trial.inputs.items())


def _run(folder: Path, stems: list[str], engine: Engine) -> dict[str, Outcome]:
    """Let the engine answer; returns the files that ended its process."""
    aborted: dict[str, Outcome] = {}
    script = str(Path(__file__).with_name("answer_files.py"))
    while stems:
        chunk = stems[:_CHUNK]
        done = subprocess.run(
            [engine.python, "-I", script, str(folder), *chunk], check=False, capture_output=True, text=True, timeout=600
        )
        if done.returncode == 0:
            stems = stems[len(chunk) :]
            continue
        named = done.stdout.split()
        assert named, done.stderr
        aborted[named[-1]] = Outcome(word="aborted", why=f"exit {done.returncode}: {done.stderr[-200:]}")
        stems = stems[stems.index(named[-1]) + 1 :]
    return aborted


def _judge(path: Path, trial: Trial) -> Outcome:
    if path.with_suffix(".error").exists():
        return Outcome(word="not loaded", why=path.with_suffix(".error").read_text(encoding="utf-8"))
    with np.load(path.with_suffix(".answers.npz")) as stored:
        answers = [stored[name] for name in stored.files]
    if len(answers) != len(trial.outputs):
        return Outcome(word="wrong", why=f"{len(answers)} answers for {len(trial.outputs)}")
    for place, (answer, expected) in enumerate(zip(answers, trial.outputs, strict=True)):
        if answer.shape != expected.shape or answer.dtype != expected.dtype:
            why = f"output {place}: {answer.dtype}{list(answer.shape)} for {expected.dtype}{list(expected.shape)}"
            return Outcome(word="wrong", why=why)
        finite = np.abs(expected[np.isfinite(expected)], dtype=np.float64) if expected.dtype.kind == "f" else expected
        size = float(finite.max(initial=0)) if expected.dtype.kind == "f" else 0.0
        exact = expected.dtype.kind != "f"
        if not alike(answer, expected, rtol=0 if exact else trial.rtol, atol=0 if exact else trial.atol * (1 + size)):
            return Outcome(word="wrong", why=f"output {place}: {answer.ravel()[:4]} for {expected.ravel()[:4]}")
    return Outcome(word="right")


def reason(why: str) -> str:
    """A refusal without names and sizes, to count by."""
    kind = re.search(r"node '.*?' \((\w+)\) cannot", why)
    text = re.sub(r"'[^']*'", "'...'", why.partition("TensorFlow Lite: ")[2] or why)
    return f"{kind.group(1) + ': ' if kind else ''}{re.sub(r'[0-9]+', '#', text)}"[:150]


_WORST_FIRST = ("traceback", "aborted", "wrong", "not loaded", "right", "refused")


def by_case(found: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """One outcome a case: the worst of its forms, where any is bad; else right if either is."""
    made: dict[str, Outcome] = {}
    for name, outcome in found.items():
        case = name.removesuffix(_FIXED)
        made[case] = min(made.get(case, outcome), outcome, key=lambda each: _WORST_FIRST.index(each.word))
    return made


def main() -> None:
    wanted = sys.argv[1:]
    trials = [trial for trial in backend_trials() if not wanted or any(word in trial.name for word in wanted)]
    write = Once()
    for engine in engines():
        found = attempt(trials, engine, write=write)
        whole = by_case(found)
        print(f"\n{engine.name}: {len(whole)} cases, {len(found)} files asked for")
        for (kind, word), count in sorted(Counter((n.split("/")[0], o.word) for n, o in whole.items()).items()):
            print(f"  {kind:20} {word:12} {count}")
        for name, outcome in found.items():
            if wanted or outcome.word not in ("right", "refused"):
                print(f"  {outcome.word:10} {name}: {outcome.why[:300]}")
        if not wanted:
            for why, count in Counter(reason(o.why) for o in whole.values() if o.word == "refused").most_common():
                print(f"  {count:5} {why}")


if __name__ == "__main__":
    main()
