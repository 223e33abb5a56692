"""Teachers, asked for the right answer: anything that answers contexts with log-probabilities.

A teacher need not be ours, nor a torch network: any ONNX file will do. What it says of a set of windows is kept in a
file named by digests of both, so nothing is asked twice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import Float32
from edge_runtime.errors import ConfigError, EngineError, InputError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions

Output = Literal["logits", "probabilities"]

LEAST = 1e-12
"""Floor of a probability before its logarithm."""


class Teacher(Protocol):
    """Answers contexts."""

    def answer(self, contexts: Float32) -> Float32:
        """(n, channels, samples) in physical units to (n, classes) log-probabilities."""
        ...


def log_probabilities(answers: npt.NDArray[Any], output: Output) -> Float32:
    """Answers of either kind as log-probabilities, (n, classes) float32."""
    if output == "probabilities":
        known: Float32 = np.log(np.maximum(answers, LEAST)).astype(np.float32)
        return known
    wide = answers.astype(np.float64)
    wide -= wide.max(axis=1, keepdims=True)
    normal: Float32 = (wide - np.log(np.exp(wide).sum(axis=1, keepdims=True))).astype(np.float32)
    return normal


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchTeacher:
    """A torch network as a teacher.

    Attributes:
        network: (batch, channels, samples) to (batch, classes).
        output: what it answers with.
    """

    network: Any
    output: Output = "logits"

    def answer(self, contexts: Float32) -> Float32:
        """See `Teacher.answer`."""
        from edge_export.learn.training.loop import answer  # noqa: PLC0415 - the only kind of teacher that needs torch

        # In float32 from end to end, as the demo's students were taught.
        if self.output == "probabilities":
            logarithms: Float32 = np.log(np.maximum(answer(self.network.eval(), contexts), LEAST))
            return logarithms
        return log_probabilities(answer(self.network.eval(), contexts), self.output)


ALONE = 1e-3
"""Largest difference between an answer among others and alone, relative to the largest answer: rounding stays below."""


def require_alone(together: npt.NDArray[Any], alone: npt.NDArray[Any], *, who: str) -> None:
    """Refuse answers to some windows that differ from those to each of them alone.

    Raises:
        ConfigError: they differ by more than rounding; says by how much.
    """
    difference = float(np.abs(together - alone).max())
    if not difference <= ALONE * max(1.0, float(np.abs(together).max())):
        raise ConfigError(
            f"{who}: its answers to {len(together)} windows together differ by {difference:.3g} from those to "
            "each alone; a maximum, a mean or a clip over the batch makes a window depend on those beside it: "
            "export it so that each window is computed by itself"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxTeacher:
    """Any ONNX file that maps (batch, channels, samples) to (batch, classes).

    Attributes:
        model: the file's bytes.
        output: what it answers with.
        classes: how many answers it must give; 0 asks nothing.
        batch: windows it is given at a time; 1 for files with a fixed batch.
        cache: folder where its answers are kept, made if missing; None keeps none.
    """

    model: bytes = field(repr=False)
    output: Output
    classes: int = 0
    batch: int = 64
    cache: Path | None = None

    def answer(self, contexts: Float32) -> Float32:
        """See `Teacher.answer`.

        Raises:
            ConfigError: the model does not take such windows, gives another number of classes, or answers with numbers
                that are not finite, or not probabilities where it should.
        """
        contexts = np.ascontiguousarray(contexts, np.float32)
        kept = self._kept(contexts)
        if kept is not None and kept.exists():
            return _read(kept)
        answers = self._ask(contexts)
        self._check(answers, len(contexts))
        logarithms = log_probabilities(answers, self.output)
        if kept is not None:
            kept.parent.mkdir(parents=True, exist_ok=True)
            # Beside, then renamed: a file that was cut short would be believed.
            partial = kept.with_suffix(".partial")
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, answers=logarithms)
            partial.replace(kept)
        return logarithms

    def check_alone(self, contexts: Float32) -> None:
        """Refuse a model whose answer to a window depends on the windows beside it.

        A device's server asks about one window at a time, or about some together, as they come.

        Raises:
            ConfigError: answers differ by more than rounding; says by how much.
        """
        contexts = np.ascontiguousarray(contexts, np.float32)
        together, alone = self._ask(contexts), replace(self, batch=1)._ask(contexts)  # noqa: SLF001 - ourselves
        require_alone(together, alone, who="teacher")

    def _kept(self, contexts: Float32) -> Path | None:
        if self.cache is None:
            return None
        digest = hashlib.sha256(hashlib.sha256(self.model).digest())
        digest.update(f"{self.output} {contexts.shape}".encode())
        digest.update(contexts.tobytes())
        return self.cache / f"{digest.hexdigest()}.npz"

    def _ask(self, contexts: Float32) -> npt.NDArray[Any]:
        try:
            engine = engines.load("onnxruntime", self.model, EngineOptions(max_batch=self.batch))
        except EngineError as error:
            raise ConfigError(f"teacher: {error}") from error
        try:
            parts = [
                np.array(engine.run(contexts[begin : begin + self.batch])[0])
                for begin in range(0, len(contexts), self.batch)
            ]
        except (EngineError, InputError) as error:
            takes = engine.inputs[0].shape
            raise ConfigError(f"teacher: takes windows of shape {takes}, not {contexts.shape}: {error}") from error
        finally:
            engine.close()
        return np.concatenate(parts)

    def _check(self, answers: npt.NDArray[Any], count: int) -> None:
        if answers.ndim != 2 or len(answers) != count or (self.classes and answers.shape[1] != self.classes):
            wanted = f"({count}, {self.classes or 'classes'})"
            raise ConfigError(f"teacher: answers with shape {answers.shape}, not {wanted}; is it the right model?")
        if not np.isfinite(answers).all():
            raise ConfigError("teacher: its answers are not finite; check the model and the unit of the windows")
        if self.output == "probabilities" and (answers.min() < -1e-3 or abs(answers.sum(axis=1) - 1).max() > 1e-2):
            raise ConfigError("teacher: its answers are no probabilities; say that its output is logits")


def _read(path: Path) -> Float32:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            answers: Float32 = stored["answers"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ConfigError(f"{path.name}: cached answers of a teacher cannot be read; delete the file") from error
    return answers
