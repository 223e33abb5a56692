"""The state file and the folder around it: what survives damage, full disks and second processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.system import durable_file
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError, StoreCorrupt, StoreError, UpdateRefused
from edge_runtime.operate.update import check, state
from edge_runtime.operate.update.prove import DisputedLabels
from edge_runtime.operate.update.state import Floor, HeldBack, Installed, Proved, UpdateOutcome, UpdateState
from edge_runtime.operate.update.update_store import UpdateStore
from tests.edge_runtime import manifests

INSTALLED = Installed(name="watch", version=2, sha256="ab" * 32)
FULL = UpdateState(
    phase="trial",
    running=INSTALLED,
    previous=replace(INSTALLED, version=1),
    candidate=replace(INSTALLED, version=3),
    starts=2,
    highest={"watch": 3},
    held=(HeldBack(name="watch", version=7, reason="ä ✓"),),
    refused={"cd" * 32: "no"},
    on_hold=True,
    last="something",
    floors={"watch": Floor(sequence=7, digest="ef" * 32)},
    seen_s=1.7e9,
    filters=("fleet/v3/+",),
    history=(UpdateOutcome(bundle="watch/2", sha256="ab" * 32, result="accepted", at_s=1.7e9),),
)

installed = st.builds(
    Installed, name=st.text(min_size=1, max_size=8), version=st.integers(1, 2**53), sha256=st.text("0123456789abcdef")
)


@settings(deadline=None)
@given(
    st.builds(
        UpdateState,
        running=st.none() | installed,
        previous=st.none() | installed,
        starts=st.integers(0, 9),
        highest=st.dictionaries(st.text(max_size=8), st.integers(1, 2**53), max_size=3),
        on_hold=st.booleans(),
        last=st.text(max_size=40),
    )
)
def test_any_state_comes_back_as_it_was(made: UpdateState) -> None:
    assert state.parse(state.dump(made)) == made


def test_no_byte_of_it_changes_unnoticed() -> None:
    """Mutation: `parse` without comparing the checksum: most of the changed files are read."""
    data = state.dump(FULL)
    assert state.parse(data) == FULL
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 0x01
        with pytest.raises(StoreCorrupt):
            state.parse(bytes(changed))
    for length in range(len(data)):
        with pytest.raises(StoreCorrupt):
            state.parse(data[:length])


def test_a_state_that_was_written_before_there_were_floors_is_read() -> None:
    """As commit b6cee38 wrote it."""
    body = b"""{
  "phase": "trial",
  "running": {
    "name": "watch",
    "version": 2,
    "sha256": "%b"
  },
  "previous": null,
  "candidate": {
    "name": "watch",
    "version": 3,
    "sha256": "%b"
  },
  "starts": 1,
  "highest": {
    "watch": 3
  },
  "held": [
    {
      "name": "watch",
      "version": 1,
      "reason": "no"
    }
  ],
  "refused": {
    "%b": "no"
  },
  "on_hold": false,
  "last": "x"
}
""" % (b"ab" * 32, b"cd" * 32, b"ef" * 32)
    head = b"edge-update 1 8a5b64ca2cc629ff318b5dc0d6dffe2e7da130f3b94f947d9831475ce06b7e79\n"
    found = state.parse(head + body)
    assert (found.running, found.highest, found.on_hold) == (INSTALLED, {"watch": 3}, False)
    assert (found.floors, found.seen_s, found.filters, found.history) == ({}, 0.0, (), ())


@pytest.mark.parametrize("made", [UpdateState(phase="trial"), UpdateState(candidate=INSTALLED)])
def test_a_candidate_goes_with_a_phase(made: UpdateState) -> None:
    with pytest.raises(StoreCorrupt, match="contradicts"):
        state.parse(state.dump(made))


def test_the_highest_version_and_the_floors_outlive_every_step() -> None:
    before = UpdateState(running=INSTALLED, floors=FULL.floors, highest={"watch": 5})
    after = state.tried(before, replace(INSTALLED, version=5), "shadow")
    steps: list[Callable[[UpdateState], UpdateState]] = [
        lambda now: state.rolled_back(now, "it failed"),
        state.confirmed,
        state.started_again,
        state.starts_cleared,
        state.opened,
        state.paused,
        state.forgiven,
        state.withdrawn,
        lambda now: state.refusing(now, "watch/5", "ab", "no"),
        lambda now: state.tried(now, replace(INSTALLED, version=2), "trial"),
    ]
    for step in steps:
        assert step(after).highest == {"watch": 5}
        assert step(after).floors == FULL.floors


def test_the_history_says_how_each_update_ended_the_latest_first_and_outlives_what_an_operator_lifts() -> None:
    now = UpdateState()
    now = state.confirmed(state.tried(now, replace(INSTALLED, version=3), "trial"))
    now = state.rolled_back(state.tried(now, replace(INSTALLED, version=4), "shadow"), "it disagrees")
    now = state.refusing(now, "new.edge", "cd" * 32, "no trusted key signed it")
    now = state.forgiven(state.withdrawn(now))
    now = state.configured(now, "watch/9")
    assert [(one["bundle"], one["result"], one["reason"]) for one in now.outcomes()] == [
        ("watch/9", "accepted", "the configuration names it"),
        ("watch/3", "rolled back", state.BY_OPERATOR),
        ("new.edge", "refused", "no trusted key signed it"),
        ("watch/4", "rolled back", "it disagrees"),
        ("watch/3", "accepted", ""),
    ]
    assert [one["sha256"][:2] for one in now.outcomes()] == ["", "ab", "cd", "ab", "ab"]


def test_an_outcome_has_the_time_at_which_it_was_written_and_keeps_it(tmp_path: Path) -> None:
    clock = SimulatedClock(wall=2e9)
    store = UpdateStore(tmp_path / "updates", clock.wall)
    store.change(lambda now: state.refusing(now, "a.edge", "ab", "no"))
    clock.sleep(60)
    store.change(lambda now: state.refusing(now, "b.edge", "cd", "no"))
    store.change(lambda now: replace(now, seen_s=3e9))
    store.change(lambda now: state.refusing(now, "c.edge", "ef", "no"))  # its clock is behind what was seen
    store.close()
    kept = UpdateStore(tmp_path / "updates", read_only=True).state
    assert [(one["bundle"], one["at_s"]) for one in kept.outcomes()] == [
        ("c.edge", 3e9), ("b.edge", 2e9 + 60), ("a.edge", 2e9)
    ]  # fmt: skip


def test_what_is_held_back_and_refused_is_bounded() -> None:
    now = UpdateState()
    for version in range(1, 200):
        now = state.rolled_back(state.tried(now, replace(INSTALLED, version=version), "shadow"), "no")
        now = state.refusing(now, f"watch/{version}", f"{version:064x}", "no")
    assert len(now.held) == len(now.refused) == 32
    assert now.held[-1].version == 199
    assert [one["bundle"] for one in now.outcomes()[:2]] == ["watch/199", "watch/199"]
    assert len(now.history) == 20
    assert now.highest == {}
    for version in range(1, 200):
        now = state.confirmed(state.tried(now, replace(INSTALLED, version=version), "trial"))
    assert now.highest == {"watch": 199}


def admits(made: UpdateState, version: int, *, by_operator: bool = False, running: int = 1) -> bool | str:
    manifest = replace(manifests.manifest(), name="watch", version=running)
    try:
        return check.admit(made, manifest, "watch", version, f"{version:064x}", by_operator=by_operator)
    except UpdateRefused as error:
        return error.reason


def test_a_version_is_admitted_by_what_passed_here_and_by_an_operator_always() -> None:
    bad = state.rolled_back(state.tried(UpdateState(), replace(INSTALLED, version=3), "trial"), "it fails")
    assert (admits(bad, 2), admits(bad, 3), admits(bad, 4)) == (True, "held", True)
    good = state.confirmed(state.tried(bad, replace(INSTALLED, version=4), "trial"))
    assert (admits(good, 2, running=4), admits(good, 5, running=4)) == ("older", True)
    back = state.withdrawn(good)  # it passed, and was found wanting afterwards
    assert (admits(back, 4), admits(back, 3), admits(back, 2)) == ("held", "held", True)
    assert all(admits(made, version, by_operator=True) is True for made in (bad, good, back) for version in (2, 3, 4))
    earlier = replace(bad, highest={"watch": 3})  # as written when a floor rose with what was tried
    assert admits(earlier, 2) is True


def test_what_an_operator_lifts_or_brings_needs_no_proof_by_labels() -> None:
    held = state.rolled_back(
        state.tried(UpdateState(), replace(INSTALLED, version=3), "shadow"), "labels speak against it"
    )
    assert state.forgiven(held).granted == ("watch/3",)
    assert state.opened(held).held == held.held
    mine = replace(INSTALLED, version=3, by_operator=True)
    proved = Proved(sha256=mine.sha256, against="watch/1", labels=DisputedLabels(), windows=())
    tried = state.tried(replace(held, proved=proved), mine, "shadow")
    assert (tried.held, tried.proved) == ((), None)  # labels from before do not reverse it


def test_going_back_with_nothing_before_changes_nothing_but_the_message() -> None:
    assert replace(state.withdrawn(UpdateState()), last="") == UpdateState()


# -- files -------------------------------------------------------------------------------------------------------------


def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what is done to the disk from now on."""
    made: list[str] = []
    for name in ("open", "write", "fsync", "replace", "unlink"):
        function = getattr(os, name)

        def watched(*args: Any, _name: str = name, _function: Any = function, **more: Any) -> Any:
            made.append(f"{_name} {Path(args[0]).name}" if isinstance(args[0], str | Path) else _name)
            return _function(*args, **more)

        monkeypatch.setattr(os, name, watched)
    return made


