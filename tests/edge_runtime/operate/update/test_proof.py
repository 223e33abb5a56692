"""With ``prove = "better"`` labels of windows on which two models differ decide, on a live stream and over restarts."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.app.config import AppConfig, parse
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.operate.update.proof import standing_of
from edge_runtime.operate.update.prove import FEWEST, looks
from edge_runtime.operate.update.update_store import UpdateStore
from edge_runtime.store.cases.case import NONE_OF_THESE, SKIP, Case, Rival
from edge_runtime.store.cases.store import CaseStore
from edge_runtime.tools.cli import main
from tests.edge_runtime.operate.update.devices import (
    APP,
    Device,
    Factory,
    assert_no_window_missing,
    configured,
    drop,
    state_of,
)
from tests.edge_runtime.store.cases.kept import case

LOOK = looks(60)[0]
CASES = '\n[cases]\npath = "cases.db"\nhard = false\nsuspect = false\nmax_per_minute = 6000\n'
Say = Callable[[Rival], str]


def proving(folder: Path, **update: Any) -> AppConfig:
    return configured(folder, more=CASES, prove="better", **update)


def library(folder: Path) -> CaseStore:
    return CaseStore(folder / "cases.db", 2**26, 30.0)


def rival_of(case: Case) -> Rival:
    assert case.rival is not None
    return case.rival


def for_it(rival: Rival) -> str:
    return rival.new


def against_it(rival: Rival) -> str:
    return rival.old


def person(folder: Path, say: Say) -> Callable[[], None]:
    """A person who labels one more window, when one waits."""
    store = library(folder)

    def look() -> None:
        for kept in store.each(one["id"] for one in store.summaries("open", 1)):
            with suppress(InputError):  # it made room meanwhile
                store.label(kept.id, say(rival_of(kept)), "page")

    return look


def labelling(device: Device, folder: Path, say: Say, until: Callable[[], object]) -> None:
    look = person(folder, say)

    def step() -> object:
        look()
        return until()

    device.until(step)


@pytest.mark.slow
def test_a_model_that_labels_prove_takes_over_and_one_that_they_do_not_is_held_back(
    factory: Factory, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = proving(folder)
    with Device(config) as device:
        drop(folder, factory.bundle(2, seed=5))  # it agrees with watch/1 on far fewer than min_agreement asks for
        device.until(lambda: device.updates.status().get("proof", {}).get("waiting"))
        assert device.app.model.manifest.model == "watch/1", "nobody has said anything"
        labelling(device, folder, for_it, lambda: device.updates.rollout.stage == "trial")
        device.until_runs("watch/2")
        drop(folder, factory.bundle(3, seed=6))
        labelling(device, folder, against_it, lambda: device.state.held_back("watch", 3))
        assert device.app.model.manifest.model == "watch/2"
        held = device.state.held_back("watch", 3)
        assert held is not None
        assert held.reason.startswith("labels speak against it: 0 for it, ")
    assert_no_window_missing(device.answers)
    proved = state_of(folder).proved
    assert proved is not None
    assert (proved.against, proved.labels.losses) == ("watch/1", 0)
    (folder / "app.toml").write_text(APP.format(more=CASES, model="") + 'prove = "better"\n')
    assert main(["update", "status", str(folder / "app.toml")]) == 3
    assert "proof      watch/2: " in capsys.readouterr().out
    library(folder).erase(None)
    assert main(["update", "status", str(folder / "app.toml")]) == 3
    assert "proof" not in capsys.readouterr().out, "no count of labels where none are left"


@pytest.mark.slow
def test_a_proof_goes_on_after_a_restart_and_waits_for_people_as_long_as_it_may(factory: Factory, folder: Path) -> None:
    with Device(proving(folder)) as device:
        drop(folder, factory.bundle(2, seed=5))
        device.until(lambda: device.updates.status().get("proof", {}).get("waiting", 0) >= 2)
        look = person(folder, for_it)
        look()
        look()
        device.until(lambda: device.updates.status()["proof"]["labels"] == 2)
    with Device(proving(folder)) as again:
        again.until(lambda: again.updates.rollout.stage == "shadow" and again.updates.status()["proof"]["labels"] == 2)
        assert again.app.model.manifest.model == "watch/1"
        ran_s = again.updates.rollout.proof.standing.ran_s
        again.until(lambda: again.updates.rollout.proof.standing.ran_s > ran_s + 0.5)
    with Device(proving(folder, prove_s=ran_s + 0.5)) as late:  # a restart gives it no more time
        late.until(lambda: late.state.held_back("watch", 2))
        held = late.state.held_back("watch", 2)
        assert held is not None
        assert "it was not proved by its labels in time: " in held.reason
        assert late.app.model.manifest.model == "watch/1"


@pytest.mark.slow
def test_labels_that_come_after_a_proof_reverse_it(factory: Factory, folder: Path) -> None:
    with Device(proving(folder)) as device:
        drop(folder, factory.bundle(2, seed=5))
        device.until(lambda: device.updates.status().get("proof", {}).get("waiting", 0) >= 4 * LOOK)
        labelling(device, folder, for_it, lambda: device.updates.status().get("proof", {}).get("labels", 0) >= LOOK)
        device.until_runs("watch/2")
        labelling(device, folder, against_it, lambda: device.state.held_back("watch", 2))
        device.until(lambda: device.app.model.manifest.model == "watch/1")
        held = device.state.held_back("watch", 2)
        assert held is not None
        assert held.reason.startswith("labels that came after its proof speak against it: ")
    assert_no_window_missing(device.answers)


RIVAL = Rival(bundle="f" * 64, against="watch/1", attempt=1, old="sit", new="walk")


def waiting(store: CaseStore, n: int) -> list[Case]:
    """Windows that wait for a label, in the order in which labels count."""
    store.write([replace(case(at), why="differ", rival=RIVAL) for at in range(n)], [], 0.0)
    return list(store.each(one["id"] for one in store.summaries("open", n)))


def test_labels_after_a_proof_are_of_other_windows_though_its_own_have_made_room_or_were_changed(folder: Path) -> None:
    """Mutation: the difference of two counts; once the proof's cases are gone, it hides labels that are for it."""
    store = library(folder)
    kept = waiting(store, 40)
    for one in kept[:LOOK]:
        store.label(one.id, "walk", "page")
    windows = [draw for draw, said in standing_of(store, "f" * 64).said.items() if said]
    assert len(windows) == LOOK
    store.label(kept[0].id, "sit", "page")
    store.label(kept[1].id, "", "page")
    assert standing_of(store, "f" * 64).counted(windows) == []
    for at, one in enumerate(kept[LOOK : LOOK + 20]):
        store.label(one.id, "sit" if at == 5 else "walk", "page")
    assert standing_of(store, "f" * 64).counted(windows) == ["for"] * 5 + ["against"] + ["for"] * 14
    store.close()


