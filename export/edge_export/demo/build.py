"""Build of the shoulder-exercise demo.

``edge-export demo SEGLEARN -o examples/exercise-watch``

`SEGLEARN` is the wheel of the Python package ``seglearn`` 1.2.5 (``pip download --no-deps seglearn==1.2.5``), or a
folder with its data. Written are two bundles, the demo people's recordings, and the figures. About eight minutes on
one core; the same bytes for the same package versions on the same kind of processor.

Who is used for what: everything is trained, and every number chosen, on `TRAINING_PEOPLE`, held out one at a time. The
`DEMO_PEOPLE` answer once, at the end, and nothing is chosen by what they answer.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from edge_export.augment.windows import Augmentation
from edge_export.data.dataset import Dataset, Float32, Windows, cut_windows, load_recordings, save_recordings
from edge_export.data.readers.seglearn import ARRAY_SHA256, MIRROR
from edge_export.demo.cascade import (
    CascadePlan,
    OutOfFold,
    cloud_onnx,
    cross_validate,
    device_int8,
    device_onnx,
    fit_cascade,
    onnx_source,
)
from edge_export.evaluation.calibration import (
    SCORES,
    GateMetrics,
    area_under_risk_coverage,
    at_temperature,
    fit_temperature,
    gate_curve,
    gate_metrics,
    negative_log_likelihood,
    scores,
    threshold_for_share,
)
from edge_export.package.pack import VariantSource, pack
from edge_export.recipe.training_spec import Training
from edge_export.selection.candidates import TOLERANCE_INT8
from edge_export.selection.timing import answers
from edge_export.tflite.convert import convert
from edge_export.training.baseline import random_forest
from edge_export.training.distill import Distillation
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel, GateSpec, InputContract, OutputContract

TRAINING_PEOPLE = ("1", "2", "4", "5", "7")
DEMO_PEOPLE = ("8", "10")

PLAN = CascadePlan(
    samples=100,
    hop=50,
    context=300,
    # Gravity is 1 g and a brisk turn 2.5 rad/s: afterwards both are about 1.
    scale=(1.0, 1.0, 1.0, 0.4, 0.4, 0.4),
    augmentation=Augmentation(
        triads=((0, 1, 2), (3, 4, 5)),
        # A watch turns on the wrist, about the forearm (x), more than it tilts.
        rotation_rad=(0.2, 0.1, 0.1),
        rates=(3, 4, 5),
        speed=0.3,
        gain=0.25,
        noise=(0.03, 0.03, 0.03, 0.06, 0.06, 0.06),
        mirror=tuple(float(factor) for factor in MIRROR),
        short_history=0.3,
        shortest=100,
    ),
    teacher=Training(steps=900, weight_decay=0.1),
    members=3,
    fold_members=1,
    student=Training(steps=1800, learning_rate=1e-2),
    distillation=Distillation(pool=16_384),
)

FORWARDED_SHARE = 0.2
"""Budget of the gate: share of windows of unknown people that may go to the cloud."""

CURVE_SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)

ENGINES = {"onnx": "onnxruntime", "tflite": "litert"}
"""That answer here, by format."""

RECORDING_STEPS = (2.0**-12,) * 3 + (2.0**-10,) * 3
"""Of the stored recordings: 0.24 mg and 0.98 mrad/s, a hundredth of the sensors' own noise; range 8 g and 32 rad/s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Temperatures and threshold, as the held-out training people decide.

    Attributes:
        device_temperature: of the quantised device model.
        cloud_temperature: of the ensemble.
        threshold: of the gate, on the device's confidence at its temperature.
    """

    device_temperature: float
    cloud_temperature: float
    threshold: float


def calibrate(held_out: OutOfFold, share: float) -> Calibration:
    """Set temperatures and threshold on people that the answering models have not seen."""
    device_temperature = fit_temperature(held_out.device, held_out.windows.y)
    trust = scores(at_temperature(held_out.device, device_temperature), "confidence")
    return Calibration(
        device_temperature=device_temperature,
        cloud_temperature=fit_temperature(held_out.cloud, held_out.windows.y),
        # Four digits: the rest is noise, and a person may have to type it.
        threshold=round(threshold_for_share(trust, share), 4),
    )


def build(dataset: Dataset, plan: CascadePlan, *, training: Sequence[str], demo: Sequence[str], out: Path) -> None:
    """Train, calibrate, quantise, convert, judge, and write everything into a folder.

    Args:
        dataset: recordings of both sets of people.
        plan: how to train.
        training: people to train and tune on.
        demo: people who answer at the end.
        out: existing folder to write into.

    Raises:
        EdgeError: the data does not fit the plan, or a model cannot be converted.
    """
    if set(training) & set(demo):
        raise ConfigError("the demo's people must not be among those trained on")
    clock = SystemClock()
    began = clock.monotonic()
    learned, shown = dataset.only(training), dataset.only(demo)
    save_recordings(out / "recordings.npz", shown, scale=RECORDING_STEPS)
    # What is judged is what is shipped: the recordings as stored, not as they were before rounding.
    shown = load_recordings(out / "recordings.npz")

    _say(f"people {', '.join(training)} held out in turn:")
    held_out = cross_validate(learned, plan, _say)
    calibration = calibrate(held_out, FORWARDED_SHARE)
    promise = _held_out_figures(held_out, calibration)

    _say(f"trained on people {', '.join(training)}:")
    cascade = fit_cascade(learned, plan, members=plan.members)
    fp32 = device_onnx(cascade, plan, calibration.device_temperature)
    signed = device_int8(fp32, cascade, plan, "int8")
    unsigned = device_int8(fp32, cascade, plan, "uint8")
    teacher = onnx_source("onnx-fp32", cloud_onnx(cascade, plan, calibration.cloud_temperature))
    models = _variants(fp32, signed, unsigned)

    windows = cut_windows(shown, samples=plan.samples, hop=plan.hop, context=plan.context)
    device = {name: answers(model, windows.x, engine=ENGINES[model.format]) for name, model in models.items()}
    cloud = answers(teacher, windows.contexts, engine=ENGINES[teacher.format])
    seen = cut_windows(learned, samples=plan.samples, hop=plan.hop)
    forest = random_forest(seen.x, seen.y, windows.x, seed=plan.seed)
    unseen = _demo_figures(windows, device, cloud, forest, calibration)

    sizes = {"onnx-fp32-teacher": len(teacher.model), **{name: len(model.model) for name, model in models.items()}}
    facts = {
        "people": {"trained_and_tuned_on": list(training), "demo": list(demo)},
        "temperature": {"device": calibration.device_temperature, "cloud": calibration.cloud_temperature},
        "gate": {"score": "confidence", "threshold": calibration.threshold, "budget": FORWARDED_SHARE},
        "held_out": promise,
        "demo": unseen,
        "bytes": sizes,
        "parameters": {
            "device": _parameters(cascade.device),
            "cloud": sum(_parameters(member) for member in cascade.members),
        },
        "versions": {name: version(name) for name in ("numpy", "onnx", "onnxruntime", "scikit-learn", "torch")},
    }
    (out / "figures.json").write_text(json.dumps(facts, indent=2) + "\n")
    _write_bundles(out, dataset, plan, models, teacher, windows, facts)
    _report(facts)
    _say(f"{clock.monotonic() - began:.0f} s")


def _variants(fp32: onnx.ModelProto, signed: onnx.ModelProto, unsigned: onnx.ModelProto) -> dict[str, VariantSource]:
    """List the device's files by name, best bets first."""
    arm = onnx_source("onnx-int8-s8s8", signed)
    variants = (
        replace(arm, name="tflite-int8", model=convert(signed), format="tflite", targets=()),
        onnx_source("onnx-int8-u8s8", unsigned),
        arm,
        onnx_source("onnx-fp32", fp32),
    )
    return {
        source.name: replace(source, tolerance=TOLERANCE_INT8 if source.precision == "int8" else None)
        for source in variants
    }


