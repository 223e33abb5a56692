"""What the bridge publishes, when, and what it does with what comes from the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from edge_runtime.event_rule import EventRule
from edge_runtime.manifest.outputs import EmbeddingOutput, OutputContract
from edge_runtime.operate.observe.home_assistant.bridge import BIRTHS_S, MOST_EXTRA, SETTLE_S, SILENT_S, TICK_S
from tests.edge_runtime.operate.observe.home_assistant.bridges import Bridge, correction, event, manifest, prediction

BASE = "edge-runtime/pi/gym"
PHONE = f"{BASE}/keys/phone"
DISCOVERY = "homeassistant/device/er-pi-gym-phone/config"
FALL = EventRule(name="fall", label="walk")


def test_a_new_key_is_announced_before_its_availability_and_its_state() -> None:
    bridge = Bridge().open()
    assert bridge.topics() == ["homeassistant/device/er-pi-gym/config", f"{BASE}/stats"]
    bridge.send(prediction())
    taken = bridge.take()
    assert [topic for topic, _, _ in taken] == [DISCOVERY, f"{PHONE}/availability", f"{PHONE}/state"]
    assert all(retained for _, _, retained in taken)
    device = orjson.loads(taken[0][1])
    assert device["dev"]["ids"] == ["er-pi-gym-phone"]
    assert device["avty"][0]["t"] == "edge/status"
    assert device["cmps"]["label"]["ops"] == ["rest", "walk"]
    assert orjson.loads(taken[2][1])["label"] == "rest"


def test_a_key_has_one_state_in_an_interval_and_the_last_one_counts() -> None:
    bridge = Bridge(interval_s=1.0).open()
    for label in ("rest", "walk", "rest", "walk"):
        bridge.send(prediction(label=label))
    assert [state["label"] for state in bridge.states()] == ["rest"]
    bridge.pass_s(1.0)
    assert [state["label"] for state in bridge.states()] == ["walk"]
    bridge.pass_s(5.0)
    assert bridge.states() == []  # nothing has changed
    for _ in range(100):
        bridge.send(*[prediction(label="walk") for _ in range(10)])
        bridge.pass_s(TICK_S)
    assert len(bridge.states()) <= 26


def test_events_and_corrections_are_sent_at_once() -> None:
    bridge = Bridge(cloud="http://cloud", rules=(FALL,)).open()
    first = prediction()
    bridge.send(first)
    bridge.take()
    bridge.send(event())
    taken = bridge.take()
    assert [(topic, retained) for topic, _, retained in taken] == [
        (f"{PHONE}/events/fall", False),
        (f"{PHONE}/during/fall", False),
    ]
    assert orjson.loads(taken[0][1])["event_type"] == "start"
    assert taken[1][1] == b"ON"
    bridge.send(correction(first, "walk"))
    said, state = bridge.take()
    assert orjson.loads(said[1]) | {"id": ""} == {
        "event_type": "changed", "label": "walk", "supersedes": "rest", "id": "", "late": False,
    }  # fmt: skip
    assert orjson.loads(state[1])["label"] == "walk"
    bridge.send(event("end"))
    assert bridge.take()[-1][1] == b"OFF"


def test_a_correction_of_an_earlier_window_changes_no_state() -> None:
    bridge = Bridge(cloud="http://cloud").open()
    first = prediction()
    bridge.send(first, prediction(label="rest"))
    bridge.take()
    bridge.send(correction(first, "walk"))
    assert bridge.topics() == [f"{PHONE}/correction"]


def test_an_open_event_is_said_again_before_its_sensor_would_go_off() -> None:
    bridge = Bridge(rules=(FALL,)).open()
    bridge.send(prediction(), event())
    bridge.take()
    ons = 0
    for _ in range(int(SILENT_S)):
        bridge.send(prediction())
        bridge.pass_s(1.0)
        ons += (f"{PHONE}/during/fall", b"ON", False) in bridge.take()
    assert ons == 3  # the silence after which it goes off is SILENT_S


def test_nothing_is_queued_while_the_broker_is_away_and_all_is_told_when_it_is_back() -> None:
    bridge = Bridge(rules=(FALL,)).open()
    bridge.send(prediction())
    bridge.take()
    bridge.client.connected = False  # the client would refuse to be published to
    bridge.pass_s(TICK_S)
    bridge.send(prediction(label="walk"), event())
    bridge.send(prediction("other"))
    bridge.pass_s(1.0)
    assert bridge.metrics.dropped["home_assistant_away"] == 1
    bridge.client.connected = True
    bridge.pass_s(TICK_S)
    taken = bridge.take()
    topics = [topic for topic, _, _ in taken]
    assert topics.index(DISCOVERY) < topics.index(f"{PHONE}/state")
    assert "homeassistant/device/er-pi-gym-other/config" in topics
    assert (f"{PHONE}/during/fall", b"ON", False) in taken
    assert orjson.loads(next(payload for topic, payload, _ in taken if topic == f"{PHONE}/state"))["label"] == "walk"
    assert bridge.failures == 0


def test_states_wait_while_the_broker_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_runtime.operate.observe.home_assistant.bridge.MOST_WAITING", 10)
    bridge = Bridge(interval_s=0.5).open()
    bridge.client.answers = False
    for _ in range(100):
        bridge.send(prediction())
        bridge.pass_s(1.0)
    assert 1 <= len(bridge.take()) <= 14
    bridge.client.answers = True
    bridge.client.acknowledge()
    bridge.send(prediction(label="walk"))
    bridge.pass_s(1.0)
    assert bridge.states()[-1]["label"] == "walk"


def test_home_assistant_that_starts_is_told_everything_but_not_for_each_birth() -> None:
    bridge = Bridge().open()
    bridge.send(prediction())
    bridge.pass_s(BIRTHS_S)
    bridge.take()
    for _ in range(1000):
        bridge.receive("homeassistant/status", b"online")
    bridge.receive("homeassistant/status", b"offline")
    bridge.pass_s(TICK_S)
    assert bridge.topics().count(DISCOVERY) == 1
    for _ in range(int(BIRTHS_S / TICK_S)):
        bridge.receive("homeassistant/status", b"online")
        bridge.pass_s(TICK_S)
    assert bridge.topics().count(DISCOVERY) == 1


def test_a_new_bundle_is_announced_before_its_labels_are_published() -> None:
    bridge = Bridge().open()
    bridge.send(prediction())
    bridge.pass_s(2.0)
    bridge.take()
    bridge.manifest = manifest(OutputContract(labels=("sit", "stand")), version=2)
    bridge.send(prediction(label="sit", model="tiny/2"))
    (before, _, _), (discovery, payload, _) = bridge.take()
    assert (before, discovery) == ("homeassistant/device/er-pi-gym/config", DISCOVERY)
    assert orjson.loads(payload)["cmps"]["label"]["ops"] == ["sit", "stand"]
    bridge.pass_s(SETTLE_S + TICK_S)
    assert [state["label"] for state in bridge.states()] == ["sit"]


def test_an_entity_that_a_bundle_no_longer_has_is_named_as_gone() -> None:
    bridge = Bridge(rules=(FALL,)).open()
    bridge.send(prediction())
    bridge.take()
    bridge.rules = ()
    bridge.send(prediction())
    device = orjson.loads({topic: payload for topic, payload, _ in bridge.take()}[DISCOVERY])
    assert device["cmps"]["event-fall"] == {"p": "event"}
    assert device["cmps"]["during-fall"] == {"p": "binary_sensor"}


def test_a_label_that_the_bundle_does_not_name_is_announced_and_there_is_a_bound() -> None:
    bridge = Bridge(interval_s=0.5).open()
    bridge.manifest = manifest(EmbeddingOutput(size=2))
    bridge.send(prediction(label="unknown"))
    bridge.pass_s(1.0)
    for i in range(MOST_EXTRA + 10):
        bridge.send(prediction(label=f"taught {i}"))
        bridge.pass_s(2.0)
    taken = bridge.take()
    options = [orjson.loads(payload)["cmps"]["label"]["ops"] for topic, payload, _ in taken if topic == DISCOVERY]
    assert options[0] == ["unknown"]
    assert options[-1] == ["unknown", *(f"taught {i}" for i in range(MOST_EXTRA))]


def test_a_silent_key_is_unavailable_and_then_gone() -> None:
    bridge = Bridge(retire_s=600).open()
    bridge.send(prediction())
    bridge.pass_s(SILENT_S + 1)
    assert (f"{PHONE}/availability", b"offline", True) in bridge.take()
    bridge.send(prediction())
    assert (f"{PHONE}/availability", b"online", True) in bridge.take()
    bridge.pass_s(601)
    gone = [(topic, retained) for topic, payload, retained in bridge.take() if payload == b""]
    assert gone[0] == (DISCOVERY, True)
    assert (f"{PHONE}/state", True) in gone
    assert bridge.metrics.counts["home_assistant_retired_total"] == 1
    bridge.send(prediction())  # it comes back as a new one
    assert bridge.topics()[0] == DISCOVERY


def test_what_an_earlier_run_has_left_is_retired_unless_it_answers() -> None:
    bridge = Bridge(retire_s=600).open()
    for key in ("phone", "other", "x/../y", "A"):
        bridge.receive(f"{BASE}/keys/{key}/availability", b"online", retained=True)
    bridge.send(prediction())
    bridge.pass_s(601)
    gone = [topic for topic, payload, _ in bridge.take() if payload == b"" and topic.endswith("/config")]
    assert gone == ["homeassistant/device/er-pi-gym-phone/config", "homeassistant/device/er-pi-gym-other/config"]


def test_there_is_a_bound_of_keys_and_a_new_one_takes_the_place_of_a_silent_one() -> None:
    bridge = Bridge(max_keys=2).open()
    for key in ("a", "b", "c"):
        bridge.send(prediction(key))
    assert bridge.metrics.dropped["home_assistant_max_keys"] == 1
    assert not [topic for topic in bridge.topics() if "gym-c" in topic]
    bridge.pass_s(SILENT_S + 1)
    bridge.take()
    bridge.send(prediction("c"))
    assert bridge.topics()[:4] == [
        "homeassistant/device/er-pi-gym-a/config",
        f"{BASE}/keys/a/state",
        f"{BASE}/keys/a/availability",
        f"{BASE}/keys/a/said",
    ]


def test_keys_that_slug_alike_are_devices_of_their_own() -> None:
    bridge = Bridge().open()
    bridge.take()
    keys = ["a b", "a-b", "a.b", "A B", "a_b", "a__b", "", "é", "#", "+/+", "\0", "<img src=x>", "x" * 500]
    bridge.send(*map(prediction, keys))
    topics = bridge.topics()
    assert len({topic for topic in topics if topic.endswith("/config")}) == len(keys)
    assert not any(set(topic) & set("+#\0<") for topic in topics)
    assert bridge.failures == 0


def test_one_device_may_hold_the_entities_of_all_keys() -> None:
    bridge = Bridge(devices="application").open()
    bridge.take()
    bridge.send(prediction("left"), prediction("right"))
    bridge.pass_s(1.0)
    taken = bridge.take()
    ((topic, payload, _),) = [one for one in taken if one[0].endswith("/config")]
    assert topic == "homeassistant/device/er-pi-gym/config"
    entities = orjson.loads(payload)["cmps"]
    assert {"left-label", "right-label", "model"} <= set(entities)
    assert entities["left-label"]["stat_t"] == f"{BASE}/keys/left/state"
    assert entities["left-label"]["avty"][1]["t"] == f"{BASE}/keys/left/availability"


def test_an_update_shows_what_runs_what_waits_and_how_far_it_is() -> None:
    status: dict[str, Any] = {"running": "tiny/1", "state": "idle", "candidate": None, "last": "x" * 999}
    bridge = Bridge(update=status).open()

    def shown() -> Any:
        bridge.pass_s(2.0)
        found = [orjson.loads(payload) for topic, payload, _ in bridge.take() if topic == f"{BASE}/update"]
        return {name: found[-1][name] for name in ("installed_version", "latest_version", "in_progress")}

    assert shown() == {"installed_version": "1", "latest_version": "1", "in_progress": False}
    status |= {"state": "ready", "ready": "tiny/2"}
    assert shown() == {"installed_version": "1", "latest_version": "2", "in_progress": False}
    status |= {"state": "trial", "running": "tiny/2", "candidate": "tiny/2"}
    del status["ready"]
    assert shown() == {"installed_version": "2", "latest_version": "2", "in_progress": True}
    bridge.pass_s(60.0)
    assert bridge.topics() == []  # what has not changed is not said again


def test_a_defect_of_the_bridge_is_counted_and_the_stream_goes_on() -> None:
    bridge = Bridge().open()
    done: list[int] = []
    broken: Any = prediction()
    broken.key = None
    bridge.bridge.send([broken], lambda: done.append(1))
    assert (done, bridge.failures) == ([1], 1)
    bridge.send(prediction())
    assert bridge.states()


def test_the_last_state_is_published_when_the_application_ends() -> None:
    bridge = Bridge(interval_s=60.0).open()
    bridge.send(prediction(), prediction(label="walk"))
    bridge.take()
    bridge.bridge.close(1.0)
    assert [state["label"] for state in bridge.states()] == ["walk"]
    bridge.bridge.close(1.0)


# -- commands ----------------------------------------------------------------------------------------------------------


def test_no_command_is_listened_to_unless_named() -> None:
    bridge = Bridge().open()
    for name in ("install", "restart"):
        bridge.receive(f"{BASE}/set/{name}", name.encode())
    assert bridge.done == []
    assert not any("set" in topic for topics, _, _ in bridge.client.listeners for topic in topics)


@pytest.mark.parametrize(
    ("topic", "payload", "retained", "reason"),
    [
        ("set/restart", b"restart", True, "retained"),
        ("set/install", b"install", False, "not_allowed"),
        ("set/reset", b"reset", False, "not_allowed"),
        ("keys/phone/set/restart", b"restart", False, "not_allowed"),
        ("keys/phone/set/nonsense", b"nonsense", False, "not_allowed"),
        ("keys/PHONE/set/reset", b"reset", False, "not_allowed"),
        ("keys/é/set/reset", b"reset", False, "not_allowed"),
        ("set/restart", b"RESTART", False, "malformed"),
        ("set/restart", b"", False, "malformed"),
        ("set/restart", b"\xff" * 100_000, False, "malformed"),
        ("keys/phone/set/label", b"two\nlines", False, "malformed"),
        ("keys/phone/set/label", b"x" * 251, False, "malformed"),
        ("keys/phone/set/label", b"", False, "malformed"),
        ("keys/unheard/set/reset", b"reset", False, "not_possible"),
        ("keys/unheard/set/label", b"walk", False, "not_possible"),
    ],
)
def test_a_forged_command_is_refused_and_counted(
    tmp_path: Path, topic: str, payload: bytes, retained: bool, reason: str
) -> None:
    bridge = Bridge(commands=("restart", "reset", "label"), labels=tmp_path / "labels.jsonl").open()
    bridge.send(prediction())
    bridge.receive(f"{BASE}/{topic}", payload, retained=retained)
    assert bridge.metrics.dropped == {f"command_{reason}": 1}
    assert bridge.done == []
    assert bridge.metrics.counts["home_assistant_commands_total"] == 0


def test_commands_are_done_once_each_and_not_too_often() -> None:
    bridge = Bridge(commands=("install", "restart", "reset")).open()
    bridge.send(prediction("a b"))
    device = next(topic for topic in bridge.topics() if topic.endswith("/state")).split("/")[-2]
    bridge.receive(f"{BASE}/keys/{device}/set/reset", b"reset")
    for _ in range(100):
        bridge.receive(f"{BASE}/set/restart", b"restart")
    bridge.receive(f"{BASE}/set/install", b"install")
    assert bridge.done == [["a b"], "restart", "install"]
    assert bridge.metrics.dropped == {"command_too_often": 99, "command_not_possible": 1}
    bridge.ready = True
    bridge.pass_s(11.0)
    bridge.receive(f"{BASE}/set/install", b"install")
    assert bridge.metrics.counts["home_assistant_commands_total"] == 3


def test_a_label_from_a_person_is_written_down_unconfirmed_and_goes_nowhere_else(tmp_path: Path) -> None:
    bridge = Bridge(commands=("label",), labels=tmp_path / "labels.jsonl")
    bridge.loop.call_later = lambda *_: None
    bridge.open()
    answer = prediction(label="rest")
    bridge.send(answer)
    bridge.take()
    bridge.receive(f"{PHONE}/set/label", "<b>né</b>".encode())
    line = orjson.loads((tmp_path / "labels.jsonl").read_bytes())
    assert (line["id"], line["label"], line["answered"]) == (answer.id, "<b>né</b>", "rest")
    assert (line["confirmed"], line["source"]) == (False, "home_assistant")
    assert bridge.take() == [(f"{PHONE}/said", "<b>né</b>".encode(), True)]
    bridge.pass_s(5.0)
    assert bridge.states() == []  # the answer is what the model said
