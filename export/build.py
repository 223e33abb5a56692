"""From a recipe and recordings to bundles: every long step cached, every choice made on validation groups.

1. *read*: recordings and labels; windows cut by the runtime's own code; groups dealt to training, validation, test.
2. *teacher*: candidates trained on training groups; validation groups choose the smallest good one.
3. *student*: trained on the teacher's answers, pruned, quantised, written as ONNX and TensorFlow Lite.
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
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import orjson

from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import GateSpec
from edge_runtime.timing import Contender, Measurement, measure, this_machine
from export.bundles import TEACHER, Shipment, write_bundles
from export.calibrate import (
    SCORES,
    area_under_risk_coverage,
    fit_temperature,
    gate_figures,
    scores,
    threshold_for_risk,
    threshold_for_share,
)
from export.candidates import Candidates, Integers, candidates, integers
from export.check_data import check_units, check_windows
from export.data import Dataset, Float32, Windows
from export.evaluation import write_evaluation
from export.judge import Judged, judge
from export.labels import clip, label_windows
from export.learn import (
    Lessons,
    Say,
    Task,
    Teacher,
    check_networks,
    fit_student,
    fit_teacher,
    front_end,
    given_teacher,
    score,
    spread,
)
from export.measure import answers, best_engine, measure_candidates
from export.networks import Calibrated, count
from export.novelty import fit_novelty
from export.pack import VariantSource
from export.readers import read
from export.recipe import TARGETS, Recipe
from export.report import write_report
from export.search import Choice, choose
from export.shrink import prune_student, train_rounded
from export.sign import SigningKey
from export.split import Split, split
from export.steps import Steps, digest, file_digest
from export.stream_student import stream_student
from export.to_onnx import to_onnx
from export.unseen import figures_on_test

REFERENCE = "onnx-fp32"
PACKAGES = ("numpy", "onnx", "onnxruntime", "scikit-learn", "torch", "torch-pruning")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What training has left, before anything was chosen by measurement.

    Attributes:
        split: recordings by what they are for.
        windows: of each set, by its name.
        teacher: the cloud's model.
        teacher_model: its ONNX file at its temperature.
        teacher_temperature: fitted on validation groups.
        student: the float student's ONNX graph.
        integers: the same quantised, and what was tried.
        candidates: the student's files.
        size: of the student.
        pruning: what pruning did; None where the recipe asks for none.
    """

    split: Split
    windows: Mapping[str, Windows]
    teacher: Teacher
    teacher_model: bytes = field(repr=False)
    teacher_temperature: float
    student: onnx.ModelProto = field(repr=False)
    integers: Integers
    candidates: Candidates
    size: Mapping[str, int]
    pruning: Mapping[str, Any] | None


