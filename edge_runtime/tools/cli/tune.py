"""``edge-runtime tune``: measure which variant is the fastest on this machine, and save the result."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, Count, ExistingFile, OutputFile
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command

if TYPE_CHECKING:
    from edge_runtime.model.bundle.bundle import Bundle
    from edge_runtime.model.tuning.results import AcceleratorGain, Figure, Tuning
    from edge_runtime.model.tuning.timing.machine import Machine

_MOST_THREADS = 8
"""Sensor models are small: more threads than that only wait for each other."""


@dataclass(frozen=True, kw_only=True)
class TuneOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    threads: tuple[Count, ...] = option(
        "threads to measure with (default: 1, 2, 4, 8, up to the cores)", (), "N", words="+"
    )
    tuned: OutputFile | None = option(
        "the saved figures, named by tuned under [model] (default: BUNDLE.tuned.json)", None, "FILE"
    )
    compiled: Path | None = option(
        "what accelerators compile, named by compiled there (default: BUNDLE.compiled)", None, "FOLDER"
    )
    trusted_key: tuple[ExistingFile, ...] = arguments.trusted_key()
    forget: bool = option("delete the saved figures, and measure nothing", default=False)


@command(
    "tune",
    "measure which variant is the fastest on this machine",
    "Time every variant of a bundle in every engine that is installed and on the accelerators that "
    "this board has, in interleaved rounds, after each has reproduced its golden vectors; in child processes, "
    "so that one that crashes costs itself alone. The figures are saved beside the bundle, for this "
    "machine, these versions and this bundle, and `run` takes the fastest from then on: on the processor, "
    "or on an accelerator that saves at least half of its time. Takes some seconds, minutes where an "
    "accelerator compiles; Ctrl-C ends it at once, and saves nothing.",
    "tune watch.edge",
    "tune watch.edge --threads 1 4 --json",
    renamed={"--file": "--tuned"},
)
def run(options: TuneOptions) -> CommandAnswer:
    """Measure and save. A disk that cannot be written to is reported, and is no failure."""
    from edge_runtime.base.hardware import this_device  # noqa: PLC0415
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415
    from edge_runtime.model.bundle.signature import load_keys  # noqa: PLC0415
    from edge_runtime.model.tuning import compile_cache, results  # noqa: PLC0415
    from edge_runtime.model.tuning.benchmark import tune  # noqa: PLC0415
    from edge_runtime.model.tuning.timing.machine import this_machine  # noqa: PLC0415

    path: Path = options.tuned or results.file_for(options.bundle)
    compiled: Path = options.compiled or compile_cache.folder_for(options.bundle)
    trusted = load_keys(options.trusted_key) if options.trusted_key else None
    with open_bundle(options.bundle, trusted=trusted) as bundle:
        machine = this_machine()
        if options.forget:
            compile_cache.discard(compile_cache.compiled_of(compiled, bundle))
            return _forget(bundle, path, machine)
        profile = this_device()
        threads = list(options.threads) or [count for count in profile.thread_counts if count <= _MOST_THREADS]
        tuning = tune(bundle, threads=threads, machine=machine, profile=profile, compiled=compiled)
        if not options.compiled:
            with contextlib.suppress(OSError):  # made, and nothing came of it
                compiled.rmdir()
        why = ""
        try:
            results.save_tuning(tuning, bundle, path, machine)
        except OSError as error:
            why = error.strerror or type(error).__name__
    if why:
        figure, gain = _choice(tuning)
        wanted = f'variant = "{figure.variant}"' + (f" and {_switch(figure)}" if gain and gain.worth else "")
        print(
            f"edge-runtime: not saved, since {path} cannot be written ({why}); "
            f"set {wanted} under [model], or name a file by --tuned",
            file=sys.stderr,
        )
    return CommandAnswer(_document(tuning, path, why), [*_lines(tuning), *([] if why else [f"saved in {path}"])])


def _forget(bundle: Bundle, path: Path, machine: Machine) -> CommandAnswer:
    from edge_runtime.errors import EdgeError  # noqa: PLC0415
    from edge_runtime.model.tuning import results  # noqa: PLC0415

    try:
        found = results.delete_tuning(bundle, path, machine)
    except OSError as error:
        raise EdgeError(f"{path} cannot be changed: {error.strerror}; delete it by hand") from error
    told = "forgotten" if found else "nothing was saved for this bundle on this machine"
    return CommandAnswer({"forgotten": found, "file": path}, f"{path}: {told}")


def _choice(tuning: Tuning) -> tuple[Figure, AcceleratorGain | None]:
    from edge_runtime.model.serving.choice import measured_best  # noqa: PLC0415 - as in `run`

    return measured_best(tuning)


def _document(tuning: Tuning, path: Path, why: str) -> dict[str, Any]:
    figure, _ = _choice(tuning)
    return asdict(tuning) | {
        "choice": figure.setting(1)._asdict() | {"accelerator": figure.accelerator or None},
        "saved": None if why else str(path),
    }


def _lines(tuning: Tuning) -> list[str]:
    """Render the figures for people, then what was refused, then the choice."""
    rows = [("variant", "on", "threads", "median us", "95 % us", "cpu us", "ratio to the first")]
    rows += [
        (
            figure.variant, figure.place, str(figure.threads), f"{figure.p50_us:.1f}", f"{figure.p95_us:.1f}",
            f"{figure.cpu_us:.1f}", f"{figure.ratio:.2f} ({figure.ratio_low:.2f} to {figure.ratio_high:.2f})",
        )
        for figure in tuning.figures
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [f"{tuning.model} on {tuning.machine}"]
    lines += ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    from edge_runtime.model.tuning.results import MOST_IN_A_CALL  # noqa: PLC0415 - as in `run`

    lines += [
        f"{figure.variant} on {figure.place}: {figure.batch} windows in a call cost the least each"
        for figure in tuning.figures
        if 0 < figure.batch < MOST_IN_A_CALL
    ]
    lines += [f"refused {name}: {reason}" for name, reason in tuning.refused.items()]
    chosen = tuning.choose()
    most = max(figure.threads for figure in tuning.figures)
    wide = tuning.choose(most)
    if wide.threads > chosen.threads:
        faster, dearer = chosen.p50_us / wide.p50_us, wide.cpu_us / chosen.cpu_us
        lines.append(
            f"with threads = {wide.threads} under [model]: {wide.variant} on {wide.engine}, "
            f"{faster:.1f} times as fast for {dearer:.1f} times the processor time"
        )
    return [*lines, *_verdict(tuning)]


def _verdict(tuning: Tuning) -> list[str]:
    """Explain what `run` will take, and why."""
    figure, gain = _choice(tuning)
    if gain is None or gain.processor is None:
        return [f"run takes {_named(figure)}, the fastest here"]
    gained = f"{_named(gain.figure)}: {gain.us:.1f} us a window"
    if tuning.round_trip_us:
        gained += f", {tuning.round_trip_us:.1f} of them for the way to a process of its own and back,"
    gained += f" against {gain.processor_us:.1f} us"
    processor = _named(gain.processor)
    if gain.worth:
        return [
            f"run takes {gained} for {processor}, which stands in",
            "to leave it to the processor: accelerators = {} under [model]",
        ]
    return [
        f"run takes {processor}, the fastest on the processor",
        f"not {gained}: it would have to save half of that to be worth its power and memory",
        f'to have it all the same: variant = "{gain.figure.variant}" and {_switch(gain.figure)} under [model]',
    ]


def _named(figure: Figure) -> str:
    return f"{figure.variant} on {figure.place}"


def _switch(figure: Figure) -> str:
    return f"accelerators = {_toml(figure.providers)}"


def _toml(table: Mapping[str, Any]) -> str:
    """Render an inline table; TOML's basic strings are JSON's."""
    parts = (
        f"{json.dumps(name)} = {_toml(value) if isinstance(value, dict) else json.dumps(value)}"
        for name, value in table.items()
    )
    return "{" + ", ".join(parts) + "}"
