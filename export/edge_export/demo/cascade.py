"""A device model and a cloud model made for each other, judged on people neither has seen.

The device's network learns from the cloud's; the gate between them is set on answers to people held out in turn, each
answered by a pair trained on all the others and quantised as it will be shipped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import onnx

from edge_export.augment.windows import Augmentation, WindowSampler
from edge_export.data.dataset import Dataset, Float32, Int64, Windows, cut_windows, leave_one_group_out, spread
from edge_export.networks import Calibrated, ContextNet, DeviceNet
from edge_export.onnx_graph.from_torch import to_onnx
from edge_export.onnx_graph.passes.canonicalise import canonicalise
from edge_export.onnx_graph.passes.conv2d import as_conv2d
from edge_export.package.pack import VariantSource
from edge_export.quantize import Scheme, quantize
from edge_export.recipe.training_spec import Training
from edge_export.selection.limits import targets_for
from edge_export.selection.timing import answers
from edge_export.training.baseline import random_forest
from edge_export.training.distill import Distillation, distil, label_pool
from edge_export.training.loop import answer, fit_labels, start


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadePlan:
    """Everything that decides what comes out, besides the data.

    Attributes:
        samples: the device's window.
        hop: distance of windows.
        context: samples the cloud sees, ending with the window.
        scale: factor per channel in front of both networks.
        augmentation: of training windows.
        teacher: training of the cloud's networks.
        members: networks of the cloud's ensemble.
        fold_members: the same while people are held out; fewer save time, and make the promise a cautious one.
        student: training of the device's network.
        distillation: what the device's network learns from.
        weight_bits: of the device's quantised network; 7 gives the same answers on every processor (`Scheme`).
        calibration_windows: number of training windows that set the ranges of the integers.
        seed: of everything random.
    """

    samples: int
    hop: int
    context: int
    scale: tuple[float, ...]
    augmentation: Augmentation
    teacher: Training
    members: int
    fold_members: int
    student: Training
    distillation: Distillation
    weight_bits: Literal[7, 8] = 7
    calibration_windows: int = 512
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """A trained pair.

    Attributes:
        device: answers (batch, channels, samples) with logits.
        members: answer (batch, channels, context) with logits.
        calibration: (n, channels, samples) windows of the people trained on.
    """

    device: DeviceNet
    members: tuple[ContextNet, ...]
    calibration: Float32


def fit_cascade(dataset: Dataset, plan: CascadePlan, *, members: int) -> Cascade:
    """Train the cloud's ensemble on labels and the device's network on both.

    Args:
        dataset: recordings of the people to train on alone.
        plan: how.
        members: networks of the ensemble.
    """
    classes = len(dataset.classes)
    trained = []
    for member in range(members):
        start(plan.seed + member)
        sampler = WindowSampler(dataset, samples=plan.context, augmentation=plan.augmentation, seed=plan.seed + member)
        trained.append(fit_labels(ContextNet(scale=plan.scale, classes=classes), sampler, plan.teacher))
    start(plan.seed)
    # Every context of the pool is whole: what the student sees is never filling.
    sampler = WindowSampler(
        dataset,
        samples=plan.context,
        augmentation=replace(plan.augmentation, short_history=0.0),
        seed=plan.seed + members,
    )
    pool = label_pool(Calibrated(trained), sampler, size=plan.distillation.pool, samples=plan.samples)
    student = DeviceNet(scale=plan.scale, classes=classes)
    distil(student, pool, plan.distillation, plan.student, seed=plan.seed)
    windows = cut_windows(dataset, samples=plan.samples, hop=plan.hop).x
    chosen = spread(len(windows), plan.calibration_windows)
    return Cascade(device=student, members=tuple(trained), calibration=windows[chosen])


def device_onnx(cascade: Cascade, plan: CascadePlan, temperature: float) -> onnx.ModelProto:
    """Export the device's network as float ONNX, answering with probabilities at this temperature."""
    return to_onnx(Calibrated([cascade.device], temperature), channels=len(plan.scale), samples=plan.samples)


def cloud_onnx(cascade: Cascade, plan: CascadePlan, temperature: float) -> onnx.ModelProto:
    """Export the cloud's ensemble as float ONNX, answering with probabilities at this temperature."""
    return to_onnx(Calibrated(cascade.members, temperature), channels=len(plan.scale), samples=plan.context)


def device_int8(
    model: onnx.ModelProto, cascade: Cascade, plan: CascadePlan, activations: Literal["uint8", "int8"]
) -> onnx.ModelProto:
    """Quantise the device's float model, calibrated on people trained on."""
    return canonicalise(
        quantize(model, cascade.calibration, Scheme(activations=activations, weight_bits=plan.weight_bits))
    )


def onnx_source(name: str, model: onnx.ModelProto) -> VariantSource:
    """Serialise a graph as a file; its name says precision and scheme, as in ``onnx-fp32`` and ``onnx-int8-u8s8``."""
    _, precision, *rest = name.split("-")
    scheme = "".join(rest)
    return VariantSource(
        name=name,
        model=canonicalise(as_conv2d(model)).SerializeToString(),
        format="onnx",
        precision="int8" if precision == "int8" else "fp32",
        scheme=scheme,
        targets=targets_for("onnx", scheme),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfFold:
    """Answers to every person by models that have not seen this person, at temperature 1.

    Attributes:
        windows: of all people.
        device: (n, classes) of the quantised device model.
        device_fp32: (n, classes) of the float device model.
        cloud: (n, classes) of the ensemble.
        forest: (n,) classes by the random forest.
    """

    windows: Windows
    device: Float32
    device_fp32: Float32
    cloud: Float32
    forest: Int64


def cross_validate(dataset: Dataset, plan: CascadePlan, say: Callable[[str], None]) -> OutOfFold:
    """Hold out each person in turn and let models trained on the others answer.

    Args:
        dataset: people to train and tune on; those kept for the end must not be in it.
        plan: how to train.
        say: told one line per person.
    """
    windows = cut_windows(dataset, samples=plan.samples, hop=plan.hop, context=plan.context)
    shape = (len(windows), len(dataset.classes))
    device, device_fp32, cloud = (np.zeros(shape, np.float32) for _ in range(3))
    forest = np.zeros(len(windows), np.int64)
    for person, others, _ in leave_one_group_out(dataset):
        held_out = windows.group == person
        x, contexts, y = windows.x[held_out], windows.contexts[held_out], windows.y[held_out]
        cascade = fit_cascade(others, plan, members=plan.fold_members)
        fp32 = device_onnx(cascade, plan, 1.0)
        int8 = device_int8(fp32, cascade, plan, "uint8")
        device[held_out] = answers(onnx_source("onnx-int8-u8s8", int8), x)
        device_fp32[held_out] = answers(onnx_source("onnx-fp32", fp32), x)
        cloud[held_out] = answer(Calibrated(cascade.members).eval(), contexts)
        seen = cut_windows(others, samples=plan.samples, hop=plan.hop)
        forest[held_out] = random_forest(seen.x, seen.y, x, seed=plan.seed)
        right = [float((p[held_out].argmax(axis=1) == y).mean()) for p in (device_fp32, device, cloud)]
        say(
            f"  person {person:>2} held out: forest {float((forest[held_out] == y).mean()):.3f}  device fp32 "
            f"{right[0]:.3f}  int8 {right[1]:.3f}  cloud {right[2]:.3f}"
        )
    return OutOfFold(windows=windows, device=device, device_fp32=device_fp32, cloud=cloud, forest=forest)
