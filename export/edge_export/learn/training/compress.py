"""The trained student made smaller: channels pruned, weights trained with their rounding; on what the teacher said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import orjson
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import Float32
from edge_export.graph.onnx_graph.from_torch import to_onnx
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.qat import fake_quantized, harvest, write_learned
from edge_export.learn.networks import Calibrated
from edge_export.learn.prune import Pruned, Pruning, ScoringWindows, prune
from edge_export.learn.training.checkpoint import load_pruned, save_weights
from edge_export.learn.training.distill import distil
from edge_export.learn.training.history import Curve, load_curve
from edge_export.learn.training.loop import start
from edge_export.learn.training.task import TrainingTask, score_of
from edge_export.learn.training.teacher_student import SoftLabels, Student
from edge_export.recipe.recipe import PruneRecipe
from edge_export.recipe.training_spec import Training
from edge_export.step_cache import StepCache

EVIDENCE = 512
"""Windows of the pool that say which channels matter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundedStudent:
    """A student that was trained with its rounding.

    Attributes:
        graphs: integer ONNX graph by the type of its activations, at temperature 1.
        step: name of the step that made them.
        curve: its history.
    """

    graphs: Mapping[str, onnx.ModelProto]
    step: str
    curve: tuple[Curve, ...] = ()


def prune_student(
    task: TrainingTask, student: Student, soft_labels: SoftLabels, recipe: PruneRecipe, steps: StepCache
) -> tuple[Student, dict[str, Any]]:
    """Take channels out of the student, step by step, as far as validation groups allow.

    Returns:
        The smaller student, and what each step did, for the report.
    """

    def make(folder: Path) -> None:
        start(task.recipe.seed)
        pool = soft_labels.pool
        pruned = prune(
            student.network,
            Pruning(
                ratio=recipe.ratio,
                steps=recipe.steps,
                criterion=recipe.criterion,
                scope=recipe.scope,
                round_to=recipe.round_to,
            ),
            channels=len(task.contract.channels),
            samples=task.contract.window,
            evidence=ScoringWindows(x=pool.x[:EVIDENCE], y=pool.y[:EVIDENCE]),
            tune=lambda network: distil(
                network, pool, soft_labels.distillation, recipe.training, seed=task.recipe.seed + 1
            ),
            evaluate=lambda network: score_of(network, task.validation.x, task),
            max_drop=recipe.max_drop,
        )
        save_weights(pruned.network, folder / "weights.npz")
        (folder / "history.json").write_bytes(orjson.dumps(_history(pruned)))

    folder = steps.run("prune", {"student": student.step, "prune": recipe}, make)
    history: dict[str, Any] = orjson.loads((folder / "history.json").read_bytes())
    start(task.recipe.seed)
    smaller = load_pruned(student.blank(), folder / "weights.npz")
    return replace(student, network=smaller, step=folder.name), history


def _history(pruned: Pruned) -> dict[str, Any]:
    return {
        "before": {"score": pruned.score, **asdict(pruned.original)},
        "steps": [
            {
                "ratio": step.ratio,
                **asdict(step.size),
                "before_training": step.before,
                "score": step.after,
                "kept": step is not pruned.refused,
            }
            for step in (*pruned.steps, *([pruned.refused] if pruned.refused else []))
        ],
    }


def train_rounded(
    task: TrainingTask,
    student: Student,
    soft_labels: SoftLabels,
    recipe: Training,
    steps: StepCache,
    *,
    calibration: Float32,
    weight_bits: Any,
) -> RoundedStudent:
    """Train the student on with its rounding in the forward pass (quantisation-aware training).

    Args:
        task: what it learns.
        student: trained, whole or pruned.
        soft_labels: the teacher's answers.
        recipe: how long and how fast.
        steps: keeps the result.
        calibration: (n, n_channels, samples) windows of training groups, whose ranges are where learning starts.
        weight_bits: 7 or 8, see `edge_export.graph.quantize.Scheme`.
    """
    schemes = {kind: Scheme(activations=kind, weight_bits=weight_bits) for kind in ("uint8", "int8")}

    def make(folder: Path) -> None:
        start(task.recipe.seed)
        network: nn.Module = fake_quantized(student.network, calibration, schemes["uint8"])
        pool = soft_labels.pool
        history = task.history(recipe, task.validation.x, epoch=len(pool.y))
        distil(network, pool, soft_labels.distillation, recipe, seed=task.recipe.seed + 2, history=history)
        history.save(folder)
        learned = harvest(network)
        channels, samples = len(task.contract.channels), task.contract.window
        fp32 = to_onnx(Calibrated([learned.network]), channels=channels, samples=samples)
        for kind, scheme in schemes.items():
            onnx.save(write_learned(fp32, learned, calibration, scheme), str(folder / f"{kind}.onnx"))

    inputs = {
        "student": student.step,
        "training": recipe,
        "weight_bits": weight_bits,
        "calibration": [len(calibration), float(np.abs(calibration).max())],
    }
    folder = steps.run("round", inputs, make)
    graphs = {kind: onnx.load(str(folder / f"{kind}.onnx")) for kind in schemes}
    curve = load_curve(folder, "the student, trained on with its rounding")
    return RoundedStudent(graphs=graphs, step=folder.name, curve=curve)
