"""From a recipe and recordings to bundles: every long step cached, every choice made on validation groups.

1. *read*: recordings and labels; windows cut by the runtime's own code; groups dealt to training, validation, test.
2. *teacher*: candidates trained on training groups; validation groups choose the smallest good one.
3. *student*: trained on the teacher's answers, quantised, written as ONNX and TensorFlow Lite.
4. *choose*: every candidate timed on this machine and judged on validation groups; the recipe's limits decide.
5. *gate*: temperature after quantisation, then the threshold, both on validation groups.
6. *judge*: test groups answer once, by the files that ship; nothing follows from what they say.
7. *pack*: a bundle per architecture, the teacher's bundle, the test recordings, and all figures.
"""

from __future__ import annotations

import hashlib
import platform
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from edge_runtime import manifest
from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import GateSpec, OutputContract
from export.baseline import random_forest
from export.calibrate import (
    SCORES,
    area_under_risk_coverage,
    at_temperature,
    fit_temperature,
    gate_curve,
    gate_figures,
    scores,
    threshold_for_risk,
    threshold_for_share,
)
from export.candidates import Candidates, candidates
from export.check_data import check_units, check_windows
from export.data import Dataset, Float32, Windows
from export.evaluation import write_evaluation
from export.judge import Judged, judge
from export.labels import clip, label_windows
from export.learn import Say, Task, Teacher, check_networks, fit_student, fit_teacher, front_end, spread
from export.measure import answers, measure_candidates
from export.networks import Calibrated, count
from export.pack import VariantSource, pack
from export.readers import read
from export.recipe import TARGETS, Recipe
from export.search import Choice, choose
from export.sign import SigningKey
from export.split import Split, split
from export.steps import Steps, digest, file_digest
from export.to_onnx import to_onnx

