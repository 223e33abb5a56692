"""``edge-runtime events``: choose the thresholds of event rules on long recordings."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import AppFile, BundlePath, ExistingFile, Factor, OutputFile, Recording, Seconds
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command, family

if TYPE_CHECKING:
    from edge_runtime.answer.events.operating_point import Point, SearchGrid
    from edge_runtime.answer.events.trial import Outcome, Trial
    from edge_runtime.event_rule import EventRule
    from edge_runtime.io.sources.recording import RecordingConfig
    from edge_runtime.model.serving.loading import Model

_SHOWN = 12
"""Lines of the curve that are printed."""


family(
    __name__,
    "events",
    "choose the thresholds of event rules on long recordings",
    "Event rules ([[events]]) make events of answers. This chooses their thresholds (docs/events.md).",
    "events tune sounds.edge night.wav --labels cries.csv --event baby-cry --rate 1",
)


@dataclass(frozen=True, kw_only=True)
class EventsOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    recordings: tuple[Recording, ...] = operand("recordings to choose on", "RECORDING")
    report: tuple[Recording, ...] = option("others, to report on", (), "RECORDING", words="+")
    labels: str = option(
        "when it happens: a column with the class of each sample, or a table with label, start, end and any of key, "
        "file, as for edge-runtime replay",
        metavar="COLUMN|FILE",
    )
    event: str = option("name of the rule", metavar="NAME")
    label: str = option("label of the bundle (default: that of the rule, or its name)", "")
    rate: Factor = option("false alarms per hour that are allowed", metavar="N")
    hold: Seconds | None = option("least duration (default: as the rule has it)", None, "S")
    refractory: tuple[Seconds, ...] = option("pauses to try (default: that of the rule)", (), "S", words="+")
    merge: Seconds | None = option("labelled stretches closer than this are one (default: a window)", None, "S")
    source: AppFile | None = option("read files as its [[source]] does", None, "APP")
    app: AppFile | None = option("show what changes in its [[events]]", None, "APP")
    write: bool = option("with --app: write it", default=False)
    plot: OutputFile | None = option("draw misses against false alarms per hour", None, "FILE.svg")
    trusted_key: tuple[ExistingFile, ...] = arguments.trusted_key()

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.write and self.app is None:
            raise ValueError("--write needs --app APP: which file is to be written?")


@command(
    "events tune",
    "choose a rule for a stated rate of false alarms",
    "Play long recordings through a bundle, try some thousand rules on its answers, and choose the one "
    "that misses least at the stated rate of false alarms. It is reported on recordings that it was not chosen on: "
    "those of --report, or each one in turn with the others to choose on. Recordings need long times in which "
    "the event does not happen: with 10 hours, 0.1 per hour is one false alarm.",
    "events tune sounds.edge night.wav --labels cries.csv --event baby-cry --rate 1",
    "events tune sounds.edge a*.wav --report b*.wav --labels cries.csv --event cry --rate 1 \\\n"
    "    --app app.toml --write",
)
def run(options: EventsOptions) -> CommandAnswer | int:
    """Play, try, choose, report; return 1 where no rule stays within the rate, or is not written for that."""
    from edge_runtime.answer.events import operating_point as points  # noqa: PLC0415
    from edge_runtime.app.python_api import open_model  # noqa: PLC0415 - numpy and the rest, only when needed

    with open_model(options.bundle, trusted_keys=options.trusted_key) as model:
        base, inherited = _base(options, model)
        trials = {
            str(path): _played(path, options, model, base) for path in _expanded([*options.recordings, *options.report])
        }
    chosen_on = [str(path) for path in _expanded(options.recordings)]
    reported_on = [name for name in trials if name not in chosen_on]
    _check(trials, options, base)
    found = points.sweep(base, trials, _grid(options, base))
    best = points.choose(found, chosen_on, options.rate)
    if best is None:
        print(
            f"no rule stays within {options.rate:g} false alarms per hour; allow more, or train on them",
            file=sys.stderr,
        )
        return 1
    report = best.on(reported_on) if reported_on else points.leave_one_out(found, chosen_on, options.rate)
    here = best.on(chosen_on)
    rule = replace(best.rule, expected=_expected(here if not report.hours else report))
    front = points.front(found, chosen_on)
    if options.plot is not None:
        _draw(options.plot, options, front, here, report)
    names = (chosen_on, reported_on or ["each in turn"])
    lines = [_text(options.rate, len(found), front, here, report, names)]
    short = _too_short(options.rate, here.hours + (report.hours if reported_on else 0.0))
    refused = bool(options.write and short and not rule.expected["false_per_hour"] <= options.rate)
    change = _hand_over(options, (*inherited, rule), write=options.write and not refused)
    lines.append("\n" + change.removesuffix("\n"))
    if short:
        words = f"{short}; {options.app} is not written" if refused else short
        lines.append(words)
        if options.json:
            print(words, file=sys.stderr)
    return CommandAnswer(_plain(options, found, rule, front, here, report) | {"change": change}, lines, int(refused))


def _expanded(files: Sequence[Path]) -> list[Path]:
    from edge_runtime.io.recordings.reader import expand  # noqa: PLC0415 - as in `run`

    found = [path for path, _ in expand(files)]
    if len(set(found)) < len(found):
        raise ConfigError("a recording is named twice; what is reported on must not be chosen on")
    return found


def _base(options: EventsOptions, model: Model) -> tuple[EventRule, tuple[EventRule, ...]]:
    """Return the rule as it is so far, and others of the bundle that an application's first rule would turn off."""
    from edge_runtime.app.config import load_config  # noqa: PLC0415 - as in `run`
    from edge_runtime.event_rule import EventRule, check_rules  # noqa: PLC0415

    own = None if options.app is None else load_config(options.app).events
    rules = model.manifest.events if own is None else own
    rule = next((one for one in rules if one.name == options.event), None)
    label = options.label or (options.event if rule is None else rule.label)
    rule = EventRule(name=options.event, label=label) if rule is None else replace(rule, label=label, expected={})
    if rule.after:
        raise ConfigError(f"event {rule.name!r} comes after {rule.after!r}: tune it without after, then set it again")
    try:
        check_rules([rule], model.manifest.output.labels)
    except ValueError as error:
        raise ConfigError(f"{error}; name one by --label") from error
    others = tuple(one for one in rules if own is None and one.name != rule.name)
    return rule if options.hold is None else replace(rule, hold_s=options.hold), others