def build(
    recipe: Recipe,
    folders: Mapping[str, Path],
    out: Path,
    *,
    say: Say,
    clock: Clock,
    teacher: Path | None = None,
    signer: SigningKey | None = None,
) -> dict[str, Any]:
    """Do everything the recipe says.

    Args:
        recipe: what to build.
        folders: where the data lies, by the keys of the recipe's ``[[data]]``.
        out: folder to write into, made if missing. Finished steps are kept in its folder ``cache``.
        say: told what happens, a line at a time.
        clock: measures how long steps take.
        teacher: ONNX file, where the recipe's ``[teacher]`` is given.
        signer: signs the bundles; None leaves them unsigned.

    Returns:
        The figures, as written to ``report.json``.

    Raises:
        EdgeError: the data does not fit the recipe, or nothing is within its limits; a sentence that says where.
    """
    out.mkdir(parents=True, exist_ok=True)
    began = clock.monotonic()
    versions = {name: version(name) for name in PACKAGES}
    steps = Steps(out / "cache", versions, say, clock)
    trained = train(recipe, folders, steps, say, teacher)
    validation, test = trained.windows["validation"], trained.windows["test"]

    choice, timings, judged = _choose(recipe, trained, steps, say)
    first = next(iter(choice.values())).shipped[0]
    temperature = fit_temperature(answers(first, validation.x), validation.y)
    shipped = {source.name: source for source in trained.candidates.sources(temperature)}
    cloud = _teacher_source(trained.teacher_model)
    gate, promise = _gate(
        recipe, answers(shipped[first.name], validation.x), answers(cloud, validation.contexts), validation
    )
    say(f"temperature {temperature:g}, gate: {gate.score} below {gate.threshold:.4f} goes to the cloud")

    tested = figures_on_test(
        test,
        trained.windows["train"],
        shipped,
        cloud,
        gate,
        device=first.name,
        reference=REFERENCE,
        seed=recipe.seed,
    )
    accuracy = {name: judgement["accuracy"] for name, judgement in tested["judged"].items()}
    shipment = Shipment(
        variants={
            target: [shipped[source.name] for source in _packed(own, recipe.variants, target)]
            for target, own in choice.items()
        },
        cloud=cloud,
        gate=gate,
        accuracy=accuracy,
        groups=trained.split.groups,
        versions=versions,
    )
    figures: dict[str, Any] = {
        "recipe": recipe.name,
        "description": recipe.description,
        "data": [asdict(reader.origin) for reader in recipe.data],
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
        "pruning": trained.pruning,
        "quantisation": _quantisation(trained.integers),
        "sensitivity": _sensitivity(trained.integers),
        "temperature": temperature,
        "gate": {**asdict(gate), "promise": promise},
        "validation": {name: asdict(judgement) for name, judgement in judged.items()},
        "choice": {target: _choice(own) for target, own in choice.items()},
        "candidates": [asdict(each) for each in next(iter(choice.values())).figures],
        "left_out": dict(trained.candidates.left_out),
        "timings": timings,
        "limits": asdict(recipe.limits),
        "machine": this_machine().label,
        "against_teacher": _against_teacher(cloud, shipped, first.name, validation),
        "streaming": None,
        "test": tested,
        "versions": versions,
    }
    if recipe.stream_hop:
        streaming, figures["streaming"] = stream_student(
            trained.student, recipe.stream_hop, recipe.window.contract(), trained.split.validation, seed=recipe.seed
        )
        onnx.save(streaming.model, str(out / f"{recipe.name}-streaming.onnx"))
    figures["bundles"] = write_bundles(recipe, shipment, validation, out, signer)
    write_evaluation(out, trained.split.test, test)
    say(f"built in {clock.monotonic() - began:.0f} s")
    (out / "report.json").write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
    write_report(orjson.loads((out / "report.json").read_bytes()), out)
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


def train(recipe: Recipe, folders: Mapping[str, Path], steps: Steps, say: Say, given: Path | None = None) -> Trained:
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
        groups = getattr(parts, name).groups
        say(f"{name}: {len(windows[name])} windows of {', '.join(groups[:8])}{' ...' if len(groups) > 8 else ''}")
    validation = windows["validation"]
    task = Task(recipe=recipe, contract=contract, train=parts.train, validation=validation, data=data)
    front = front_end(recipe, windows["train"].x[spread(len(windows["train"]), 2048)])
    check_networks(task, front)
    if recipe.teacher.given and given is None:
        raise ConfigError("the recipe's teacher is given: name its file with --teacher MODEL.onnx")
    teacher = (
        fit_teacher(task, front, steps, say) if given is None else given_teacher(task, given, steps.folder / "asked")
    )
    lessons = Lessons(task, teacher)
    student = fit_student(task, front, teacher, lessons, steps)
    pruning = None
    if recipe.prune is not None:
        student, pruning = prune_student(task, student, lessons, recipe.prune, steps)
    channels, samples = len(contract.channels), contract.window
    calibration = windows["train"].x[spread(len(windows["train"]), recipe.quantise.calibration_windows)]
    rounding = None
    if recipe.quantise.training is not None:
        rounding = train_rounded(
            task,
            student,
            lessons,
            recipe.quantise.training,
            steps,
            calibration=calibration,
            weight_bits=recipe.quantise.weight_bits,
        )
    fp32 = to_onnx(Calibrated([student.network]), channels=channels, samples=samples)
    quantised = integers(
        fp32,
        calibration,
        validation.x,
        lambda given: score(given, validation.y, recipe.metric),
        recipe.quantise,
        max_drop=recipe.limits.max_accuracy_drop,
        learned=rounding.graphs if rounding is not None else None,
    )
    say(f"quantised by {quantised.ranges}: {quantised.score:.4f} (float {quantised.float_score:.4f})")
    novelty = None
    if recipe.gate.unfamiliar:
        novelty = fit_novelty(windows["train"], validation)
    cloud_temperature = fit_temperature(
        answers(_teacher_source(teacher.at(1.0).SerializeToString()), validation.contexts), validation.y
    )
    return Trained(
        split=parts,
        windows=windows,
        teacher=teacher,
        teacher_model=teacher.at(cloud_temperature).SerializeToString(),
        teacher_temperature=cloud_temperature,
        student=fp32,
        integers=quantised,
        candidates=candidates(fp32, quantised.graphs, novelty=novelty, mixed=bool(quantised.kept)),
        size=asdict(count(student.network, channels=channels, samples=samples)),
        pruning=pruning,
    )