REFERENCE = "onnx-fp32"
TEACHER = "teacher"
CURVE_SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
PACKAGES = ("numpy", "onnx", "onnxruntime", "scikit-learn", "torch")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What training has left, before anything was chosen by measurement.

    Attributes:
        split: recordings by what they are for.
        windows: of each set, by its name.
        teacher: the cloud's networks.
        teacher_model: their ONNX file at its temperature.
        teacher_temperature: fitted on validation groups.
        candidates: the student's files.
        size: of the student.
    """

    split: Split
    windows: Mapping[str, Windows]
    teacher: Teacher
    teacher_model: bytes
    teacher_temperature: float
    candidates: Candidates
    size: Mapping[str, int]


def build(
    recipe: Recipe,
    folders: Mapping[str, Path],
    out: Path,
    *,
    say: Say,
    clock: Clock,
    signer: SigningKey | None = None,
) -> dict[str, Any]:
    """Do everything the recipe says.

    Args:
        recipe: what to build.
        folders: where the data lies, by the keys of the recipe's ``[[data]]``.
        out: folder to write into, made if missing. Finished steps are kept in its folder ``cache``.
        say: told what happens, a line at a time.
        clock: measures how long steps take.
        signer: signs the bundles; None leaves them unsigned.

    Returns:
        The figures, as written to ``report.json``.

    Raises:
        EdgeError: the data does not fit the recipe, or nothing is within its limits; a sentence that says where.
    """
    out.mkdir(parents=True, exist_ok=True)
    versions = {name: version(name) for name in PACKAGES}
    steps = Steps(out / "cache", versions, say, clock)
    trained = train(recipe, folders, steps, say)
    validation, test = trained.windows["validation"], trained.windows["test"]

    plain = trained.candidates.sources(1.0)
    choice, timings, judged = _choose(recipe, trained, plain, clock, say)
    first = next(iter(choice.values())).shipped[0]
    temperature = fit_temperature(answers(first, validation.x), validation.y)
    shipped = {source.name: source for source in trained.candidates.sources(temperature)}
    cloud = _teacher_source(trained.teacher_model)
    gate, promise = _gate(
        recipe, answers(shipped[first.name], validation.x), answers(cloud, _history(validation)), validation
    )
    say(f"temperature {temperature:g}, gate: {gate.score} below {gate.threshold:.4f} goes to the cloud")

    figures = {
        "recipe": recipe.name,
        "groups": trained.split.groups,
        "windows": {name: len(windows) for name, windows in trained.windows.items()},
        "classes": list(recipe.classes),
        "metric": recipe.metric,
        "teacher": {
            "tried": list(trained.teacher.tried),
            "members": len(trained.teacher.members),
            "bytes": len(cloud.model),
            "zlib_bytes": len(zlib.compress(cloud.model, 9)),
            "temperature": trained.teacher_temperature,
        },
        "student": dict(trained.size),
        "temperature": temperature,
        "gate": {**asdict(gate), "promise": promise},
        "validation": {name: asdict(judgement) for name, judgement in judged.items()},
        "choice": {target: _choice(own) for target, own in choice.items()},
        "left_out": dict(trained.candidates.left_out),
        "timings": timings,
        "test": _test(recipe, trained, shipped, cloud, gate, first.name),
        "versions": versions,
    }
    _pack(recipe, trained, choice, shipped, cloud, gate, figures, out, signer)
    write_evaluation(out, trained.split.test, test)
    (out / "report.json").write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
    return figures


# -- 1 to 3: what is learnt --------------------------------------------------------------------------------------------


def load(recipe: Recipe, folders: Mapping[str, Path]) -> tuple[Dataset, str]:
    """Read all of a recipe's data as one set.

    Returns:
        The recordings, and a digest of the files and of how they are read.

    Raises:
        ConfigError: a key has no folder, or a file does not fit.
    """
    keys = [reader.key for reader in recipe.data]
    if unknown := sorted(folders.keys() - set(keys)):
        raise ConfigError(f"--data {unknown[0]}=...: the recipe's keys are {', '.join(keys)}")
    if missing := [key for key in keys if key not in folders]:
        raise ConfigError(f"the recipe needs --data {missing[0]}=FOLDER")
    rate_hz = recipe.window.source_rate_hz or recipe.window.rate_hz
    parts = [
        read(
            reader,
            folders[reader.key],
            channels=recipe.window.channels,
            classes=recipe.classes,
            rate_hz=rate_hz,
        )
        for reader in recipe.data
    ]
    for part in parts:
        if part.rate_hz != rate_hz or part.classes != recipe.classes:
            raise ConfigError(f"data {part.name!r} has {part.rate_hz:g} Hz and classes {', '.join(part.classes)}")
    many = len(parts) > 1
    whole = Dataset(
        name=recipe.name,
        channels=parts[0].channels,
        rate_hz=rate_hz,
        classes=recipe.classes,
        # Two data sets may both call somebody "1".
        recordings=tuple(
            replace(recording, name=f"{part.name}/{recording.name}", group=f"{part.name}/{recording.group}")
            if many
            else recording
            for part in parts
            for recording in part.recordings
        ),
    )
    if recipe.window.clip_s:
        samples = round(recipe.window.clip_s * rate_hz)
        whole = replace(whole, recordings=tuple(clip(recording, samples) for recording in whole.recordings))
    contents = {reader.key: [file_digest(folders[reader.key]), reader] for reader in recipe.data}
    return whole, digest({"files": contents, "rate": rate_hz, "classes": recipe.classes})


def train(recipe: Recipe, folders: Mapping[str, Path], steps: Steps, say: Say) -> Trained:
    """Steps 1 to 3."""
    contract = recipe.window.contract()
    dataset, data = load(recipe, folders)
    parts = split(dataset, recipe.split, seed=recipe.seed)
    windows: dict[str, Windows] = {}
    for name in ("train", "validation", "test"):
        windows[name] = label_windows(
            getattr(parts, name), contract, rule=recipe.window.label, purity=recipe.window.purity
        )
        check_windows(windows[name], recipe.classes, what=name, fewest=20 if name == "train" else 1)
        check_units(windows["train"].x, windows[name].x, dataset.channels, what=name)
        say(f"{name}: {len(windows[name])} windows of {', '.join(getattr(parts, name).groups)}")
    task = Task(recipe=recipe, contract=contract, train=parts.train, validation=windows["validation"], data=data)
    chosen = windows["train"].x[spread(len(windows["train"]), 2048)]
    front = front_end(recipe, chosen)
    check_networks(task, front)
    teacher = fit_teacher(task, front, steps, say)
    student = fit_student(task, front, teacher, steps)
    channels = len(contract.channels)
    cloud = to_onnx(Calibrated(teacher.members), channels=channels, samples=contract.history)
    cloud_answers = answers(_teacher_source(cloud.SerializeToString()), _history(windows["validation"]))
    cloud_temperature = fit_temperature(cloud_answers, windows["validation"].y)
    warm = to_onnx(Calibrated(teacher.members, cloud_temperature), channels=channels, samples=contract.history)
    fp32 = to_onnx(Calibrated([student]), channels=channels, samples=contract.window)
    calibration = windows["train"].x[spread(len(windows["train"]), recipe.student.calibration_windows)]
    return Trained(
        split=parts,
        windows=windows,
        teacher=teacher,
        teacher_model=warm.SerializeToString(),
        teacher_temperature=cloud_temperature,
        candidates=candidates(fp32, calibration),
        size=asdict(count(student, channels=channels, samples=contract.window)),
    )


def _history(windows: Windows) -> Float32:
    return windows.contexts


def _teacher_source(model: bytes) -> VariantSource:
    return VariantSource(name=REFERENCE, model=model, format="onnx", precision="fp32")


# -- 4 and 5: what is chosen, on validation groups ---------------------------------------------------------------------


def _choose(
    recipe: Recipe, trained: Trained, sources: list[VariantSource], clock: Clock, say: Say
) -> tuple[dict[str, Choice], list[dict[str, Any]], dict[str, Judged]]:
    """What ships for each architecture."""
    validation = trained.windows["validation"]
    began = clock.monotonic()
    # The teacher is timed beside its student, in the same rounds: their ratio is one that a busy machine cannot bend.
    measured = measure_candidates(sources, validation.x, reference=REFERENCE)
    say(f"timed {len(sources)} candidates in {clock.monotonic() - began:.1f} s")
    given = {source.name: answers(source, validation.x) for source in sources if source.name not in measured.failed}
    judged = judge(given, validation.y, validation.group, reference=REFERENCE, seed=recipe.seed)
    choice = {
        target: choose(
            sources,
            measured.timings,
            judged,
            replace(recipe.limits, metric=recipe.metric),
            reference=REFERENCE,
            target=target,
            failed=measured.failed,
        )
        for target in dict.fromkeys(TARGETS[name] for name in recipe.targets)
    }
    for target, own in choice.items():
        say(f"{target}: {', '.join(source.name for source in own.shipped)}")
        for name, reason in own.lost.items():
            say(f"  not {name}: {reason}")
    return choice, [asdict(timing) for timing in measured.timings], {each.name: each for each in judged}


def _choice(choice: Choice) -> dict[str, Any]:
    return {"shipped": [source.name for source in choice.shipped], "lost": dict(choice.lost)}


def _gate(recipe: Recipe, device: Float32, cloud: Float32, windows: Windows) -> tuple[GateSpec, dict[str, Any]]:
    """The threshold that keeps the recipe's promise on validation groups."""
    wanted = recipe.gate
    correct = device.argmax(axis=1) == windows.y
    ranking = {score: area_under_risk_coverage(scores(device, score), correct) for score in SCORES}
    score = min(ranking, key=lambda each: ranking[each]) if wanted.score == "auto" else wanted.score
    trust = scores(device, score)
    promise: dict[str, Any] = {"area_under_risk_coverage": ranking}
    if wanted.max_local_error:
        risk = threshold_for_risk(
            trust, correct, windows.group, max_error=wanted.max_local_error, confidence=wanted.confidence
        )
        threshold = risk.threshold
        promise |= asdict(risk)
    else:
        threshold = threshold_for_share(trust, wanted.max_forwarded)
    # Seven digits are what float32 holds; downwards, since a window below the threshold is hard.
    threshold = float(np.nextafter(np.float32(threshold), np.float32(0))) if threshold > 0 else threshold
    expected = gate_figures(device, cloud, windows.y, threshold=threshold, score=score)
    promise["validation"] = asdict(expected)
    return (
        GateSpec(
            score=score,
            threshold=threshold,
            expected={
                "forwarded": round(expected.forwarded, 4),
                "local_error": round(1 - expected.local_accuracy, 4),
                "combined_error": round(1 - expected.combined_accuracy, 4),
            },
        ),
        promise,
    )


