"""Many recordings at once, as whole processes: every row as alone, whatever breaks, dies or fills up meanwhile."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import orjson
import pytest

from tests.integration.replaying import Rows, command, many, replay, rows, write_csv
from tests.integration.running import ROOT, streams, until, write_recording
from tests.long_tier import some
from tests.models import tiny_bundle

pytestmark = pytest.mark.slow

EXAMPLE = ROOT / "examples" / "exercise-watch" / "recordings.npz"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny.edge", variants=("onnx-fp32",))


def sorted_rows(found: Rows) -> Rows:
    return sorted(found, key=lambda answer: str(answer["id"]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for i in range(6):
        write_csv(tmp_path / "in" / f"day{i}.csv", seed=i)
    return tmp_path / "in"


def alone(bundle: Path, tmp_path: Path, files: Sequence[Path]) -> Rows:
    """The rows of each file, played by itself in a process of its own."""
    return [row for path in files for row in replay(bundle, tmp_path / "alone.jsonl", path)[0]]


def test_every_file_has_the_rows_that_it_has_alone_on_one_process_and_on_three(
    bundle: Path, folder: Path, tmp_path: Path
) -> None:
    expected = alone(bundle, tmp_path, sorted(folder.iterdir()))
    assert len(expected) > 60
    for count in ("1", "3"):
        found, said = replay(bundle, tmp_path / f"{count}.jsonl", folder, "--jobs", count)
        assert found == expected  # and in the order of the files
        assert f"2400 samples, {len(expected)} predictions" in said
        assert f" of {len(expected)} hard (" in said
    assert not list(tmp_path.glob("*.parts"))


def test_a_gate_that_learns_begins_anew_with_every_file(tmp_path: Path) -> None:
    """As on a new device: whichever process answers a file, and after which other ones, does not show."""
    with np.load(EXAMPLE) as found:
        arrays = {name: found[name] for name in ("scale", "channels")}
        x, offset = found["x"], found["offset"].tolist()
    files = []
    for i in range(4):
        begin, end = offset[5 * i], offset[5 * i + 5]
        files.append(tmp_path / f"{i}.npz")
        np.savez(files[-1], x=x[begin:end], offset=np.array(offset[5 * i : 5 * i + 6]) - begin, **arrays)
    expected = alone(Path("exercise-watch"), tmp_path, files)
    assert 0 < sum(row["hard"] for row in expected) < len(expected)
    for count in ("1", "2"):
        assert replay(Path("exercise-watch"), tmp_path / "out.jsonl", *files, "--jobs", count)[0] == expected


def test_formats_patterns_and_a_table_come_to_the_same(bundle: Path, tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    (stream,) = streams(1, 400)
    (tmp_path / "a").mkdir()
    write_recording(tmp_path / "a" / "one.jsonl", [stream._replace(key="w1")])
    np.savez(tmp_path / "a" / "two.npz", x=stream.values, t=stream.t)
    write_csv(tmp_path / "a" / "b" / "three.csv")
    found, _ = replay(bundle, tmp_path / "out.jsonl", tmp_path / "a" / "**" / "*.[cjn]*", "--jobs", "2")
    assert {row["key"] for row in found} == {"w1", "two", "three"}
    done = subprocess.run(
        command(bundle, tmp_path / "out.parquet", tmp_path / "a", "--jobs", "2"),
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    assert b"predictions" in done.stderr
    table = [row | {"latency_ms": 0} for row in pq.read_table(tmp_path / "out.parquet").to_pylist()]
    assert sorted_rows(table) == sorted_rows([row | {"more": None} for row in found])


def test_a_data_set_in_folders_of_keys_is_answered_key_by_key(bundle: Path, tmp_path: Path) -> None:
    """Parts of a key go on where the one before ended: a window may lie over both."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (stream,) = streams(1, 401)
    for name in ("key=w1", "key=w%202"):
        (tmp_path / "set" / name).mkdir(parents=True)
        for part, rows_of in enumerate((slice(0, 130), slice(130, 401))):
            columns = {"t": stream.t[rows_of]} | {f"c{i}": stream.values[rows_of, i] for i in range(3)}
            pq.write_table(pa.table(columns), tmp_path / "set" / name / f"part-{part}.parquet")
    write_csv(tmp_path / "whole.csv", samples=401)
    expected, _ = replay(bundle, tmp_path / "whole.jsonl", tmp_path / "whole.csv", "--key", "w1")
    found, _ = replay(bundle, tmp_path / "out.jsonl", tmp_path / "set", "--jobs", "2")
    assert [row for row in found if row["key"] == "w1"] == expected
    assert [row["start"] for row in found if row["key"] == "w 2"] == [row["start"] for row in expected]