def _teacher_source(model: bytes) -> VariantSource:
    return VariantSource(name=REFERENCE, model=model, format="onnx", precision="fp32")


def _quantisation(found: Integers) -> dict[str, Any]:
    return {
        "ranges": found.ranges,
        "tried": dict(found.tried),
        "float_score": found.float_score,
        "score": found.score,
        "kept_in_float": [asdict(kept) for kept in found.kept],
    }


def _sensitivity(found: Integers) -> list[dict[str, Any]]:
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


# -- 4 and 5: what is chosen, on validation groups ---------------------------------------------------------------------


def _choose(
    recipe: Recipe, trained: Trained, steps: Steps, say: Say
) -> tuple[dict[str, Choice], list[dict[str, Any]], dict[str, Judged]]:
    """What ships for each architecture."""
    validation, sources = trained.windows["validation"], trained.candidates.sources(1.0)

    def make(folder: Path) -> None:
        timed = measure_candidates(sources, validation.x, reference=REFERENCE)
        (folder / "measurement.json").write_text(timed.to_json(), "utf-8")

    # Kept like any other step, or a build that goes on where it stopped could ship other files than it would have.
    inputs = {
        "files": {source.name: hashlib.sha256(source.model).hexdigest() for source in sources},
        "machine": this_machine().label,
    }
    folder = steps.run("measure", inputs, make)
    measured = Measurement.from_json((folder / "measurement.json").read_text("utf-8"))
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
            timed_there=target == platform.machine(),
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


def _packed(choice: Choice, variants: str, target: str) -> list[VariantSource]:
    """What of the choice a bundle holds.

    The best of each format where times were taken on such a machine, since a device may have one engine only; all of it
    where the device has yet to measure.
    """
    if variants == "all" or target != platform.machine():
        return list(choice.shipped)
    best: dict[str, VariantSource] = {}
    for source in choice.shipped:
        best.setdefault(source.format, source)
    return list(best.values())


def _against_teacher(
    cloud: VariantSource, shipped: Mapping[str, VariantSource], device: str, windows: Windows
) -> dict[str, Any]:
    """Teacher, float student and what ships, timed in the same rounds: ratios that a busy machine cannot bend."""
    one = windows.x[spread(len(windows), 16)]
    contenders = [
        Contender(name=TEACHER, engine=best_engine(cloud), model=cloud.model, inputs=(_whole(windows),)),
        *(
            Contender(name=name, engine=best_engine(shipped[name]), model=shipped[name].model, inputs=(one,))
            for name in dict.fromkeys((REFERENCE, device))
        ),
    ]
    measured = measure(contenders, reference=TEACHER, threads=(1,))
    return {timing.name: {"p50_us": timing.p50_us, "times_faster": 1 / timing.ratio} for timing in measured.timings}


def _whole(windows: Windows) -> Float32:
    return np.ascontiguousarray(windows.contexts[spread(len(windows), 16)])
