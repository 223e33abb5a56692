"""A replay of many recordings, on one process, on several, and on a local Ray.

The recordings are those of the exercise watch (seglearn; 50 Hz, six channels), laid one after another until there are
as many hours as asked for, an hour a file, in each of three formats.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from benchmarks.report import Goal, Report, median_of, spread

HZ = 50
CHANNELS = ("ax", "ay", "az", "wx", "wy", "wz")
SOURCE = Path(__file__).resolve().parents[1] / "examples" / "exercise-watch" / "recordings.npz"
TURNS = 5


def batch(quick: bool) -> Iterator[Report]:
    """Hours of recordings a second, by format and number of processes; on a local Ray, where it is installed."""
    hours, turns = (4, 1) if quick else (100, TURNS)
    ways = {str(count): ("--jobs", str(count)) for count in sorted({1, 2, len(os.sched_getaffinity(0))})}
    if find_spec("ray") is not None:
        ways["Ray, local"] = ("--ray", "local")
    report = Report(
        f"replay of {hours} hours of {HZ} Hz, six channels, an hour a file; {turns} turns, least / median / most",
        ("files", "processes", "seconds", "CPU s", "times one"),
        notes=["CPU s: of all processes, start and model included; not of Ray's, which outlive the command"],
    )
    for kind, write in (("npz", _npz), ("parquet", _parquet), ("csv", _csv)):
        with tempfile.TemporaryDirectory(prefix="edge-batch-") as name:
            folder = Path(name)
            _write(folder, hours, write)
            _add_rows(report, kind, folder, hours, ways, turns)
    report.notes.append("all ways gave the same rows, in the same order")
    yield report


class _Turn(NamedTuple):
    seconds: float
    cpu_s: float
    rows: str
    """Digest of all answers but their latency."""


def _add_rows(
    report: Report, kind: str, folder: Path, hours: int, ways: dict[str, tuple[str, str]], turns: int
) -> None:
    found: dict[str, list[_Turn]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, options in ways.items():
            found[name].append(_turn(folder, kind, options))
    if len({turn.rows for own in found.values() for turn in own}) != 1:
        raise SystemExit(f"{kind}: rows differ")
    one = found["1"]
    for name, own in found.items():
        ratios = [alone.seconds / turn.seconds for alone, turn in zip(one, own, strict=True)]
        report.rows.append(
            (
                kind,
                name,
                spread([turn.seconds for turn in own], 1),
                spread([turn.cpu_s for turn in own], 1) if name.isdecimal() else None,
                spread(ratios, 2) if name != "1" else None,
            )
        )
        if name == "2":
            report.goals.append(Goal(f"{kind}: two processes, times one", median_of(ratios), 1.8))
    report.goals.append(
        Goal(
            f"{kind}: CPU seconds for 100 hours",
            median_of([turn.cpu_s for turn in one]) * 100 / hours,
            15.0,
            at_most=True,
        )
    )


def _turn(folder: Path, kind: str, options: tuple[str, str]) -> _Turn:
    """Run one command."""
    out = folder / "answers.jsonl"
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "edge_runtime", "replay", "exercise-watch", str(folder / f"*.{kind}")),
            *(*options, "--out", str(out), "--json"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
    )
    took, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    rows = hashlib.sha256()
    with out.open("rb") as lines:
        for line in lines:
            rows.update(line.partition(b',"latency_ms"')[0])
    return _Turn(took, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, rows.hexdigest())


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
