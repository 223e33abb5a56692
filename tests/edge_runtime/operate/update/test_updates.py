"""The course of an update on a live stream: it passes and stays, or it is refused, held back, rolled back."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.errors import ConfigError, EngineError, InputError
from edge_runtime.event_rule import EventRule
from edge_runtime.model.serving.loading import Answers, LoadedVariant
from edge_runtime.operate.update import inbox, rollout
from edge_runtime.operate.update.inbox import Request
from edge_runtime.operate.update.update_store import UpdateStore
from tests.edge_runtime.operate.update.devices import (
    Device,
    Factory,
    assert_no_window_missing,
    configured,
    drop,
    state_of,
)


def ask(folder: Path, action: Any, bundle: Path | None = None) -> None:
    inbox.post(UpdateStore(folder / "updates", read_only=True), Request(action=action), bundle)


def sabotage(monkeypatch: pytest.MonkeyPatch, version: int, fail: Any) -> None:
    """Let a version do something else than answer, once it leads."""
    answer = LoadedVariant.predict

    def predict(self: LoadedVariant, windows: Any) -> Any:
        return fail(self, windows, answer) if self.manifest.version == version else answer(self, windows)

    monkeypatch.setattr(LoadedVariant, "predict", predict)


def leads(device: Device) -> bool:
    return bool(device.updates.rollout.stage == "trial")


@pytest.mark.slow
@pytest.mark.usefixtures("proven")
def test_a_dropped_bundle_takes_over_without_losing_a_window(factory: Factory, folder: Path) -> None:
    """Mutation: `Pipeline.replace` without its `flush_iteration` and with an emptied `_ready`: ids have a gap."""
    with Device(configured(folder)) as device:
        dropped = drop(folder, factory.bundle(2))
        device.until_runs("watch/2")
        assert not dropped.exists()
        device.stop()
    assert device.answers.models() == ["watch/1", "watch/2"]
    assert_no_window_missing(device.answers)
    state = state_of(folder)
    assert (state.phase, state.running and state.running.version, state.highest) == ("idle", 2, {"watch": 2})
    with Device(configured(folder)) as again:  # and after a restart
        again.until(lambda: again.answers.all)
        assert again.answers.models() == ["watch/2"]


def test_two_updates_leave_the_one_before_to_go_back_to(factory: Factory, folder: Path) -> None:
    with Device(configured(folder)) as device:
        for version in (2, 3):
            drop(folder, factory.bundle(version))
            device.until_runs(f"watch/{version}")
        device.until(lambda: len(list((folder / "updates/bundles").iterdir())) == 2)
        ask(folder, "rollback")
        device.until_runs("watch/2")
        assert device.state.held_back("watch", 3) is not None
        drop(folder, factory.bundle(3))  # held back: not taken again
        device.until(lambda: device.counts.get("update_held") == 1)
        assert (folder / "drop" / "new.edge.refused").exists()
        drop(folder, factory.bundle(2), "older.edge")  # what runs already is no news
        device.until(lambda: not (folder / "drop" / "older.edge").exists())
        ask(folder, "apply", factory.bundle(3))  # an operator may
        device.until_runs("watch/3")
        ended = [(one["bundle"], one["result"]) for one in device.state.outcomes()]
        assert ended == [
            ("watch/3", "accepted"), ("new.edge", "refused"), ("watch/3", "rolled back"), ("watch/3", "accepted"),
            ("watch/2", "accepted"),
        ]  # fmt: skip
        assert all(one.at_s > 1e9 for one in device.state.history)
    assert_no_window_missing(device.answers)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"version": 2, "key": "stranger"}, "signature"),
        ({"version": 2, "key": ""}, "signature"),
        ({"version": 2, "expires": "2001-01-01"}, "expired"),
        ({"version": 2, "name": "clock"}, "name"),
        ({"version": 2, "rate_hz": 25.0}, "contract"),
        ({"version": 2, "channels": 2}, "contract"),
        ({"version": 2, "labels": ("a", "b")}, "contract"),
        ({"version": 2, "window": 24}, "contract"),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else value,
)
def test_what_does_not_fit_is_refused_with_a_line_and_counted(
    factory: Factory, folder: Path, made: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Device(configured(folder)) as device:
        drop(folder, factory.bundle(**made))
        device.until(lambda: device.counts.get(f"update_{reason}") == 1 and not device.updates.busy)
        assert device.counts["updates_refused_total"] == 1
        assert (folder / "drop" / "new.edge.refused").exists()
        device.stop()
    assert device.answers.models() == ["watch/1"]
    assert list((folder / "updates/bundles").iterdir()) == []
    assert list((folder / "updates/incoming").iterdir()) == []
    (line,) = [record.message for record in caplog.records if "refused: what=" in record.message]
    assert "\n" not in line
    assert line.startswith("update: refused: what=new.edge reason=")
    (ended,) = state_of(folder).history
    assert (ended.bundle, ended.result) == ("new.edge", "refused")
    assert line.endswith(f"error={ended.reason}")


def test_a_bundle_without_the_labels_of_the_application_s_events_is_refused(
    factory: Factory, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It would be refused by the start of the application, which would then have no model."""
    rule = EventRule(name="moving", label="walk")
    config = replace(configured(folder, contract_change="allow"), events=(rule,))
    with Device(config) as device:
        drop(folder, factory.bundle(2, labels=("a", "b")))
        device.until(lambda: device.counts.get("update_contract") == 1 and not device.updates.busy)
        device.stop()
    assert "lacks labels that [[events]] of the application name: walk; change them first" in caplog.text


