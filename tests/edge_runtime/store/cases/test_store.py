"""The file of the cases: bounds, labels, erasing, and what is left on the disk."""

from __future__ import annotations

import hashlib
import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, InputError, StoreCorrupt, StoreUnusable
from edge_runtime.store.cases.case import NONE_OF_THESE, SKIP, Case, Rival
from edge_runtime.store.cases.draw import PLACES, Sample, secret_of
from edge_runtime.store.cases.export import export
from edge_runtime.store.cases.salvage import open_or_salvage
from edge_runtime.store.cases.schema import ADDED
from edge_runtime.store.cases.store import LABEL_BYTES, CaseStore
from tests.edge_runtime.store.cases.kept import CONTRACT, case, in_order

MIB = 2**20
DAY_S = 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> CaseStore:
    return CaseStore(tmp_path / "cases.db", 4 * MIB, 30.0)


def test_a_case_comes_back_as_it_was_kept(store: CaseStore) -> None:
    one = case(1)
    store.write([one], [("a@1", b'{"label":"walk"}'), ("b@9", b"{}")], 0.0)
    found = store.one("a@1")
    assert np.array_equal(found.samples, one.samples)
    assert (found.contract, found.device, found.cloud) == (CONTRACT, one.device, {"label": "walk"})
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600


def test_a_case_that_is_kept_again_keeps_its_label(store: CaseStore) -> None:
    store.write([case(1)], [], 0.0)
    store.label("a@1", "walk", "page")
    store.write([case(1)], [], 0.0)
    assert store.one("a@1").label == "walk"
    assert store.counts()["labelled"] == 1


RIVAL = Rival(bundle="f" * 64, against="watch/1", attempt=1, old="sit", new="walk")


def differing(at: int, key: str = "a", rival: Rival = RIVAL, samples: int = 2) -> Case:
    return replace(case(at, key, samples=samples), why="differ", rival=rival)


def test_a_rival_is_noted_beside_a_case_whichever_of_the_two_comes_first(store: CaseStore) -> None:
    store.write([case(1), differing(1), differing(2), case(2), case(3)], [], 0.0)
    assert [store.one(f"a@{at}").rival for at in (1, 2, 3)] == [RIVAL, RIVAL, None]
    store.label("a@2", "walk", "page")
    found = {one.draw: (one.label, one.origin) for one in store.sample("f" * 64)}
    assert found == {store.draw("a@1"): ("", ""), store.draw("a@2"): ("walk", "page")}
    assert list(found) == sorted(found)
    assert store.sample("e" * 64) == []
    store.write([case(0)], [], 0.0)
    waiting = [one["id"] for one in store.summaries("open", 9)]
    assert waiting == ["a@1", *sorted(["a@0", "a@3"], key=store.draw)], "a proof waits for the first"


def test_open_cases_take_turns_by_key_and_answer(store: CaseStore) -> None:
    """Mutation: the oldest first, which is one key and one answer for as long as a person has patience."""
    said = {at: "sit" if at in (3, 7) else "walk" for at in range(10)}
    cases = [replace(case(at), device={"label": label}) for at, label in said.items()]
    others = [replace(case(at), id=f"b@{at}", key="b", device={"label": "walk"}) for at in range(20, 25)]
    store.write([*cases, *others], [], 0.0)

    def turns() -> list[tuple[str, str]]:
        found = [store.one(one["id"]) for one in store.summaries("open", 100)]
        return [(one.key, str(one.device["label"])) for one in found]

    first = turns()
    assert len(first) == 15
    three = {("a", "walk"), ("a", "sit"), ("b", "walk")}
    assert set(first[:3]) == set(first[3:6]) == three
    assert set(first[6:8]) == {("a", "walk"), ("b", "walk")}, "no more of the rarest is left"
    for one in [one["id"] for one in store.summaries("open", 3)]:
        store.label(one, "walk", "page")
    assert turns() == first[3:], "what has a label had its turn"
    assert [one["id"] for one in store.summaries("all", 3)] == ["a@0", "a@1", "a@2"], "others are in order"


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [64 * MIB, MIB])
def test_windows_on_which_two_models_differ_are_drawn_from_the_whole_run_by_a_secret(
    tmp_path: Path, max_bytes: int
) -> None:
    """Also where the file is full of them: those drawn last go, and not the oldest."""
    store = CaseStore(tmp_path / "cases.db", max_bytes, 30.0)
    samples = 2 if max_bytes > MIB else 600
    ids = [f"a@{at}" for at in range(3000)]
    for begin in range(0, 3000, 50):
        store.write([differing(at, samples=samples) for at in range(begin, begin + 50)], [], 0.0)
    store.write([case(5000)], [], 0.0)
    kept = [one["id"] for one in store.summaries("open", 1000) if one["why"] == "differ"]
    assert kept == sorted(ids, key=store.draw)[: len(kept)]
    assert len(kept) == PLACES if max_bytes > MIB else 64 < len(kept) < PLACES
    early = sum(int(id_[2:]) < 1500 for id_ in kept)
    assert 0.25 < early / len(kept) < 0.75, "of the first half as of the second"
    secret = tmp_path / "cases.db.key"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert secret_of(secret) == secret.read_bytes()
    assert len(secret.read_bytes()) == 32
    before = secret.read_bytes()
    secret.chmod(0o644)
    assert secret_of(secret) != before, "one that others could read is no secret"


