"""The two models of a build: the cloud's teacher, and the device's student in every form that could ship."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edge_export.choose.evaluation.calibration import fit_temperature
from edge_export.choose.selection.candidates import (
    LEARNED,
    Candidates,
    QuantizedStudent,
    candidates,
    quantize_student,
    same_integers,
)
from edge_export.choose.selection.limits import compressed_size
from edge_export.choose.selection.timing import answers
from edge_export.data.dataset import Float32, spread
from edge_export.graph.onnx_graph.from_torch import to_onnx
from edge_export.graph.onnx_graph.out_of_distribution import OodDetector, fit_ood_detector
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.passes.conv2d import as_conv2d
from edge_export.graph.quantize.mixed import round_to_halves
from edge_export.learn.networks import Calibrated, count
from edge_export.learn.training.compress import RoundedStudent, prune_student, train_rounded
from edge_export.learn.training.history import Curve
from edge_export.learn.training.task import TrainingTask, front_end, score
from edge_export.learn.training.teacher_student import (
    CloudTeacher,
    SoftLabels,
    Student,
    check_networks,
    fit_student,
    fit_teacher,
    given_teacher,
    refit_teacher,
)
from edge_export.metrics import REFERENCE
from edge_export.package.pack import VariantSource
from edge_export.recipe.feature_spec import FrontEnd
from edge_export.recipe.recipe import Recipe
from edge_export.recipe.splits import Splits
from edge_export.step_cache import Say, StepCache
from edge_runtime.errors import ConfigError

FRONT_END_WINDOWS = 2048
"""Training windows that offset and scale of the features are fitted to, evenly spread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Trained models and candidates, before anything was chosen by measurement.

    Attributes:
        teacher: the cloud's model.
        cloud: its file, at its temperature.
        cloud_temperature: fitted on validation groups.
        student: the float student's ONNX graph.
        quantized: the same in integers, and what was tried.
        candidates: the student's files.
        size: of the student.
        family: of the student's network.
        detector: of windows unlike those of training; None where the recipe asks for none.
        pruning: what pruning did; None where the recipe asks for none.
        learning: histories of the first fit's networks.
    """

    teacher: CloudTeacher
    cloud: VariantSource
    cloud_temperature: float
    student: onnx.ModelProto = field(repr=False)
    quantized: QuantizedStudent
    candidates: Candidates
    size: Mapping[str, int]
    family: str
    detector: OodDetector | None
    pruning: Mapping[str, Any] | None
    learning: tuple[Curve, ...] = ()

    def cloud_at(self, temperature: float) -> VariantSource:
        """Return the teacher's file at a temperature."""
        return _cloud(self.teacher, temperature)

    def metrics(self) -> dict[str, Any]:
        """Their part of the report."""
        return {
            "teacher": {
                "tried": list(self.teacher.tried),
                "members": len(self.teacher.members),
                "families": [type(family).__name__ for family, _ in self.teacher.chosen],
                "bytes": len(self.cloud.model),
                "zlib_bytes": compressed_size(self.cloud.model),
                "temperature": self.cloud_temperature,
            },
            "student": {**self.size, "family": self.family},
            "pruning": self.pruning,
            "learning": [asdict(curve) for curve in self.learning],
            "quantisation": _quantisation(self.quantized),
            "sensitivity": _sensitivity(self.quantized),
            "left_out": dict(self.candidates.left_out),
        }


def make_models(recipe: Recipe, splits: Splits, steps: StepCache, say: Say, given: Path | None = None) -> Models:
    """Train the teacher, and the student on its answers; prune, quantise and write the student.

    Args:
        recipe: how.
        splits: windows to train on, and to choose by.
        steps: keep what takes long.
        say: told what was reached.
        given: the teacher's file, where the recipe says that it is given.

    Raises:
        ConfigError: a network does not fit its window, or the teacher's file is missing or of no use.
    """
    task, front, own_front, calibration = _start(recipe, splits)
    check_networks(task, front, own_front)
    teacher = _teacher(task, front, steps, say, given)
    soft_labels = SoftLabels(task, teacher)
    student = fit_student(task, own_front, teacher, soft_labels, steps)
    pruning = None
    if recipe.prune is not None:
        student, pruning = prune_student(task, student, soft_labels, recipe.prune, steps)
    rounded = _rounded(task, student, soft_labels, calibration, steps)
    fp32 = _float_graph(task, student)
    quantised = quantize_student(
        fp32,
        calibration,
        splits.validation.x,
        lambda given: score(given, splits.validation.y, recipe.metric),
        recipe.quantise,
        max_drop=recipe.limits.max_accuracy_drop,
        learned=rounded.graphs if rounded else None,
    )
    floats = f"; in float: {', '.join(quantised.in_float)}" if quantised.in_float else ""
    say(f"quantised by {quantised.ranges}: {quantised.score:.4f} (float {quantised.float_score:.4f}){floats}")
    detector = fit_ood_detector(splits.train, splits.validation) if recipe.gate.unfamiliar else None
    temperature = fit_temperature(answers(_cloud(teacher, 1.0), splits.validation.contexts), splits.validation.y)
    return Models(
        teacher=teacher,
        cloud=_cloud(teacher, temperature),
        cloud_temperature=temperature,
        student=fp32,
        quantized=quantised,
        candidates=candidates(fp32, quantised.graphs, detector=detector, mixed=bool(quantised.kept)),
        size=asdict(count(student.network, channels=len(task.contract.channels), samples=task.contract.window)),
        family=type(recipe.student.network).__name__,
        detector=detector,
        pruning=pruning,
        learning=(*teacher.curves, *student.curve, *(rounded.curve if rounded else ())),
    )