def test_a_truncated_and_an_oversized_file_are_refused(factory: Factory, folder: Path) -> None:
    whole = factory.bundle(2).read_bytes()
    (folder / "half.edge").write_bytes(whole[: len(whole) // 2])
    with Device(configured(folder, max_bytes=len(whole) - 1)) as device:
        drop(folder, folder / "half.edge", "half.edge")
        device.until(lambda: device.counts.get("update_integrity") == 1)
        drop(folder, factory.bundle(2), "large.edge")
        device.until(lambda: device.counts.get("update_too_large") == 1)
    assert state_of(folder).running is None


def test_the_floor_rises_with_what_passed_and_an_operator_outranks_it(factory: Factory, folder: Path) -> None:
    """A device that was off when version 2 came, and saw only the bad version 3, is not stranded below it.

    Mutations: `tried` raises `highest`, so that version 2 is older than the one that failed; `apply` with a bundle
    forgives version 3 as well.
    """
    config = configured(folder, min_agreement=1.0)
    with Device(config) as device:
        drop(folder, factory.bundle(3, seed=5))  # disagrees
        device.until(lambda: device.state.held_back("watch", 3))
    with Device(config) as device:
        drop(folder, factory.bundle(2))
        device.until_runs("watch/2")
        drop(folder, factory.bundle(1), "older.edge")
        device.until(lambda: device.counts.get("update_older") == 1)
        device.until(lambda: device.state.outcomes()[0]["result"] == "refused")
        assert "update apply" in device.state.outcomes()[0]["reason"]
        ask(folder, "apply", factory.bundle(1))
        device.until_runs("watch/1")
        assert device.state.held_back("watch", 3)
        ask(folder, "apply", factory.bundle(3, seed=5))
        device.until(lambda: [one["bundle"] for one in device.state.outcomes()].count("watch/3") == 2)


def test_a_model_that_disagrees_never_answers(factory: Factory, folder: Path) -> None:
    """Mutation: `fault` without its agreement: the shadow run passes and the trial fails, after answers."""
    with Device(configured(folder)) as device:
        drop(folder, factory.bundle(2, seed=5))
        device.until(lambda: device.state.held and not device.updates.busy)
        device.stop()
    assert device.answers.models() == ["watch/1"]
    held = state_of(folder).held_back("watch", 2)
    assert held is not None
    assert "agrees with the old one on" in held.reason
    assert_no_window_missing(device.answers)


def test_starts_before_an_hour_of_answers_count_no_more(
    factory: Factory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three power cuts in a proof of days are no crashes. Mutation: `_look` never clears the starts."""
    monkeypatch.setattr(rollout, "SOUND_S", 0.1)
    with Device(configured(folder, trial_s=1e6)) as device:
        drop(folder, factory.bundle(2))
        device.until(lambda: device.state.phase == "trial" and device.state.starts == 0)
        assert device.state.candidate is not None


def test_a_slow_model_is_held_back(factory: Factory, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: LoadedVariant, windows: Any, answer: Any) -> Any:
        for _ in range(50):
            result = answer(self, windows)
        return result

    sabotage(monkeypatch, 2, slow)
    with Device(configured(folder, max_slowdown=5.0)) as device:
        drop(folder, factory.bundle(2))
        device.until(lambda: device.state.held and not device.updates.busy)
        assert "times as long as the old one" in device.state.held[0].reason
        device.stop()
    assert device.answers.models() == ["watch/1"]


@pytest.mark.parametrize("how", ["raises", "not finite"])
def test_a_model_that_fails_in_its_trial_costs_no_window(
    factory: Factory, folder: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Mutation: `Pair._try` raises instead of asking the old model: windows are missing."""
    trials: list[int] = []

    def fail(self: LoadedVariant, windows: Any, answer: Any) -> Any:
        if not trial():
            return answer(self, windows)
        trials.append(len(windows))
        if how == "raises":
            raise EngineError("the accelerator is gone")
        rows, asked = answer(self, windows)
        return Answers(np.full_like(rows, np.nan), asked)

    sabotage(monkeypatch, 2, fail)
    with Device(configured(folder)) as device:

        def trial() -> bool:
            return leads(device)

        drop(folder, factory.bundle(2))
        device.until(lambda: device.state.held and not device.updates.busy)
        device.until(lambda: len(device.answers.all) > 100)
        device.stop()
    assert trials
    assert device.answers.models() == ["watch/1"]  # what the old one answered is under its name
    assert_no_window_missing(device.answers)
    assert device.counts["updates_rolled_back_total"] == 1
    assert device.counts.get("engine_error", 0) == 0


def test_a_model_that_gives_no_answers_is_rolled_back(
    factory: Factory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: `fault` without `silent_s`: the trial has no end. Another contract: there is no old model beside it."""

    def refuse(self: LoadedVariant, windows: Any, answer: Any) -> Any:
        raise InputError("not_finite", "no window is good enough")

    sabotage(monkeypatch, 2, refuse)
    with Device(configured(folder, contract_change="allow", stall_s=0.2)) as device:
        drop(folder, factory.bundle(2, window=24))
        device.until(lambda: device.state.held and not device.updates.busy)
        assert "gave no answer" in device.state.held[0].reason
        seen = len(device.answers.all)
        device.until(lambda: len(device.answers.all) > seen + 10)
        device.stop()
    assert device.answers.models() == ["watch/1"]
    assert device.counts["window_restarts_total"] == 2


def test_another_window_length_is_taken_where_that_is_allowed_and_counted(factory: Factory, folder: Path) -> None:
    with Device(configured(folder, contract_change="allow")) as device:
        drop(folder, factory.bundle(2, window=24))
        device.until_runs("watch/2")
        device.stop()
    assert device.counts["window_restarts_total"] == 1
    old = [answer for answer in device.answers.all if answer.model == "watch/1"]
    new = [answer for answer in device.answers.all if answer.model == "watch/2"]
    assert new[0].end - new[0].start == pytest.approx(24 / 50)
    assert new[0].start >= old[-1].start  # nothing is answered twice, and the windows begun are the only loss
    assert new[0].start - old[-1].end < 2 * 24 / 50


def test_a_stop_in_the_middle_is_no_failure(factory: Factory, folder: Path) -> None:
    config = configured(folder, shadow_windows=10**6)
    for _ in range(5):
        with Device(config) as device:
            if not device.updates.busy and device.state.candidate is None:
                drop(folder, factory.bundle(2))
            device.until(lambda: device.updates.rollout.stage == "shadow")
            device.stop()
        assert (state_of(folder).phase, state_of(folder).starts) == ("shadow", 0)
    with Device(configured(folder)) as device:
        device.until_runs("watch/2")


def test_an_operator_may_end_a_trial_and_put_updates_on_hold(factory: Factory, folder: Path) -> None:
    with Device(configured(folder, trial_windows=10**6)) as device:
        drop(folder, factory.bundle(2))
        device.until(lambda: leads(device))
        ask(folder, "rollback")
        device.until(lambda: device.state.held and not device.updates.busy)
        ask(folder, "hold")
        device.until(lambda: device.state.on_hold)
        dropped = drop(folder, factory.bundle(3))
        seen = len(device.answers.all)
        device.until(lambda: len(device.answers.all) > seen + 100)
        assert dropped.exists()
        device.stop()
    assert device.answers.models()[0] == "watch/1"
    assert device.answers.all[-1].model == "watch/1"
    assert_no_window_missing(device.answers)
    with Device(configured(folder)) as device:
        ask(folder, "apply")
        device.until_runs("watch/3")


def test_a_rollback_that_was_asked_for_while_nothing_ran_is_done_at_the_start(factory: Factory, folder: Path) -> None:
    with Device(configured(folder)) as device:
        drop(folder, factory.bundle(2))
        device.until_runs("watch/2")
    ask(folder, "rollback")
    with Device(configured(folder)) as device:
        device.until(lambda: device.answers.all)
        assert device.answers.models() == ["watch/1"]
        assert device.state.held_back("watch", 2) is not None


def test_a_newer_bundle_in_the_configuration_wins(factory: Factory, folder: Path) -> None:
    with Device(configured(folder)) as device:
        drop(folder, factory.bundle(2))
        device.until_runs("watch/2")
    (folder / "v1.edge").write_bytes(factory.bundle(5).read_bytes())
    with Device(configured(folder)) as device:
        assert device.answers.models() == ["watch/5"]
        drop(folder, factory.bundle(3))
        device.until(lambda: device.counts.get("update_older") == 1)


def test_a_damaged_installed_bundle_gives_way_to_the_one_before(factory: Factory, folder: Path) -> None:
    with Device(configured(folder)) as device:
        for version in (2, 3):
            drop(folder, factory.bundle(version))
            device.until_runs(f"watch/{version}")
        running = device.state.running
    assert running is not None
    path = folder / "updates/bundles" / f"{running.sha256}.edge"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with Device(configured(folder)) as device:
        assert device.answers.models() == ["watch/2"]


def test_an_installed_file_that_was_swapped_for_another_signed_one_does_not_run(factory: Factory, folder: Path) -> None:
    with Device(configured(folder)) as device:
        drop(folder, factory.bundle(2))
        device.until_runs("watch/2")
        running = device.state.running
    assert running is not None
    path = folder / "updates/bundles" / f"{running.sha256}.edge"
    path.write_bytes(factory.bundle(7, seed=5).read_bytes())
    with Device(configured(folder)) as device:
        assert device.answers.models() == ["watch/1"]


def test_a_check_of_the_configuration_counts_no_start(factory: Factory, folder: Path) -> None:
    """Mutation: `Starter.start` without its rehearsal: the count in the file rises."""
    with Device(configured(folder, trial_windows=10**6)) as device:
        drop(folder, factory.bundle(2))
        device.until(lambda: leads(device))
        before = (folder / "updates/state").read_bytes()
        App(configured(folder), rehearsal=True).close()
        assert (folder / "updates/state").read_bytes() == before
        with pytest.raises(ConfigError, match="another application uses it"):
            App(configured(folder))


def test_a_full_disk_stops_the_update_and_not_the_stream(
    factory: Factory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: `_save` calls `then` all the same: the new model answers although no file says so."""
    monkeypatch.setattr(rollout, "SAVE_AGAIN_S", 0.05)
    full = [False]
    write = os.write

    def full_write(fd: int, data: Any) -> int:
        if full[0] and b"edge-update" in bytes(data[:20]):
            raise OSError(28, "No space left on device")
        return write(fd, data)

    monkeypatch.setattr(os, "write", full_write)
    with Device(configured(folder, shadow_windows=100)) as device:
        drop(folder, factory.bundle(2))
        device.until(lambda: device.updates.rollout.stage == "shadow")
        full[0] = True
        device.until(lambda: device.updates.rollout.stage == "swapping")
        seen = len(device.answers.all)
        device.until(lambda: len(device.answers.all) > seen + 50)
        assert device.answers.models() == ["watch/1"]
        full[0] = False
        device.until_runs("watch/2")
    assert_no_window_missing(device.answers)


def test_the_second_model_gets_its_share_of_the_time_and_no_more(
    factory: Factory, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation: `Pair.compare` without its pause: as many calls as windows."""
    calls = []

    def count(self: LoadedVariant, windows: Any, answer: Any) -> Any:
        calls.append(len(windows))
        until = device.app.clock.monotonic() + 0.02
        while device.app.clock.monotonic() < until:
            pass
        return answer(self, windows)

    sabotage(monkeypatch, 2, count)
    with Device(configured(folder, compare_share=0.1, shadow_windows=10**6)) as device:
        drop(folder, factory.bundle(2))
        device.until(lambda: device.updates.rollout.stage == "shadow")
        before, began = len(calls), device.app.clock.monotonic()
        device.until(lambda: device.app.clock.monotonic() - began > 2.0)
        made, took = len(calls) - before, device.app.clock.monotonic() - began
        assert 1 <= made <= 1 + 0.1 * took / 0.02
        assert device.updates.rollout.run.pair.tally.skipped > 0


def test_updates_need_somebody_to_trust(folder: Path) -> None:
    text = '[model]\nbundle = "v1.edge"\nunsigned = "allow"\n[[source]]\ntype = "stdin"\ncodec = {type = "json"}\n'
    with pytest.raises(ConfigError, match=r"\[update\] needs trusted_keys"):
        parse(text + '[[sink]]\ntype = "stdout"\n[update]\nfolder = "u"\ndrop = "d"\n', folder / "app.toml")
