"""Build of a recipe: recordings in, bundles out; every long step cached, every choice made on validation groups.

1. *read* (`recipe.splits`): recordings and labels; groups split into training, validation and test; windows cut by
   the runtime's own code.
2. *train* (`choose.models`): teachers on training groups, of which the smallest good one on validation groups is
   taken; a student on its answers, pruned, quantised, written as ONNX and TensorFlow Lite.
3. *choose* (`choose.selection.choice`): every candidate is timed on this machine, and evaluated on groups that it
   was not trained on: validation groups or, with folds, all of them; the recipe's limits decide.
4. *surround* (`choose.surround`): calibration after quantisation, then the gate; fitted to the same answers.
5. *evaluate* (`choose.evaluation.held_out`): the files that ship answer the test groups once; nothing is chosen by
   these metrics.
6. *pack* (`edge_export.package.bundles`): a bundle per architecture, and its streaming form where the recipe names a
   hop; the teacher's bundle, the test recordings, and all metrics.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from edge_export.choose.evaluation.calibration import at_temperature
from edge_export.choose.evaluation.expected import Expected, measure_expected
from edge_export.choose.evaluation.gate import fit_gate
from edge_export.choose.evaluation.held_out import metrics_on_test
from edge_export.choose.evaluation.mistakes import mistakes
from edge_export.choose.evaluation.overview import overview
from edge_export.choose.evaluation.sensors import cost_of, triads_of
from edge_export.choose.evaluation.teacher_comparison import against_teacher
from edge_export.choose.models import make_models, refit_models
from edge_export.choose.selection.choice import choose_files, measure_files
from edge_export.choose.selection.timing import answers
from edge_export.choose.surround.cross_fit import CLOUD, answers_unseen
from edge_export.choose.surround.fit import fit_surround, require_groups
from edge_export.choose.surround.judge import rows, summary
from edge_export.choose.surround.prior import choose_calibration
from edge_export.data.dataset import Windows
from edge_export.graph.streaming.student import stream_student
from edge_export.metrics import REFERENCE
from edge_export.package.bundles import Release, write_bundles
from edge_export.package.evaluation_file import check_recordings, write_evaluation
from edge_export.package.pack import VariantSource
from edge_export.package.sign import SigningKey, sign_bundle
from edge_export.package.streaming_bundle import stream_bundle
from edge_export.recipe.recipe import Recipe
from edge_export.recipe.splits import read_splits, with_validation
from edge_export.report import conclusions, write_report
from edge_export.step_cache import Say, StepCache, code_digest
from edge_runtime import __version__
from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import GateSpec
from edge_runtime.manifest.surround import Surround
from edge_runtime.model.tuning.timing import this_machine

PACKAGES = ("numpy", "onnx", "onnxruntime", "scikit-learn", "torch", "torch-pruning")


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
    """Build the bundles of a recipe.

    Args:
        recipe: what to build.
        folders: the data's folders, by the keys of the recipe's ``[[data]]``.
        out: folder to write into, made if missing. Results of finished steps are in its folder ``cache``.
        say: takes progress, a line at a time.
        clock: measures how long steps take.
        teacher: ONNX file, where the recipe's ``[teacher]`` is given.
        signer: signs the bundles; None leaves them unsigned.

    Returns:
        The metrics, as written to ``report.json``.

    Raises:
        EdgeError: the data does not fit the recipe, or nothing is within its limits; the message says where.
    """
    out.mkdir(parents=True, exist_ok=True)
    began = clock.monotonic()
    versions = {"edge-runtime": __version__, **{name: version(name) for name in PACKAGES}}
    # Another version of ours, or an edit, may compute something else by the same recipe.
    steps = StepCache(out / "cache", {**versions, "code": code_digest()}, say, clock)

    contract = recipe.window.contract()
    splits = read_splits(recipe, folders, say)
    check_recordings(splits.recordings.test)
    if recipe.surround is not None:
        require_groups(len(splits.unseen(recipe).groups))
    models = make_models(recipe, splits, steps, say, teacher)
    sources = models.candidates.sources()
    measured = measure_files(sources, splits.validation.x, steps)
    running = [source.name for source in sources if source.name not in measured.failed]
    unseen = answers_unseen(recipe, splits, models, running, steps, say)
    chosen = choose_files(recipe, sources, measured, unseen.windows, unseen.given, say)

    device = chosen.device.name
    calibration, losses = choose_calibration(
        unseen.given[device], unseen.windows.y, unseen.fold, unseen.windows.group, balance=recipe.balance
    )
    shipped = {source.name: source for source in models.candidates.sources(calibration.logits)}
    local, remote = (
        calibration.apply(unseen.given[device]),
        at_temperature(unseen.given[CLOUD], models.cloud_temperature),
    )
    gate = fit_gate(recipe.gate, local, remote, unseen.windows, metric=recipe.metric)
    say(f"calibrated: {calibration.said}")
    around = fit_surround(
        recipe.surround, recipe.gate, unseen, local, remote, hop=recipe.window.hop, metric=recipe.metric
    )
    for line in around.said:
        say(line)
    for line in gate.said:
        say(line)

    data = overview(splits, contract)
    named = () if recipe.references is None else recipe.references.triads
    cost = cost_of(functools.partial(answers, chosen.device), splits.validation, contract, triads_of(contract, named))
    if recipe.split.refit:
        splits = with_validation(recipe, splits)
        models = refit_models(recipe, splits, models, steps, say)
        shipped = {source.name: source for source in models.candidates.sources(calibration.logits)}
    tested = metrics_on_test(
        splits.test,
        splits.train,
        shipped,
        models.cloud,
        gate.spec,
        device=device,
        reference=REFERENCE,
        seed=recipe.seed,
    )
    figures: dict[str, Any] = {
        **_recipe_metrics(recipe),
        **splits.metrics(),
        **models.metrics(),
        **chosen.metrics(),
        "temperature": round(1 / calibration.logits.scale, 3),
        "calibration": {**asdict(calibration), "cross_entropy": dict(losses)},
        "gate": gate.metrics(),
        "surround": dict(around.measured),
        "overview": data,
        "test": tested,
        "mistakes": mistakes(answers(shipped[device], splits.test.x), splits.test, splits.recordings.test, contract),
        "ways": _ways(around.surround, gate.spec, splits.test, shipped[device], models.cloud, hop=recipe.window.hop),
        "against_teacher": against_teacher(models.cloud, shipped, device, splits.validation),
        "streaming": stream_student(
            models.student, recipe.stream_hop, contract, splits.recordings.validation, seed=recipe.seed
        ),
        "machine": this_machine().label,
        "versions": versions,
    }
    expected = Expected()
    if recipe.references is not None:
        expected = measure_expected(recipe.window.cut(splits.usual), splits.usual, contract, named, cost, say)
    release = Release(
        variants={
            target: [shipped[source.name] for source in chosen.packed(target, recipe.variants)]
            for target in chosen.targets
        },
        cloud=models.cloud,
        gate=gate.spec,
        surround=around.surround,
        accuracy={name: evaluation["accuracy"] for name, evaluation in tested["judged"].items()},
        groups=splits.recordings.groups,
        versions=versions,
        **expected._asdict(),
    )
    figures["bundles"] = write_bundles(recipe, release, splits.validation, out, signer)
    for target in chosen.targets if recipe.stream_hop else ():
        _stream_bundle(out / f"{recipe.name}-{target}.edge", recipe.stream_hop, signer, say)
    write_evaluation(out, splits.recordings.test, splits.test, contract)
    say(f"build: finished in {clock.monotonic() - began:.0f} s")
    figures |= conclusions(figures)
    (out / "report.json").write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))
    write_report(orjson.loads((out / "report.json").read_bytes()), out)
    return figures


def _ways(
    surround: Surround | None, gate: GateSpec, test: Windows, device: VariantSource, cloud: VariantSource, *, hop: int
) -> dict[str, Any]:
    """Judge each way to answer on test groups: alone, with the cloud, over time, and all together."""
    own, remote = answers(device, test.x), answers(cloud, test.contexts)
    found, y, group = rows(surround, gate, test, own, remote, hop=hop)
    return dict(summary(found, y, group, classes=own.shape[1]))


def _recipe_metrics(recipe: Recipe) -> dict[str, Any]:
    """Collect what the report shows of the recipe."""
    return {
        "recipe": recipe.name,
        "description": recipe.description,
        "data": [asdict(reader.origin) for reader in recipe.data],
        "classes": list(recipe.classes),
        "metric": recipe.metric,
        "limits": asdict(recipe.limits),
        "best_known": asdict(recipe.report.best_known) if recipe.report is not None else None,
    }


def _stream_bundle(path: Path, hop: int, signer: SigningKey | None, say: Say) -> None:
    """Write a streaming bundle beside a device's bundle, where a file of it converts."""
    out = path.with_name(f"{path.stem}-streaming.edge")
    try:
        made = stream_bundle(path, out, hop=hop)
    except ConfigError as error:
        say(f"streaming: {error}")
        return
    if signer is not None:
        sign_bundle(out, signer)
    names = ", ".join(variant.name for variant in made.manifest.variants)
    say(f"streaming: {out.name}: {names}, answers differ by up to {max(made.differences.values()):.2g}")
