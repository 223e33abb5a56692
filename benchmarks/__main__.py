"""Command that runs the benchmarks: ``python -m benchmarks [NAME ...] [--quick] [--json FILE]``.

Figures depend on the machine; ratios within one run are what counts. Nothing here fails on a slow day: a goal that is
not met is printed as missed.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from benchmarks.answer_cache import answer_cache
from benchmarks.batch import batch
from benchmarks.costly import costly
from benchmarks.curves import curves
from benchmarks.floods import floods
from benchmarks.footprint import footprint
from benchmarks.install import install
from benchmarks.keys import keys
from benchmarks.observers import observers
from benchmarks.onnx_forms import onnx_forms
from benchmarks.report import Report, machine
from benchmarks.stateful import stateful
from benchmarks.streaming import paced, saturated
from benchmarks.streaming_runtime import through_the_runtime

OURS: dict[str, Callable[[bool], Iterator[Report]]] = {
    "saturated": saturated,
    "paced": paced,
    "keys": keys,
    "curves": curves,
    "observers": observers,
    "floods": floods,
    "costly": costly,
    "footprint": footprint,
    "install": install,
    "streaming": lambda quick: itertools.chain(stateful(quick), through_the_runtime(quick)),
    "onnx-forms": onnx_forms,
    "answer-cache": answer_cache,
    "batch": batch,
}
SCRIPTS = {
    "quantize": "quantize",
    "mqtt-receive": "bench_mqtt_receive",
    "outbox": "bench_outbox",
    "codecs": "bench_codecs",
    "cloud": "bench_cloud",
    "serve": "bench_serve",
    "events": "bench_events",
    "intake": "bench_intake",
    "drift": "bench_drift",
    "spectrum": "bench_spectrum",
    "frontends": "bench_frontends",
    "wake-words": "bench_wake_words",
    "otlp": "bench_otlp",
    "workers": "bench_workers",
    "update-times": "bench_update_times",
    "disk": "bench_disk",
}
"""Programs of their own, which print their own tables."""
MODELS = "models"
"""Published models, from `EDGE_SHARED`; only where it is asked for by name."""


def _models(write: Path | None) -> int:
    from benchmarks.real_models import run  # noqa: PLC0415 - needs the export toolchain

    made = run.report(Path(os.environ.get("EDGE_SHARED", "../shared")))
    print(made.text())
    if write is not None:
        write.write_text(run.page(made), "utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Speed and size of edge-runtime beside what a user would write instead.",
    )
    here = Path(__file__).parent
    scripts = {name: module for name, module in SCRIPTS.items() if (here / f"{module}.py").exists()}
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of: {', '.join([*OURS, *scripts])}; default: all"
    )
    parser.add_argument("--write", type=Path, metavar="FILE", help="with models: write docs/models.md there")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and shorter runs: a few minutes in all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    if options.names == [MODELS]:
        return _models(options.write)
    names = options.names or [*OURS, *scripts]
    unknown = [name for name in names if name not in OURS and name not in scripts]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]}; known: {', '.join([*OURS, *scripts])}")
    if not hasattr(os, "sched_setaffinity"):
        parser.error("the benchmarks pin processes to cores, which needs Linux")
    found = machine()
    print("\n".join(f"{key}: {value}" for key, value in found.items()))
    results: dict[str, Any] = {"machine": found, "quick": options.quick, "benchmarks": {}}
    for name in names:
        began = time.monotonic()
        if name in OURS:
            reports = []
            for report in OURS[name](options.quick):
                print(f"\n{report.text()}", flush=True)
                reports.append(report.plain())
            results["benchmarks"][name] = reports
        else:
            results["benchmarks"][name] = _script(name, scripts[name])
        print(f"({name}: {time.monotonic() - began:.0f} s)", flush=True)
    if options.json:
        options.json.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return 0


def _script(name: str, module: str) -> dict[str, Any]:
    """Run a benchmark that is a program of its own, and keep what it printed."""
    print(f"\n{name}:", flush=True)
    lines = []
    with subprocess.Popen([sys.executable, "-m", f"benchmarks.{module}"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line.rstrip("\n"))
    if process.returncode:
        print(f"{name} ended with exit code {process.returncode}", flush=True)
    return {"exit_code": process.returncode, "output": lines}


if __name__ == "__main__":
    sys.exit(main())