def _parameters(network: Any) -> int:
    return sum(parameter.numel() for parameter in network.parameters())


def _accuracy(probabilities: Float32, windows: Windows) -> float:
    return float((probabilities.argmax(axis=1) == windows.y).mean())


def _rounded(figures: GateMetrics) -> dict[str, float]:
    return {name: round(value, 4) for name, value in asdict(figures).items()}


def _held_out_figures(held_out: OutOfFold, calibration: Calibration) -> dict[str, Any]:
    """Compute the promise's figures: each training person answered by models that have not seen this person."""
    windows, y = held_out.windows, held_out.windows.y
    device = at_temperature(held_out.device, calibration.device_temperature)
    correct = device.argmax(axis=1) == y
    people = {}
    for person in dict.fromkeys(windows.group.tolist()):
        own = windows.group == person
        people[person] = {
            "windows": int(own.sum()),
            "forest": round(float((held_out.forest[own] == y[own]).mean()), 4),
            "device_fp32": round(float((held_out.device_fp32[own].argmax(axis=1) == y[own]).mean()), 4),
            "device_int8": round(float(correct[own].mean()), 4),
            "cloud": round(float((held_out.cloud[own].argmax(axis=1) == y[own]).mean()), 4),
        }
    return {
        "people": people,
        "forest": round(float((held_out.forest == y).mean()), 4),
        "device_fp32": round(_accuracy(held_out.device_fp32, windows), 4),
        "device_int8": round(float(correct.mean()), 4),
        "cloud": round(_accuracy(held_out.cloud, windows), 4),
        "gate": _rounded(gate_metrics(device, held_out.cloud, y, threshold=calibration.threshold)),
        "negative_log_likelihood": {
            "before_temperature": round(negative_log_likelihood(held_out.device, y), 4),
            "after": round(negative_log_likelihood(device, y), 4),
        },
        "area_under_risk_coverage": {
            score: round(area_under_risk_coverage(scores(device, score), correct), 4) for score in SCORES
        },
        "curve": {
            score: [
                _rounded(point) for point in gate_curve(device, held_out.cloud, y, shares=CURVE_SHARES, score=score)
            ]
            for score in SCORES
        },
    }


