"""A replay of many recordings, on one process and on several.

The recordings are those of the exercise watch (seglearn; 50 Hz, six channels), laid one after another until there are
as many hours as asked for, an hour a file, in each of three formats.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from benchmarks.report import Goal, Report, median_of, spread

HZ = 50
CHANNELS = ("ax", "ay", "az", "wx", "wy", "wz")
SOURCE = Path(__file__).resolve().parents[1] / "examples" / "exercise-watch" / "recordings.npz"
TURNS = 5


def batch(quick: bool) -> Iterator[Report]:
    """Hours of recordings a second, by format and number of processes."""
    hours, turns = (4, 1) if quick else (100, TURNS)
    jobs = sorted({1, 2, len(os.sched_getaffinity(0))})
    report = Report(
        f"replay of {hours} hours of {HZ} Hz, six channels, an hour a file; {turns} turns, least / median / most",
        ("files", "processes", "seconds", "CPU s", "times one"),
    )
    for kind, write in (("npz", _npz), ("parquet", _parquet), ("csv", _csv)):
        with tempfile.TemporaryDirectory(prefix="edge-batch-") as name:
            folder = Path(name)
            _write(folder, hours, write)
            _add_rows(report, kind, folder, hours, jobs, turns)
    report.notes.append("CPU s: of all processes, start and model included")
    yield report


def _add_rows(report: Report, kind: str, folder: Path, hours: int, jobs: list[int], turns: int) -> None:
    seconds: dict[int, list[float]] = {count: [] for count in jobs}
    cpu: dict[int, list[float]] = {count: [] for count in jobs}
    for _ in range(turns):
        for count in jobs:
            took, used = _turn(folder, kind, count)
            seconds[count].append(took)
            cpu[count].append(used)
    for count in jobs:
        ratios = [one / many for one, many in zip(seconds[1], seconds[count], strict=True)]
        shown = spread(ratios, 2) if count > 1 else None
        report.rows.append((kind, count, spread(seconds[count], 1), spread(cpu[count], 1), shown))
        if count == 2:
            report.goals.append(Goal(f"{kind}: two processes, times one", median_of(ratios), 1.8))
    report.goals.append(Goal(f"{kind}: CPU seconds for 100 hours", median_of(cpu[1]) * 100 / hours, 15.0, at_most=True))


def _turn(folder: Path, kind: str, count: int) -> tuple[float, float]:
    """Seconds, and CPU seconds of all processes, of one command."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "edge_runtime", "replay", "exercise-watch", str(folder / f"*.{kind}")),
            *("--jobs", str(count), "--out", str(folder / "answers.jsonl"), "--json"),
        ],
        check=True,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    )
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


Writer = Callable[[Path, npt.NDArray[np.float64], npt.NDArray[np.float32]], None]


def _write(folder: Path, hours: int, write: Writer) -> None:
    with np.load(SOURCE) as found:
        some = np.asarray(found["x"] * found["scale"], np.float32)
    rows = 3600 * HZ
    for hour in range(hours):
        start = hour * 997 % len(some)
        values = np.take(some, np.arange(start, start + rows), axis=0, mode="wrap")
        t = 1_700_000_000.0 + hour * 4000 + np.arange(rows) / HZ
        write(folder / f"day-{hour:03}", t, values)


def _npz(path: Path, t: npt.NDArray[np.float64], values: npt.NDArray[np.float32]) -> None:
    np.savez(path.with_suffix(".npz"), x=values, t=t, channels=CHANNELS)


def _parquet(path: Path, t: npt.NDArray[np.float64], values: npt.NDArray[np.float32]) -> None:
    import pyarrow as pa  # noqa: PLC0415 - an extra
    import pyarrow.parquet as pq  # noqa: PLC0415

    columns = {"time": t} | {name: values[:, i] for i, name in enumerate(CHANNELS)}
    pq.write_table(pa.table(columns), path.with_suffix(".parquet"))


def _csv(path: Path, t: npt.NDArray[np.float64], values: npt.NDArray[np.float32]) -> None:
    table = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY).decode()[2:-2].split("],[")
    lines = [f"{stamp:.3f},{row}\n" for stamp, row in zip(t.tolist(), table, strict=True)]
    path.with_suffix(".csv").write_text("time," + ",".join(CHANNELS) + "\n" + "".join(lines))
