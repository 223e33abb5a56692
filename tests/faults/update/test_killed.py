"""S4: an update is interrupted at all that it does to the disk or to the stream; the old one or the new one runs.

Each device is killed instead of taking its K-th step, for K = 1, 2, ... until it survives; after each kill it is
started again, unhurt, and must end where an undisturbed device ends.

Mutations that were seen to fail here: `Updates.arrived` writes the state before the file is in its place, or removes
the dropped file before the state names the candidate; `Starter._count` without counting.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.edge_runtime.operate.update.devices import HOP, Factory, announcement, drop, state_of
from tests.edge_runtime.operate.update.files import FileServer
from tests.faults.conftest import Note
from tests.faults.update.victims import Life, Victims
from tests.long_tier import Tier

SHORT: dict[str, Any] = {"shadow_windows": 2, "trial_windows": 2}


@pytest.fixture(scope="module")
def factory(tmp_path_factory: pytest.TempPathFactory) -> Factory:
    return Factory(tmp_path_factory.mktemp("factory"))


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    with Victims() as server:
        yield server


@pytest.fixture
def fresh(factory: Factory, memory: Path) -> Iterator[Any]:
    """Makes devices, each in a folder of its own."""
    numbers = itertools.count()

    def make(**update: Any) -> Path:
        folder = factory.device(memory / f"device-{next(numbers)}")
        (folder / "update.json").write_text(json.dumps(SHORT | update))
        return folder

    return make  # type: ignore[return-value] # a factory


def dropped(folder: Path, bundle: Path) -> dict[str, Any]:
    """Prepares a device."""
    drop(folder, bundle)
    return {}


def check_answers(life: Life, where: str) -> None:
    """Ids without a gap, models that go from the old one to the new one, or back, and never to a third."""
    slots = [slot for slot, _ in life.answers]
    assert all(b - a == HOP for a, b in itertools.pairwise(slots)), where
    assert set(life.models) <= {"watch/1", "watch/2"}, where


def kill_everywhere(
    victims: Victims, fresh: Any, prepare: Any, check: Any, tier: Tier, rng: random.Random, **order: Any
) -> int:
    """Kill a device at its points (all of them, or with every push each fourth), start it again, check where it ends.

    Returns:
        How many kills there were.
    """
    stride = tier(4, 1)
    for kills, k in enumerate(itertools.count(1 + rng.randrange(stride), stride)):
        folder = fresh()
        more = order | prepare(folder)
        life = victims.live(folder, kill_at=k, **more)
        where = f"killed at point {k}: {life.points[-1:]}"
        check_answers(life, where)
        if not life.killed:
            assert life.code == 0, life.errors
            check(folder, life, where)
            return kills
        again = victims.live(folder, **more)
        assert again.code == 0, (where, again.errors)
        assert again.answers[0][1] in {"watch/1", "watch/2"}, where
        check_answers(again, where)
        check(folder, again, where)
        shutil.rmtree(folder)
    raise AssertionError


def installed(folder: Path, life: Life, where: str) -> None:
    state = state_of(folder)
    assert (state.phase, state.held, state.highest) == ("idle", (), {"watch": 2}), where
    assert state.running is not None, where
    assert state.running.version == 2, where
    assert life.answers[-1][1] == "watch/2", where
    names = [path.name for path in (folder / "updates/bundles").iterdir()]
    assert names == [f"{state.running.sha256}.edge"], where


def held_back(folder: Path, life: Life, where: str) -> None:
    state = state_of(folder)
    assert (state.phase, state.running, state.highest) == ("idle", None, {}), where
    assert [held.version for held in state.held] == [2], where
    assert life.answers[-1][1] == "watch/1", where


def test_a_good_update_killed_anywhere_is_installed_in_the_end(
    factory: Factory, victims: Victims, fresh: Any, note: Note, tier: Tier, rng: random.Random
) -> None:
    bundle = factory.bundle(2)
    kills = kill_everywhere(victims, fresh, lambda folder: dropped(folder, bundle), installed, tier, rng)
    assert kills > tier(11, 50)
    note("S4", f"{kills} kills in an update that passes: old or new ran after each, the new one in the end")


def test_a_bad_update_killed_anywhere_is_held_back_in_the_end(
    factory: Factory, victims: Victims, fresh: Any, note: Note, tier: Tier, rng: random.Random
) -> None:
    """No shadow run here, so that it is found out when it leads and is rolled back."""
    bundle = factory.bundle(2, seed=5)

    def make() -> Path:
        folder: Path = fresh(shadow_windows=0, trial_windows=20, min_agreement=1.0)
        return folder

    kills = kill_everywhere(victims, make, lambda folder: dropped(folder, bundle), held_back, tier, rng)
    assert kills > tier(9, 38)
    note("S4", f"{kills} kills in an update that fails its trial: old or new ran after each, the old one in the end")


def test_a_model_that_kills_the_process_is_rolled_back_after_so_many_starts(
    factory: Factory, victims: Victims, fresh: Any, note: Note
) -> None:
    deaths = 0
    for in_shadow in (False, True):
        folder = fresh(max_failed_starts=3)
        drop(folder, factory.bundle(2))
        lives = [victims.live(folder, dies_of=2, dies_in_shadow=in_shadow) for _ in range(4)]
        assert [life.killed for life in lives] == [True, True, True, False], [life.errors for life in lives]
        deaths += 3
        held_back(folder, lives[-1], "killed by the candidate")
        assert "3 starts in a row" in state_of(folder).held[0].reason
        drop(folder, factory.bundle(2), "again.edge")  # held back for good
        last = victims.live(folder, dies_of=2)
        assert last.code == 0
        assert last.models == ["watch/1"]
    note("S4", f"{deaths} deaths of the candidate: the old one is back after 3 of them, and stays")


def test_a_good_update_survives_fewer_deaths_than_that(factory: Factory, victims: Victims, fresh: Any) -> None:
    folder = fresh(max_failed_starts=3)
    drop(folder, factory.bundle(2))
    for _ in range(2):
        assert victims.live(folder, dies_of=2).killed
    life = victims.live(folder)
    assert life.code == 0
    installed(folder, life, "after two deaths")


def test_a_fetch_killed_anywhere_goes_on_where_it_was(
    factory: Factory, victims: Victims, fresh: Any, note: Note, tier: Tier, rng: random.Random
) -> None:
    bundle = factory.bundle(2)
    with FileServer(bundle.read_bytes()) as server:
        told = announcement(bundle, 2, url=server.url).decode()
        kills = kill_everywhere(victims, fresh, lambda _: {"announce": told}, installed, tier, rng)
        assert kills > tier(11, 50)
    note("S4", f"{kills} kills in an update that is fetched over HTTP: the same")