def _demo_figures(
    windows: Windows,
    device: Mapping[str, Float32],
    cloud: Float32,
    forest: np.ndarray[Any, Any],
    calibration: Calibration,
) -> dict[str, Any]:
    """Compute the figures of the shipped files on the demo's people; looked at last, and nothing follows from it."""
    y, shipped = windows.y, device["tflite-int8"]
    people = {}
    for person in dict.fromkeys(windows.group.tolist()):
        own = windows.group == person
        figures = gate_metrics(shipped[own], cloud[own], y[own], threshold=calibration.threshold)
        people[person] = {
            "windows": int(own.sum()),
            "forest": round(float((forest[own] == y[own]).mean()), 4),
            "device_fp32": round(float((device["onnx-fp32"][own].argmax(axis=1) == y[own]).mean()), 4),
            "gate": _rounded(figures),
        }
    reference = device["onnx-int8-s8s8"]
    return {
        "people": people,
        "forest": round(float((forest == y).mean()), 4),
        "accuracy": {name: round(_accuracy(probabilities, windows), 4) for name, probabilities in device.items()},
        "gate": _rounded(gate_metrics(shipped, cloud, y, threshold=calibration.threshold)),
        "difference_from_onnx_int8_s8s8": {
            name: {
                "largest": round(float(np.abs(probabilities - reference).max()), 4),
                "same_label": round(float((probabilities.argmax(axis=1) == reference.argmax(axis=1)).mean()), 4),
            }
            for name, probabilities in device.items()
        },
    }


def _golden_windows(windows: Windows) -> Float32:
    """Windows that reach every label and both ends: two of each class, the strongest, silence, overload."""
    chosen = [
        index
        for label in range(int(windows.y.max()) + 1)
        for index in np.flatnonzero(windows.y == label)[[0, -1]].tolist()
    ]
    strongest = int(np.abs(windows.x).max(axis=(1, 2)).argmax())
    x = windows.x
    return np.concatenate([x[chosen], x[[strongest]], np.zeros_like(x[:1]), x[[strongest]] * np.float32(4)])


def _write_bundles(
    out: Path,
    dataset: Dataset,
    plan: CascadePlan,
    models: Mapping[str, VariantSource],
    teacher: VariantSource,
    windows: Windows,
    facts: Mapping[str, Any],
) -> None:
    channels = tuple(Channel(name=c.name, unit=c.unit) for c in dataset.channels)
    output = OutputContract(labels=dataset.classes)
    gate, promised = facts["gate"], facts["held_out"]["gate"]
    accuracy = facts["demo"]["accuracy"]
    provenance = {
        "data": {
            "name": dataset.name,
            "licence": "BSD-3-Clause, Copyright (c) 2018, David M. Burns",
            "source": "Python package seglearn 1.2.5; Burns et al. 2018, arXiv:1802.01489",
            "sha256": ARRAY_SHA256,
        },
        "people": facts["people"],
        "versions": facts["versions"],
        "teacher_sha256": hashlib.sha256(teacher.model).hexdigest(),
    }
    pack(
        out / "watch.edge",
        name="exercise-watch",
        version=1,
        description="Which of seven shoulder exercises a smartwatch sees, from 2 s of acceleration and rotation.",
        input=InputContract(
            channels=channels, rate_hz=dataset.rate_hz, window=plan.samples, hop=plan.hop, context=plan.context
        ),
        output=output,
        gate=GateSpec(
            score=gate["score"],
            threshold=gate["threshold"],
            expected={
                "forwarded": promised["forwarded"],
                "local_error": round(1 - promised["local_accuracy"], 4),
                "combined_error": round(1 - promised["combined_accuracy"], 4),
            },
        ),
        variants=[replace(model, cost={"accuracy": accuracy[name]}) for name, model in models.items()],
        golden_inputs=_golden_windows(windows),
        card=_card(facts),
        provenance=provenance,
    )
    pack(
        out / "teacher.edge",
        name="exercise-watch-teacher",
        version=1,
        description="The cloud's answer to the same seven exercises, from 6 s that end with the device's window.",
        input=InputContract(
            channels=channels, rate_hz=dataset.rate_hz, window=plan.context, hop=plan.hop, fill="first"
        ),
        output=output,
        variants=[replace(teacher, cost={"accuracy": facts["demo"]["gate"]["cloud_accuracy"]})],
        golden_inputs=np.concatenate(
            [windows.contexts[windows.start == 0][:4], windows.contexts[windows.start >= plan.context][::50][:12]]
        ),
        card=_card(facts),
        provenance=provenance,
    )