def test_a_file_is_synced_before_it_is_renamed_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: either `fsync` taken out of `durable`."""
    made = calls(monkeypatch)
    durable_file.write(tmp_path / "file", b"data")
    assert made == ["open file.new", "write", "fsync", "replace file.new", f"open {tmp_path.name}", "fsync"]


def test_a_nearly_full_disk_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data[:3])))
    durable_file.write(tmp_path / "file", b"0123456789")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_state_that_cannot_be_written_is_not_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = UpdateStore(tmp_path / "updates")
    store.change(lambda _: UpdateState(last="first"))

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(StoreError, match="No space left on device; make room"):
            store.change(lambda _: UpdateState(last="second"))
    assert store.state.last == "first"
    store.close()
    assert UpdateStore(tmp_path / "updates").state.last == "first"


def test_a_damaged_state_gives_way_to_the_one_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Mutation: `UpdateStore._load` looks at "state" alone: the highest version is forgotten."""
    store = UpdateStore(tmp_path / "updates")
    for version in (2, 3):
        store.change(lambda now, version=version: replace(now, highest={"watch": version}))  # type: ignore[misc]
    store.close()
    path = tmp_path / "updates/state"
    path.write_bytes(path.read_bytes()[:-1])
    again = UpdateStore(tmp_path / "updates")
    assert again.state.highest == {"watch": 2}
    assert not again.damaged
    assert (tmp_path / "updates/state.damaged").exists()
    assert "its checksum does not hold" in caplog.text
    again.change(lambda now: replace(now, last="on"))  # and a damaged one is never kept as the one before
    assert state.parse((tmp_path / "updates/state").read_bytes()).highest == {"watch": 2}


