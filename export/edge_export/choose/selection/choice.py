"""Choice of the files for each architecture: candidates timed on this machine, evaluated on groups not trained on."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edge_export.choose.selection.limits import Choice, choose
from edge_export.choose.selection.timing import measure_candidates
from edge_export.data.dataset import Float32, Windows
from edge_export.metrics import REFERENCE, Evaluation, evaluate
from edge_export.package.pack import VariantSource
from edge_export.recipe.recipe import TARGETS, Recipe
from edge_export.step_cache import Say, StepCache
from edge_runtime.model.tuning.timing import Measurement, Timing, this_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Files chosen for each architecture, and the metrics they were chosen by.

    Attributes:
        targets: the choice for each architecture, in the recipe's order.
        timings: of all candidates on this machine.
        judged: evaluations of all that ran, on groups not trained on.
    """

    targets: Mapping[str, Choice]
    timings: Sequence[Timing]
    judged: Sequence[Evaluation]

    @property
    def device(self) -> VariantSource:
        """The file that temperature and gate are fitted to: the best for the first architecture."""
        return self._first.shipped[0]

    @property
    def _first(self) -> Choice:
        return next(iter(self.targets.values()))

    def packed(self, target: str, variants: str) -> list[VariantSource]:
        """List what a bundle holds of the choice.

        The best of each format where times were taken on such a machine, since a device may have one engine only; all
        of it where the device has yet to measure.

        Args:
            target: architecture.
            variants: ``best`` or ``all``, as `Recipe.variants`.
        """
        shipped = self.targets[target].shipped
        if variants == "all" or target != platform.machine():
            return list(shipped)
        best: dict[str, VariantSource] = {}
        for source in shipped:
            best.setdefault(source.format, source)
        return list(best.values())

    def metrics(self) -> dict[str, Any]:
        """Collect their part of the report."""
        return {
            "validation": {evaluation.name: asdict(evaluation) for evaluation in self.judged},
            "choice": {
                target: {"shipped": [source.name for source in own.shipped], "lost": dict(own.lost)}
                for target, own in self.targets.items()
            },
            "candidates": [asdict(each) for each in self._first.metrics],
            "timings": [asdict(timing) for timing in self.timings],
        }


def choose_files(
    recipe: Recipe,
    sources: Sequence[VariantSource],
    measured: Measurement,
    windows: Windows,
    given: Mapping[str, Float32],
    say: Say,
) -> Chosen:
    """Evaluate the candidates, and apply the recipe's limits for each of its architectures.

    One validation set is one to four people: on such, integers were once chosen for 1.6 points that they gained there,
    and lost 3.6 on test groups. With folds, `windows` are of all groups.

    Args:
        recipe: names targets and limits.
        sources: the candidates at temperature 1, the unquantised student among them.
        measured: their times.
        windows: windows of groups that the candidates were not trained on.
        given: (n, classes) what each candidate that runs here answers to them.
        say: takes a line for each architecture: what ships, and why the others do not.

    Raises:
        ConfigError: nothing is within the limits.
    """
    asked = {source.name: given[source.name] for source in sources if source.name in given}
    judged = evaluate(asked, windows.y, windows.group, reference=REFERENCE, seed=recipe.seed)
    targets = {
        target: choose(sources, measured, judged, replace(recipe.limits, metric=recipe.metric), target)
        for target in dict.fromkeys(TARGETS[name] for name in recipe.targets)
    }
    for target, own in targets.items():
        say(f"{target}: {', '.join(source.name for source in own.shipped)}")
        for name, reason in own.lost.items():
            say(f"  not {name}: {reason}")
    return Chosen(targets=targets, timings=measured.timings, judged=judged)


def measure_files(sources: Sequence[VariantSource], windows: Float32, steps: StepCache) -> Measurement:
    """Measure the times, kept like any other step: a resumed build ships what it would have shipped.

    Args:
        sources: the candidates, the unquantised student among them.
        windows: (n, channels, samples) to time them on.
        steps: cache of the measured times.
    """

    def make(folder: Path) -> None:
        timed = measure_candidates(sources, windows, reference=REFERENCE)
        (folder / "measurement.json").write_text(timed.to_json(), "utf-8")

    inputs = {
        "files": {source.name: hashlib.sha256(source.model).hexdigest() for source in sources},
        "machine": this_machine().label,
    }
    folder = steps.run("measure", inputs, make)
    return Measurement.from_json((folder / "measurement.json").read_text("utf-8"))