def test_a_key_that_sends_far_more_than_others_takes_no_more_places(tmp_path: Path) -> None:
    store = CaseStore(tmp_path / "cases.db", 64 * MIB, 30.0)
    flood = [differing(at, "flood") for at in range(3000)]
    honest = [differing(at, key) for key in ("x", "y") for at in range(120)]
    store.write([*flood[:1500], *honest, *flood[1500:]], [], 0.0)
    found = store.sample("f" * 64)
    counts = {key: sum(one.key == key for one in found) for key in ("flood", "x", "y")}
    assert max(counts.values()) - min(counts.values()) <= 1
    assert sum(counts.values()) == PLACES
    assert {one.key for one in found[:3]} == {"flood", "x", "y"}
    everything = [(one.key, store.draw(one.id), one.id) for one in (*flood, *honest)]
    assert [one.draw for one in found] == [draw for _, draw, _ in in_order(everything)[:PLACES]]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 4), min_size=300, max_size=500), st.integers(0, 99))
def test_a_window_that_is_not_written_would_have_had_no_place_in_the_end(keys: list[int], seed: int) -> None:
    numbers = np.random.default_rng(seed).permutation(len(keys)).tolist()
    everything = [(f"k{key}", number, None) for key, number in zip(keys, numbers, strict=True)]
    sample = Sample()
    admitted = [one for one in everything if sample.offer(*one[:2])]
    assert in_order(admitted)[:PLACES] == in_order(everything)[:PLACES]


def test_no_window_joins_a_sample_that_is_closed(store: CaseStore) -> None:
    store.write([differing(at) for at in range(5)], [], 0.0)
    store.close_sample(replace(RIVAL, attempt=2))
    store.write([differing(5)], [], 0.0)
    store.close_sample(RIVAL)
    store.write([differing(at) for at in range(6, 30)], [], 0.0)
    assert {one.draw for one in store.sample("f" * 64)} == {store.draw(f"a@{at}") for at in range(6)}
    assert store.begin_sample(RIVAL, 0.0) == (0.0, True, PLACES)
    store.erase("b")
    assert store.begin_sample(RIVAL, 0.0) == (0.0, True, PLACES), "nothing was erased"
    store.erase("a")
    assert store.begin_sample(RIVAL, 50.0) == (50.0, False, PLACES), "it is open again, for what was erased may lack"


def test_windows_of_an_earlier_try_do_not_stand_in_line_before_those_of_the_next(store: CaseStore) -> None:
    """Mutation: `CaseStore.write` without `_turn_to`: people label what counts for nothing any more."""
    others = (replace(RIVAL, bundle="e" * 64), replace(RIVAL, against="watch/2"), replace(RIVAL, attempt=2))
    store.write([case(1), case(2), *(differing(at) for at in range(1, 9))], [], 0.0)
    store.label("a@3", "walk", "page")
    hard = sorted(["a@1", "a@2"], key=store.draw)
    for at, rival in zip((20, 30, 40), others, strict=True):
        store.write([differing(at, rival=rival)], [], 0.0)
        assert [one["id"] for one in store.summaries("open", 9)] == [f"a@{at}", *hard], "hard ones stay"
    assert {one.label for one in store.sample("f" * 64)} == {"walk", ""}, "and so do labels"
    assert store.sample("e" * 64) == []


