"""What ships for each architecture: every candidate timed on this machine, judged on validation groups, and chosen."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from edge_export.data.dataset import Float32, Windows
from edge_export.metrics import REFERENCE, Judged, judge
from edge_export.package.pack import VariantSource
from edge_export.recipe.recipe import TARGETS, Recipe
from edge_export.selection.limits import Choice, choose
from edge_export.selection.timing import answers, measure_candidates
from edge_export.step_cache import Say, StepCache
from edge_runtime.tuning.timing import Measurement, Timing, this_machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """What ships, and the figures that say so.

    Attributes:
        targets: the choice for each architecture, in the recipe's order.
        timings: of all candidates on this machine.
        judged: of all that ran, on validation groups.
    """

    targets: Mapping[str, Choice]
    timings: Sequence[Timing]
    judged: Sequence[Judged]

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

    def figures(self) -> dict[str, Any]:
        """Their part of the report."""
        return {
            "validation": {judgement.name: asdict(judgement) for judgement in self.judged},
            "choice": {
                target: {"shipped": [source.name for source in own.shipped], "lost": dict(own.lost)}
                for target, own in self.targets.items()
            },
            "candidates": [asdict(each) for each in self._first.figures],
            "timings": [asdict(timing) for timing in self.timings],
        }


def choose_files(
    recipe: Recipe, sources: Sequence[VariantSource], validation: Windows, steps: StepCache, say: Say
) -> Chosen:
    """Time and judge the candidates, and apply the recipe's limits for each of its architectures.

    Args:
        recipe: names targets and limits.
        sources: the candidates at temperature 1, the unquantised student among them.
        validation: windows that choose.
        steps: keep the times.
        say: told what ships, and why the others do not.

    Raises:
        ConfigError: nothing is within the limits.
    """
    measured = _measured(sources, validation.x, steps)
    given = {source.name: answers(source, validation.x) for source in sources if source.name not in measured.failed}
    judged = judge(given, validation.y, validation.group, reference=REFERENCE, seed=recipe.seed)
    targets = {
        target: choose(sources, measured, judged, replace(recipe.limits, metric=recipe.metric), target)
        for target in dict.fromkeys(TARGETS[name] for name in recipe.targets)
    }
    for target, own in targets.items():
        say(f"{target}: {', '.join(source.name for source in own.shipped)}")
        for name, reason in own.lost.items():
            say(f"  not {name}: {reason}")
    return Chosen(targets=targets, timings=measured.timings, judged=judged)


def _measured(sources: Sequence[VariantSource], windows: Float32, steps: StepCache) -> Measurement:
    """Measure the times, kept like any other step: a resumed build ships what it would have shipped."""

    def make(folder: Path) -> None:
        timed = measure_candidates(sources, windows, reference=REFERENCE)
        (folder / "measurement.json").write_text(timed.to_json(), "utf-8")

    inputs = {
        "files": {source.name: hashlib.sha256(source.model).hexdigest() for source in sources},
        "machine": this_machine().label,
    }
    folder = steps.run("measure", inputs, make)
    return Measurement.from_json((folder / "measurement.json").read_text("utf-8"))
