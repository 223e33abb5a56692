"""Replays of many recordings as processes, for the tests of `replay --jobs` and `replay --ray`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.running import ROOT, answers, streams

Rows = list[dict[str, Any]]


def command(bundle: Path, out: Path, *arguments: str | Path) -> list[str]:
    return [sys.executable, "-m", "edge_runtime", "replay", str(bundle), *map(str, arguments), "--out", str(out)]


def replay(bundle: Path, out: Path, *arguments: str | Path, code: int = 0) -> tuple[Rows, str]:
    """The rows without what a clock gave, and what was printed, errors last."""
    done = subprocess.run(command(bundle, out, *arguments), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return rows(out), done.stdout + done.stderr


def rows(out: Path) -> Rows:
    return [answer | {"latency_ms": 0} for answer in answers(out)]


def write_csv(path: Path, *, samples: int = 400, seed: int = 0, key: str = "", label: str = "") -> Path:
    (stream,) = streams(1, samples, seed=seed)
    names = ["t", *(["key"] if key else []), "c0", "c1", "c2", *(["label"] if label else [])]
    lines = [
        [t, *([key] if key else []), *values, *([label] if label else [])]
        for t, values in zip(stream.t.tolist(), stream.values.tolist(), strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(",".join(map(str, line)) for line in [names, *lines]) + "\n")
    return path


def many(folder: Path, count: int = 12) -> list[Path]:
    return [write_csv(folder / f"{i:02}.csv", samples=12_000, seed=i) for i in range(count)]