def test_a_file_of_a_version_before_proofs_is_taken_over(tmp_path: Path, store: CaseStore) -> None:
    store.write([case(1)], [], 0.0)
    store.close()
    with closing(sqlite3.connect(store.path)) as db:
        db.executescript("DROP INDEX by_age; DROP INDEX by_rival; DROP TABLE state;")
        for name in ADDED:
            db.execute(f"ALTER TABLE cases DROP COLUMN {name}")
    again = CaseStore(store.path, 4 * MIB, 30.0)
    assert again.one("a@1").rival is None
    again.write([], [], 0.0)
    assert again.sample("f" * 64) == []


def test_labels_are_the_bundle_s_or_say_that_there_is_none(store: CaseStore) -> None:
    store.write([case(1), case(2), case(3)], [], 0.0)
    with pytest.raises(InputError, match="no label of this case"):
        store.label("a@1", "<b>run</b>", "page")
    with pytest.raises(InputError, match="no case"):
        store.label("nobody@1", "walk", "page")
    for id_, label in (("a@1", "walk"), ("a@2", NONE_OF_THESE), ("a@3", SKIP)):
        store.label(id_, label, "page")
    assert {**store.counts(), "bytes": 0} == {"open": 0, "labelled": 1, "aside": 2, "bytes": 0}
    store.label("a@1", "", "page")
    assert [one["id"] for one in store.summaries("open", 9)] == ["a@1"]


def test_the_file_stays_within_its_bytes_and_the_oldest_without_a_label_go_first(tmp_path: Path) -> None:
    store = CaseStore(tmp_path / "cases.db", MIB, 30.0)
    store.write([case(0, samples=1000)], [], 0.0)
    store.label("a@0", "walk", "page")
    for at in range(1, 401):
        store.write([case(at, samples=1000)], [], 0.0)
    assert sum(file.stat().st_size for file in tmp_path.glob("cases.db")) <= MIB
    assert store.one("a@0").label == "walk"
    assert store.one("a@400").key == "a"
    with pytest.raises(InputError):
        store.one("a@1")


def test_a_label_outlives_its_window_and_a_case_without_one_does_not(store: CaseStore, tmp_path: Path) -> None:
    """Age is powered time: what `write` is told is the monotonic clock of one process, which begins anywhere."""
    store.write([case(1), case(2)], [("a@1", b"{}")], 1e6)
    store.label("a@1", "walk", "command")
    store.write([], [], 1e6 + 20 * DAY_S)
    again = CaseStore(store.path, 4 * MIB, 30.0)
    again.write([case(3)], [], 5.0)
    assert again.write([], [], 5.0 + 9.9 * DAY_S) == 0
    assert again.counts() | {"bytes": 0} == {"open": 2, "labelled": 1, "aside": 0, "bytes": 0}
    assert again.write([], [], 5.0 + 10.1 * DAY_S) == 1
    assert {one["id"] for one in again.summaries("all", 9)} == {"a@1", "a@3"}
    left = again.one("a@1")
    assert (left.label, left.origin, left.key, left.start, left.contract.model) == (
        "walk",
        "command",
        "a",
        1,
        "watch/1",
    )
    assert (len(left.samples), left.device, left.cloud) == (0, {}, None)
    digest = hashlib.sha256(case(1).samples.tobytes()).digest()
    assert digest in store.path.read_bytes()
    assert list(again.labelled()) == []
    again.label("a@1", "", "page")
    with pytest.raises(InputError, match="no case"):
        again.one("a@1")


@pytest.mark.slow
def test_labels_are_refused_and_not_deleted_where_the_file_has_no_room_for_more(tmp_path: Path) -> None:
    store = CaseStore(tmp_path / "cases.db", MIB, 30.0)
    most = MIB // LABEL_BYTES
    for at in range(most + 1):
        store.write([case(at)], [], 0.0)
        if at < most:
            store.label(f"a@{at}", "walk", "page")
    with pytest.raises(InputError, match=f"{most} cases have a label, all that max_bytes allows"):
        store.label(f"a@{most}", "walk", "page")
    store.label("a@0", "sit", "page")
    for at in range(1000, 2000, 50):
        store.write([case(at + more, samples=500) for more in range(50)], [], 0.0)
    assert store.counts()["labelled"] == most
    assert store.counts()["bytes"] <= MIB
    store.close()
    assert store.path.stat().st_size <= MIB


