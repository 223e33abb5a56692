"""The file of the cases: bounds, labels, erasing, and what is left on the disk."""

from __future__ import annotations

import sqlite3
import stat
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.cases.case import NONE_OF_THESE, SKIP, Rival
from edge_runtime.cases.export import export
from edge_runtime.cases.store import MOST_DIFFERING, MOST_DRAWN, CaseStore, drawn
from edge_runtime.errors import ConfigError, InputError, StoreError, StoreUnusable
from tests.edge_runtime.cases.kept import CONTRACT, case

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
    store.label("a@1", "walk")
    store.write([case(1)], [], 0.0)
    assert store.one("a@1").label == "walk"
    assert store.counts()["labelled"] == 1


def test_a_rival_is_noted_beside_a_case_whichever_of_the_two_comes_first(store: CaseStore) -> None:
    rival = Rival(bundle="f" * 64, against="watch/1", old="sit", new="walk")
    differing = [replace(case(at), why="differ", rival=rival) for at in (1, 2)]
    store.write([case(1), differing[0], differing[1], case(2), case(3)], [], 0.0)
    assert [store.one(f"a@{at}").rival for at in (1, 2, 3)] == [rival, rival, None]
    store.label("a@2", "walk")
    assert store.rivals("f" * 64) == [(drawn("a@1"), rival, ""), (drawn("a@2"), rival, "walk")]
    assert store.rivals("e" * 64) == []
    store.write([case(0)], [], 0.0)
    waiting = [one["id"] for one in store.summaries("open", 9)]
    assert waiting == ["a@1", *sorted(["a@0", "a@3"], key=drawn)], "a proof waits for the first"


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
        store.label(one, "walk")
    assert turns() == first[3:], "what has a label had its turn"
    assert [one["id"] for one in store.summaries("all", 3)] == ["a@0", "a@1", "a@2"], "others are in order"


def test_windows_on_which_two_models_differ_are_a_random_sample_of_all_of_them(tmp_path: Path) -> None:
    store = CaseStore(tmp_path / "cases.db", 64 * MIB, 30.0)
    rival = Rival(bundle="f" * 64, against="watch/1", old="sit", new="walk")
    ids = [f"a@{at}" for at in range(3000)]
    assert store.last_draw() == MOST_DRAWN
    for begin in range(0, 3000, 300):
        store.write(
            [replace(case(at, samples=2), why="differ", rival=rival) for at in range(begin, begin + 300)], [], 0.0
        )
    store.write([case(5000)], [], 0.0)
    kept = [one["id"] for one in store.summaries("open", 1000)]
    assert kept == [*sorted(ids, key=drawn)[:MOST_DIFFERING], "a@5000"]
    assert store.last_draw() == drawn(kept[-2])
    early = sum(int(id_[2:]) < 1500 for id_ in kept[:-1])
    assert 0.35 < early / MOST_DIFFERING < 0.65, "as many of the first half as of the second"


def test_windows_of_an_earlier_pair_of_models_do_not_stand_in_line_before_those_of_the_next(store: CaseStore) -> None:
    """Mutation: `CaseStore.write` without `_turn_to`: people label what counts for nothing any more."""
    first = Rival(bundle="f" * 64, against="watch/1", old="sit", new="walk")
    second, third = replace(first, bundle="e" * 64), replace(first, against="watch/2")
    store.write([case(1), case(2), *(replace(case(at), why="differ", rival=first) for at in range(1, 9))], [], 0.0)
    store.label("a@3", "walk")
    hard = sorted(["a@1", "a@2"], key=drawn)
    for rival, at in ((second, 20), (third, 30)):
        store.write([replace(case(at), why="differ", rival=rival)], [], 0.0)
        assert [one["id"] for one in store.summaries("open", 9)] == [f"a@{at}", *hard], "hard ones stay"
    assert store.rivals("f" * 64) == [(drawn("a@3"), first, "walk"), (drawn("a@30"), third, "")], "and so do labels"
    assert store.rivals("e" * 64) == []


def test_a_file_of_a_version_before_proofs_is_taken_over(tmp_path: Path, store: CaseStore) -> None:
    store.write([case(1)], [], 0.0)
    store.close()
    with closing(sqlite3.connect(store.path)) as db:
        db.execute("ALTER TABLE cases DROP COLUMN rival")
        db.execute("ALTER TABLE cases DROP COLUMN draw")
    again = CaseStore(store.path, 4 * MIB, 30.0)
    assert again.one("a@1").rival is None
    assert again.rivals("f" * 64) == []


def test_labels_are_the_bundle_s_or_say_that_there_is_none(store: CaseStore) -> None:
    store.write([case(1), case(2), case(3)], [], 0.0)
    with pytest.raises(InputError, match="no label of this case"):
        store.label("a@1", "<b>run</b>")
    with pytest.raises(InputError, match="no case"):
        store.label("nobody@1", "walk")
    for id_, label in (("a@1", "walk"), ("a@2", NONE_OF_THESE), ("a@3", SKIP)):
        store.label(id_, label)
    assert {**store.counts(), "bytes": 0} == {"open": 0, "labelled": 1, "aside": 2, "bytes": 0}
    store.label("a@1", "")
    assert [one["id"] for one in store.summaries("open", 9)] == ["a@1"]


def test_the_file_stays_within_its_bytes_and_the_oldest_without_a_label_go_first(tmp_path: Path) -> None:
    store = CaseStore(tmp_path / "cases.db", MIB, 30.0)
    store.write([case(0, samples=1000)], [], 0.0)
    store.label("a@0", "walk")
    for at in range(1, 401):
        store.write([case(at, samples=1000)], [], 0.0)
    assert sum(file.stat().st_size for file in tmp_path.glob("cases.db")) <= MIB
    assert store.one("a@0").label == "walk"
    assert store.one("a@400").key == "a"
    with pytest.raises(InputError):
        store.one("a@1")


def test_what_is_too_old_goes_with_or_without_a_label(store: CaseStore) -> None:
    store.write([case(1), case(2, kept=20 * DAY_S)], [], 20 * DAY_S)
    store.label("a@1", "walk")
    store.write([], [], 31 * DAY_S)
    assert [one["id"] for one in store.summaries("all", 9)] == ["a@2"]


def test_a_key_that_was_erased_is_on_the_disk_no_more(store: CaseStore, tmp_path: Path) -> None:
    one, other = case(1), case(2, "b")
    store.write([one, other], [], 0.0)
    store.label("a@1", "walk")

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
    other.label("a@1", "sit")
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
    with pytest.raises(StoreError, match="cannot be used"):
        CaseStore(tmp_path / "text.db", MIB, 1.0)


def test_an_export_holds_the_labelled_cases_alone_each_as_a_stream_of_its_own(store: CaseStore, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no case has a label"):
        export(store, tmp_path / "none.csv")
    store.write([case(1), case(2), case(3), case(4)], [], 0.0)
    for id_, label in (("a@1", "walk"), ("a@2", "sit"), ("a@3", SKIP)):
        store.label(id_, label)
    assert export(store, tmp_path / "reviewed.csv") == 2
    lines = (tmp_path / "reviewed.csv").read_text().splitlines()
    assert lines[0] == "time,key,person,label,ax (g),ay (g)"
    assert {tuple(line.split(",")[1:4]) for line in lines[1:]} == {("a@1", "a", "walk"), ("a@2", "a", "sit")}
    assert len(lines) == 1 + 2 * 100
    with pytest.raises(ConfigError, match="never overwritten"):
        export(store, tmp_path / "reviewed.csv")