def _card(facts: Mapping[str, Any]) -> str:
    """Write the model card: what it is for, where it comes from, how good it is, where it fails."""
    promised, shown = facts["held_out"], facts["demo"]
    people = facts["people"]
    return f"""# Shoulder exercises on a smartwatch

For demonstration. Not a medical device: it counts nothing, and judges nobody's form.

- Eats: acceleration (g) and angular velocity (rad/s) of a watch, x along the forearm, 50 Hz, windows of 2 s; either
  wrist.
- Answers: pendulum (PEN), abduction (ABD), forward elevation (FEL), internal rotation (IR), external rotation (ER),
  trapezius extension (TRAP), upright row (ROW), as probabilities. There is no class for anything else.
- Data: Python package seglearn 1.2.5, BSD-3-Clause, Copyright (c) 2018, David M. Burns; Burns et al. 2018,
  arXiv:1802.01489. Healthy adults in a laboratory.
- Trained and tuned on people {", ".join(people["trained_and_tuned_on"])}, each held out in turn; the demo plays people
  {", ".join(people["demo"])}, who were used for neither.

| accuracy by window | device int8 | with cloud | forwarded | cloud alone |
|---|---|---|---|---|
| training people, held out in turn | {_row(promised["gate"])} |
| demo people | {_row(shown["gate"])} |

Fails: abduction against forward elevation, and internal against external rotation, which differ in little that a wrist
can feel; people much slower or faster than those above.
"""


def _row(gate: Mapping[str, float]) -> str:
    names = ("device_accuracy", "combined_accuracy", "forwarded", "cloud_accuracy")
    return " | ".join(f"{gate[name]:.3f}" for name in names)


def _report(facts: Mapping[str, Any]) -> None:
    """Print the figures as a table."""
    promised, shown = facts["held_out"], facts["demo"]
    _say("\nwindow accuracy             forest  device fp32  device int8  with cloud  forwarded  cloud alone")
    for title, part, fp32 in (
        ("training people, held out", promised, promised["device_fp32"]),
        ("demo people", shown, shown["accuracy"]["onnx-fp32"]),
    ):
        _say(_line(title, part["forest"], fp32, part["gate"]))
    for person, own in shown["people"].items():
        _say(_line(f"  person {person}", own["forest"], own["device_fp32"], own["gate"]))
    _say("\ngate on held-out people: forwarded  local accuracy  with cloud  (confidence)")
    for point in promised["curve"]["confidence"]:
        _say(
            f"  below {point['threshold']:.3f}           {point['forwarded']:.3f}           "
            f"{point['local_accuracy']:.3f}       {point['combined_accuracy']:.3f}"
        )
    _say(f"\narea under risk-coverage, held out: {promised['area_under_risk_coverage']}")
    _say(f"temperature {facts['temperature']}, gate {facts['gate']}")
    _say(f"variants on demo people: {shown['accuracy']}")
    _say(f"against onnx-int8-s8s8: {shown['difference_from_onnx_int8_s8s8']}")
    _say(f"bytes: {facts['bytes']}, parameters {facts['parameters']}")


def _line(title: str, forest: float, fp32: float, gate: Mapping[str, float]) -> str:
    return (
        f"{title:<27} {forest:.3f}        {fp32:.3f}        {gate['device_accuracy']:.3f}       "
        f"{gate['combined_accuracy']:.3f}      {gate['forwarded']:.3f}        {gate['cloud_accuracy']:.3f}"
    )


def _say(line: str) -> None:
    print(line, flush=True)
