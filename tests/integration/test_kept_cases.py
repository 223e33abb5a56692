"""Kept cases over whole processes: clocks that are wrong, files that are not ours or damaged, a full disk, erasing."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from edge_runtime.store.cases.store import CaseStore
from tests.integration.cloud import serving
from tests.integration.running import (
    PATIENCE_S,
    ROOT,
    Process,
    Publisher,
    command,
    corrections,
    cut,
    environment,
    predictions,
    streams,
    until,
    write_recording,
)
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto, needs_mosquitto

APP = """
[model]
unsigned = "allow"
bundle = "tiny.edge"
[[sink]]
type = "jsonl"
path = "answers.jsonl"
[gate]
threshold = 1.0
[cases]
path = "cases/cases.db"
max_per_minute = 6000
random_share = 1.0
"""
RECORDED = '[[source]]\ntype = "recording"\nfiles = ["recording.jsonl"]\n'
LIVE = """
[broker.b]
url = "{broker}"
client_id = "under-test"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
"""
CLOUD = '[cloud]\nurl = "{cloud}"\nmodel = "teacher"\n[outbox]\npath = "outbox.db"\n'
DAY_S = 86_400.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tiny_bundle(tmp_path / "tiny.edge", hop=8)
    write_recording(tmp_path / "recording.jsonl", streams(2, 320))
    (tmp_path / "cases").mkdir()
    (tmp_path / "app.toml").write_text(APP + RECORDED)
    return tmp_path


def store_of(folder: Path) -> CaseStore:
    return CaseStore(folder / "cases" / "cases.db", 2**26, 30.0)


def counts(folder: Path) -> dict[str, int]:
    with closing(store_of(folder)) as store:
        found = store.counts()
    return {name: found[name] for name in ("open", "labelled")}


def run_with_clock(folder: Path, offset_s: float) -> None:
    """Run to the end of the recording as a process whose wall clock is wrong by this much."""
    (folder / "clock").mkdir(exist_ok=True)
    (folder / "clock" / "sitecustomize.py").write_text(
        f"import time\nreal = time.time\ntime.time = lambda: max(0.0, real() + {offset_s})\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "edge_runtime", "run", str(folder / "app.toml")],
        env=environment(PYTHONPATH=f"{folder / 'clock'}:{ROOT}"), capture_output=True, text=True, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_wall_clock_that_is_wrong_erases_no_case_and_no_label(folder: Path) -> None:
    assert command("run", folder / "app.toml").code == 0
    kept = counts(folder)["open"]
    assert kept > 60
    labelled = subprocess.run(
        [sys.executable, "-m", "edge_runtime", "review", "label", str(folder / "app.toml"), "--limit", "10"],
        input="1\n" * 10, capture_output=True, text=True, env=environment(), timeout=PATIENCE_S, check=True,
    )  # fmt: skip
    assert "10 labelled" in labelled.stdout
    for offset_s in (31 * DAY_S, 0.0, 400 * DAY_S, -400 * DAY_S, -1e10):
        run_with_clock(folder, offset_s)
        assert counts(folder) == {"open": kept - 10, "labelled": 10}


class _File(NamedTuple):
    said: str
    survives: bool


FILES = {
    "garbage": _File("cases: set a damaged file aside", survives=False),
    "empty header": _File("cases: set a damaged file aside", survives=False),
    "folder": _File("Is a directory", survives=True),
    "another program's": _File("holds no cases; name another file", survives=True),
    "another user's": _File("belongs to user 65534", survives=True),
    "pipe": _File("cannot be used: disk I/O error", survives=True),
    "no folder": _File("No such file or directory", survives=True),
}


def put(path: Path, what: str) -> None:
    if what == "garbage":
        path.write_bytes(np.random.default_rng(0).bytes(50_000))
    elif what == "empty header":
        path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path, 0o600)
    elif what == "no folder":
        path.parent.rmdir()
    else:
        with closing(sqlite3.connect(path)) as db:
            db.execute("CREATE TABLE precious (x)")
        if what == "another user's":
            if os.geteuid() != 0:
                pytest.skip("needs root, to give a file away")
            os.chown(path, 65534, 65534)
    if path.is_file():
        path.chmod(0o600)


@pytest.mark.slow
@pytest.mark.parametrize("what", FILES)
def test_no_file_of_cases_ends_a_start_or_costs_an_answer(folder: Path, what: str) -> None:
    path = folder / "cases" / "cases.db"
    put(path, what)
    before = path.read_bytes() if path.is_file() else b""
    if what in ("folder", "no folder"):
        checked = command("run", "--check", folder / "app.toml")
        assert (checked.code, "cases.path: " in checked.err) == (2, True), "a check says so"
    done = command("run", folder / "app.toml")
    assert done.code == 0, done.err
    assert len(predictions(folder / "answers.jsonl")) > 60
    lines = [line for line in done.err.splitlines() if "cases: " in line]
    assert len(lines) == 1, done.err
    assert FILES[what].said in lines[0]
    if FILES[what].survives:
        assert (path.read_bytes() if path.is_file() else b"") == before
    else:
        assert counts(folder)["open"] > 60
        assert (folder / "cases" / "cases.db.damaged-1").read_bytes() == before


@pytest.fixture
def small_disk(folder: Path) -> Iterator[Path]:
    disk = folder / "cases"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here (needs root): {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", disk], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.slow
@needs_mosquitto
def test_a_full_disk_at_the_start_or_later_costs_cases_until_there_is_room(folder: Path, small_disk: Path) -> None:
    fill(small_disk / "full")
    (stream,) = streams(1, 60_000)
    messages = iter(cut(stream, lambda: 16))
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        (folder / "app.toml").write_text(APP + LIVE.format(broker=broker.url))
        with Process(folder, "run", folder / "app.toml") as process:
            process.subscribed(broker)

            def answered() -> int:
                publisher.send([next(messages)])
                publisher.flush()
                return len(predictions(folder / "answers.jsonl"))

            until(lambda: answered() > 10, lambda: process.err)
            assert process.err.count("cases: none are kept, trying again: error=") == 1
            (small_disk / "full").unlink()

            def kept(times: int) -> bool:
                answered()
                return process.err.count("cases: kept again") == times

            until(lambda: kept(1), lambda: process.err)
            fill(small_disk / "full")  # and while it runs

            def refused() -> bool:
                answered()
                return process.err.count("cases: none are kept") == 2

            until(refused, lambda: process.err)
            (small_disk / "full").unlink()
            until(lambda: kept(2), lambda: process.err)
            assert "aside" not in process.err
    assert counts(folder)["open"] > 0


@pytest.mark.slow
@needs_mosquitto
def test_erased_values_stand_in_no_file_while_the_application_runs(folder: Path) -> None:
    """Today they stayed in the log of the running outbox: 170 of 300 values."""
    (stream,) = streams(1, 400)
    with Mosquitto() as broker, serving() as cloud, Publisher(broker.port) as publisher:
        text = APP + LIVE.format(broker=broker.url) + CLOUD.format(cloud=cloud.url)
        (folder / "app.toml").write_text(text)
        with Process(folder, "run", folder / "app.toml") as process:
            process.subscribed(broker)
            publisher.send(cut(stream, lambda: 16))
            publisher.flush()

            def answered() -> bool:
                given = predictions(folder / "answers.jsonl")
                promised = sum(one["route"] == "provisional" for one in given)
                return len(given) > 40 and len(corrections(folder / "answers.jsonl")) == promised > 10

            until(answered, lambda: process.err)
            until(lambda: counts(folder)["open"] > 40)
            # As kept for people, sample by sample, and as sent to the cloud, channel by channel.
            needles = [
                one.tobytes() for at in range(20, 300) for one in (stream.values[at], stream.values[at : at + 3, 0])
            ]

            def found() -> dict[str, int]:
                files = [*folder.glob("outbox.db*"), *(folder / "cases").iterdir()]
                held = {file.name: file.read_bytes() for file in files}
                return {name: n for name, data in held.items() if (n := sum(one in data for one in needles))}

            assert {"cases.db", "outbox.db-wal"} <= set(found()), "a needle that is nowhere proves nothing"
            assert command("review", "erase", folder / "app.toml", "--key", "watch-0").code == 0
            assert found() == {}
            assert process.running()


@pytest.mark.slow
def test_a_command_that_is_killed_while_it_erases_leaves_all_of_a_key_or_nothing(folder: Path) -> None:
    """At each of its writes in turn; the next start of the application takes the rest from the disk."""
    assert command("run", folder / "app.toml").code == 0
    with closing(store_of(folder)) as store:
        store.label(next(one["id"] for one in store.summaries("open", 99) if one["key"] == "watch-1"), "walk", "page")
        samples = [store.one(one["id"]).samples.tobytes() for one in store.summaries("open", 99, "watch-0")]
        others = store.counts()["open"] - len(samples)
    whole = {path.name: path.read_bytes() for path in (folder / "cases").iterdir()}
    erase = [sys.executable, "-m", "edge_runtime", "review", "erase", str(folder / "app.toml"), "--key", "watch-0"]
    outcomes = set()
    for at in (1, 3, 6, 12, 24, 48):
        for path in (folder / "cases").glob("cases.db*"):
            path.unlink()
        for name, data in whole.items():
            (folder / "cases" / name).write_bytes(data)
            (folder / "cases" / name).chmod(0o600)
        calls = "pwrite64,ftruncate,unlink"
        strace = [
            "strace",
            "-f",
            "-o",
            "/dev/null",
            "-e",
            f"trace={calls}",
            "-e",
            f"inject={calls}:signal=KILL:when={at}",
        ]
        subprocess.run([*strace, *erase], env=environment(), capture_output=True, check=False, timeout=PATIENCE_S)
        (folder / "recording.jsonl").write_text('{"key": "watch-9", "t": 1e9, "values": [[0, 0, 0]]}\n')
        assert command("run", folder / "app.toml").code == 0
        with closing(store_of(folder)) as store:
            left = len(store.summaries("open", 99, "watch-0"))
            assert left in {0, len(samples)}
            assert store.counts() | {"bytes": 0} == {"open": others + left, "labelled": 1, "aside": 0, "bytes": 0}
        data = b"".join(path.read_bytes() for path in (folder / "cases").iterdir())
        assert sum(one in data for one in samples) == left
        outcomes.add(left)
    assert outcomes == {0, len(samples)}, "killed before and after it was decided"