def test_labels_count_up_to_the_first_window_without_one_and_where_people_may_give_them(folder: Path) -> None:
    store = library(folder)
    kept = waiting(store, 20)
    for one in reversed(kept[3:]):
        store.label(one.id, "walk", "page")
    assert standing_of(store, "f" * 64).counted() == [], "however many there are"
    store.label(kept[0].id, "walk", "command")
    store.label(kept[1].id, SKIP, "page")
    store.label(kept[2].id, "walk", "cloud")
    standing = standing_of(store, "f" * 64)
    assert (standing.counted(), standing.labels.given, standing.waiting) == (["for"], 18, 1), "a cloud has no say"
    store.label(kept[2].id, NONE_OF_THESE, "page")
    assert standing_of(store, "f" * 64).counted() == ["for", "neither", *["for"] * 17]
    assert "19 of 30 in the order drawn" in standing_of(store, "f" * 64).line(60)
    store.close()


@pytest.mark.slow
def test_a_proof_that_a_version_before_began_begins_again_and_says_so(
    factory: Factory, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Device(proving(folder)) as device:
        drop(folder, factory.bundle(2, seed=5))
        device.until(lambda: device.updates.status().get("proof", {}).get("waiting", 0) >= 2)
        bundle = device.state.candidate
        assert bundle is not None
    store = library(folder)
    store.erase(None)
    old = Rival(bundle=bundle.sha256, against="watch/1", old="sit", new="walk")
    store.write([replace(case(at), why="differ", rival=old) for at in range(LOOK)], [], 0.0)
    for at in range(LOOK):
        store.label(f"a@{at}", "walk", "page")
    store.close()
    with closing(sqlite3.connect(folder / "cases.db")) as db, db:
        db.execute("""UPDATE cases SET origin = '', rival = json_remove(CAST(rival AS TEXT), '$.attempt')""")
        db.execute("UPDATE cases SET rival = CAST(rival AS BLOB)")
        db.execute("DELETE FROM state")
    state = UpdateStore(folder / "updates")
    state.change(lambda now: replace(now, attempt=0))  # what a state without it is read as
    state.close()
    with Device(proving(folder)) as again:
        again.until(lambda: again.updates.status().get("proof", {}).get("waiting", 0) >= 2)
        assert again.updates.status()["proof"]["labels"] == 0
        assert again.app.model.manifest.model == "watch/1"
    assert (
        caplog.text.count(f"update: began the proof again: labels={LOOK} reason=they were drawn without a secret") == 1
    )


@pytest.mark.slow
def test_windows_that_wait_come_in_random_order_and_those_skipped_count_not_at_all(
    factory: Factory, folder: Path
) -> None:
    config = proving(folder, prove_labels=FEWEST)
    with Device(config) as device:
        drop(folder, factory.bundle(2, seed=5))
        device.until(lambda: device.updates.status().get("proof", {}).get("waiting", 0) >= 2 * FEWEST)
        store = library(folder)
        keeper = device.app.cases
        assert keeper is not None
        assert keeper.store is not None
        numbers = [keeper.store.draw(one["id"]) for one in store.summaries("open", 200)]
        assert numbers == sorted(numbers), "in random order"
        for one, said in zip(store.summaries("open", 3), (SKIP, NONE_OF_THESE, SKIP), strict=True):
            store.label(one["id"], said, "page")
        device.until(lambda: device.updates.status()["proof"]["neither"] == 1)
        assert device.updates.status()["proof"]["labels"] == 1


def test_a_bundle_with_other_windows_cannot_be_proved(factory: Factory, folder: Path) -> None:
    with Device(proving(folder, contract_change="allow")) as device:
        drop(folder, factory.bundle(2, window=32))
        device.until(lambda: device.state.held_back("watch", 2))
        held = device.state.held_back("watch", 2)
        assert held is not None
        assert held.reason == 'prove = "better" needs two bundles with the same windows'
        assert device.app.model.manifest.model == "watch/1"


def test_a_proof_needs_cases_and_a_shadow_run(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs a table \[cases\]"):
        parse(APP.format(more="", model="") + 'prove = "better"\n', folder / "app.toml")
    with pytest.raises(ConfigError, match="at least 11: fewer labels cannot prove"):
        parse(APP.format(more=CASES, model="") + "prove_labels = 10\n", folder / "app.toml")
    with pytest.raises(ConfigError, match="needs a shadow run"):
        parse(
            APP.format(more=CASES, model="").replace("shadow_windows = 20", "shadow_windows = 0")
            + 'prove = "better"\n',
            folder / "app.toml",
        )