def test_files_that_turn_out_to_share_a_key_are_answered_together(bundle: Path, tmp_path: Path) -> None:
    (stream,) = streams(1, 500)
    for part, (begin, end) in enumerate([(0, 130), (130, 300), (300, 500)]):
        cut = [stream._replace(key="w1", t=stream.t[begin:end], values=stream.values[begin:end])]
        write_recording(tmp_path / f"{part}.jsonl", cut)
    write_csv(tmp_path / "other.csv", seed=5)
    write_recording(tmp_path / "whole.json", [stream._replace(key="w1")])
    expected, _ = replay(bundle, tmp_path / "whole-out", tmp_path / "whole.json", "--format", "lines")
    found, said = replay(
        bundle,
        tmp_path / "out.jsonl",
        *(tmp_path / f"{i}.jsonl" for i in range(3)),
        tmp_path / "other.csv",
        "--jobs",
        "2",
    )
    assert "keys in common" in said
    assert [row for row in found if row["key"] == "w1"] == expected
    assert {row["key"] for row in found} == {"w1", "other"}


def test_a_broken_file_among_others_is_named_and_the_rest_is_done(bundle: Path, folder: Path, tmp_path: Path) -> None:
    expected = alone(bundle, tmp_path, sorted(folder.iterdir()))
    (folder / "broken.csv").write_text("a,b\n1,2\n")
    (folder / "key=x").mkdir()
    (folder / "key=x" / "torn.npz").write_bytes(b"PK\x03\x04")
    write_csv(folder / "key=x" / "whole.csv", seed=9)
    found, said = replay(bundle, tmp_path / "out.jsonl", folder, "--jobs", "2", code=1)
    assert "2 of 9 recordings gave no answers" in said
    assert "broken.csv: " in said
    assert "torn.npz: not a usable .npz file" in said
    assert [row for row in found if row["key"] != "x"] == expected
    assert any(row["key"] == "x" for row in found)


def test_labels_of_a_column_are_scored_over_all_files(bundle: Path, tmp_path: Path) -> None:
    for i, label in enumerate(("walk", "rest", "run", "swim")):
        write_csv(tmp_path / "in" / f"{i}.csv", seed=i, label=label)
    found, said = replay(bundle, tmp_path / "out.jsonl", tmp_path / "in", "--jobs", "2", "--labels", "label")
    own = {"0": "walk", "1": "rest", "2": "run"}
    right = sum(row["label"] == own[row["key"]] for row in found if row["key"] in own)
    labelled = sum(row["key"] in own for row in found)
    assert f"score: {labelled} windows, accuracy {right / labelled:.3f}" in said
    assert "labelled 'swim', which the model does not have" in said
    table = tmp_path / "labels.csv"
    table.write_text("label,file\nwalk,0.csv\nrest,1.csv\nrun,2.csv\n")
    _, again = replay(bundle, tmp_path / "out.jsonl", tmp_path / "in", "--jobs", "2", "--labels", table, "--json")
    assert orjson.loads(again.splitlines()[0])["score"]["accuracy"] == pytest.approx(right / labelled)