def test_a_kill_between_the_two_renames_loses_nothing(tmp_path: Path) -> None:
    store = UpdateStore(tmp_path / "updates")
    store.change(lambda now: replace(now, highest={"watch": 2}))
    store.close()
    (tmp_path / "updates/state").replace(tmp_path / "updates/state.before")
    assert UpdateStore(tmp_path / "updates").state.highest == {"watch": 2}


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    store = UpdateStore(tmp_path / "updates")
    with pytest.raises(ConfigError, match="another application uses it"):
        UpdateStore(tmp_path / "updates")
    assert UpdateStore(tmp_path / "updates", read_only=True).state == UpdateState()
    store.close()
    UpdateStore(tmp_path / "updates").close()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be used: No such file or directory"):
        UpdateStore(tmp_path / "no" / "updates")


def test_only_what_no_state_names_is_removed(tmp_path: Path) -> None:
    store = UpdateStore(tmp_path / "updates")
    names = {name: Installed(name="watch", version=i, sha256=name * 64) for i, name in enumerate("abcd", start=1)}
    for name in "abcd":
        store.path(name * 64).write_bytes(b"")
        store.path(name * 64).with_suffix(".edge.tuned.json").write_bytes(b"")
    store.change(lambda _: UpdateState(running=names["a"], previous=names["b"]))
    store.change(lambda _: UpdateState(running=names["c"], previous=names["a"]))
    store.tidy()
    assert {path.name[0] for path in store.bundles.iterdir()} == {"a", "b", "c"}  # b: the state before names it
    store.close()
