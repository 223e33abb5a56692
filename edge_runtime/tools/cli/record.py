"""``edge-runtime record``: live traffic of sources into a file that ``replay`` and ``edge-export auto`` take."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import AppFile, Factor, OutputFile
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command

if TYPE_CHECKING:
    from edge_runtime.tools.record.labels import CurrentLabel
    from edge_runtime.tools.record.recorder import Recorded, Recorder


def _channel(text: str) -> tuple[str, str]:
    name, _, unit = text.partition("=")
    if not name:
        raise argparse.ArgumentTypeError(f"{text}: write NAME=UNIT, for example ax=m/s2")
    return name, unit


_Channel = Annotated[tuple[str, str], _channel]


@dataclass(frozen=True, kw_only=True)
class RecordOptions(CommandOptions):
    app: AppFile = operand("an application, or a file with brokers and sources", "APP")
    out: OutputFile = option("a new file", metavar="FILE.csv")
    label: tuple[str, ...] = option("class of the rows; several have the keys 1 to 9", (), "NAME")
    person: str = option("who moves (default: each key is a person)", "", "NAME")
    seconds: Factor | None = option("how long (default: until Ctrl-C)", None)
    channel: tuple[_Channel, ...] = option("a channel without a name or unit in the sources", (), "NAME=UNIT")
    rate: Factor | None = option("samples per second, without a model", None, "HZ")


@command(
    "record",
    "write live traffic to a CSV file, with labels set while it runs",
    "Write what the sources of an application deliver to a new CSV file, with the label of the moment. "
    "In a terminal, the keys 1 to 9 choose among the labels, and 0 pauses; on a pipe, each line is a label, and an "
    "empty line pauses. The file needs no model: brokers and sources suffice, as edge-runtime listen --out "
    "makes them. A killed process loses nothing that it was handed; a power cut costs the last second. Ctrl-C "
    "or SIGTERM ends it. Exit code 1: nothing was recorded, or the disk failed.",
    "record app.toml --out walk1.csv --label walking --seconds 60",
    "record app.toml --out anna.csv --person anna --label walking --label sitting",
    "replay watch.edge walk1.csv --labels label",
)
def run(options: RecordOptions) -> CommandAnswer:
    """Record."""
    from edge_runtime.base.system.signals import stopped_by_signals  # noqa: PLC0415
    from edge_runtime.io.recordings.writer import RecordingWriter  # noqa: PLC0415
    from edge_runtime.tools.record.labels import CurrentLabel  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.tools.record.plan import load_plan  # noqa: PLC0415
    from edge_runtime.tools.record.recorder import Recorder  # noqa: PLC0415

    if options.out.suffix.lower() != ".csv":
        raise ConfigError(f"--out {options.out}: recordings are written as CSV; call it {options.out.stem}.csv")
    _check_texts(options)
    plan = load_plan(options.app, dict(options.channel), options.rate or 0.0)
    labels = CurrentLabel(options.label, changed=lambda: _say(f"now: {labels.current or 'paused'}"))
    writer = RecordingWriter(options.out, plan.contract.channels, labelled=bool(options.label))
    try:
        recorder = Recorder(plan, writer, labels, person=options.person)
        if options.seconds:
            recorder.loop.call_later(options.seconds, recorder.stop)
        lines = not any(source.type == "stdin" for source in plan.sources)
        with (
            stopped_by_signals(recorder.stop),
            labels.read_from(0 if lines else -1, recorder.loop) as keys,
        ):
            _say(_how(labels, options, keys=keys))
            recorded = recorder.run(_shown if sys.stderr.isatty() else lambda _: None)
        recorder.close()
    finally:
        writer.close()
        if not writer.rows:
            options.out.unlink(missing_ok=True)
    return _report(recorder, recorded, options.out, labels)


def _check_texts(options: RecordOptions) -> None:
    """Refuse labels and names that would not stand in one cell of one line."""
    from edge_runtime.tools.record.labels import MAX_LABEL  # noqa: PLC0415

    for text in (*options.label, options.person):
        if not (text.isprintable() and len(text) <= MAX_LABEL) or text != text.strip():
            raise ConfigError(f"{text!r}: a label or name is a printable text of at most {MAX_LABEL} characters")
    if "" in options.label:
        raise ConfigError("--label: name it; without --label, rows have none")


def _how(labels: CurrentLabel, options: RecordOptions, *, keys: bool) -> str:
    """Tell how it is steered."""
    until = f"for {options.seconds:g} s" if options.seconds else "until Ctrl-C"
    if not keys or not labels.names:
        return f"recording to {options.out} {until}" + (f": {labels.current}" if labels.current else "")
    choices = ", ".join(f"{i} {name}" for i, name in enumerate(labels.names[:9], start=1))
    return f"recording to {options.out} {until}; keys: {choices}, 0 pause; now: {labels.current}"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _counts(recorded: Recorded) -> str:
    parts = [f"{label or 'samples'} {count:,}" for label, count in recorded.samples.items()]
    return ", ".join(parts) or "nothing yet"


def _shown(recorded: Recorded) -> None:
    print(f"\r{_counts(recorded)[:110]:<110}", end="", file=sys.stderr, flush=True)


def _report(recorder: Recorder, recorded: Recorded, out: Path, labels: CurrentLabel) -> CommandAnswer:
    """Tell a person what was recorded and what was not."""
    dropped = {reason: count for reason, count in recorder.metrics.dropped.items() if count}
    refused = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
    total = sum(recorded.samples.values())
    if total:
        by_label = f": {_counts(recorded)}" if labels.names else ""
        _say(f"\n{out}: {total:,} samples of {len(recorded.keys)} keys{by_label}")
    else:
        _say(f"\nnothing was recorded, and {out} was not kept")
    if recorded.paused:
        _say(f"left out while paused: {recorded.paused:,} samples")
    if refused:
        example = next(iter(recorder.metrics.examples.values()), "")
        _say(f"refused: {refused}" + (f"; the last one: {example}" if example else ""))
    if recorded.failure:
        _say(recorded.failure)
    document = {
        "file": out if total else None,
        "samples": dict(recorded.samples),
        "keys": sorted(recorded.keys),
        "paused": recorded.paused,
        "dropped": dropped,
        "failure": recorded.failure or None,
    }
    return CommandAnswer(document, code=0 if total and not recorded.failure else 1)