# -- 6: what is so, on test groups -------------------------------------------------------------------------------------


def _test(
    recipe: Recipe,
    trained: Trained,
    shipped: Mapping[str, VariantSource],
    cloud: VariantSource,
    gate: GateSpec,
    first: str,
) -> dict[str, Any]:
    """How the files that ship do on groups that nothing was chosen by."""
    test, seen = trained.windows["test"], trained.windows["train"]
    given = {name: answers(source, test.x) for name, source in shipped.items()}
    given[TEACHER] = answers(cloud, _history(test))
    chosen = spread(len(seen), 4000)
    forest = np.eye(len(recipe.classes), dtype=np.float32)[
        random_forest(seen.x[chosen], seen.y[chosen], test.x, seed=recipe.seed)
    ]
    given["random-forest"] = forest
    judged = judge(given, test.y, test.group, reference=REFERENCE, seed=recipe.seed)
    device = given[first]
    confusion = np.zeros((len(recipe.classes),) * 2, np.int64)
    np.add.at(confusion, (test.y, device.argmax(axis=1)), 1)
    return {
        "device": first,
        "judged": {each.name: asdict(each) for each in judged},
        "gate": asdict(gate_figures(device, given[TEACHER], test.y, threshold=gate.threshold, score=gate.score)),
        "curve": [
            asdict(point) for point in gate_curve(device, given[TEACHER], test.y, shares=CURVE_SHARES, score=gate.score)
        ],
        "confusion": confusion.tolist(),
        "negative_log_likelihood_at": {
            str(t): float(-np.log(np.maximum(at_temperature(device, t), 1e-12))[np.arange(len(test.y)), test.y].mean())
            for t in (0.5, 1.0, 2.0)
        },
    }


