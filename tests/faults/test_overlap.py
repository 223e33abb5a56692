"""R17, R18: kills and orderly stops under load, windows that overlap, with context, in each mode, beside a control run.

What a device publishes over many lives is compared with what one publishes that nothing interrupts: windows that are
missing, answers and corrections that differ, provisional answers that nothing closes, cases that the ledger counts
twice, answers that come out of order. Repeats are counted: they are allowed, and stated in docs/reliability.md.

Mutations that were seen to fail here: publishing a provisional answer before its case is committed (`Pipeline._hold`
that holds nothing); an outbox that forgets a case when it is delivered (`Outbox._without_repeats` that returns its
argument); not saving windows at an orderly stop (`Pipeline.save` that does nothing). With everything on: a keeper that
ends without writing its cases; states of the model that no snapshot has (`WindowProgress.snapshot`); rows of before a
restart that are forgotten (`Rows.restore` without ``past``: what is delivered again is then another epoch).
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.faults.conftest import Note
from tests.faults.device import Devices, Fault, needs_strace
from tests.faults.everything import PAGE, Everything, Steps
from tests.faults.overlap import (
    KEYS,
    Durability,
    Findings,
    Heard,
    Mode,
    Street,
    chosen,
    compare,
    control,
    last_windows,
    same,
)
from tests.long_tier import Tier
from tests.mosquitto import needs_mosquitto

pytestmark = [needs_strace, needs_mosquitto, pytest.mark.slow]

MODES = [Mode("reading", 1, "5"), Mode("reading", 2, "3.1.1"), Mode("window", 1, "3.1.1"), Mode("window", 2, "5")]
HOWS = {"kill": 3, "kill at a call": 2, "stop": 1}
CALLS = ("pwrite64", "fdatasync", "sendto", "write", "sendmsg")


@pytest.fixture(scope="session")
def messages(request: pytest.FixtureRequest) -> int:
    return 3_000 if request.config.getoption("--long") else 360


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, messages: int) -> Heard:
    """The control: the same messages, one life."""
    return sound(control(Street(tmp_path_factory.mktemp("control"), Mode("window", 1, "5")), messages))


@pytest.fixture(scope="session")
def with_everything(tmp_path_factory: pytest.TempPathFactory, messages: int) -> Everything:
    """The control with everything on."""
    street = Everything(tmp_path_factory.mktemp("control"), MODES[0])
    heard, steps = sound(control(street, messages)), Steps()
    assert all(same(answer, steps.follow(answer)) for answer in heard.firsthand()), "it answers as numpy does"
    assert set(steps.begun.values()) == {1}, "no key begins again where nothing is killed"
    return street


def sound(heard: Heard) -> Heard:
    """A control's answers, if they are some to compare with."""
    assert heard.repeats() == 0
    assert heard.provisional() == heard.closed(), "the control is sound"
    assert 0.1 < len(heard.provisional()) / len(heard.own()) < 0.9, "some are hard and some are not"
    return heard


@dataclass
class Lives:
    """How the devices of one run ended."""

    kills: int = 0
    stops: int = 0
    accepted: list[int] = field(default_factory=list)