@contextmanager
def running(bundle: Path, out: Path, *arguments: str | Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command(bundle, out, *arguments), cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


@pytest.mark.parametrize(
    "number", some([signal.SIGINT, signal.SIGTERM, signal.SIGKILL], [signal.SIGTERM, signal.SIGKILL])
)
def test_what_was_interrupted_goes_on_and_does_nothing_twice(bundle: Path, tmp_path: Path, number: int) -> None:
    many(tmp_path / "in")
    expected, _ = replay(bundle, tmp_path / "expected.jsonl", tmp_path / "in", "--jobs", "1")
    out = tmp_path / "out.jsonl"
    parts = tmp_path / "out.jsonl.parts"
    with running(bundle, out, tmp_path / "in", "--jobs", "2") as process:
        until(lambda: len(list(parts.glob("*.json"))) >= 2, "two files are done")
        process.send_signal(number)
        assert process.wait(60) == (1 if number != signal.SIGKILL else -signal.SIGKILL)
    done = {path: path.stat().st_mtime_ns for path in parts.glob("*.json")}
    assert 2 <= len(done) < 12
    assert not out.exists()
    lines = {path.with_suffix(".jsonl"): path.with_suffix(".jsonl").stat().st_mtime_ns for path in done}
    with running(bundle, out, tmp_path / "in", "--jobs", "2") as process:
        until(lambda: len(list(parts.glob("*.json"))) > len(done) or process.poll() is not None)
        for path, stamp in lines.items():
            assert not path.exists() or path.stat().st_mtime_ns == stamp
        assert process.wait(120) == 0
    assert rows(out) == expected


def children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def workers(pid: int) -> list[int]:
    found = []
    for child in children(pid):
        try:
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(child)
        except OSError:
            continue
    return found


def test_a_worker_that_is_killed_is_replaced_and_its_file_answered(bundle: Path, tmp_path: Path) -> None:
    many(tmp_path / "in")
    expected, _ = replay(bundle, tmp_path / "expected.jsonl", tmp_path / "in", "--jobs", "1")
    parts = tmp_path / "out.jsonl.parts"
    with running(bundle, tmp_path / "out.jsonl", tmp_path / "in", "--jobs", "2") as process:
        until(lambda: len(list(parts.glob("*.json"))) >= 1, "a file is done")
        os.kill(workers(process.pid)[0], signal.SIGKILL)
        assert process.wait(120) == 0
    assert rows(tmp_path / "out.jsonl") == expected


def test_workers_end_when_the_command_is_killed(bundle: Path, tmp_path: Path) -> None:
    many(tmp_path / "in")
    parts = tmp_path / "out.jsonl.parts"
    with running(bundle, tmp_path / "out.jsonl", tmp_path / "in", "--jobs", "2") as process:
        until(lambda: len(list(parts.glob("*.json"))) >= 1, "a file is done")
        left = workers(process.pid)
        assert left
        process.kill()
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left), "the workers are gone")


def test_a_disk_that_fills_up_ends_it_and_room_lets_it_go_on(bundle: Path, tmp_path: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can mount a small file system")
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False)
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        many(tmp_path / "in")
        expected, _ = replay(bundle, tmp_path / "expected.jsonl", tmp_path / "in", "--jobs", "1")
        assert (tmp_path / "expected.jsonl").stat().st_size > 2**20
        said = replay(bundle, small / "out.jsonl", tmp_path / "in", "--jobs", "2", code=1)[1]
        assert re.search(r"cannot be written: No space left on device", said)
        assert list((small / "out.jsonl.parts").glob("*.json"))
        assert not (small / "out.jsonl").exists()
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        assert replay(bundle, small / "out.jsonl", tmp_path / "in", "--jobs", "2")[0] == expected
    finally:
        time.sleep(0.1)
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_without_a_file_to_go_on_from_it_is_refused(bundle: Path, folder: Path) -> None:
    done = subprocess.run(
        command(bundle, Path("unused"), folder, "--jobs", "2")[:-2],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "need --out" in done.stderr


def test_a_bundle_that_is_none_is_said_once(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.edge").write_bytes(b"PK\x03\x04")
    said = replay(tmp_path / "bad.edge", tmp_path / "out.jsonl", folder, "--jobs", "2", code=1)[1]
    assert len(said.splitlines()) == 1
