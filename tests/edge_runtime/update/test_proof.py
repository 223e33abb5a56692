"""With ``prove = "better"`` labels of windows on which two models differ decide, on a live stream and over restarts."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.cases.case import NONE_OF_THESE, SKIP, Case, Rival
from edge_runtime.cases.store import CaseStore, drawn
from edge_runtime.cli import main
from edge_runtime.config import AppConfig, parse
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.update.proof import standing_of
from edge_runtime.update.prove import FEWEST, Labels
from tests.edge_runtime.cases.kept import case
from tests.edge_runtime.update.devices import APP, Device, Factory, assert_no_window_missing, configured, drop, state_of

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
                store.label(kept.id, say(rival_of(kept)))

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
        since = device.state.since_s
    with Device(proving(folder)) as again:
        again.until(lambda: again.updates.rollout.stage == "shadow" and again.updates.status()["proof"]["labels"] == 2)
        assert again.state.since_s == since, "a restart gives it no more time"
        assert again.app.model.manifest.model == "watch/1"
    with Device(proving(folder, prove_s=0.001)) as late:
        late.until(lambda: late.state.held_back("watch", 2))
        held = late.state.held_back("watch", 2)
        assert held is not None
        assert "it was not proved in time (prove_s): " in held.reason
        assert late.app.model.manifest.model == "watch/1"


@pytest.mark.slow
def test_labels_that_come_after_a_proof_reverse_it(factory: Factory, folder: Path) -> None:
    with Device(proving(folder)) as device:
        drop(folder, factory.bundle(2, seed=5))
        device.until(lambda: device.updates.status().get("proof", {}).get("waiting", 0) >= 3 * FEWEST)
        labelling(device, folder, for_it, lambda: device.updates.status()["proof"]["labels"] >= FEWEST)
        device.until_runs("watch/2")
        labelling(device, folder, against_it, lambda: device.state.held_back("watch", 2))
        device.until(lambda: device.app.model.manifest.model == "watch/1")
        held = device.state.held_back("watch", 2)
        assert held is not None
        assert held.reason.startswith("labels that came after its proof speak against it: ")
    assert_no_window_missing(device.answers)


def test_labels_after_a_proof_are_of_other_windows_though_its_own_have_made_room_or_were_changed(folder: Path) -> None:
    """Mutation: the difference of two counts; once the proof's cases are gone, it hides labels that are for it."""
    store = library(folder)
    rival = Rival(bundle="f" * 64, against="watch/1", old="sit", new="walk")
    kept = [replace(case(at), why="differ", rival=rival) for at in range(40)]
    store.write(kept[:FEWEST], [], 0.0)
    for one in kept[:FEWEST]:
        store.label(one.id, "walk")
    windows = tuple(standing_of(store, "f" * 64).said)
    store.label("a@0", "sit")
    store.label("a@1", "")
    assert standing_of(store, "f" * 64).later(windows) == Labels()
    store.erase("a")
    store.write(kept[FEWEST:29], [], 0.0)
    for one in kept[FEWEST:29]:
        store.label(one.id, "sit" if one is kept[20] else "walk")
    assert standing_of(store, "f" * 64).later(windows) == Labels(wins=17, losses=1)
    store.close()


@pytest.mark.slow
def test_windows_that_wait_come_in_random_order_and_those_skipped_count_not_at_all(
    factory: Factory, folder: Path
) -> None:
    config = proving(folder, prove_labels=FEWEST)
    with Device(config) as device:
        drop(folder, factory.bundle(2, seed=5))
        device.until(lambda: device.updates.status().get("proof", {}).get("waiting", 0) >= 2 * FEWEST)
        store = library(folder)
        waiting = [drawn(one["id"]) for one in store.summaries("open", 200)]
        assert waiting == sorted(waiting), "in random order"
        for one, said in zip(store.summaries("open", 3), (SKIP, NONE_OF_THESE, SKIP), strict=True):
            store.label(one["id"], said)
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