def test_labels_are_read_out_of_a_damaged_file(tmp_path: Path) -> None:
    store = CaseStore(tmp_path / "cases.db", 4 * MIB, 30.0)
    store.write([case(at, samples=700) for at in range(60)], [], 0.0)
    for at in range(0, 60, 2):
        store.label(f"a@{at}", "walk", "page")
    store.close()
    data = store.path.read_bytes()
    store.path.write_bytes(bytes(100) + data[100:])
    again = open_or_salvage(store.path, 4 * MIB, 30.0)
    assert again.counts()["labelled"] == 0, "without its header nothing of it can be found"
    again.close()
    rng = np.random.default_rng(1)
    readable = []
    for _ in range(8):
        damaged = bytearray(data)
        for page in rng.integers(1, len(data) // 4096, 12).tolist():
            damaged[page * 4096 : page * 4096 + 4096] = rng.bytes(4096)
        store.path.write_bytes(damaged)
        again = open_or_salvage(store.path, 4 * MIB, 30.0)
        try:
            found = [again.one(one["id"]) for one in again.summaries("all", 99)]
        except StoreCorrupt:  # found where it is read, so it is the next start that sets it aside
            again.close()
            again = open_or_salvage(store.path, 4 * MIB, 30.0, damaged=True)
            found = [again.one(one["id"]) for one in again.summaries("all", 99)]
        again.close()
        assert all(one.label == ("" if int(one.id[2:]) % 2 else "walk") for one in found)
        readable.append(sum(bool(one.label) for one in found))
    assert sorted(readable)[2] >= 20, readable
    assert {path.name for path in tmp_path.glob("*.damaged-*")} <= {f"cases.db.damaged-{n}" for n in range(99)}
    assert len(list(tmp_path.glob("*.damaged-?"))) <= 2, "a failing card does not fill itself"


def test_a_key_that_was_erased_is_on_the_disk_no_more(store: CaseStore, tmp_path: Path) -> None:
    one, other = case(1), case(2, "b")
    store.write([one, other], [], 0.0)
    store.label("a@1", "walk", "page")

    def on_disk(samples: bytes) -> bool:
        return any(samples in file.read_bytes() for file in tmp_path.glob("cases.db*"))

    assert on_disk(one.samples.tobytes()[:64])
    assert store.erase("a") == 1
    assert not on_disk(one.samples.tobytes()[:64])
    assert on_disk(other.samples.tobytes()[:64])
    assert store.erase(None) == 1
    assert not on_disk(other.samples.tobytes()[:64])
    assert store.counts()["open"] == 0


def test_two_processes_may_use_it_at_a_time(store: CaseStore) -> None:
    other = CaseStore(store.path, 4 * MIB, 30.0)
    store.write([case(1)], [], 0.0)
    other.label("a@1", "sit", "page")
    assert store.one("a@1").label == "sit"


def test_a_file_of_another_program_or_that_others_may_write_is_left_alone(tmp_path: Path) -> None:
    import sqlite3  # noqa: PLC0415

    path = tmp_path / "other.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE precious (x)")
    with pytest.raises(StoreUnusable, match="holds no cases"):
        CaseStore(path, MIB, 1.0)
    path.chmod(0o666)
    with pytest.raises(StoreUnusable, match="written by others"):
        CaseStore(path, MIB, 1.0)
    (tmp_path / "text.db").write_text("no database at all, but long enough to be looked at " * 20)
    with pytest.raises(StoreCorrupt, match="are damaged"):
        CaseStore(tmp_path / "text.db", MIB, 1.0)


def test_an_export_holds_the_labelled_cases_alone_each_as_a_stream_of_its_own(store: CaseStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no case has a label"):
        export(store, tmp_path / "none.csv")
    store.write([case(1), case(2), case(3), case(4)], [], 0.0)
    for id_, label in (("a@1", "walk"), ("a@2", "sit"), ("a@3", SKIP)):
        store.label(id_, label, "page")
    assert export(store, tmp_path / "reviewed.csv") == 2
    lines = (tmp_path / "reviewed.csv").read_text().splitlines()
    assert lines[0] == "time,key,person,label,ax (g),ay (g)"
    assert {tuple(line.split(",")[1:4]) for line in lines[1:]} == {("a@1", "a", "walk"), ("a@2", "a", "sit")}
    assert len(lines) == 1 + 2 * 100
    with pytest.raises(ConfigError, match="never overwritten"):
        export(store, tmp_path / "reviewed.csv")