# -- 7: what is written ------------------------------------------------------------------------------------------------


def _pack(
    recipe: Recipe,
    trained: Trained,
    choice: Mapping[str, Choice],
    shipped: Mapping[str, VariantSource],
    cloud: VariantSource,
    gate: GateSpec,
    figures: Mapping[str, Any],
    out: Path,
    signer: SigningKey | None,
) -> None:
    contract = recipe.window.contract()
    windows = trained.windows["validation"]
    judged = figures["test"]["judged"]
    common: dict[str, Any] = {
        "version": recipe.version,
        "output": OutputContract(labels=recipe.classes),
        "created": recipe.created,
        "expires": recipe.expires,
        "provenance": {
            "recipe": digest(recipe),
            "data": [asdict(reader.origin) for reader in recipe.data],
            "groups": trained.split.groups,
            "teacher_sha256": hashlib.sha256(cloud.model).hexdigest(),
            "versions": figures["versions"],
            "measured_on": platform.machine(),
        },
        "signer": signer,
    }
    for target, own in choice.items():
        pack(
            out / f"{recipe.name}-{target}.edge",
            name=recipe.name,
            description=recipe.description,
            input=contract,
            gate=gate,
            variants=[
                replace(shipped[source.name], cost={"accuracy": round(judged[source.name]["accuracy"], 4)})
                for source in own.shipped
            ],
            golden_inputs=_golden(windows, contract),
            **common,
        )
    pack(
        out / f"{recipe.name}-{TEACHER}.edge",
        name=f"{recipe.name}-{TEACHER}",
        description=f"The cloud's answers: {recipe.description}",
        input=replace(contract, window=contract.history, context=0),
        variants=[replace(cloud, cost={"accuracy": round(judged[TEACHER]["accuracy"], 4)})],
        golden_inputs=_history(windows)[spread(len(windows), 4)],
        **common,
    )


def _golden(windows: Windows, contract: manifest.InputContract) -> Float32:
    """Windows that reach every label, and both ends of the range: one of each class, silence, overload."""
    x = windows.x
    chosen = [int(np.flatnonzero(windows.y == label)[0]) for label in np.unique(windows.y)]
    loudest = int(np.abs(x).max(axis=(1, 2)).argmax())
    silence = np.zeros((1, len(contract.channels), contract.window), np.float32)
    return np.concatenate([x[chosen], silence, x[[loudest]] * np.float32(4)])