def refit_models(recipe: Recipe, splits: Splits, first: Models, steps: StepCache, say: Say) -> Models:
    """Train what was chosen again, on training and validation groups together.

    1. Networks: the families, the ensemble and the length of training of the first fit.
    2. Integers: the first fit's way to find ranges, and its layers in float; the ranges of windows of both sets.
    3. The cloud's temperature, and how far from training a familiar window may lie, stay the first fit's, as the
       device's temperature and the gate's threshold do: they need groups that the network has not seen.

    Args:
        recipe: how.
        splits: the splits of the first fit, with validation groups among those to train on.
        first: what was chosen.
        steps: keep what takes long.
        say: told what is trained on.
    """
    say(f"trained again on {', '.join(splits.recordings.train.groups)}, as chosen:")
    task, front, own_front, calibration = _start(recipe, splits)
    teacher = refit_teacher(task, front, first.teacher, steps, say)  # rule 1
    soft_labels = SoftLabels(task, teacher)
    student = fit_student(task, own_front, teacher, soft_labels, steps)
    rounded = _rounded(task, student, soft_labels, calibration, steps) if first.quantized.ranges == LEARNED else None
    fp32 = _float_graph(task, student)
    quantised = same_integers(
        fp32, calibration, first.quantized, recipe.quantise, learned=rounded.graphs if rounded else None
    )  # rule 2
    return replace(
        first,
        teacher=teacher,
        cloud=_cloud(teacher, first.cloud_temperature),  # rule 3
        student=fp32,
        quantized=quantised,
        candidates=candidates(fp32, quantised.graphs, detector=first.detector, mixed=bool(quantised.kept)),
    )


def _start(recipe: Recipe, splits: Splits) -> tuple[TrainingTask, FrontEnd, FrontEnd, Float32]:
    """Make the task, the front ends of teacher and student, and the windows that set ranges of integers."""
    task = TrainingTask(
        recipe=recipe,
        contract=recipe.window.contract(),
        train=splits.recordings.train,
        validation=splits.validation,
        data=splits.digest,
        windows=len(splits.train),
    )
    seen = splits.train.x[spread(len(splits.train), FRONT_END_WINDOWS)]
    calibration = splits.train.x[spread(len(splits.train), recipe.quantise.calibration_windows)]
    return task, front_end(recipe, seen), front_end(recipe, seen, whose="student"), calibration


def _float_graph(task: TrainingTask, student: Student) -> onnx.ModelProto:
    """Write the student as an ONNX graph at temperature 1, its weights as exact as the recipe says."""
    channels, samples = len(task.contract.channels), task.contract.window
    fp32 = to_onnx(Calibrated([student.network]), channels=channels, samples=samples)
    if task.recipe.student.weights == "float16":
        fp32 = round_to_halves(fp32)
    return fp32


def _teacher(task: TrainingTask, front: FrontEnd, steps: StepCache, say: Say, given: Path | None) -> CloudTeacher:
    if given is not None:
        return given_teacher(task, given, steps.folder / "asked")
    if task.recipe.teacher.given:
        raise ConfigError("the recipe's teacher is given: name its file with --teacher MODEL.onnx")
    return fit_teacher(task, front, steps, say)


def _cloud(teacher: CloudTeacher, temperature: float) -> VariantSource:
    model = canonicalise(as_conv2d(teacher.at(temperature))).SerializeToString()
    return VariantSource(name=REFERENCE, model=model, format="onnx", precision="fp32")


def _rounded(
    task: TrainingTask, student: Student, soft_labels: SoftLabels, calibration: Float32, steps: StepCache
) -> RoundedStudent | None:
    """Train the student with its rounding; None where the recipe asks for none."""
    recipe = task.recipe.quantise
    if recipe.training is None:
        return None
    return train_rounded(
        task, student, soft_labels, recipe.training, steps, calibration=calibration, weight_bits=recipe.weight_bits
    )


def _quantisation(found: QuantizedStudent) -> dict[str, Any]:
    return {
        "ranges": found.ranges,
        "tried": dict(found.tried),
        "float_score": found.float_score,
        "score": found.score,
        "kept_in_float": [asdict(kept) for kept in found.kept],
        "operators_in_float": dict(found.in_float),
    }


def _sensitivity(found: QuantizedStudent) -> list[dict[str, Any]]:
    return [
        {
            "layer": layer.layer,
            # Every layer quantised alone may change nothing at all, and JSON has no infinity.
            "alone_db": layer.alone_db if np.isfinite(layer.alone_db) else None,
            "drop": layer.drop,
            "bytes": found.sizes[layer.layer],
        }
        for layer in found.layers
    ]