def live(street: Street, devices: Devices, rng: random.Random, lives: Lives, how: str, more: int) -> None:
    """One device's life, with a queue before it; afterwards its ledger is read."""
    street.cloud_is = chosen(rng, {"well": 6, "away": 1, "refusing": 1})
    later = more // 3 if how == "stop" else 0
    street.publish(more - later)
    street.before = street.sent
    fault = Fault(rng.choice(CALLS), "signal=KILL", str(rng.randrange(1, 60))) if how == "kill at a call" else None
    with devices.start(street.folder, fault) as device:
        heard = len(street.heard.answers)
        street.publish(later)
        street.hear_more(device, heard + rng.randrange(1, more // 3))
        if how == "stop":
            device.stop()
            assert device.wait() == 0 or device.killed, device.errors()
        elif device.running():
            device.kill()
    lives.stops += how == "stop"
    lives.kills += how != "stop"
    street.cloud_is = "well"
    street.look(stopped=how == "stop")
    lives.accepted.append(street.ledger().accepted)
    assert lives.accepted == sorted(lives.accepted), "the ledger never goes back"


def lead(
    street: Street, messages: int, rng: random.Random, count: int, hows: dict[str, int], undisturbed: Heard
) -> tuple[Findings, Lives]:
    """So many lives on the same messages as the control's, and then quiet."""
    lives, steps = Lives(), Steps()
    forgets = isinstance(street, Everything) and street.mode.durability == "window"
    with Devices() as devices, street:
        street.introduce(devices)
        for _ in range(count):
            live(street, devices, rng, lives, chosen(rng, hows), messages // (count + 1))
        street.publish(messages - street.sent)
        street.drain(devices, last_windows(messages))
        street.look(stopped=False)
        ledger = street.ledger()
        findings = compare(undisturbed, street.heard, street.asked, ledger, steps.follow if forgets else None)
        assert ledger.dead == 0, "no refusal of everything is a case's fault"
    assert not steps.begun or max(steps.begun.values()) <= lives.kills + 1, "a key begins again at kills alone"
    return findings, lives


def told(findings: Findings, lives: Lives) -> str:
    kills = max(1, lives.kills)
    return (
        f"{lives.kills} kills, {lives.stops} orderly stops: {len(findings.missing)} windows missing, "
        f"{len(findings.differing)} answers and {len(findings.other_corrections)} corrections differ, "
        f"{len(findings.orphans)} provisional never closed, {findings.accepted_twice} cases accepted twice; "
        f"{findings.repeats} answers again ({findings.repeats / kills:.1f} a kill), "
        f"{findings.asked_again} asked again ({findings.asked_again / kills:.1f} a kill)"
    )


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: f"{mode.durability}-qos{mode.qos}-{mode.version}")
def test_over_kills_and_stops_every_promise_is_kept(
    tmp_path: Path, mode: Mode, seed: int, tier: Tier, messages: int, undisturbed: Heard, note: Note
) -> None:
    rng = random.Random(f"{seed} {mode}")
    street = Street(tmp_path, mode)
    findings, lives = lead(street, messages, rng, tier(8, 60), HOWS, undisturbed)
    note("R17", f"{mode.durability}, QoS {mode.qos}, MQTT {mode.version}: {told(findings, lives)}")
    check(findings, street, lives.kills)


@pytest.mark.parametrize(
    "mode",
    [pytest.param(mode, marks=[pytest.mark.long] if mode.qos == 2 else []) for mode in MODES],
    ids=lambda mode: f"{mode.durability}-qos{mode.qos}-{mode.version}",
)
def test_with_everything_on_every_promise_is_kept_over_kills_and_stops(
    tmp_path: Path, mode: Mode, seed: int, tier: Tier, messages: int, with_everything: Everything, note: Note
) -> None:
    """Two sources, a model with states, kept cases, the page and Home Assistant do not change what is promised.

    Kept cases hold the windows that their ids name and outlive kills; an orderly stop loses none of its own.
    """
    street = Everything(tmp_path, mode)
    rng = random.Random(f"{seed} {mode}")
    hows = {"kill": 3, "kill at a call": 2, "stop": 2}
    findings, lives = lead(street, messages, rng, tier(6, 56), hows, with_everything.heard)
    note("R18", f"{mode.durability}, QoS {mode.qos}, MQTT {mode.version}: {told(findings, lives)}")
    check(findings, street, lives.kills)
    assert PAGE <= set(street.page) <= PAGE | {("api/report", 503)}, street.page
    assert street.discovery == with_everything.discovery
    assert street.kept, "cases are kept"


@pytest.mark.parametrize("durability", ["reading", "window"])
def test_orderly_stops_under_load_cost_nothing_in_any_mode(
    tmp_path: Path,
    durability: Durability,
    rng: random.Random,
    tier: Tier,
    messages: int,
    with_everything: Everything,
    note: Note,
) -> None:
    street = Everything(tmp_path, Mode(durability, 1, "5"))
    findings, lives = lead(street, messages, rng, tier(3, 40), {"stop": 1}, with_everything.heard)
    note("R18", f"{durability}, orderly stops only: {told(findings, lives)}")
    check(findings, street, 0)


def test_killed_in_the_commit_of_a_case_it_has_promised_nothing(
    tmp_path: Path, tier: Tier, undisturbed: Heard, note: Note
) -> None:
    """Mode ``window``, where a window that had begun is not answered again: a promise made too early stays open.

    Flushes take three seconds, and the kill comes in the first one.
    """
    kills = tier(3, 20)
    with Devices() as devices, Street(tmp_path, Mode("window", 1, "5")) as street:
        street.introduce(devices)
        street.cloud_is = "away"
        for _ in range(kills):
            (tmp_path / "device.err").unlink()
            with devices.start(tmp_path) as device:
                street.subscribed(device)
                with device.failing(Fault("fdatasync", "delay_enter=3000000", "1+")):
                    street.publish(8 * KEYS)
                    time.sleep(1.0)  # whatever leaves before the commit has left
                    device.kill()
        street.cloud_is = "well"
        street.publish(10 * KEYS)
        street.drain(devices, last_windows(street.sent), patiently=False)
        findings = compare(undisturbed, street.heard, street.asked, street.ledger())
    assert findings.orphans == [], findings
    assert findings.accepted_twice == 0, findings
    note("R17", f"{kills} kills in the commit of a case: {len(findings.orphans)} provisional never closed")


def check(findings: Findings, street: Street, kills: int) -> None:
    """`kills` in the mode ``window`` may cost the windows begun of each key, and their context; nothing else may."""
    lost = kills * KEYS * street.begun if street.mode.durability == "window" else 0
    assert len(findings.missing) <= lost, findings
    assert findings.differing == [], findings
    assert findings.other_corrections == [], findings
    assert findings.orphans == [], findings
    assert findings.out_of_order == [], findings
    assert findings.accepted_twice == 0, findings