def _grid(options: EventsOptions, base: EventRule) -> SearchGrid:
    from edge_runtime.answer.events.operating_point import SearchGrid  # noqa: PLC0415 - as in `run`

    return SearchGrid(refractory_s=options.refractory or (base.refractory_s,))


def _played(path: Path, options: EventsOptions, model: Model, base: EventRule) -> list[Trial]:
    """Play one recording; a trial for each of its keys."""
    import numpy as np  # noqa: PLC0415 - as in `run`

    from edge_runtime.answer.events.trial import KeyAnswers, prepare  # noqa: PLC0415
    from edge_runtime.app.python_api import play  # noqa: PLC0415
    from edge_runtime.io.recordings.labels import ANY_KEY, Played, labels_for, read_labels  # noqa: PLC0415
    from edge_runtime.metrics import Metrics  # noqa: PLC0415
    from edge_runtime.signal.windowing.config import WindowConfig  # noqa: PLC0415

    contract = model.manifest.input
    layout = _layout(path, options)
    labels = labels_for(contract)
    if not layout.label:
        read_labels(Path(options.labels), labels, Played(((path, ANY_KEY),)))
    column = model.manifest.output.labels.index(base.label)
    length_s = contract.window / contract.rate_hz
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for answer in play(model, layout, WindowConfig(), Metrics(), on_labels=labels.add):
        if answer.scores:
            rows.setdefault(answer.key, []).append((answer.start, answer.end, answer.scores[column]))
    merge_s = length_s if options.merge is None else options.merge
    return [
        prepare(KeyAnswers(*np.array(some).T), labels.spans(name, base.label), gap_s=length_s, merge_s=merge_s)
        for name, some in rows.items()
    ]


def _layout(path: Path, options: EventsOptions) -> RecordingConfig:
    from edge_runtime.app.config import load_sources  # noqa: PLC0415 - as in `run`
    from edge_runtime.io.sources.build import as_recording  # noqa: PLC0415
    from edge_runtime.io.sources.recording import RecordingConfig  # noqa: PLC0415

    layout = RecordingConfig(files=(path,))
    if options.source is not None:
        layout = as_recording(load_sources(options.source), (path,))
    return layout if Path(options.labels).is_file() else replace(layout, label=options.labels)


def _check(trials: Mapping[str, Sequence[Trial]], options: EventsOptions, base: EventRule) -> None:
    for name, some in trials.items():
        if not some:
            raise ConfigError(f"{name}: gives no window; look at it with: edge-runtime replay {options.bundle} {name}")
    if not any(trial.truth for some in trials.values() for trial in some):
        raise ConfigError(
            f"--labels {options.labels}: {base.label!r} happens in none of the recordings; check label, key or file, "
            "start and end"
        )


def _expected(outcome: Outcome) -> dict[str, float]:
    """Figures for the rule, of recordings that it was not chosen on."""
    return {"false_per_hour": round(outcome.per_hour, 4), "missed": round(outcome.miss_share, 4)}


def _text(
    rate: float,
    tried: int,
    front: Sequence[tuple[Point, Outcome]],
    here: Outcome,
    report: Outcome,
    names: tuple[Sequence[str], Sequence[str]],
) -> str:
    lines = [f"tried {tried:,} rules\n", "false alarms per hour   missed   rule"]
    last = len(front) - 1
    for point, outcome in [front[i] for i in sorted({round(k * last / (_SHOWN - 1)) for k in range(_SHOWN)})]:
        rule = point.rule
        words = f"on {rule.on:g}, off {rule.on if rule.off is None else rule.off:g}, {rule.of[0]} of {rule.of[1]}"
        smooth = f", {rule.smooth} of {rule.smooth_windows}" if rule.smooth_windows > 1 else ""
        lines.append(f"{outcome.per_hour:>21.3g}   {outcome.miss_share:>6.1%}   {words}{smooth}")
    lines.append(f"\nchosen for at most {rate:g} false alarms per hour:")
    for words, outcome, some in (("chosen on", here, names[0]), ("not chosen on", report, names[1])):
        files = some[0] if len(some) == 1 else f"{len(some)} recordings"
        lines.append(
            f"  {words:13}  {outcome.hours:.2f} h  {outcome.false} false alarms, {outcome.per_hour:.3g} per hour  "
            f"missed {outcome.missed} of {outcome.happened} ({outcome.miss_share:.1%})  [{files}]"
        )
    return "\n".join([*lines, *_doubts(rate, report)])


def _doubts(rate: float, report: Outcome) -> list[str]:
    """Say how little a small count says, and that recordings differ where they do."""
    from edge_runtime.answer.events.operating_point import FEW, upper_bound  # noqa: PLC0415 - as in `run`

    expected = rate * report.hours
    if report.false > 1.3 * max(expected, FEW):
        times = report.per_hour / rate
        return [f"  that is {times:.2g} times what was asked for: recordings differ, so choose on more of them"]
    if expected >= FEW:
        return []
    bound = upper_bound(report.false) / report.hours if report.hours else float("inf")
    few = f"  {expected:.3g} false alarms were to be expected there, too few for a rate"
    return [f"{few}: with 95 % confidence it is at most {bound:.3g} per hour"]


def _too_short(rate: float, hours: float) -> str:
    """Say that not one false alarm is to be expected in all the hours; empty if one is."""
    if rate * hours >= 1:
        return ""
    return (
        f"too short for {rate:g} false alarms per hour: {hours:.2g} h without the event, where less than one is to be "
        f"expected; record {1 / rate:.3g} h and more"
    )


def _draw(
    plot: Path, options: EventsOptions, front: Sequence[tuple[Point, Outcome]], here: Outcome, report: Outcome
) -> None:
    from edge_runtime.answer.events.curve import Mark, draw  # noqa: PLC0415 - as in `run`

    marks = [Mark(here, "recordings it was chosen on", "#1f6fb2"), Mark(report, "other recordings", "#e08a00")]
    picture = draw(f"{options.event}: misses and false alarms", [one for _, one in front], marks, options.rate)
    plot.write_text(picture, "utf-8")


def _plain(
    options: EventsOptions,
    found: Sequence[Point],
    rule: EventRule,
    front: Sequence[tuple[Point, Outcome]],
    here: Outcome,
    report: Outcome,
) -> dict[str, object]:
    from edge_runtime.answer.events.operating_point import upper_bound  # noqa: PLC0415 - as in `run`

    return {
        "rate": options.rate,
        "tried": len(found),
        "rule": rule,
        "chosen_on": here._asdict(),
        "not_chosen_on": report._asdict(),
        "upper_per_hour": upper_bound(report.false) / report.hours if report.hours else None,
        "curve": [outcome._asdict() for _, outcome in front],
    }


def _hand_over(options: EventsOptions, rules: Sequence[EventRule], *, write: bool) -> str:
    """Return the rule, or what changes in the application, which is written; the last rule is the one tuned."""
    from edge_runtime.answer.events.toml_table import as_table, with_rule  # noqa: PLC0415
    from edge_runtime.app.config import parse, read_text  # noqa: PLC0415 - as in `run`
    from edge_runtime.base.system import durable_file  # noqa: PLC0415

    path = options.app
    if path is None:
        return as_table(rules[-1])
    before = after = read_text(path)
    try:
        for rule in rules:
            after = with_rule(after, rule)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    parse(after, path)
    if write:
        mode = path.stat().st_mode
        durable_file.write(path, after.encode())
        path.chmod(mode)
    return "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(path), str(path)))
